"""The mean of the predictions over seeds, where all of them have the same test rows."""

from pathlib import Path

from attnknn.core.artifacts import Predictions
from attnknn.core.files import write_csv, write_json
from attnknn.evaluation.paired_tests import BESIDE
from attnknn.experiments.repeats import seeds_ensemble, why_no_seeds_ensemble
from stages.params import read_params, run


def main(dataset: str, predictions: Path, metrics: Path, table: Path) -> None:
    """Read every seed's PREDICTIONS; write METRICS and TABLE, empty where there is nothing to average."""
    p = read_params(dataset, "seeds", "evaluate")
    found = {seed: Predictions.load(predictions / str(seed) / "test") for seed in p.seeds}
    reason = why_no_seeds_ensemble(found)
    if reason:
        print(f"ensemble_seeds: {dataset}: nothing to average: {reason}")
    means, rows = ({}, []) if reason else seeds_ensemble(found, p.evaluate.model_dump())
    write_json(metrics, means)
    write_csv(table, rows, BESIDE)


if __name__ == "__main__":
    run(main)
