"""From predictions to what is reported: scores, intervals, paired tests and reliability, as plain tables."""

from typing import Any

import numpy as np

from attnknn import metrics
from attnknn.artifacts import Predictions
from attnknn.errors import require

Table = list[dict[str, Any]]
_ROUNDING = 1e-6  # of scores made of float32 probabilities


def scores(predictions: Predictions, bins: int) -> dict[str, dict[str, float]]:
    """Every metric of every method."""
    named = zip(predictions.methods, predictions.probs, strict=True)
    return {method: metrics.scores(probs, predictions.y, bins) for method, probs in named}


def intervals_and_tests(
    predictions: Predictions, method: str, bins: int, resamples: int, confidence: float, seed: int
) -> tuple[Table, Table]:
    """Intervals of every score (Wilson's for accuracy, else bootstrap), and `method` against all others, row by row.

    Accuracy is tested by McNemar's exact test, NLL and ECE by the paired bootstrap; differences are method − baseline
    with percentile intervals of the paired bootstrap. Resamples are centred on the score of the sample itself.

    Returns:
        Rows of method, metric, value, low, high; and of method, baseline, metric, difference, low, high, errors
        (test rows that either gets wrong), p, test.
    """
    require(method in predictions.methods, f"{method}: no such method; there are {', '.join(predictions.methods)}")
    y, probs = np.asarray(predictions.y), np.asarray(predictions.probs)
    point = scores(predictions, bins)
    drawn = metrics.bootstrap(probs, y, bins, resamples, seed)  # (M, R, 8)
    # A resample repeats rows, which makes its calibration errors larger than the sample's own; centring takes that out.
    own = np.array([[point[name][metric] for metric in metrics.METRICS] for name in predictions.methods])  # (M, 8)
    drawn += (own - drawn.mean(1))[:, None]
    hits = probs.argmax(2) == y  # (M, N)
    intervals: Table = []
    for m, name in enumerate(predictions.methods):
        for i, metric in enumerate(metrics.METRICS):
            if metric == "accuracy":
                low, high = metrics.wilson(hits[m], confidence)
            else:
                ends = np.clip(metrics.interval(drawn[m, :, i], confidence), 0, metrics.HIGHEST.get(metric))
                low, high = map(float, ends)
            intervals.append({"method": name, "metric": metric, "value": point[name][metric], "low": low, "high": high})
    ours = predictions.methods.index(method)
    paired: Table = []
    for m, name in enumerate(predictions.methods):
        if m == ours:
            continue
        for metric in ("accuracy", "nll", "ece"):
            i = metrics.METRICS.index(metric)
            differences = drawn[ours, :, i] - drawn[m, :, i]
            differences[np.abs(differences) < _ROUNDING] = 0  # the same method up to rounding is no finding
            low, high = metrics.interval(differences, confidence)
            exact = metric == "accuracy"
            paired.append(
                {
                    "method": method,
                    "baseline": name,
                    "metric": metric,
                    "difference": point[method][metric] - point[name][metric],
                    "low": low,
                    "high": high,
                    "errors": int((~(hits[ours] & hits[m])).sum()),
                    "p": metrics.mcnemar(hits[ours], hits[m]) if exact else metrics.paired_p(differences),
                    "test": "McNemar" if exact else "paired bootstrap",
                }
            )
    return intervals, paired


def reliability(predictions: Predictions, bins: int) -> Table:
    """Reliability diagrams: rows of method, low, high, count, confidence, accuracy; the last two None in empty bins."""
    table: Table = []
    for method, probs in zip(predictions.methods, predictions.probs, strict=True):
        for b in metrics.reliability(probs, predictions.y, bins):
            mean = (
                {"confidence": b.confidence, "accuracy": b.accuracy}
                if b.count
                else {"confidence": None, "accuracy": None}
            )
            table.append({"method": method, "low": b.low, "high": b.high, "count": b.count, **mean})
    return table
