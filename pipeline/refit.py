"""Refit and compare all methods under conditions of the bank, and write the results."""

from collections.abc import Mapping

import numpy as np

from attnknn.evaluation.paired_tests import TESTED
from attnknn.experiments.conditions import Condition, refit_and_score
from pipeline.run import Run


def refit_conditions(
    run: Run, conditions: Mapping[str, Condition], repeats: int, k: int, clean: np.ndarray | None = None
) -> None:
    """Write metrics and a table named after the stage, and where labels of all parts are wrong one of all methods.

    `repeats` banks and heads are fitted per condition.
    """
    scoring, settings = run.params.evaluate.model_dump(), run.fit_settings(k)
    means, rows, methods = refit_and_score(
        conditions, repeats, scoring, run.seed, run.track("head"), run.workers, clean, **settings
    )
    run.write_metrics(means)
    by_method = {} if clean is None else {f"{run.stage}_methods": methods}
    columns = dict.fromkeys(by_method, ("condition", "method", *TESTED))
    run.write_tables(columns, **{run.stage: rows}, **by_method)
