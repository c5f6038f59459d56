"""Scores of a model on labelled rows, with intervals."""

from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.classifier.predict import FAR
from attnknn.core.artifacts import Predictions
from attnknn.evaluation.metrics import reliability, wilson
from attnknn.evaluation.paired_tests import intervals_and_tests
from attnknn.evaluation.selective import risk_coverage

METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
}  # and their names in text
_BINS, _RESAMPLES, _CONFIDENCE, _SEED, _ALPHA = 15, 1000, 0.95, 0, 0.1


def evaluate_model(classifier: AttnKNNClassifier, X: Any, labels: np.ndarray) -> dict[str, Any]:
    """Score predictions of rows X (N, D).

    Returns:
        rows: N. metrics: value, low and high of each of `METRICS`; see `intervals_and_tests`.
        classes and confusion (C, C), rows the actual class. reliability: see `metrics.reliability`. risk_coverage: a
        list of coverage and risk. sets: coverage of the 90 % prediction sets with its interval, and their mean size.
        far: number of rows far from the memory.
    """
    probs, percentiles, _ = classifier.predict_with_novelty(X)
    y, right = np.searchsorted(classifier.classes_, labels), classifier.classes_[probs.argmax(1)] == labels
    sets = classifier.sets_from_proba(probs, _ALPHA, percentiles)
    covered = sets[np.arange(len(y)), y]
    floored = np.maximum(probs, np.finfo(np.float32).tiny)
    rows, classes = np.arange(len(y), dtype=np.int32), tuple(map(str, classifier.classes_))
    predictions = Predictions(rows, y.astype(np.int64), floored.astype(np.float32)[None], ("model",), classes)
    intervals, _ = intervals_and_tests(predictions, [], _BINS, _RESAMPLES, _CONFIDENCE, _SEED, list(METRICS))
    coverage, risk = risk_coverage(probs.max(1), ~right)
    low, high = wilson(covered, _CONFIDENCE)
    return {
        "rows": len(y),
        "metrics": {row["metric"]: {name: row[name] for name in ("value", "low", "high")} for row in intervals},
        "classes": classifier.classes_.tolist(),
        "confusion": confusion_matrix(y, probs.argmax(1), labels=range(probs.shape[1])).tolist(),
        "reliability": reliability(floored, y, _BINS),
        "risk_coverage": [{"coverage": float(c), "risk": float(r)} for c, r in zip(coverage, risk, strict=True)],
        "sets": {"coverage": float(covered.mean()), "low": low, "high": high, "size": float(sets.sum(1).mean())},
        "far": int((percentiles >= FAR).sum()),
    }


def most_confused(result: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """The n most frequent errors of `evaluate_model`: actual, predicted, count."""
    counts, classes = np.array(result["confusion"]), result["classes"]
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:n]
    pairs = [divmod(int(position), len(classes)) for position in order]
    return [
        {"actual": classes[a], "predicted": classes[b], "count": int(counts[a, b])} for a, b in pairs if counts[a, b]
    ]
