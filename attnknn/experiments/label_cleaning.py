"""Label cleaning by kNN votes in an embedding space, and a forward correction for the remaining wrong labels.

k-NN editing (Wilson 1972) in a learned space, as in deep k-NN (Bahri et al. 2020) and SSR+ (Feng et al. 2022). Only
`quality`, which selects nothing, reads the true labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from attnknn.core.artifacts import BANK, VAL
from attnknn.neighbours.space import EmbeddingSpace

_TINY = float(np.finfo(np.float32).tiny)


def label_votes(space: EmbeddingSpace, y: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """Share of each label among the k nearest bank rows, the row itself excluded: float64 (M, C).

    Args:
        y: (N,) labels.
        rows: (M,) row ids of the queries.
        k: lowered to the neighbours stored.
    """
    ids = space.neighbours.take(rows, min(k, space.neighbours.ids.shape[1]))[0]  # (M, K)
    c, rows_idx = len(space.embeddings.classes), np.arange(len(rows))[:, None]
    votes = np.bincount((rows_idx * c + y[ids])[ids >= 0], minlength=len(rows) * c).reshape(len(rows), c)
    return votes / votes.sum(1, keepdims=True)


def choose_k(space: EmbeddingSpace, y: np.ndarray, ks: Sequence[int]) -> int:
    """Select the k of highest kNN accuracy on the val rows, with labels y (N,) that may be wrong; ties to the larger k.

    If the label noise does not depend on the neighbours, the k of highest accuracy on noisy labels is also that of
    highest accuracy on the true ones.
    """
    rows = space.embeddings.rows(VAL)
    return max(ks, key=lambda k: (float((label_votes(space, y, rows, k).argmax(1) == y[rows]).mean()), k))


def clean_labels(space: EmbeddingSpace, y: np.ndarray, k: int) -> np.ndarray:
    """A copy of labels y (N,) in which each bank row has the most frequent label of its k nearest other bank rows.

    A row keeps its label on a tie. There is no threshold: at a high noise rate the true class has the most votes, but
    rarely the majority. A class that would lose all its rows keeps them, since it could not be predicted otherwise.

    Labels of fit and val rows are unchanged, wrong ones too: cleaned by the same votes they would agree with kNN, and
    everything fitted or calibrated on them would be overconfident. `forward_temperature` corrects for these.
    """
    rows, cleaned = space.embeddings.rows(BANK), np.array(y)
    votes = label_votes(space, y, rows, k)
    own = votes[np.arange(len(rows)), y[rows]]
    cleaned[rows] = np.where(own >= votes.max(1), y[rows], votes.argmax(1))
    missing = np.setdiff1d(y[rows], cleaned[rows])
    return np.where(np.isin(y, missing), y, cleaned)


def transition_matrix(labels: np.ndarray, cleaned: np.ndarray, n_classes: int) -> np.ndarray:
    """T[c, g] = share of noisy label g among the rows (N,) cleaned to class c: float64 (C, C), rows sum to 1.

    An estimate of P(noisy label | true class) (Patrini et al. 2017), with an added count of 1 for g = c.
    """
    counts = np.eye(n_classes)
    np.add.at(counts, (cleaned, labels), 1)
    return counts / counts.sum(1, keepdims=True)


def forward_temperature(probs: np.ndarray, labels: np.ndarray, transition: np.ndarray) -> float:
    """Temperature t of p^(1/t), normalised, of highest likelihood under noisy labels g with transition matrix T.

        t = argmin −Σᵢ log Σ_c pᵢ(c; t)·T[c, gᵢ]     (the forward correction of Patrini et al. 2017, for one parameter)

    A classifier fitted on noisy labels predicts these, and is underconfident about the true class; plain temperature
    scaling on noisy labels cannot correct that.

    Args:
        probs: (N, C), rows sum to 1, above 0.
        labels: (N,) noisy labels of rows that `probs` was not fitted on.
        transition: T (C, C), see `transition_matrix`.
    """
    log_p = np.log(np.maximum(probs.astype(np.float64), _TINY))
    label_probs = transition[:, labels].T  # (N, C), P(gᵢ | c)

    def loss(log_t: float) -> float:
        return -float(np.log((softmax(log_p / np.exp(log_t), axis=1) * label_probs).sum(1)).mean())

    result: Any = minimize_scalar(loss, bounds=(-3, 3), method="bounded")
    return float(np.exp(result.x)) if loss(result.x) < loss(0.0) else 1.0


def apply_temperature(probs: np.ndarray, temperature: float) -> np.ndarray:
    """p^(1/t), normalised: float32 (N, C), rows sum to 1 and none is 0."""
    log_p = np.log(np.maximum(probs.astype(np.float64), _TINY))
    p = np.maximum(softmax(log_p / temperature, axis=1), 2 * _TINY)
    return (p / p.sum(1, keepdims=True)).astype(np.float32)


def quality(true: np.ndarray, labels: np.ndarray, cleaned: np.ndarray) -> dict[str, float]:
    """Effect of cleaning on labels (N,).

    Returns:
        wrong_before, wrong_after: shares of all rows; mended: share of the wrong labels that cleaning corrected;
        spoiled: share of the right labels that it made wrong. Shares of no rows are 0.
    """
    before, after = labels != true, cleaned != true
    return {
        "wrong_before": float(before.mean()),
        "wrong_after": float(after.mean()),
        "mended": float((before & ~after).sum() / max(1, before.sum())),
        "spoiled": float((~before & after).sum() / max(1, (~before).sum())),
    }
