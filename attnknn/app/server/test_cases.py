"""Test cases: how far answers for them can be believed, and which of them to look at."""

from typing import Any

import numpy as np

from attnknn.evaluation.metrics import reliability, scores, wilson


def calibrated(probs: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Scores of probabilities (M, C) for true classes (M,), and the bins of a reliability diagram that are not empty.

    `low` and `high` are Wilson's interval of the accuracy, at 95 %.
    """
    safe = np.maximum(probs, np.finfo(np.float32).tiny)
    found, hit = scores(safe, y), probs.argmax(1) == y
    low, high = wilson(hit, 0.95)
    return {
        "rows": len(y),
        "right": int(hit.sum()),
        **{name: found[name] for name in ("accuracy", "nll", "ece", "brier")},
        "low": low,
        "high": high,
        "confidence": float(probs.max(1).mean()),
        "bins": [vars(of) for of in reliability(safe, y) if of.count],
    }


def chosen(of: str, confidence: np.ndarray, hit: np.ndarray, least: float) -> np.ndarray:
    """Numbers of the cases to look at, in the order to look at them.

    Args:
        of: `all`, `wrong`, `confident-wrong` (of confidence `least` or more, surest first), or `unsure` (least sure
            first).
        confidence, hit: of each case (M,).
    """
    rows = np.arange(len(hit))
    if of in ("wrong", "confident-wrong"):
        rows = rows[~hit]
    if of == "confident-wrong":
        rows = rows[confidence[rows] >= least]
        return rows[np.argsort(-confidence[rows], kind="stable")]
    return rows[np.argsort(confidence[rows], kind="stable")] if of == "unsure" else rows
