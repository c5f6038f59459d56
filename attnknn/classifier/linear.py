"""Logistic regression on the rows of a memory: its logits may score the null neighbours."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import log_softmax, logsumexp

from attnknn.core.artifacts import BANK, FIT, VAL
from attnknn.core.device import thread_pools
from attnknn.evaluation.calibration import given_log_probs
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.linear_probe import forward_regression

STRENGTHS = (1.0, 10.0, 30.0, 100.0)  # grid of C, ascending, for rows at an RMS distance of 1 from the origin


@dataclass(frozen=True)
class LinearClassifier:
    """Logits W·z + b of a multinomial logistic regression; classes without rows have the same odds everywhere."""

    coef: Float[np.ndarray, "C D"]  # float64
    intercept: Float[np.ndarray, " C"]  # float64
    log_odds: Float[np.ndarray, " C"] = field(default_factory=lambda: np.zeros(0))  # of those, 0 for others; or empty

    def logits(self, z: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B C"]:
        """Logits of queries, float64."""
        result = np.asarray(z, dtype=np.float64) @ self.coef.T + self.intercept
        absent = self.log_odds < 0
        if absent.any():
            result[:, absent] = logsumexp(result[:, ~absent], axis=1, keepdims=True) + self.log_odds[absent]
        return result


def fit_linear(
    z: Float[np.ndarray, "N D"],
    y: Int[np.ndarray, " N"],
    weight: Float[np.ndarray, " N"],
    n_classes: int,
    strength: float,
    start: LinearClassifier | None = None,
    transition: Float[np.ndarray, "C C"] | None = None,
    right: Bool[np.ndarray, " N"] | None = None,
) -> LinearClassifier:
    """Fit scikit-learn's `LogisticRegression` with C = `strength`, or `forward_regression` through a transition matrix.

    Classes without rows are left out, and have half a row each as in `votes.class_shares`, whatever the query.

    Args:
        start: of scikit-learn's solver; None for zeros.
        transition: T of `heads.label_noise` where labels may be wrong.
        right: whose labels are right nevertheless.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    z, (present, numbers) = np.asarray(z, dtype=np.float64), np.unique(y, return_inverse=True)
    if len(present) < n_classes:
        coef, intercept, log_odds = np.zeros((n_classes, z.shape[1])), np.zeros(n_classes), np.zeros(n_classes)
        if len(present) > 1:
            start = None if start is None else LinearClassifier(start.coef[present], start.intercept[present])
            known = None if transition is None else transition[np.ix_(present, present)]
            known = None if known is None else known / known.sum(1, keepdims=True)
            fitted = fit_linear(z, numbers, weight, len(present), strength, start, known, right)
            coef[present], intercept[present] = fitted.coef, fitted.intercept
        absent = np.setdiff1d(np.arange(n_classes), present)
        log_odds[absent] = np.log(weight.mean() / 2 / weight.sum())
        return LinearClassifier(coef, intercept, log_odds)
    if transition is not None:
        likelihood = transition[:, y].T
        if right is not None:
            likelihood[: len(right)][right] = np.eye(n_classes)[y[: len(right)][right]]
        return LinearClassifier(*forward_regression(z, likelihood, weight, strength))
    model = LogisticRegression(C=strength, max_iter=200, warm_start=True)
    if start is not None:
        model.coef_, model.intercept_ = start.coef, start.intercept
        if n_classes == 2:
            model.coef_, model.intercept_ = (np.diff(a, axis=0) for a in (start.coef, start.intercept))
    with warnings.catch_warnings(), thread_pools().limit(limits=1):  # each step is small, and waiting threads spin
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(z, y, weight)
    coef, intercept = model.coef_, np.asarray(model.intercept_)
    if n_classes == 2:  # of the second class against the first
        coef, intercept = np.concatenate([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2
    return LinearClassifier(coef, intercept)


def with_logits(
    spaces: Sequence[EmbeddingSpace], transition: np.ndarray | None = None
) -> tuple[float, list[EmbeddingSpace]]:
    """Fit linear classifiers on the bank rows of embedding spaces; choose C by NLL on all held-out rows.

    Args:
        transition: T of `heads.label_noise` where labels may be wrong.

    Returns:
        C, and the spaces with the logits of their classifier.
    """
    best = (np.inf, 0.0, [])
    classifiers: list[LinearClassifier | None] = [None] * len(spaces)
    for strength in STRENGTHS:
        fitted = [_fit_on_bank(*pair, strength, transition) for pair in zip(spaces, classifiers, strict=True)]
        logits = [c.logits(s.embeddings.z).astype(np.float32) for s, c in zip(spaces, fitted, strict=True)]
        classifiers = [*fitted]
        log_p = [_held_out_log_p(*pair, transition) for pair in zip(spaces, logits, strict=True)]
        nll = -float(np.concatenate(log_p).mean())
        best = min(best, (nll, strength, logits), key=lambda choice: choice[0])
    embeddings = [replace(s.embeddings, logits=logits) for s, logits in zip(spaces, best[2], strict=True)]
    return best[1], [replace(s, embeddings=e) for s, e in zip(spaces, embeddings, strict=True)]


def _fit_on_bank(
    space: EmbeddingSpace, start: LinearClassifier | None, strength: float, transition: np.ndarray | None
) -> LinearClassifier:
    e, rows = space.embeddings, space.embeddings.rows(BANK)
    weight = np.ones(len(rows)) if space.log_weight is None else np.exp(space.log_weight[rows])
    return fit_linear(e.z[rows], e.y[rows], weight, len(e.classes), strength, start, transition)


def _held_out_log_p(space: EmbeddingSpace, logits: np.ndarray, transition: np.ndarray | None) -> np.ndarray:
    rows = np.flatnonzero(np.isin(space.embeddings.part, (FIT, VAL)))
    return given_log_probs(log_softmax(logits[rows], axis=1), np.asarray(space.embeddings.y[rows]), transition)
