"""Compare all methods on all test rows, where all else was trained, fitted and tuned on rare classes."""

from pathlib import Path

from attnknn.core.artifacts import Embeddings
from attnknn.core.files import write_csv, write_json
from attnknn.experiments.corruption import NETWORK, imbalance_conditions
from attnknn.experiments.trained_on_corruption import as_scores, under_imbalance
from attnknn.neighbours.space import EmbeddingSpace
from stages.noise_trained import PAIRED, SCORES, settings
from stages.params import read_params, run

AT = ("condition", "ratio")


def main(dataset: str, seed: int, trained: Path, metrics: Path, plots: Path) -> None:
    """Read a folder a ratio in TRAINED; write METRICS, and tables under PLOTS."""
    # fmt: off
    p = read_params(
        dataset, "imbalance.train_kind", "imbalance.train_ratios", "train_attention", "tune", "evaluate.bins",
        "evaluate.resamples", "evaluate.confidence", "k_train", "k_eval", "device", "threads",
    )
    # fmt: on
    scores, scored, paired = {}, [], []
    for name, (_, ratio) in imbalance_conditions([p.imbalance.train_kind], p.imbalance.train_ratios).items():
        folder, at = trained / str(ratio), {"condition": name, "ratio": ratio}
        plain = EmbeddingSpace.load_whole(folder / "plain")
        found = under_imbalance(plain, Embeddings.load(folder / NETWORK), **settings(p, seed))
        scores[name] = as_scores(found[0])
        for table, rows in zip((scored, paired), found, strict=True):
            table += [{**at, **row} for row in rows]
    write_json(metrics, scores)
    write_csv(plots / "imbalance_trained" / f"{dataset}-{seed}.csv", scored, (*AT, *SCORES))
    write_csv(plots / "imbalance_trained_paired" / f"{dataset}-{seed}.csv", paired, (*AT, *PAIRED))


if __name__ == "__main__":
    run(main)
