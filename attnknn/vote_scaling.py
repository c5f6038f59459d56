"""Calibration of votes: softmax(scale·log p + bias), temperature and vector scaling in one form."""

import numpy as np
from scipy.special import log_softmax

from attnknn.calibration import fit_temperature, fit_vector_scaling

RIDGES = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 1000.0)


def scaled(probs: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """softmax(scale_c·log p_c + bias_c), float64 (B, C)."""
    floored = np.maximum(np.asarray(probs, np.float64), np.finfo(np.float32).tiny)
    return np.exp(log_softmax(scale * np.log(floored) + bias, axis=1))


def fitted_scaling(
    kind: str | None, fit: np.ndarray, y_fit: np.ndarray, val: np.ndarray, y_val: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and bias (C,) of `scaled`, fitted on fit rows; of several and of no change the lowest NLL on val rows."""
    classes = fit.shape[1]
    choices = [(np.ones(classes), np.zeros(classes))]
    log_fit = np.log(np.maximum(fit.astype(np.float64), np.finfo(np.float32).tiny))
    if kind == "temperature":
        choices.append((np.full(classes, 1 / fit_temperature(log_fit, y_fit)), np.zeros(classes)))
    if kind == "vector":
        choices += [fit_vector_scaling(log_fit, y_fit, ridge) for ridge in RIDGES]
    at = np.arange(len(y_val))
    return min(choices, key=lambda of: -float(np.log(scaled(val, *of)[at, y_val]).mean()))
