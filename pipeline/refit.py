"""Refit and compare all methods under conditions of the bank, and write the results."""

from collections.abc import Mapping

from attnknn.experiments.refit import Condition, refit_and_score
from pipeline.run import Run


def refit_conditions(run: Run, conditions: Mapping[str, Condition], repeats: int, k: int) -> None:
    """Write metrics and plots named after the stage; `repeats` banks and heads per condition."""
    p = run.params
    settings = {"k": k, "fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump(), "device": run.device}
    with run.progress("head", len(conditions) * repeats) as bar:
        means, rows = refit_and_score(
            conditions, repeats, p.evaluate.model_dump(), run.seed, lambda _: bar.update(), run.workers, **settings
        )
    run.write_metrics(means)
    run.write_tables(None, **{run.stage: rows})
