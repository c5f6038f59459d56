"""Embed every row of the split once, with the linear head's logits where there is one."""

from pathlib import Path

from attnknn.core.artifacts import Split
from attnknn.core.device import use_device
from attnknn.encoder.encoder import Encoder, embed_split
from stages.params import read_params, run


def main(dataset: str, split: Path, encoder: Path, out: Path) -> None:
    """Read SPLIT and ENCODER; write the embeddings to OUT."""
    p = read_params(dataset, "device", "threads")
    device = use_device(p.device, p.threads)
    data = Split.load(split)
    model, about = Encoder.load(encoder)
    embed_split(model, data, device, about["bf16"]).save(out)


if __name__ == "__main__":
    run(main)
