"""Ensemble over seeds: the mean of the predictions of seeds with the same test rows."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.evaluation.paired_tests import BASE, BESIDE, TESTED, Table, side_by_side


def why_no_seeds_ensemble(predictions: Mapping[int, Predictions]) -> str:
    """The reason, in one line, for which these predictions cannot be averaged; empty if they can."""
    if len(predictions) < 2:
        return "there is one seed; name more under seeds"
    first, *others = predictions.values()
    for other in others:
        if first.classes != other.classes or first.methods != other.methods:
            return "the seeds have different classes or methods; run `dvc repro` for all of them"
        if not (np.array_equal(first.rows, other.rows) and np.array_equal(first.y, other.y)):
            return "the seeds have different test rows: without an official test set each seed draws its own split"
    return ""


def seeds_ensemble(
    predictions: Mapping[int, Predictions], scoring: Mapping[str, Any]
) -> tuple[dict[str, dict[str, dict[str, float]]], Table]:
    """Compare the mean of the probabilities over seeds with the predictions of each seed.

    Args:
        predictions: by seed, without a reason in `why_no_seeds_ensemble`.
        scoring: bins, resamples, confidence; the bootstrap uses the first seed.

    Returns:
        {source: {method: {metric: value}}} and rows of `paired_tests.BESIDE`. Sources are `ensemble`, `seed <s>` and
        `mean of seeds`, which has no interval; differences are ensemble − source, None for the ensemble.
    """
    first = next(iter(predictions.values()))
    names = [name for name in first.methods if name in BASE]
    mean = dataclasses.replace(first, probs=np.mean([one.probs for one in predictions.values()], axis=0))
    sources = {"ensemble": mean, **{f"seed {seed}": one for seed, one in predictions.items()}}
    table = side_by_side(sources, names, scoring, next(iter(predictions)))
    means: dict[str, dict[str, dict[str, float]]] = {}
    for row in table:
        means.setdefault(row["source"], {}).setdefault(row["method"], {})[row["metric"]] = row["value"]
    for name in names:
        for metric in TESTED:
            value = float(np.mean([means[source][name][metric] for source in sources if source != "ensemble"]))
            means.setdefault("mean of seeds", {}).setdefault(name, {})[metric] = value
            row = {"source": "mean of seeds", "method": name, "metric": metric, "value": value}
            row["difference"] = means["ensemble"][name][metric] - value
            table.append({column: row.get(column) for column in BESIDE})
    return means, table
