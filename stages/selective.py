"""Answer only when sure: risk against coverage under abstention, and conformal sets."""

from pathlib import Path

from attnknn.core.artifacts import Predictions
from attnknn.core.files import write_csv, write_json
from attnknn.evaluation.conformal import conformal
from attnknn.evaluation.selective import abstention, summary
from stages.params import read_params, run


def main(dataset: str, seed: int, predictions: Path, metrics: Path, plots: Path) -> None:
    """Read the test and val rows of PREDICTIONS; write METRICS, and tables under PLOTS."""
    p = read_params(dataset, "selective", "evaluate.resamples", "evaluate.confidence")
    test, val = Predictions.load(predictions / "test"), Predictions.load(predictions / "val")
    drawing = (p.evaluate.resamples, p.evaluate.confidence, seed)
    curves, scores, area_tests = abstention(test, val, p.selective.risks, *drawing)
    sets, size_tests = conformal(test, val, p.selective.alphas, *drawing)
    write_json(metrics, summary(scores, sets))
    tables = {"risk_coverage": curves, "selective": scores, "selective_paired": area_tests + size_tests}
    for name, table in {**tables, "conformal": sets}.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", table)


if __name__ == "__main__":
    run(main)
