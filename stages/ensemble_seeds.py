"""The mean of the predictions over seeds, where they share their test rows."""

from attnknn.core.artifacts import Predictions
from attnknn.evaluation.paired_tests import BESIDE
from attnknn.experiments.seeds import seeds_ensemble, why_no_seeds_ensemble
from pipeline.run import Run, main


def ensemble_seeds(run: Run) -> None:
    p, folder = run.params, run.path("data/predictions")
    predictions = {seed: Predictions.load(folder / str(seed) / "test") for seed in p.seeds}
    means, rows = {}, []
    if reason := why_no_seeds_ensemble(predictions):
        print(f"{run.label}: nothing to average: {reason}")
    else:
        means, rows = seeds_ensemble(predictions, p.evaluate.model_dump())
    run.write_metrics(means)
    run.write_tables({"ensemble_seeds": BESIDE}, ensemble_seeds=rows)


if __name__ == "__main__":
    main(ensemble_seeds)
