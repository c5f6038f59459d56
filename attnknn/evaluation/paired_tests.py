"""Metrics, confidence intervals, paired tests and reliability diagrams of predictions, as tables (lists of rows)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.method import Method

Table = list[dict[str, Any]]
Pair = tuple[str, str]
# Peer classifiers on tables, see experiments/peers.py.
PEERS = ("raw-uniform", "raw-distance", "logistic", "forest", "boosting", "catboost", "xgboost")
# On embeddings: fitted on bank rows, or on the fit rows alone.
EMBEDDING_PEERS = ("bank-rbf", "bank-mlp", "bank-boosting", "heldout-linear", "heldout-rbf", "heldout-mlp")
# The compared methods; all others are one of these with a calibration, `<base>_<kind>`.
BASE = ("uniform", "distance", "distance_vector", "attention", "attention-means", "attention-linear", "prototypes")
BASE += ("linear", "linear_temperature")
BASE += ("cnn", "cnn_temperature", *EMBEDDING_PEERS, *PEERS)
# Means over the main encoder and those of the cross-fitting folds, see experiments/repeats.py.
FOLDS = ("distance-folds", "attention-folds")
TESTED = ("accuracy", "nll", "ece")
BESIDE = ("source", "method", "metric", "value", "low", "high", "difference", "difference_low", "difference_high")
BESIDE += ("errors", "p", "test")  # of `side_by_side`
_ROUNDING = 1e-6  # of metrics of float32 probabilities; a smaller difference counts as 0


def scores(predictions: Predictions, bins: int) -> dict[str, dict[str, float]]:
    """Compute all metrics of every method."""
    named = zip(predictions.methods, predictions.probs, strict=True)
    return {method: metrics.scores(probs, predictions.y, bins) for method, probs in named}


def bootstrap_test(
    pair: Pair, metric: str, difference: float, samples: np.ndarray, errors: int, confidence: float
) -> dict[str, Any]:
    """Paired bootstrap test of a difference, method − baseline, as a row of `intervals_and_tests`' second table.

    Args:
        samples: (R,) bootstrap differences.
        errors: test rows that the difference depends on.
    """
    samples = np.where(np.abs(samples) < _ROUNDING, 0, samples)
    low, high = metrics.interval(samples, confidence)
    row = {"method": pair[0], "baseline": pair[1], "metric": metric, "difference": difference, "low": low, "high": high}
    return row | {"errors": errors, "p": metrics.paired_p(samples), "test": "paired bootstrap"}


def intervals_and_tests(
    predictions: Predictions,
    pairs: Sequence[Pair],
    bins: int,
    resamples: int,
    confidence: float,
    seed: int,
    metric_names: Sequence[str] = metrics.METRICS,
) -> tuple[Table, Table]:
    """Confidence intervals of every method's metrics (Wilson's for accuracy, else bootstrap), and tests of the pairs.

    Accuracy is tested by McNemar's exact test, NLL by `metrics.paired_t`, ECE by the paired bootstrap; differences are
    method − baseline with percentile intervals of the paired bootstrap. Resamples are centred on the sample's metrics.

    Args:
        pairs: (method, baseline).
        metric_names: metrics that get an interval, `TESTED` among them.

    Returns:
        Rows of method, metric, value, low, high; and of method, baseline, metric, difference, low, high, errors
        (test rows that either misclassifies), p, test.

    Raises:
        InputError: a pair names an unknown method.
    """
    idx = {name: m for m, name in enumerate(predictions.methods)}
    for name in [name for pair in pairs for name in pair]:
        require(name in idx, f"{name}: no such method; there are {', '.join(predictions.methods)}")
    y, probs = np.asarray(predictions.y), np.asarray(predictions.probs)
    point = scores(predictions, bins)
    # Repeated rows raise the calibration errors of resamples above the sample's; centring removes that bias.
    drawn = metrics.bootstrap(probs, y, bins, resamples, seed, metric_names)  # (M, R, W)
    own = np.array([[point[name][metric] for metric in metric_names] for name in predictions.methods])  # (M, W)
    drawn += (own - drawn.mean(1))[:, None]
    hits = probs.argmax(2) == y  # (M, N)
    losses = -np.log(probs[:, np.arange(len(y)), y].astype(np.float64))  # (M, N)
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
        a, b = idx[method], idx[baseline]
        errors = int((~(hits[a] & hits[b])).sum())
        for metric in TESTED:
            i = metric_names.index(metric)
            difference, samples = point[method][metric] - point[baseline][metric], drawn[a, :, i] - drawn[b, :, i]
            paired.append(bootstrap_test((method, baseline), metric, difference, samples, errors, confidence))
            if metric == "accuracy":
                paired[-1] |= {"p": metrics.mcnemar(hits[a], hits[b]), "test": "McNemar"}
            elif metric == "nll":
                own = losses[a] - losses[b]
                paired[-1] |= {"p": metrics.paired_t(np.where(np.abs(own) < _ROUNDING, 0, own)), "test": "paired t"}
    return intervals, paired


def side_by_side(
    sources: Mapping[str, Predictions], methods: Sequence[str], scoring: Mapping[str, Any], seed: int
) -> Table:
    """Compare several sources of predictions of the same rows, and test the first against each other one.

    Args:
        sources: predictions by source, of the same rows and classes.
        methods: the methods to compare; those that a source lacks are left out.
        scoring: bins, resamples, confidence.

    Returns:
        Rows of `BESIDE`; the first source has no differences.

    Raises:
        InputError: the rows or classes differ.
    """
    first, *others = sources.values()
    for other in others:
        same = np.array_equal(first.rows, other.rows) and np.array_equal(first.y, other.y)
        message = "predictions: rows or classes differ between sources; run `dvc repro`"
        require(same and first.classes == other.classes, message)
    names = [name for name in methods if all(name in source.methods for source in sources.values())]
    probs = np.concatenate(
        [source.probs[[source.methods.index(name) for name in names]] for source in sources.values()]
    )
    keys = tuple(f"{source}:{name}" for source in sources for name in names)
    stacked = Predictions(first.rows, first.y, probs, keys, first.classes)
    main, *rest = sources
    against = [(f"{main}:{name}", f"{source}:{name}") for source in rest for name in names]
    intervals, paired = intervals_and_tests(stacked, against, **scoring, seed=seed, metric_names=TESTED)
    tests = {(row["baseline"], row["metric"]): row for row in paired}
    table: Table = []
    for row in intervals:
        method = Method.parse(row["method"])
        test = tests.get((row["method"], row["metric"]), {})
        score = [row[key] for key in ("metric", "value", "low", "high")]
        score += [test.get(key) for key in ("difference", "low", "high", "errors", "p", "test")]
        table.append(dict(zip(BESIDE, (method.variant, method.name, *score), strict=True)))
    return table


def reliability(predictions: Predictions, bins: int, methods: Sequence[str] = BASE) -> Table:
    """Reliability diagrams of these methods: rows of method and of `metrics.reliability`."""
    return [
        {"method": method, **row}
        for method, probs in zip(predictions.methods, predictions.probs, strict=True)
        if method in methods
        for row in metrics.reliability(probs, predictions.y, bins)
    ]


def compare_repeats(a: np.ndarray, b: np.ndarray, shared: float = 0.0) -> dict[str, float]:
    """Mean of a − b over R repeats: difference, with 95 % interval and p of a t test; NaN where all are equal.

    Args:
        shared: share ρ of the test rows that two repeats have in common; the variance of the mean is then
            s²·(1/R + ρ/(1 − ρ)) (Nadeau & Bengio 2003).
    """
    d = np.asarray(a - b, dtype=np.float64)
    result = {"difference": float(d.mean()), "low": np.nan, "high": np.nan, "p": np.nan}
    if len(d) > 1 and np.ptp(d) > 0:
        error = float(d.std(ddof=1)) * np.sqrt(1 / len(d) + shared / (1 - shared))
        half = float(t.ppf(0.975, len(d) - 1)) * error
        result |= {"low": float(d.mean()) - half, "high": float(d.mean()) + half}
        result["p"] = float(2 * t.sf(abs(d.mean()) / error, len(d) - 1))
    return result


def combined_p(p: Sequence[float]) -> float:
    """One p value of several runs on the same test rows: min(1, 2 · mean p)."""
    return min(1.0, 2 * float(np.mean(p))) if len(p) > 1 else float(p[0])


def mean_over_repeats(rows: Table, keys: Sequence[str]) -> Table:
    """Combine the rows of several runs on the same test rows that agree in `keys`; the column `repeat` is left out.

    Means of values, outer ends of intervals, fewest errors, combined p, or 1 where the repeats differ in sign; methods
    that differ joined by `/`, and the most frequent of other values.
    """
    how: dict[str, Any] = dict.fromkeys(("value", "fit", "validation", "difference"), "mean")
    how |= dict.fromkeys(("low", "difference_low", "errors"), "min") | dict.fromkeys(("high", "difference_high"), "max")
    how["p"] = lambda p: combined_p(p.tolist()) if p.notna().all() else None
    how["method"] = lambda method: "/".join(method.unique())
    columns = [column for column in rows[0] if column != "repeat"]
    others = [column for column in columns if column not in keys]
    grouped = pd.DataFrame(rows).groupby(list(keys), sort=False)
    table = grouped.agg({column: how.get(column, lambda v: v.mode()[0]) for column in others}).reset_index()
    if "difference" in table:
        mixed = (grouped["difference"].min() < 0) & (grouped["difference"].max() > 0)
        table.loc[mixed.to_numpy(), "p"] = 1.0
    table = table[columns]
    if "errors" in table:
        table["errors"] = [int(count) if count == count else None for count in table["errors"]]
    return table.astype(object).to_dict("records")  # type: ignore[return-value]
