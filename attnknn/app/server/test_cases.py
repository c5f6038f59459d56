"""Calibration and selection of test cases."""

from typing import Any

import numpy as np

from attnknn.evaluation.metrics import reliability, scores, wilson

FILTERS = ("all", "wrong", "confident-wrong", "unsure")


def calibration(probs: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Scores of probabilities (M, C) for classes y (M,), and the non-empty bins of a reliability diagram.

    `low` and `high` are the 95 % Wilson interval of the accuracy.
    """
    positive = np.maximum(probs, np.finfo(np.float32).tiny)
    metrics, correct = scores(positive, y), probs.argmax(1) == y
    low, high = wilson(correct, 0.95)
    return {
        "rows": len(y),
        "right": int(correct.sum()),
        **{name: metrics[name] for name in ("accuracy", "nll", "ece")},
        "low": low,
        "high": high,
        "confidence": float(probs.max(1).mean()),
        "bins": [row for row in reliability(positive, y) if row["count"]],
    }


def select(name: str, confidence: np.ndarray, correct: np.ndarray, min_confidence: float) -> np.ndarray:
    """Positions of the test cases that match a filter, in the order of the page.

    Args:
        name: of `FILTERS`. `confident-wrong`: errors of confidence `min_confidence` or more, highest first. `unsure`:
            all by confidence, lowest first.
        confidence, correct: of each case (M,).
    """
    if name == "unsure":
        return np.argsort(confidence, kind="stable")
    if name == "confident-wrong":
        rows = np.flatnonzero(~correct & (confidence >= min_confidence))
        return rows[np.argsort(-confidence[rows], kind="stable")]
    return np.flatnonzero(~correct) if name == "wrong" else np.arange(len(correct))
