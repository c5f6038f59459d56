"""Post-hoc calibration of any method's probabilities: fitted on fit rows, its settings chosen on validation rows.

Every kind has "no change" among its settings, and takes another only where that lowers the NLL on validation rows. With
few fit rows a calibration can be worse than none; then the probabilities stay as they are, and the settings say so.
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
_TINY = float(np.finfo(np.float32).tiny)  # 1.2e-38, so that every probability has a logarithm
_ETAS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
_MIXES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # share of uncalibrated probabilities beside isotonic's
_STEPS = 100  # of Newton's method at most; it takes about five
_CONVERGED = 1e-12  # what a Newton step would still gain
_NEWTON_CLASSES = 30  # of Dirichlet calibration: 930² numbers of curvature

Transform = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Calibrated:
    """Calibrated probabilities of the val rows (V, C) and test rows (N, C), and the settings that were chosen."""

    val: np.ndarray
    test: np.ndarray
    settings: dict[str, float]


def _nll(probs: np.ndarray, y: np.ndarray) -> float:
    return -float(np.log(probs[np.arange(len(y)), y].astype(np.float64)).mean())


def _balanced_nll(probs: np.ndarray, y: np.ndarray) -> float:
    """Mean over the classes that y has of the mean NLL of their rows."""
    losses = -np.log(probs[np.arange(len(y)), y].astype(np.float64))
    counts = np.bincount(y)
    return float((np.bincount(y, losses)[counts > 0] / counts[counts > 0]).mean())


def correct_prior(probs: np.ndarray, shares: np.ndarray, eta: float) -> np.ndarray:
    """p_c ∝ p_c·share_c^(−η), float64 (N, C): logit adjustment after the fact (Menon et al. 2021)."""
    corrected = np.asarray(probs, np.float64) * np.asarray(shares, np.float64) ** -eta
    return corrected / corrected.sum(1, keepdims=True)


def _floored(probs: np.ndarray) -> np.ndarray:
    """Rows that sum to 1 with no probability below 1.2e-38, float32."""
    probs = np.maximum(np.asarray(probs, np.float64), 2 * _TINY)
    return (probs / probs.sum(1, keepdims=True)).astype(np.float32)


def fit_temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """T > 0 that minimises the NLL of softmax(logits/T) on rows (B, C), y (B,) (Guo et al. 2017)."""
    from scipy.optimize import minimize_scalar  # takes a quarter of a second

    rows = np.arange(len(y))

    def nll(log_t: float) -> float:
        return -float(log_softmax(logits / np.exp(log_t), axis=1)[rows, y].mean())

    result: Any = minimize_scalar(nll, bounds=(-4, 4), method="bounded")
    return float(np.exp(result.x))


def vector_scale(log_probs: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """softmax(scale_c · log p_c + bias_c), float32 (B, C)."""
    return np.exp(log_softmax(scale * log_probs + bias, axis=1)).astype(np.float32)


def fit_vector_scaling(log_probs: np.ndarray, y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Scale (C,) and bias (C,) of `vector_scale` that minimise NLL + ridge·(‖scale − 1‖² + ‖bias‖²)/C.

    The problem is convex; the ridge pulls towards "no change" where rows are few.
    """
    n, c = log_probs.shape
    x, onehot = log_probs.astype(np.float64), np.eye(c)[y]
    unchanged = np.repeat([1.0, 0.0], c)

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss, and the probabilities (B, C)."""
        logits = flat[:c] * x + flat[c:]
        logits -= logits.max(1, keepdims=True)
        odds = np.exp(logits)
        total, pull = odds.sum(1, keepdims=True), flat - unchanged
        nll = np.log(total).mean() - logits[np.arange(n), y].mean()
        return float(nll) + ridge * float(pull @ pull) / c, odds / total

    # Newton's method: a few steps where quasi-Newton takes dozens, for 2C parameters are few.
    flat, diagonal, (loss, q) = unchanged, np.arange(c), value(unchanged)
    for _ in range(_STEPS):
        residual = (q - onehot) / n
        gradient = np.concatenate([(residual * x).sum(0), residual.sum(0)]) + 2 * ridge * (flat - unchanged) / c
        slopes = np.hstack([q * x, q])  # (B, 2C)
        curvature = -(slopes.T @ slopes) / n + 2 * ridge / c * np.eye(2 * c)
        scales, mixed, biases = (q * x * x).mean(0), (q * x).mean(0), q.mean(0)  # second derivatives within a class
        for i, j, block in ((0, 0, scales), (0, c, mixed), (c, 0, mixed), (c, c, biases)):
            curvature[diagonal + i, diagonal + j] += block
        step = np.linalg.solve(curvature, gradient)
        gain, size = float(gradient @ step), 1.0
        if gain < _CONVERGED:
            break
        while (trial := value(flat - size * step))[0] > loss - 1e-4 * size * gain and size > _CONVERGED:
            size /= 2
        flat, (loss, q) = flat - size * step, trial
    return flat[:c], flat[c:]


def _remembered(transform: Transform) -> Transform:
    """The same, which does not transform the same array twice in a row: every mix asks for it."""
    last: list[np.ndarray] = []

    def cached(probs: np.ndarray) -> np.ndarray:
        if not last or last[0] is not probs:
            last[:] = [probs, transform(probs)]
        return last[1]

    return cached


def _fit_isotonic(fit: np.ndarray, y: np.ndarray) -> Transform:
    """One class against the rest, each by isotonic regression, then normalised (Zadrozny & Elkan 2002).

    A row that every class's regression gives 0 keeps its probabilities.
    """
    from sklearn.isotonic import IsotonicRegression

    steps = [
        IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(fit[:, c].astype(np.float64), y == c)
        for c in range(fit.shape[1])
    ]

    def transform(probs: np.ndarray) -> np.ndarray:
        probs = probs.astype(np.float64)
        steps_probs = np.stack([step.predict(column) for step, column in zip(steps, probs.T, strict=True)], 1)
        total = steps_probs.sum(1, keepdims=True)
        return np.divide(steps_probs, total, out=probs.copy(), where=total > 0)

    return transform


def _fit_dirichlet(fit: np.ndarray, y: np.ndarray, ridges: Sequence[float]) -> list[Transform]:
    """softmax(W log p + b) by multinomial logistic regression (Kull et al. 2019), penalised by ridge·‖W‖²/C.

    Classes without a fit row keep their probability, and the others share what is left. Fit rows of one class alone
    fit nothing.

    Returns:
        A transform for each of the ridges, in their order.
    """
    from sklearn.linear_model import LogisticRegression

    n, c = fit.shape
    present = np.unique(y)
    if len(present) < 2:
        return [lambda probs: probs] * len(ridges)
    log_fit = np.log(fit)
    centre = log_fit.mean(0)  # centred columns spare the solver most of the steps
    # Newton's method takes a few steps where quasi-Newton takes hundreds, but a matrix of C²·C² numbers.
    solver = "newton-cholesky" if len(present) <= _NEWTON_CLASSES else "lbfgs"
    model = LogisticRegression(solver=solver, max_iter=300, warm_start=True)

    def transform(probs: np.ndarray, model: LogisticRegression) -> np.ndarray:
        calibrated_probs = probs.astype(np.float64)
        share = calibrated_probs[:, present].sum(1, keepdims=True)
        calibrated_probs[:, present] = share * model.predict_proba(np.log(probs) - centre)
        return calibrated_probs

    fitted: dict[float, Transform] = {}
    for ridge in sorted(ridges, reverse=True):  # each starts from the one that is held back more
        # scikit-learn minimises strength·ΣNLL + ‖W‖²/2.
        model.set_params(C=c / (2 * n * ridge)).fit(log_fit - centre, y)
        fitted[ridge] = partial(transform, model=copy.deepcopy(model))
    return [fitted[ridge] for ridge in ridges]


def _fits(
    kind: str, fit: np.ndarray, y: np.ndarray, ridges: Sequence[float], shares: np.ndarray | None
) -> list[tuple[dict[str, float], Transform]]:
    """Every setting that validation rows choose among, with the transform fitted under it."""
    if kind == "temperature":
        t = fit_temperature(np.log(fit), y)
        return [({"temperature": t}, lambda p: vector_scale(np.log(p), np.array(1 / t), np.array(0.0)))]
    if kind == PRIOR:
        assert shares is not None, "the correction is for the shares of the bank"
        return [({"eta": eta}, partial(correct_prior, shares=shares, eta=eta)) for eta in _ETAS]
    if kind == "vector":
        fitted = [(r, fit_vector_scaling(np.log(fit), y, r)) for r in ridges]
        return [
            ({"ridge": r}, lambda p, parameters=parameters: vector_scale(np.log(p), *parameters))
            for r, parameters in fitted
        ]
    if kind == "isotonic":
        step = _remembered(_fit_isotonic(fit, y))
        return [({"mix": m}, lambda p, m=m: (1 - m) * step(p) + m * p) for m in _MIXES]
    return [({"ridge": r}, step) for r, step in zip(ridges, _fit_dirichlet(fit, y, ridges), strict=True)]


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
    """Calibrate one method's probabilities; the setting of lowest NLL on val is taken, ties keep "no change".

    temperature: softmax(log p / T). vector: softmax(s_c · log p_c + b_c), held back by a ridge (Guo et al. 2017).
    isotonic: one class against the rest, normalised; its zeros would make the NLL infinite, so a share `mix` of the
    uncalibrated probabilities, at least 0.001, is kept as a floor. dirichlet: softmax(W log p + b), with a ridge on W.
    prior: p_c·share_c^(−η), normalised; η, 0 among its values, is that of the lowest NLL on val with every class
    weighing the same (Menon et al. 2021), for it aims at balanced accuracy and not at the rows as they come.

    Args:
        kind: one of `KINDS`, or `PRIOR`.
        fit, val, test: (F, C), (V, C), (N, C), rows sum to 1; zeros are lifted to 1.2e-38, the least float32.
        y_fit, y_val: (F,), (V,) true classes; a class may be absent.
        ridges: what vector and dirichlet choose among.
        shares: (C,) class shares of the bank, above 0, for prior.

    Returns:
        float32 probabilities; rows sum to 1 and none is 0. The settings are one of temperature, ridge, mix, eta, or
        `UNCHANGED`.

    Raises:
        InputError: no such kind.
    """
    known = (*KINDS, PRIOR)
    require(kind in known, f"calibration: {kind} is no kind; there are {', '.join(known)}")
    fit, val, test = (_floored(probs) for probs in (fit, val, test))
    choices: list[tuple[dict[str, float], Transform]] = [(dict(UNCHANGED), lambda p: p)]
    choices += _fits(kind, fit.astype(np.float64), np.asarray(y_fit), ridges, shares)
    exact = val.astype(np.float64)
    on_val = [_floored(transform(exact)) for _, transform in choices]
    score = _balanced_nll if kind == PRIOR else _nll
    best = int(np.argmin([score(probs, np.asarray(y_val)) for probs in on_val]))
    settings, transform = choices[best]
    return Calibrated(on_val[best], _floored(transform(test.astype(np.float64))), settings)


RIDGES = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 1000.0)


def apply_scaling(probs: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """softmax(scale_c·log p_c + bias_c), float64 (B, C)."""
    floored = np.maximum(np.asarray(probs, np.float64), np.finfo(np.float32).tiny)
    return np.exp(log_softmax(scale * np.log(floored) + bias, axis=1))


def fit_scaling(
    kind: str | None, fit: np.ndarray, y_fit: np.ndarray, val: np.ndarray, y_val: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit scale and bias (C,) of `apply_scaling` on fit rows; of these and "no change", take the lowest val NLL."""
    classes = fit.shape[1]
    choices = [(np.ones(classes), np.zeros(classes))]
    log_fit = np.log(np.maximum(fit.astype(np.float64), np.finfo(np.float32).tiny))
    if kind == "temperature":
        choices.append((np.full(classes, 1 / fit_temperature(log_fit, y_fit)), np.zeros(classes)))
    if kind == "vector":
        choices += [fit_vector_scaling(log_fit, y_fit, ridge) for ridge in RIDGES]
    rows = np.arange(len(y_val))
    return min(choices, key=lambda choice: -float(np.log(apply_scaling(val, *choice)[rows, y_val]).mean()))
