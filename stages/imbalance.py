"""Rare classes in the memory: heads fitted anew, baselines tuned anew, on the same embeddings."""

from functools import partial
from pathlib import Path

from attnknn.conditions import with_long_tail
from attnknn.device import use_device
from attnknn.neighbourhood import Retrieved
from stages.noise import study
from stages.params import read_params, run


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, folds: Path, metrics: Path, plots: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE and FOLDS; write METRICS, and tables under PLOTS."""
    p = read_params(
        dataset, "imbalance", "train_attention", "tune", "evaluate", "k_train", "k_eval", "device", "threads"
    )
    spaces = [Retrieved.load(embeddings, neighbours, evidence), *Retrieved.load_folds(folds)]
    make = partial(with_long_tail, spaces, device=use_device(p.device, p.threads))
    conditions = {f"long tail {ratio}": partial(make, ratio) for ratio in p.imbalance.ratios}
    study("imbalance", conditions, p.imbalance.repeats, p, (dataset, seed), [metrics, plots])


if __name__ == "__main__":
    run(main)
