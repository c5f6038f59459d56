"""From predictions to what is reported: scores, intervals, paired tests and reliability, as plain tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.method import Method

Table = list[dict[str, Any]]
Pair = tuple[str, str]
# Classifiers of tables that know no neighbours of ours; see peers.py.
PEERS = ("raw-uniform", "raw-distance", "logistic", "forest", "boosting", "catboost", "xgboost")
# The methods that are compared; all others are one of these with a calibration added, `<base>_<kind>`.
BASE = (
    "uniform",
    "distance",
    "distance_vector",
    "attention",
    "prototypes",
    "linear",
    "linear_temperature",
    "cnn",
    "cnn_temperature",
    *PEERS,
)
# The mean over the encoders of a cross-fit and the main one, of repeated splits.
FOLDS = ("distance-folds", "attention-folds")
TESTED = ("accuracy", "nll", "ece")
# What gets intervals where many memories are compared: the tested ones, and those that rare classes show in.
UNDER_CONDITIONS = ("accuracy", "f1_macro", "balanced_accuracy", "nll", "ece")
BESIDE = ("source", "method", "metric", "value", "low", "high", "difference", "difference_low", "difference_high")
BESIDE += ("errors", "p", "test")  # of `side_by_side`
_ROUNDING = 1e-6  # of scores made of float32 probabilities


def scores(predictions: Predictions, bins: int) -> dict[str, dict[str, float]]:
    """Every metric of every method."""
    named = zip(predictions.methods, predictions.probs, strict=True)
    return {method: metrics.scores(probs, predictions.y, bins) for method, probs in named}


def values(predictions: Predictions, bins: int) -> Table:
    """Rows of method, metric, value in the metrics that are tested."""
    table = scores(predictions, bins)
    return [{"method": name, "metric": m, "value": row[m]} for name, row in table.items() for m in TESTED]


def pairs(methods: Sequence[str]) -> list[Pair]:
    """Who is tested against whom: (method, baseline).

    `attention` against every other method; and with each calibration, `attention_<kind>` against the kNN baselines
    with the same one, so that the head's own gain is seen apart from calibration's.
    """
    pairs = [("attention", name) for name in methods if name != "attention"]
    for method in map(Method.parse, methods):
        if method.base == "attention" and method.calibration:
            others = [str(replace(method, base=base)) for base in ("distance", "uniform")]
            pairs += [(str(method), other) for other in others if other in methods]
    return pairs


def intervals_and_tests(
    predictions: Predictions,
    pairs: Sequence[Pair],
    bins: int,
    resamples: int,
    confidence: float,
    seed: int,
    metric_names: Sequence[str] = metrics.METRICS,
) -> tuple[Table, Table]:
    """Intervals of every score (Wilson's for accuracy, else bootstrap), and each method of a pair against the other.

    Accuracy is tested by McNemar's exact test, NLL and ECE by the paired bootstrap; differences are method − baseline
    with percentile intervals of the paired bootstrap. Resamples are centred on the score of the sample itself.

    Args:
        pairs: (method, baseline); see `pairs`.
        metric_names: the scores that get an interval, those of `TESTED` among them.

    Returns:
        Rows of method, metric, value, low, high; and of method, baseline, metric, difference, low, high, errors
        (test rows that either gets wrong), p, test.

    Raises:
        InputError: a pair names a method that is not there.
    """
    place = {name: m for m, name in enumerate(predictions.methods)}
    for name in [name for pair in pairs for name in pair]:
        require(name in place, f"{name}: no such method; there are {', '.join(predictions.methods)}")
    y, probs = np.asarray(predictions.y), np.asarray(predictions.probs)
    point = scores(predictions, bins)
    # A resample repeats rows, which makes its calibration errors larger than the sample's own; centring takes that out.
    drawn = metrics.bootstrap(probs, y, bins, resamples, seed, metric_names)  # (M, R, W)
    own = np.array([[point[name][metric] for metric in metric_names] for name in predictions.methods])  # (M, W)
    drawn += (own - drawn.mean(1))[:, None]
    hits = probs.argmax(2) == y  # (M, N)
    intervals: Table = []
    for m, name in enumerate(predictions.methods):
        for i, metric in enumerate(metric_names):
            if metric == "accuracy":
                low, high = metrics.wilson(hits[m], confidence)
            else:
                ends = np.clip(metrics.interval(drawn[m, :, i], confidence), 0, metrics.HIGHEST.get(metric))
                low, high = map(float, ends)
            intervals.append({"method": name, "metric": metric, "value": point[name][metric], "low": low, "high": high})
    paired: Table = []
    for method, baseline in pairs:
        a, b = place[method], place[baseline]
        for metric in TESTED:
            i = metric_names.index(metric)
            differences = drawn[a, :, i] - drawn[b, :, i]
            differences[np.abs(differences) < _ROUNDING] = 0  # the same method up to rounding is no finding
            low, high = metrics.interval(differences, confidence)
            exact = metric == "accuracy"
            errors = int((~(hits[a] & hits[b])).sum())
            paired.append(
                {
                    "method": method,
                    "baseline": baseline,
                    "metric": metric,
                    "difference": point[method][metric] - point[baseline][metric],
                    "low": low,
                    "high": high,
                    "errors": errors,
                    "p": metrics.mcnemar(hits[a], hits[b]) if exact else metrics.paired_p(differences, errors),
                    "test": "McNemar" if exact else "paired bootstrap",
                }
            )
    return intervals, paired


def side_by_side(
    sources: Mapping[str, Predictions], methods: Sequence[str], scoring: Mapping[str, Any], seed: int
) -> Table:
    """Several sources of predictions of the same rows beside each other, and the first less each other one.

    Args:
        sources: predictions by source, of the same rows, classes and methods.
        methods: those of them that are there.
        scoring: bins, resamples, confidence.

    Returns:
        Rows of `BESIDE`; the first source has no differences.

    Raises:
        InputError: the rows differ.
    """
    first, *others = sources.values()
    for other in others:
        same = np.array_equal(first.rows, other.rows) and np.array_equal(first.y, other.y)
        require(same and first.classes == other.classes, "predictions: of other rows or classes; run `dvc repro`")
    names = [name for name in methods if all(name in predictions.methods for predictions in sources.values())]
    probs = np.concatenate(
        [predictions.probs[[predictions.methods.index(name) for name in names]] for predictions in sources.values()]
    )
    keys = tuple(f"{source}:{name}" for source in sources for name in names)
    stacked = Predictions(first.rows, first.y, probs, keys, first.classes)
    main, *rest = sources
    against = [(f"{main}:{name}", f"{source}:{name}") for source in rest for name in names]
    intervals, paired = intervals_and_tests(stacked, against, **scoring, seed=seed, metric_names=TESTED)
    moved = {(row["baseline"], row["metric"]): row for row in paired}
    table: Table = []
    for row in intervals:
        method = Method.parse(row["method"])
        test = moved.get((row["method"], row["metric"]), {})
        score = (row[key] for key in ("metric", "value", "low", "high"))
        differs = (test.get(key) for key in ("difference", "low", "high", "errors", "p", "test"))
        table.append(dict(zip(BESIDE, (method.variant, method.name, *score, *differs), strict=True)))
    return table


def reliability(predictions: Predictions, bins: int, methods: Sequence[str] = BASE) -> Table:
    """Reliability diagrams of those methods that are there.

    Returns:
        Rows of method, low, high, count, confidence, accuracy; the last two None in empty bins.
    """
    table: Table = []
    for method, probs in zip(predictions.methods, predictions.probs, strict=True):
        if method not in methods:
            continue
        for b in metrics.reliability(probs, predictions.y, bins):
            mean = (
                {"confidence": b.confidence, "accuracy": b.accuracy}
                if b.count
                else {"confidence": None, "accuracy": None}
            )
            table.append({"method": method, "low": b.low, "high": b.high, "count": b.count, **mean})
    return table
