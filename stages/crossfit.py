"""Embed the bank rows by encoders that did not see them, fold by fold: queries for heads and calibration."""

import dataclasses
from pathlib import Path

from attnknn.artifacts import Embeddings, Split
from attnknn.bank import set_threads
from attnknn.crossfit import fold_parts
from attnknn.device import use_device
from attnknn.encoders import embed
from attnknn.files import new_folder, write_json
from attnknn.gather import retrieve
from stages.params import read_params, run
from stages.train_embedder import train


def main(dataset: str, seed: int, split: Path, out: Path) -> None:
    """Read SPLIT; write a folder a fold, of embeddings, neighbours and evidence, to OUT; no folder where folds is 0."""
    p = read_params(dataset, "crossfit", "train_embedder", "build_index", "evidence", "k_max", "device", "threads")
    device = use_device(p.device, p.threads)
    set_threads(p.threads)
    data = Split.load(split)
    parts = fold_parts(data.y, data.part, p.crossfit.folds, seed) if p.crossfit.folds else []
    with new_folder(out) as draft:
        write_json(draft / "folds.json", {"folds": len(parts)})
        for fold, part in enumerate(parts):
            label = f"crossfit {dataset}/{seed} {fold + 1}/{len(parts)}"
            encoder, _ = train(dataclasses.replace(data, part=part), p.train_embedder, seed, device, label, None)
            z, logits = embed(encoder, data.x, device, p.train_embedder.bf16)
            e = Embeddings(z, data.y, part, data.classes, logits)
            retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device).save(draft / str(fold))


if __name__ == "__main__":
    run(main)
