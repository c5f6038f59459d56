"""Logistic regression of the bank's labels on its embeddings, also where labels may be wrong."""

import dataclasses
import warnings

import numpy as np
import torch

from attnknn.core.artifacts import BANK, VAL, Embeddings
from attnknn.core.device import thread_pools

_CS = (0.1, 1.0, 10.0, 100.0)  # inverse penalties, of rows with a root mean square norm of 1
_SOLVER = {"maxiter": 200, "ftol": 1e-6}
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


def forward_regression(
    z: np.ndarray, likelihood: np.ndarray, weight: np.ndarray, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Weights W (C, D) and biases b (C,) that minimise ½‖W‖² − strength·Σ_i w_i·log(Σ_c p_c(z_i)·likelihood[i, c]),
    p = softmax(W·z + b): logistic regression where labels may be wrong, by L-BFGS.

    Args:
        likelihood: (N, C) P(label of the row | class c); with a transition matrix T (C, C), T[:, y].T.
    """
    from scipy.optimize import minimize

    rows, scale = (
        torch.from_numpy(np.asarray(z, dtype=np.float32)),
        torch.from_numpy(strength * weight).float()[:, None],
    )
    labels = torch.from_numpy(likelihood.argmax(1))[:, None]
    right = bool((likelihood.max(1) == 1).all() and (likelihood.sum(1) == 1).all())  # ordinary logistic regression
    log_t = None if right else torch.from_numpy(np.log(np.maximum(likelihood, 1e-30))).float()
    shape = likelihood.shape[1], z.shape[1] + 1

    def loss_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        log_p = (rows @ torch.from_numpy(w[:, :-1].T).float() + torch.from_numpy(w[:, -1]).float()).log_softmax(1)
        if log_t is None:
            log_given = log_p.gather(1, labels)
            residual = log_p.exp_().scatter_add_(1, labels, -torch.ones_like(log_given)).mul_(scale)
        else:
            log_joint = log_p + log_t
            log_given = log_joint.logsumexp(1, keepdim=True)
            residual = scale * (log_p.exp() - (log_joint - log_given).exp())
        gradient = np.column_stack([(residual.T @ rows).numpy() + w[:, :-1], residual.sum(0).numpy()])
        return 0.5 * float((w[:, :-1] ** 2).sum()) - float((scale * log_given).double().sum()), gradient.ravel()

    with thread_pools().limit(limits=1):  # each step is small, and waiting threads spin
        solution = minimize(loss_and_gradient, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=_SOLVER)
    return solution.x.reshape(shape)[:, :-1], solution.x.reshape(shape)[:, -1]


def with_linear_probe(e: Embeddings) -> Embeddings:
    """Replace the logits by those of a logistic regression of the bank's labels on its unit vectors."""
    z, y, bank, val = np.asarray(e.z), np.asarray(e.y), e.rows(BANK), e.rows(VAL)
    weight, bias = logistic_regression(z[bank], y[bank], z[val], y[val], len(e.classes))
    return dataclasses.replace(e, logits=(z @ weight.T + bias).astype(np.float32))
