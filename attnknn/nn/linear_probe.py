"""Logistic regression of the bank's labels on its embeddings."""

import dataclasses
import warnings

import numpy as np

from attnknn.core.artifacts import BANK, VAL, Embeddings

_CS = (0.1, 1.0, 10.0, 100.0)  # inverse penalties, of rows with a root mean square norm of 1
_ABSENT = -20.0  # logit of a class without a row


def logistic_regression(
    x: np.ndarray, y: np.ndarray, x_val: np.ndarray, y_val: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (C, D) and biases (C,) of the multinomial logistic regression whose penalty has the lowest NLL on val."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression  # a slow import

    scale = float(np.sqrt((x.astype(np.float64) ** 2).sum(1).mean()))
    model, best = LogisticRegression(max_iter=200, warm_start=True), np.inf
    weight, bias = np.zeros((n_classes, x.shape[1])), np.full(n_classes, _ABSENT)
    present = np.unique(y)
    bias[present] = 0.0
    for c in _CS if len(present) > 1 else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # close enough after 200 iterations
            model.set_params(C=c).fit(x / scale, y)
        w, b = model.coef_ / scale, model.intercept_
        if len(present) == 2:
            w, b = np.concatenate([-w, w]) / 2, np.concatenate([-b, b]) / 2
        log_probs = np.full((len(x_val), n_classes), _ABSENT)
        log_probs[:, present] = model.predict_log_proba(x_val / scale)
        nll = -float(log_probs[np.arange(len(y_val)), y_val].mean())
        if nll < best:
            best, weight[present], bias[present] = nll, w, b
    return weight, bias


def with_linear_probe(e: Embeddings) -> Embeddings:
    """Replace the logits by those of a logistic regression of the bank's labels on its unit vectors."""
    z, y, bank, val = np.asarray(e.z), np.asarray(e.y), e.rows(BANK), e.rows(VAL)
    weight, bias = logistic_regression(z[bank], y[bank], z[val], y[val], len(e.classes))
    return dataclasses.replace(e, logits=(z @ weight.T + bias).astype(np.float32))
