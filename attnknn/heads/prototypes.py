"""Class prototypes without neighbours: softmax regression on cosines to the class means, by L-BFGS."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax

from attnknn.core.artifacts import FIT, VAL
from attnknn.heads.attention import PROTOTYPE_SCALE, Attention
from attnknn.neighbours.space import EmbeddingSpace, classes_of, part_rows


def _cosines(spaces: Sequence[EmbeddingSpace], part: int) -> tuple[np.ndarray, np.ndarray]:
    """q·P_c and log share_c, both (M, C), of the rows of a part, by the prototypes and shares of their own space."""
    parts = part_rows(spaces, part)
    x = [np.asarray(s.embeddings.z[rows], dtype=np.float64) @ s.statistics.prototypes.T for s, rows in parts]
    shares = [
        np.broadcast_to(s.shares.double().log().numpy(), cosines.shape)
        for (s, _), cosines in zip(parts, x, strict=True)
    ]
    return np.concatenate(x), np.concatenate(shares)


def scaled_logits(
    x: Sequence[np.ndarray],
    offset: Sequence[np.ndarray],
    y: Sequence[np.ndarray],
    ridges: Sequence[float],
    unit: float,
    transition: np.ndarray | None = None,
) -> np.ndarray:
    """Fit p_c ∝ exp(offset_c + g·x_c + d_c) on fit rows; choose the ridge by NLL on val rows.

        NLL + ridge·((g/unit)² + Σ_c d_c²/C)

    The loss is convex, so L-BFGS needs neither a learning rate nor a seed. With a transition matrix T, NLL is that of
    p·T (see `label_noise`), which is not convex; L-BFGS starts at p_c ∝ exp(offset_c).

    Args:
        x, offset: (M, C) of fit rows, and of val rows.
        y: (M,) classes of fit rows, and of val rows.
        ridges: at least one.
        transition: T (C, C); None if labels are right.

    Returns:
        g and d as one array (1 + C,).
    """
    n, classes = x[0].shape
    likelihood = [(np.eye(classes) if transition is None else transition).T[labels] for labels in y]  # P(yᵢ | c)
    scale = np.r_[1 / unit**2, np.full(classes, 1 / classes)]

    def fit(ridge: float) -> np.ndarray:
        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            log_p = log_softmax(offset[0] + flat[0] * x[0] + flat[1:], axis=1)
            joint = np.maximum(np.exp(log_p) * likelihood[0], 1e-37)
            p_given = joint.sum(1, keepdims=True)
            residual = (np.exp(log_p) - joint / p_given) / n
            gradient = np.r_[(residual * x[0]).sum(), residual.sum(0)] + 2 * ridge * scale * flat
            return -float(np.log(p_given).mean()) + ridge * float((scale * flat**2).sum()), gradient

        return minimize(loss, np.zeros(1 + classes), jac=True, method="L-BFGS-B", options={"maxiter": 1000}).x

    def val_nll(flat: np.ndarray) -> float:
        log_p = log_softmax(offset[1] + flat[0] * x[1] + flat[1:], axis=1)
        return -float(np.log(np.maximum(np.exp(log_p) * likelihood[1], 1e-37).sum(1)).mean())

    return min((fit(ridge) for ridge in ridges), key=val_nll)


def fit_prototypes(spaces: Sequence[EmbeddingSpace], ridges: Sequence[float], device: str = "cpu") -> Attention:
    """Fit p_c ∝ share_c·exp(g·q·P_c + d_c) by `scaled_logits`.

    Args:
        spaces: the main embedding space, then those of cross-fitting folds, if any.
        ridges: at least one.

    Returns:
        An `Attention` head with prototypes as its only part and neighbours masked, on the device.
    """
    x, offset = zip(*(_cosines(spaces, part) for part in (FIT, VAL)), strict=True)
    y = [classes_of(spaces, part) for part in (FIT, VAL)]
    best = scaled_logits(x, offset, y, ridges, PROTOTYPE_SCALE)
    main = spaces[0]
    head = Attention(
        main.embeddings.z.shape[1],
        x[0].shape[1],
        len(main.statistics.sizes),
        1.0,
        0.5,
        prototypes=True,
        neighbours=False,
    )
    assert head.prototype_gain is not None, "prototypes=True"
    assert head.prototype_bias is not None, "set with the gain"
    with torch.no_grad():
        head.prototype_gain.fill_(best[0] / PROTOTYPE_SCALE)
        head.prototype_bias.copy_(torch.from_numpy(best[1:]))
    return head.to(device).eval()
