"""Scores and bootstrap: ours beside torchmetrics, and beside the plain code that one would write with scikit-learn.

The plain bootstrap is a loop over resamples, each of which draws rows and scores them anew. Its equal-mass bins are
those of the resample; ours are those of the sample.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from attnknn.core.artifacts import TEST
from attnknn.core.torchvision_shim import torchvision  # noqa: F401  before torchmetrics, which imports it too
from attnknn.evaluation.metrics import METRICS, bootstrap, reliability, scores
from attnknn.heads.attention import Distance
from attnknn.heads.classify import classify
from attnknn.neighbours.space import EmbeddingSpace
from benchmarks.compared import Row, compared, in_rounds, peer
from benchmarks.made_up import retrieved
from benchmarks.votes import PRIOR, TEMPERATURE, by_numpy

SIZES = {
    "full": {"rows": 45_000, "queries": 10_000, "k": 50, "resamples": 1_000, "most": 3},
    "quick": {"rows": 500, "queries": 100, "k": 5, "resamples": 10, "most": 1},
}
BINS, SEED = 15, 0
OURS, PLAIN = "ours", "plain loop, scikit-learn"


def ece(probs: np.ndarray, y: np.ndarray) -> float:
    """Ours alone: the gaps of the bins of a reliability diagram, weighted."""
    return sum(abs(b.confidence - b.accuracy) * b.count for b in reliability(probs, y, BINS) if b.count) / len(y)


def summing_to_one(probs: np.ndarray) -> np.ndarray:
    """In float64, as scikit-learn wants them."""
    exact = probs.astype(np.float64)
    return exact / exact.sum(1, keepdims=True)


def _gap(confidence: np.ndarray, hit: np.ndarray) -> float:
    """Calibration error over equal-width bins, bin by bin."""
    total = 0.0
    for low in np.arange(BINS) / BINS:
        inside = (confidence > low) & (confidence <= low + 1 / BINS)
        if inside.any():
            total += abs(confidence[inside].mean() - hit[inside].mean()) * inside.mean()
    return float(total)


def plain_scores(probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The eight scores of `metrics.scores` as one would write them with scikit-learn and numpy."""
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss

    classes = np.arange(probs.shape[1])
    predicted, confidence = probs.argmax(1), probs.max(1)
    hit, onehot = predicted == y, np.eye(len(classes))[y]
    order = np.argsort(confidence)
    mass = [abs(confidence[at].mean() - hit[at].mean()) * len(at) / len(y) for at in np.array_split(order, BINS)]
    return {
        "accuracy": float(accuracy_score(y, predicted)),
        "f1_macro": float(f1_score(y, predicted, average="macro")),
        "balanced_accuracy": float(balanced_accuracy_score(y, predicted)),
        "nll": float(log_loss(y, probs, labels=classes)),
        "brier": float(((probs - onehot) ** 2).sum(1).mean()),
        "ece": _gap(confidence, hit),
        "ece_adaptive": float(sum(mass)),
        "ece_classwise": float(np.mean([_gap(probs[:, c], onehot[:, c]) for c in classes])),
    }


def plain_bootstrap(probs: np.ndarray, y: np.ndarray, resamples: int) -> np.ndarray:
    """The same scores of resamples of the rows, one after the other: (resamples, 8)."""
    rng, found = np.random.default_rng(SEED), []
    for _ in range(resamples):
        rows = rng.integers(len(y), size=len(y))
        found.append(list(plain_scores(probs[rows], y[rows]).values()))
    return np.array(found)


def ours_in_all(data: EmbeddingSpace, rows: np.ndarray, y: np.ndarray, k: int, resamples: int) -> np.ndarray:
    """Votes, scores and bootstrap: (1 + resamples, 8), the sample's own first."""
    probs = classify(Distance(k, TEMPERATURE, PRIOR), data, rows, k)
    own = [scores(probs, y, BINS)[metric] for metric in METRICS]
    return np.vstack([own, bootstrap(probs[None], y, BINS, resamples, SEED)[0]])


def plain_in_all(data: EmbeddingSpace, rows: np.ndarray, y: np.ndarray, k: int, resamples: int) -> np.ndarray:
    """The same by numpy's votes and the plain loop."""
    probs = summing_to_one(by_numpy(data, rows, k))
    own = [plain_scores(probs, y)[metric] for metric in METRICS]
    return np.vstack([own, plain_bootstrap(probs, y, resamples)])


def measure(threads: int, repeats: int, rows: int, queries: int, k: int, resamples: int, most: int) -> list[Row]:
    """ECE, the eight scores, and all of it: votes, scores and bootstrap; a row is one of `queries` × 10 classes.

    Args:
        most: rounds of the last, where fewer than `repeats`, since its plain loop takes its time.
    """
    data = retrieved(rows, queries, 16, k, (5,))
    at = data.embeddings.rows(TEST)
    y, size = data.embeddings.y[at], f"{queries:,} × {len(data.embeddings.classes)}"
    probs = classify(Distance(k, TEMPERATURE, PRIOR), data, at, k)
    exact = summing_to_one(probs)
    table: list[Row] = []

    torchmetrics = peer("torchmetrics.functional.classification")
    name, notes = "torchmetrics", {}
    calls: dict[str, Callable[[], Any]] = {OURS: partial(ece, probs, y)}
    if torchmetrics is not None:
        tensors = torch.from_numpy(probs), torch.from_numpy(y)
        calls[name] = partial(
            torchmetrics.multiclass_calibration_error, *tensors, num_classes=probs.shape[1], n_bins=BINS, norm="l1"
        )
        notes[name] = f"values {abs(calls[name]().item() - ece(probs, y)):.0e} apart"
    absent = {} if torchmetrics is not None else {name: None}
    table += compared(f"ECE of {size}", "ms", in_rounds(calls, repeats) | absent, OURS, notes=notes)

    calls = {OURS: partial(scores, probs, y, BINS), PLAIN: partial(plain_scores, exact, y)}
    both = calls[OURS](), calls[PLAIN]()
    apart = max(abs(both[0][metric] - both[1][metric]) for metric in METRICS if metric != "ece_adaptive")
    notes = {PLAIN: f"values at most {apart:.0e} apart, but for equal-mass bins, where rows that tie are put otherwise"}
    table += compared(f"eight scores of {size}", "ms", in_rounds(calls, repeats), OURS, notes=notes)

    task = data, at, y, k, resamples
    taken = in_rounds({OURS: partial(ours_in_all, *task), PLAIN: partial(plain_in_all, *task)}, min(most, repeats))
    seconds = {name: [ms / 1e3 for ms in of] for name, of in taken.items()}
    what = f"votes, eight scores and {resamples:,} bootstrap resamples of {size}"
    return table + compared(what, "s", seconds, OURS)
