"""The mean of what every method answers over seeds, where all of them have the same test rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.artifacts import Predictions
from attnknn.errors import require
from attnknn.scorecard import BASE, TESTED, Table, intervals_and_tests

COLUMNS = ("source", "method", "metric", "value", "low", "high", "difference", "difference_low", "difference_high")
COLUMNS += ("errors", "p", "test")  # of the table of `seeds_ensemble`


def why_no_seeds_ensemble(of: Mapping[int, Predictions]) -> str:
    """Why the predictions of these seeds cannot be averaged, in one line; empty where they can be."""
    if len(of) < 2:
        return "there is one seed; name more under seeds"
    first, *others = of.values()
    for other in others:
        if first.classes != other.classes or first.methods != other.methods:
            return "the seeds have different classes or methods; run `dvc repro` for all of them"
        if not (np.array_equal(first.rows, other.rows) and np.array_equal(first.y, other.y)):
            return "the seeds have different test rows, since each splits anew where there is no official test set"
    return ""


def seeds_ensemble(
    of: Mapping[int, Predictions], scoring: Mapping[str, Any], methods: Sequence[str] = BASE
) -> tuple[dict[str, dict[str, dict[str, float]]], Table]:
    """The mean of the probabilities over seeds, beside and against each seed's own.

    Args:
        of: predictions by seed, on the same test rows.
        scoring: bins, resamples, confidence; the bootstrap takes the first seed.
        methods: those of them that are there.

    Returns:
        {source: {method: {metric: value}}} and rows of source, method, metric, value, low, high, difference,
        difference_low, difference_high, errors, p, test. Sources are `ensemble`, `seed <s>` and `mean of seeds`, which
        has no interval; a difference is ensemble − source, and the ensemble itself has none.

    Raises:
        InputError: the seeds have not the same test rows, classes and methods.
    """
    reason = why_no_seeds_ensemble(of)
    require(not reason, f"ensemble_seeds: {reason}")
    seeds, first = list(of), next(iter(of.values()))
    names = [name for name in first.methods if name in methods]
    single = np.stack(
        [made.probs[[first.methods.index(name) for name in names]] for made in of.values()]
    )  # (S, M, N, C)
    sources = ["ensemble", *(f"seed {seed}" for seed in seeds)]
    probs = np.concatenate([single.mean(0, keepdims=True), single])
    keys = [f"{source}/{name}" for source in sources for name in names]
    together = Predictions(first.rows, first.y, probs.reshape(-1, *probs.shape[2:]), tuple(keys), first.classes)
    against = [(f"ensemble/{name}", f"{source}/{name}") for source in sources[1:] for name in names]
    intervals, paired = intervals_and_tests(together, against, **scoring, seed=seeds[0], wanted=TESTED)
    moved = {(row["baseline"], row["metric"]): row for row in paired}
    means: dict[str, dict[str, dict[str, float]]] = {source: {name: {} for name in names} for source in sources}
    table: Table = []

    def add(source: str, name: str, row: Mapping[str, Any], test: Mapping[str, Any]) -> None:
        means.setdefault(source, {}).setdefault(name, {})[row["metric"]] = row["value"]
        score = tuple(row[key] for key in ("metric", "value", "low", "high"))
        tested = tuple(test.get(key) for key in ("difference", "low", "high", "errors", "p", "test"))
        table.append(dict(zip(COLUMNS, (source, name, *score, *tested), strict=True)))

    for row in intervals:
        source, name = row["method"].split("/")
        add(source, name, row, moved.get((row["method"], row["metric"]), {}))
    for name in names:
        for metric in TESTED:
            mean = float(np.mean([means[source][name][metric] for source in sources[1:]]))
            row = {"metric": metric, "value": mean, "low": None, "high": None}
            add("mean of seeds", name, row, {"difference": means["ensemble"][name][metric] - mean})
    return means, table
