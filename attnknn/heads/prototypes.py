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


def fit_prototypes(spaces: Sequence[EmbeddingSpace], ridges: Sequence[float], device: str = "cpu") -> Attention:
    """Fit p_c ∝ share_c·exp(g·q·P_c + d_c) on fit rows; choose the ridge by NLL on val rows.

        NLL + ridge·((g/30)² + Σ_c d_c²/C)

    The loss is convex, so L-BFGS needs neither a learning rate nor a seed.

    Args:
        spaces: the main embedding space, then those of cross-fitting folds, if any.
        ridges: at least one.

    Returns:
        An `Attention` head with prototypes as its only part and neighbours masked, on the device.
    """
    (x, offset), y = _cosines(spaces, FIT), classes_of(spaces, FIT)
    (x_val, offset_val), y_val = _cosines(spaces, VAL), classes_of(spaces, VAL)
    onehot = np.eye(x.shape[1])[y]

    def fit(ridge: float) -> np.ndarray:
        scale = np.r_[1 / PROTOTYPE_SCALE**2, np.full(x.shape[1], 1 / x.shape[1])]

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            log_p = log_softmax(offset + flat[0] * x + flat[1:], axis=1)
            residual = (np.exp(log_p) - onehot) / len(y)
            gradient = np.r_[(residual * x).sum(), residual.sum(0)] + 2 * ridge * scale * flat
            return -float((log_p * onehot).sum()) / len(y) + ridge * float((scale * flat**2).sum()), gradient

        return minimize(loss, np.zeros(1 + x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 1000}).x

    def val_nll(flat: np.ndarray) -> float:
        return -float(log_softmax(offset_val + flat[0] * x_val + flat[1:], axis=1)[np.arange(len(y_val)), y_val].mean())

    best = min((fit(ridge) for ridge in ridges), key=val_nll)
    main = spaces[0]
    head = Attention(
        main.embeddings.z.shape[1], x.shape[1], len(main.statistics.sizes), 1.0, 0.5, prototypes=True, neighbours=False
    )
    assert head.prototype_gain is not None, "prototypes=True"
    assert head.prototype_bias is not None, "set with the gain"
    with torch.no_grad():
        head.prototype_gain.fill_(best[0] / PROTOTYPE_SCALE)
        head.prototype_bias.copy_(torch.from_numpy(best[1:]))
    return head.to(device).eval()
