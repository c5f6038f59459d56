"""Rare classes in the memory: heads fitted anew, baselines tuned anew, on the same embeddings."""

from functools import partial
from pathlib import Path

from attnknn.core.device import use_device
from attnknn.experiments.corruption import imbalance_conditions, with_imbalance
from attnknn.neighbours.space import EmbeddingSpace
from stages.noise import study
from stages.params import read_params, run


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, folds: Path, metrics: Path, plots: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE and FOLDS; write METRICS, and tables under PLOTS."""
    # fmt: off
    p = read_params(
        dataset, "imbalance.kinds", "imbalance.ratios", "imbalance.repeats", "train_attention", "tune", "evaluate",
        "k_train", "k_eval", "device", "threads",
    )
    # fmt: on
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    make = partial(with_imbalance, spaces, device=use_device(p.device, p.threads), most=max(p.k_train, p.k_eval))
    found = imbalance_conditions(p.imbalance.kinds, p.imbalance.ratios)
    conditions = {name: partial(make, ratio, kind=kind) for name, (kind, ratio) in found.items()}
    study("imbalance", conditions, p.imbalance.repeats, p, (dataset, seed), [metrics, plots])


if __name__ == "__main__":
    run(main)
