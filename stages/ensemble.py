"""Combine several k: mean over k, adaptive k and learned stopping, for every kNN method."""

from pathlib import Path

from attnknn.core.device import use_device
from attnknn.core.files import write_csv, write_json
from attnknn.experiments.ensemble import compare_variants
from attnknn.heads.registry import load_head
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(
    dataset: str,
    seed: int,
    embeddings: Path,
    neighbours: Path,
    evidence: Path,
    folds: Path,
    heads: Path,
    metrics: Path,
    plots: Path,
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE, FOLDS and HEADS; write METRICS, and tables under PLOTS."""
    p = read_params(dataset, "ensemble", "tune", "evaluate", "k_eval", "device", "threads")
    device = use_device(p.device, p.threads)
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    attention = load_head(heads / "attention").to(device)
    grids, scoring = p.tune.model_dump(), p.evaluate.model_dump()
    means, intervals, paired = compare_variants(
        spaces, attention, p.k_eval, p.ensemble.ks, grids, scoring, seed, device
    )
    write_json(metrics, means)
    write_csv(plots / "ensemble" / f"{dataset}-{seed}.csv", intervals)
    write_csv(plots / "ensemble_paired" / f"{dataset}-{seed}.csv", paired)


if __name__ == "__main__":
    run(main)
