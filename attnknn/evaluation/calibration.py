"""Post-hoc calibration of class probabilities: fitted on fit rows, its setting chosen by NLL on validation rows.

"No change" is among the settings of every kind and wins ties, so that calibration on few fit rows cannot raise the
validation NLL.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax

from attnknn.core.errors import require
from attnknn.evaluation.method import KINDS, PRIOR

UNCHANGED = {"unchanged": 1.0}
_TINY = float(np.finfo(np.float32).tiny)  # floor of probabilities, 1.2e-38
RIDGES = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 1000.0)  # grid of `fit_scaling`
_ETAS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
_MIXES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # weight of the uncalibrated probabilities in isotonic calibration
_STEPS = 100  # maximum of Newton's method; about five are needed
_CONVERGED = 1e-12  # Newton decrement
_NEWTON_CLASSES = 30  # most classes for Newton's method in Dirichlet calibration: a Hessian of 930²

Transform = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Calibrated:
    """Calibrated probabilities of the val rows (V, C) and test rows (N, C), and the chosen settings."""

    val: np.ndarray
    test: np.ndarray
    settings: dict[str, float]


def _nll(probs: np.ndarray, y: np.ndarray, balanced: bool) -> float:
    """Mean NLL; or, balanced, the mean per class, averaged over the classes in y."""
    losses = -np.log(probs[np.arange(len(y)), y].astype(np.float64))
    if not balanced:
        return float(losses.mean())
    counts = np.bincount(y)
    return float((np.bincount(y, losses)[counts > 0] / counts[counts > 0]).mean())


def correct_prior(probs: np.ndarray, shares: np.ndarray, eta: float) -> np.ndarray:
    """p_c ∝ p_c·share_c^(−η), float64 (N, C): post-hoc logit adjustment (Menon et al. 2021)."""
    corrected = np.asarray(probs, np.float64) * np.asarray(shares, np.float64) ** -eta
    return corrected / corrected.sum(1, keepdims=True)


def _floored(probs: np.ndarray) -> np.ndarray:
    """Clip probabilities at 1.2e-38 and normalise rows, float32."""
    probs = np.maximum(np.asarray(probs, np.float64), 2 * _TINY)
    return (probs / probs.sum(1, keepdims=True)).astype(np.float32)


def given_probs(probs: np.ndarray, y: np.ndarray, transition: np.ndarray | None) -> np.ndarray:
    """Probabilities (B,) of labels y (B,), from those (B, C) of the true classes; T as for `fit_temperature`."""
    return probs[np.arange(len(y)), y] if transition is None else (probs * transition.T[y]).sum(1)


def given_log_probs(log_probs: np.ndarray, y: np.ndarray, transition: np.ndarray | None) -> np.ndarray:
    """log of `given_probs`, from log-probabilities."""
    if transition is None:
        return log_probs[np.arange(len(y)), y]
    return np.log(np.maximum(given_probs(np.exp(log_probs), y, transition), _TINY))


def fit_temperature(logits: np.ndarray, y: np.ndarray, transition: np.ndarray | None = None) -> float:
    """Fit t > 0 that minimises the NLL of softmax(logits/t), logits (B, C), y (B,) (Guo et al. 2017).

    Args:
        transition: T (C, C) of `heads.label_noise` where labels y may be wrong: the NLL is that of softmax(logits/t)·T.
    """
    from scipy.optimize import minimize_scalar  # a slow import

    def nll(log_t: float) -> float:
        rows = blocks(*logits.shape)
        true = [given_log_probs(log_softmax(logits[b] / np.exp(log_t), axis=1), y[b], transition) for b in rows]
        return -float(np.concatenate(true).mean())

    result: Any = minimize_scalar(nll, bounds=(-4, 4), method="bounded")
    return float(np.exp(result.x))


def vector_scale(log_probs: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """softmax(scale_c · log p_c + bias_c), float32 (B, C)."""
    return np.exp(log_softmax(scale * log_probs + bias, axis=1)).astype(np.float32)


def fit_vector_scaling(log_probs: np.ndarray, y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Fit scale (C,) and bias (C,) of `vector_scale`: minimise NLL + ridge·(‖scale − 1‖² + ‖bias‖²)/C.

    The problem is convex and solved by Newton's method with backtracking.
    """
    n, c = log_probs.shape
    x, onehot = log_probs.astype(np.float64), np.eye(c)[y]
    unchanged = np.repeat([1.0, 0.0], c)

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss, and the probabilities (B, C)."""
        logits = flat[:c] * x + flat[c:]
        logits -= logits.max(1, keepdims=True)
        odds = np.exp(logits)
        total, offset = odds.sum(1, keepdims=True), flat - unchanged
        nll = np.log(total).mean() - logits[np.arange(n), y].mean()
        return float(nll) + ridge * float(offset @ offset) / c, odds / total

    flat, diagonal, (loss, q) = unchanged, np.arange(c), value(unchanged)
    for _ in range(_STEPS):
        residual = (q - onehot) / n
        gradient = np.concatenate([(residual * x).sum(0), residual.sum(0)]) + 2 * ridge * (flat - unchanged) / c
        jacobian = np.hstack([q * x, q])  # (B, 2C)
        hessian = -(jacobian.T @ jacobian) / n + 2 * ridge / c * np.eye(2 * c)
        scales, mixed, biases = (q * x * x).mean(0), (q * x).mean(0), q.mean(0)  # second derivatives within a class
        for i, j, block in ((0, 0, scales), (0, c, mixed), (c, 0, mixed), (c, c, biases)):
            hessian[diagonal + i, diagonal + j] += block
        step = np.linalg.solve(hessian, gradient)
        decrement, size = float(gradient @ step), 1.0
        if decrement < _CONVERGED:
            break
        while (trial := value(flat - size * step))[0] > loss - 1e-4 * size * decrement and size > _CONVERGED:
            size /= 2
        flat, (loss, q) = flat - size * step, trial
    return flat[:c], flat[c:]


def _fit_isotonic(fit: np.ndarray, y: np.ndarray) -> Transform:
    """Isotonic regression one-vs-rest, normalised (Zadrozny & Elkan 2002), at least 1/(n + 2) from 0 and 1.

    n fit rows; Laplace's rule, before rows are normalised. Classes without a fit row keep their probability until then.
    """
    from sklearn.isotonic import IsotonicRegression

    low = 1 / (len(y) + 2)  # n rows of one outcome do not exclude the other
    models = {
        c: IsotonicRegression(y_min=low, y_max=1 - low, out_of_bounds="clip").fit(fit[:, c], y == c)
        for c in np.unique(y)
    }

    def transform(probs: np.ndarray) -> np.ndarray:
        calibrated_probs = probs.copy()
        for c, model in models.items():
            calibrated_probs[:, c] = model.predict(probs[:, c])
        return calibrated_probs / calibrated_probs.sum(1, keepdims=True)

    return transform


def _fit_dirichlet(fit: np.ndarray, y: np.ndarray, ridges: Sequence[float]) -> list[Transform]:
    """Multinomial logistic regression on log p (Kull et al. 2019), penalised by ridge·‖W‖²/C, for each ridge in order.

    Classes without a fit row keep their probability and the others share the rest. With fit rows of one class only, no
    transform changes anything.
    """
    from sklearn.linear_model import LogisticRegression

    n, c = fit.shape
    present = np.unique(y)
    if len(present) < 2:
        return [lambda probs: probs] * len(ridges)
    log_fit = np.log(fit)
    centre = log_fit.mean(0)  # centred columns converge faster
    # Newton's method takes few steps, but needs a Hessian of C²·C².
    solver = "newton-cholesky" if len(present) <= _NEWTON_CLASSES else "lbfgs"
    model = LogisticRegression(solver=solver, max_iter=300, warm_start=True)

    def transform(probs: np.ndarray, model: LogisticRegression) -> np.ndarray:
        calibrated_probs = probs.astype(np.float64)
        share = calibrated_probs[:, present].sum(1, keepdims=True)
        calibrated_probs[:, present] = share * model.predict_proba(np.log(probs) - centre)
        return calibrated_probs

    fitted: dict[float, Transform] = {}
    for ridge in sorted(ridges, reverse=True):  # warm start from the stronger penalty
        # scikit-learn minimises strength·ΣNLL + ‖W‖²/2.
        model.set_params(C=c / (2 * n * ridge)).fit(log_fit - centre, y)
        fitted[ridge] = partial(transform, model=copy.deepcopy(model))
    return [fitted[ridge] for ridge in ridges]


def _fits(
    kind: str, fit: np.ndarray, y: np.ndarray, ridges: Sequence[float], shares: np.ndarray | None
) -> list[tuple[dict[str, float], Transform]]:
    """The settings that validation rows choose among, each with its fitted transform."""
    if kind == "temperature":
        t = fit_temperature(np.log(fit), y)
        return [({"temperature": t}, lambda p: vector_scale(np.log(p), np.array(1 / t), np.array(0.0)))]
    if kind == PRIOR:
        assert shares is not None, "prior correction needs the class shares of the bank"
        return [({"eta": eta}, partial(correct_prior, shares=shares, eta=eta)) for eta in _ETAS]
    if kind == "vector":
        fitted = [fit_vector_scaling(np.log(fit), y, r) for r in ridges]
        return [({"ridge": r}, lambda p, s=s: vector_scale(np.log(p), *s)) for r, s in zip(ridges, fitted, strict=True)]
    if kind == "isotonic":
        isotonic = _fit_isotonic(fit, y)
        return [({"mix": m}, lambda p, m=m: (1 - m) * isotonic(p) + m * p) for m in _MIXES]
    assert kind == "dirichlet", kind
    return [({"ridge": r}, transform) for r, transform in zip(ridges, _fit_dirichlet(fit, y, ridges), strict=True)]


def calibrate(
    kind: str,
    fit: np.ndarray,
    y_fit: np.ndarray,
    val: np.ndarray,
    y_val: np.ndarray,
    test: np.ndarray,
    ridges: Sequence[float],
    shares: np.ndarray | None = None,
) -> Calibrated:
    """Calibrate one method's probabilities by the setting of lowest NLL on val; ties go to "no change".

    temperature: softmax(log p / T). vector: softmax(s_c · log p_c + b_c), with a ridge towards no change (Guo et al.
    2017). isotonic: one-vs-rest, normalised, mixed with a share `mix` of the uncalibrated probabilities. dirichlet:
    softmax(W log p + b), with a ridge on W. prior: p_c·share_c^(−η), normalised, with η chosen by the class-balanced
    NLL on val, since it aims at balanced accuracy (Menon et al. 2021).

    Args:
        kind: one of `KINDS`, or `PRIOR`.
        fit, val, test: (F, C), (V, C), (N, C), rows sum to 1; probabilities are clipped at 1.2e-38.
        y_fit, y_val: (F,), (V,) true classes; a class may be absent.
        ridges: grid of vector and dirichlet.
        shares: (C,) class shares of the bank, above 0, for prior.

    Returns:
        float32 probabilities; rows sum to 1 and none is 0. The settings are one of temperature, ridge, mix, eta, or
        `UNCHANGED`.

    Raises:
        InputError: unknown kind.
    """
    kinds = (*KINDS, PRIOR)
    require(kind in kinds, f"calibration: {kind} unknown; allowed are {', '.join(kinds)}")
    fit, val, test = (_floored(probs) for probs in (fit, val, test))
    choices: list[tuple[dict[str, float], Transform]] = [(dict(UNCHANGED), lambda p: p)]
    choices += _fits(kind, fit.astype(np.float64), np.asarray(y_fit), ridges, shares)
    exact = val.astype(np.float64)
    on_val = [_floored(transform(exact)) for _, transform in choices]
    best = int(np.argmin([_nll(probs, np.asarray(y_val), balanced=kind == PRIOR) for probs in on_val]))
    settings, transform = choices[best]
    return Calibrated(on_val[best], _floored(transform(test.astype(np.float64))), settings)


def apply_scaling(probs: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """softmax(scale_c·log p_c + bias_c), float64 (B, C); probabilities are clipped at 1.2e-38."""
    return np.exp(log_softmax(scale * np.log(np.maximum(np.asarray(probs, np.float64), _TINY)) + bias, axis=1))


def scaled_losses(
    probs: np.ndarray, y: np.ndarray, scale: np.ndarray, bias: np.ndarray, transition: np.ndarray | None = None
) -> np.ndarray:
    """−log p (M,) of labels y (M,) by `apply_scaling` of probs (M, C); T as for `fit_temperature`."""
    rows = blocks(*probs.shape)
    return -np.log(np.concatenate([given_probs(apply_scaling(probs[b], scale, bias), y[b], transition) for b in rows]))


def fit_scaling(
    kind: str | None,
    fit: np.ndarray,
    y_fit: np.ndarray,
    val: np.ndarray,
    y_val: np.ndarray,
    transition: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit scale and bias (C,) of `apply_scaling` on fit rows; of these and "no change", take the lowest val NLL.

    With T, as for `fit_temperature`, `vector` is not fitted.
    """
    classes = fit.shape[1]
    choices = [(np.ones(classes), np.zeros(classes))]
    log_fit = np.maximum(fit, _TINY, dtype=np.float64)
    np.log(log_fit, out=log_fit)
    if kind == "temperature":
        choices.append((np.full(classes, 1 / fit_temperature(log_fit, y_fit, transition)), np.zeros(classes)))
    if kind == "vector":
        choices += [fit_vector_scaling(log_fit, y_fit, ridge) for ridge in RIDGES]
    return min(choices, key=lambda choice: scaled_losses(val, y_val, *choice, transition).mean())


def blocks(rows: int, classes: int) -> list[np.ndarray]:
    """Row numbers 0 … rows − 1 in blocks of about 2²⁰ probabilities, so that thousands of classes fit in memory."""
    return np.split(np.arange(rows), range(step := max(1, 2**20 // classes), rows, step))
