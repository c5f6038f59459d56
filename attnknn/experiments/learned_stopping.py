"""Learned stopping: after each k a query's own votes say whether they suffice. Nothing of ours is imported.

After step s the query stops with chance λ_s, if it came so far; the last step takes what is left:

    λ_s = σ(w·f_s),   π_s = λ_s·Π_{j<s}(1 − λ_j),   π_S = Π_{j<S}(1 − λ_j),   p = Σ_s π_s·p_s

f_s are a constant and what the votes so far look like: entropy, highest probability, its lead over the next, and log k.
The mixture is that of PonderNet (Banino et al. 2021), without its prior over steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp, xlogy

FEATURES = ("constant", "entropy", "highest", "lead", "log_k")
_DIGITS = 6  # of NLLs that are compared; they are made of float32 probabilities


@dataclass(frozen=True)
class Stopping:
    """When to stop: by weights (F,) of `features`, or always after the same step.

    Attributes:
        ks: the S neighbourhood sizes, ascending.
        weights: (F,), or None where the step is always the same.
        always: that step's number, where there are no weights.
        ridge: that the weights were fitted under; 0 where there are none.
    """

    ks: tuple[int, ...]
    weights: np.ndarray | None
    always: int = -1
    ridge: float = 0.0

    def shares(self, probs: np.ndarray) -> np.ndarray:
        """π float64 (N, S), rows sum to 1, from the answers (N, S, C) after each step."""
        if self.weights is None:
            return np.broadcast_to(np.eye(len(self.ks))[self.always], probs.shape[:2])
        return np.exp(log_shares(features(probs, self.ks) @ self.weights))


def features(probs: np.ndarray, ks: Sequence[int]) -> np.ndarray:
    """What the answers (N, S, C) after all steps but the last look like: float64 (N, S − 1, F), F as `FEATURES`.

    Entropy is over log C, and log k is of k over the largest.
    """
    seen = np.asarray(probs[:, :-1], np.float64)
    two = np.sort(seen, axis=2)[..., -2:]
    entropy = -xlogy(seen, seen).sum(2) / np.log(seen.shape[2])
    log_k = np.broadcast_to(np.log(np.array(ks[:-1]) / ks[-1]), entropy.shape)
    return np.stack([np.ones_like(entropy), entropy, two[..., 1], two[..., 1] - two[..., 0], log_k], 2)


def log_shares(logits: np.ndarray) -> np.ndarray:
    """log π (N, S) from the logits of λ (N, S − 1)."""
    zero = np.zeros((len(logits), 1))
    going = np.concatenate([zero, np.cumsum(log_expit(-logits), 1)], 1)  # log Π_{j<s}(1 − λ_j), (N, S)
    return going + np.concatenate([log_expit(logits), zero], 1)


def mixed(shares: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """p = Σ_s π_s·p_s, float32 (N, C), from π (N, S) and the answers (N, S, C)."""
    return np.einsum("ns,nsc->nc", shares, probs).astype(np.float32)


def loss(
    weights: np.ndarray, seen: np.ndarray, log_voted: np.ndarray, ridge: float, start: np.ndarray
) -> tuple[float, np.ndarray]:
    """NLL of the mixture + ridge·‖w − start‖², and its gradient (F,).

    Args:
        seen: (N, S − 1, F), of `features`.
        log_voted: (N, S), log of the true class's probability after each step.
    """
    logits = seen @ weights
    joint = log_shares(logits) + log_voted
    total = np.asarray(logsumexp(joint, axis=1, keepdims=True))
    held = np.exp(joint - total)  # (N, S), each step's part in the true class's probability
    later = np.cumsum(held[:, ::-1], 1)[:, ::-1][:, 1:]  # Σ_{s>j} of it, (N, S − 1)
    chance = np.exp(log_expit(logits))
    slope = held[:, :-1] * (1 - chance) - chance * later
    pull = weights - start
    gradient = -np.einsum("ns,nsf->f", slope, seen) / len(seen) + 2 * ridge * pull
    return -float(total.mean()) + ridge * float(pull @ pull), gradient


def fit_stopping(
    fit: np.ndarray,
    y_fit: np.ndarray,
    val: np.ndarray,
    y_val: np.ndarray,
    ks: Sequence[int],
    usual: int,
    ridges: Sequence[float],
) -> Stopping:
    """Fit the weights on fit rows by NLL (L-BFGS) under each ridge; the choice of lowest NLL on val rows is taken.

    Among the choices are "always the usual k" and "always the largest", so on val the NLL is never above theirs. Ties,
    up to rounding, go to the usual k.

    Args:
        fit, val: (F, S, C), (V, S, C), probabilities after each step, those of the true classes above 0.
        y_fit, y_val: (F,), (V,) true classes.
        ks: the S neighbourhood sizes, ascending.
        usual: the one of them that the method answers with alone.
        ridges: pull of the weights towards "hardly ever stop early", λ = σ(−2).
    """
    steps = len(ks)

    def log_voted(probs: np.ndarray, y: np.ndarray) -> np.ndarray:
        tiny = float(np.finfo(np.float32).tiny)  # what float32 lets underflow
        return np.log(np.maximum(probs[np.arange(len(y)), :, y].astype(np.float64), tiny))

    choices = [Stopping(tuple(ks), None, step) for step in (list(ks).index(usual), steps - 1)]
    if steps > 1:
        start = np.zeros(len(FEATURES))
        start[0] = -2.0
        seen, voted = features(fit, ks), log_voted(fit, y_fit)
        for ridge in ridges:
            found = minimize(loss, start, (seen, voted, ridge, start), jac=True, method="L-BFGS-B")
            choices.append(Stopping(tuple(ks), found.x, ridge=ridge))
    on_val = log_voted(val, y_val)

    def nll(choice: Stopping) -> float:
        with np.errstate(divide="ignore"):  # always the same step: the others have no share
            total = np.asarray(logsumexp(np.log(choice.shares(val)) + on_val, axis=1))
        return round(-float(total.mean()), _DIGITS)

    return min(choices, key=nll)
