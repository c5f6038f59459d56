"""Scores and bootstrap, compared with torchmetrics and with a plain implementation using scikit-learn.

The plain bootstrap loops over resamples and scores each from its rows. Its equal-mass bins are those of the resample;
ours are those of the sample.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from attnknn.core.artifacts import TEST
from attnknn.core.torchvision_shim import torchvision  # noqa: F401  before torchmetrics, which imports it too
from attnknn.evaluation.metrics import METRICS, bootstrap, reliability, scores
from attnknn.heads.baselines import Distance
from attnknn.heads.classify import classify
from attnknn.neighbours.space import EmbeddingSpace
from benchmarks.comparison import Row, compare, peer, time_rounds
from benchmarks.synthetic import random_space
from benchmarks.votes import PRIOR, TEMPERATURE, classify_numpy

SIZES = {
    "full": {"rows": 45_000, "queries": 10_000, "k": 50, "resamples": 1_000, "most": 3},
    "quick": {"rows": 500, "queries": 100, "k": 5, "resamples": 10, "most": 1},
}
BINS, SEED = 15, 0
OURS, PLAIN = "ours", "plain loop, scikit-learn"


def ece(probs: np.ndarray, y: np.ndarray) -> float:
    """Ours: the weighted gaps of the reliability diagram."""
    rows = [row for row in reliability(probs, y, BINS) if row["count"]]
    return sum(abs(row["confidence"] - row["accuracy"]) * row["count"] for row in rows) / len(y)


def normalise(probs: np.ndarray) -> np.ndarray:
    """Normalised probabilities in float64, as scikit-learn expects."""
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
    """The eight scores of `evaluation.metrics.scores`, with scikit-learn and numpy."""
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss

    classes = np.arange(probs.shape[1])
    predicted, confidence = probs.argmax(1), probs.max(1)
    hit, onehot = predicted == y, np.eye(len(classes))[y]
    order = np.argsort(confidence)
    gaps = [abs(confidence[i].mean() - hit[i].mean()) * len(i) / len(y) for i in np.array_split(order, BINS)]
    return {
        "accuracy": float(accuracy_score(y, predicted)),
        "f1_macro": float(f1_score(y, predicted, average="macro")),
        "balanced_accuracy": float(balanced_accuracy_score(y, predicted)),
        "nll": float(log_loss(y, probs, labels=classes)),
        "brier": float(((probs - onehot) ** 2).sum(1).mean()),
        "ece": _gap(confidence, hit),
        "ece_adaptive": float(sum(gaps)),
        "ece_classwise": float(np.mean([_gap(probs[:, c], onehot[:, c]) for c in classes])),
    }


def plain_bootstrap(probs: np.ndarray, y: np.ndarray, resamples: int) -> np.ndarray:
    """The eight scores of bootstrap resamples, in a loop: (resamples, 8)."""
    rng, values = np.random.default_rng(SEED), []
    for _ in range(resamples):
        rows = rng.integers(len(y), size=len(y))
        values.append(list(plain_scores(probs[rows], y[rows]).values()))
    return np.array(values)


def our_path(data: EmbeddingSpace, rows: np.ndarray, y: np.ndarray, k: int, resamples: int) -> np.ndarray:
    """Votes, scores and bootstrap: (1 + resamples, 8), scores of the sample first."""
    probs = classify(Distance(k, TEMPERATURE, PRIOR), data, rows, k)
    own = [scores(probs, y, BINS)[metric] for metric in METRICS]
    return np.vstack([own, bootstrap(probs[None], y, BINS, resamples, SEED)[0]])


def plain_path(data: EmbeddingSpace, rows: np.ndarray, y: np.ndarray, k: int, resamples: int) -> np.ndarray:
    """`our_path` with numpy's votes and the plain bootstrap."""
    probs = normalise(classify_numpy(data, rows, k))
    own = [plain_scores(probs, y)[metric] for metric in METRICS]
    return np.vstack([own, plain_bootstrap(probs, y, resamples)])


def measure(threads: int, repeats: int, rows: int, queries: int, k: int, resamples: int, most: int) -> list[Row]:
    """ECE, the eight scores, and the whole path (votes, scores, bootstrap) for `queries` × 10 classes.

    Args:
        most: maximum of rounds of the whole path, whose plain loop is slow.
    """
    data = random_space(rows, queries, 16, k, (5,))
    test = data.embeddings.rows(TEST)
    y, size = data.embeddings.y[test], f"{queries:,} × {len(data.embeddings.classes)}"
    probs = classify(Distance(k, TEMPERATURE, PRIOR), data, test, k)

    name, torchmetrics = "torchmetrics", peer("torchmetrics.functional.classification")
    calls: dict[str, Callable[[], Any]] = {OURS: partial(ece, probs, y)}
    notes, absent = {}, {}
    if torchmetrics is None:
        absent[name] = None
    else:
        tensors = torch.from_numpy(probs), torch.from_numpy(y)
        calls[name] = partial(
            torchmetrics.multiclass_calibration_error, *tensors, num_classes=probs.shape[1], n_bins=BINS, norm="l1"
        )
        notes[name] = f"values differ by {abs(calls[name]().item() - ece(probs, y)):.0e}"
    table = compare(f"ECE of {size}", "ms", time_rounds(calls, repeats) | absent, OURS, notes=notes)

    calls = {OURS: partial(scores, probs, y, BINS), PLAIN: partial(plain_scores, normalise(probs), y)}
    ours, plain = calls[OURS](), calls[PLAIN]()
    difference = max(abs(ours[metric] - plain[metric]) for metric in METRICS if metric != "ece_adaptive")
    notes = {PLAIN: f"values differ by at most {difference:.0e}, except equal-mass bins, which order ties otherwise"}
    table += compare(f"eight scores of {size}", "ms", time_rounds(calls, repeats), OURS, notes=notes)

    task = data, test, y, k, resamples
    times = time_rounds({OURS: partial(our_path, *task), PLAIN: partial(plain_path, *task)}, min(most, repeats), 1e3)
    what = f"votes, eight scores and {resamples:,} bootstrap resamples of {size}"
    return table + compare(what, "s", times, OURS)
