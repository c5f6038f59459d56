"""Learned stopping over k: a mixture of the predictions at several k, weighted by halting probabilities.

A query that reaches step s halts there with probability λ_s, and at the last step with the remaining probability:

    λ_s = σ(w·f_s),   π_s = λ_s·Π_{j<s}(1 − λ_j),   π_S = Π_{j<S}(1 − λ_j),   p = Σ_s π_s·p_s

f_s are a constant, the entropy of p_s, its highest probability and margin over the second, and log k. The mixture is
that of PonderNet (Banino et al. 2021), without its prior over steps.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp, xlogy

FEATURES = ("constant", "entropy", "max_prob", "margin", "log_k")
_DIGITS = 6  # of NLLs that are compared; the probabilities are float32


HaltingProbs = Callable[[np.ndarray], np.ndarray]  # of the probabilities (N, S, C) of each step: π float64 (N, S)


def features(probs: np.ndarray, ks: Sequence[int]) -> np.ndarray:
    """`FEATURES` of the probabilities (N, S, C) of all steps but the last: float64 (N, S − 1, F).

    Entropy is over log C, and log k is that of k over the largest.
    """
    p = np.asarray(probs[:, :-1], np.float64)
    second, highest = np.moveaxis(np.sort(p, axis=2)[..., -2:], 2, 0)
    entropy = -xlogy(p, p).sum(2) / np.log(p.shape[2])
    log_k = np.broadcast_to(np.log(np.array(ks[:-1]) / ks[-1]), entropy.shape)
    return np.stack([np.ones_like(entropy), entropy, highest, highest - second, log_k], 2)


def log_halting_probs(logits: np.ndarray) -> np.ndarray:
    """log π (N, S) from the logits of λ (N, S − 1)."""
    zero = np.zeros((len(logits), 1))
    log_reached = np.concatenate([zero, np.cumsum(log_expit(-logits), 1)], 1)  # log Π_{j<s}(1 − λ_j), (N, S)
    return log_reached + np.concatenate([log_expit(logits), zero], 1)


def learned(ks: Sequence[int], weights: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """π (N, S), rows sum to 1, by weights (F,) of `features`, from the probabilities (N, S, C) of each step."""
    return np.exp(log_halting_probs(features(probs, ks) @ weights))


def fixed(step: int, probs: np.ndarray) -> np.ndarray:
    """π (N, S) that halts at one step."""
    return np.broadcast_to(np.eye(probs.shape[1])[step], probs.shape[:2])


def mixture(halting_probs: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """p = Σ_s π_s·p_s, float32 (N, C), from π (N, S) and the probabilities (N, S, C) of each step."""
    return np.einsum("ns,nsc->nc", halting_probs, probs).astype(np.float32)


def loss(
    weights: np.ndarray, x: np.ndarray, log_probs: np.ndarray, ridge: float, start: np.ndarray
) -> tuple[float, np.ndarray]:
    """NLL of the mixture + ridge·‖w − start‖², and its gradient (F,).

    Args:
        x: (N, S − 1, F), of `features`.
        log_probs: (N, S), log of the true class's probability after each step.
    """
    logits = x @ weights
    joint = log_halting_probs(logits) + log_probs
    total = np.asarray(logsumexp(joint, axis=1, keepdims=True))
    posterior = np.exp(joint - total)  # (N, S), of the steps given the true class
    later = np.cumsum(posterior[:, ::-1], 1)[:, ::-1][:, 1:]  # Σ_{s>j} of it, (N, S − 1)
    halt = np.exp(log_expit(logits))
    slope = posterior[:, :-1] * (1 - halt) - halt * later
    offset = weights - start
    gradient = -np.einsum("ns,nsf->f", slope, x) / len(x) + 2 * ridge * offset
    return -float(total.mean()) + ridge * float(offset @ offset), gradient


def fit_stopping(
    fit: np.ndarray,
    y_fit: np.ndarray,
    val: np.ndarray,
    y_val: np.ndarray,
    ks: Sequence[int],
    default_k: int,
    ridges: Sequence[float],
) -> HaltingProbs:
    """Fit the weights on fit rows by NLL (L-BFGS) under each ridge; select by NLL on val rows.

    Halting always at the default k or at the largest k are candidates too, so the NLL on val is never above theirs.
    Ties, up to rounding, go to the default k.

    Args:
        fit, val: (F, S, C), (V, S, C), probabilities after each step, those of the true classes above 0.
        y_fit, y_val: (F,), (V,) true classes.
        ks: the S numbers of neighbours, ascending.
        default_k: the one of them that the method uses without stopping.
        ridges: penalties of the distance to λ = σ(−2), which seldom halts early.
    """

    def log_probs(probs: np.ndarray, y: np.ndarray) -> np.ndarray:
        tiny = float(np.finfo(np.float32).tiny)  # float32 may have underflowed
        return np.log(np.maximum(probs[np.arange(len(y)), :, y].astype(np.float64), tiny))

    candidates: list[HaltingProbs] = [partial(fixed, step) for step in (list(ks).index(default_k), len(ks) - 1)]
    if len(ks) > 1:
        start = np.zeros(len(FEATURES))
        start[0] = -2.0
        data = features(fit, ks), log_probs(fit, y_fit)
        for ridge in ridges:
            result = minimize(loss, start, (*data, ridge, start), jac=True, method="L-BFGS-B")
            candidates.append(partial(learned, ks, result.x))
    on_val = log_probs(val, y_val)

    def nll(halting_probs: HaltingProbs) -> float:
        with np.errstate(divide="ignore"):  # log 0, at a fixed step
            total = np.asarray(logsumexp(np.log(halting_probs(val)) + on_val, axis=1))
        return round(-float(total.mean()), _DIGITS)

    return min(candidates, key=nll)
