"""Encoders trained otherwise than the configured one, each with a memory of its own; for encoder_ablation.seeds."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnknn.core.artifacts import Split
from attnknn.core.device import use_device
from attnknn.core.files import atomic_folder, write_json
from attnknn.encoder.encoder import embed_split
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.search import retrieve
from stages.params import merge, read_params, run
from stages.schema import TrainEmbedder
from stages.train_embedder import train


def train_all(
    variants: dict[str, dict[str, Any]], seed: int, split: Path, p: SimpleNamespace, label: str, out: Path
) -> None:
    """Write a folder a variant to OUT: embeddings, neighbours and evidence."""
    device, data = use_device(p.device, p.threads), Split.load(split)
    set_threads(p.threads)
    for place, (name, settings) in enumerate(variants.items()):
        t = TrainEmbedder.model_validate(settings)
        encoder, _ = train(data, t, seed, device, f"{label} {name}", None)
        e = embed_split(encoder, data, device, t.bf16)
        retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device).save(out / str(place))


def main(dataset: str, seed: int, split: Path, out: Path) -> None:
    """Read SPLIT; write a folder a variant to OUT, of embeddings, neighbours and evidence."""
    p = read_params(
        dataset, "encoder_ablation.variants", "train_embedder", "build_index", "evidence", "k_max", "device", "threads"
    )
    whole, wanted = p.train_embedder.model_dump(), p.encoder_ablation.variants
    variants = {name: merge(whole, change) for name, change in wanted.items() if merge(whole, change) != whole}
    with atomic_folder(out) as draft:
        write_json(draft / "variants.json", {"variants": list(variants)})
        train_all(variants, seed, split, p, f"train_ablation {dataset}/{seed}", draft)


if __name__ == "__main__":
    run(main)
