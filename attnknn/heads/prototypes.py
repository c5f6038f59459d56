"""What is left of attention when its neighbours are taken away: class prototypes, fitted to the end as any peer."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax

from attnknn.core.artifacts import FIT, VAL
from attnknn.heads.attention import COSINE, Attention
from attnknn.neighbours.space import EmbeddingSpace, classes_of, part_rows


def _cosines(spaces: Sequence[EmbeddingSpace], part: int) -> tuple[np.ndarray, np.ndarray]:
    """q·P_c and log share_c, both (M, C), of the rows of a part; each space has its own prototypes and shares."""
    parts = part_rows(spaces, part)
    x = [np.asarray(s.embeddings.z[rows], dtype=np.float64) @ s.statistics.prototypes.T for s, rows in parts]
    shares = [
        np.broadcast_to(s.shares.double().log().numpy(), cosines.shape)
        for (s, _), cosines in zip(parts, x, strict=True)
    ]
    return np.concatenate(x), np.concatenate(shares)


def fit_prototypes(spaces: Sequence[EmbeddingSpace], ridges: Sequence[float], device: str = "cpu") -> Attention:
    """p_c ∝ share_c·exp(g·q·P_c + d_c), fitted on fit rows; the pull of its ridge is chosen by the NLL on val rows.

        NLL + ridge·((g/30)² + Σ_c d_c²/C)

    It is convex, so it is solved, by L-BFGS, and needs neither a learning rate nor a seed.

    Args:
        spaces: the main embeddings first, then those of the folds of a cross-fit, if any.
        ridges: at least one.

    Returns:
        An `Attention` head with no part but the prototypes, and no neighbours, on the device.
    """
    (x, offset), y = _cosines(spaces, FIT), classes_of(spaces, FIT)
    (x_val, offset_val), y_val = _cosines(spaces, VAL), classes_of(spaces, VAL)
    onehot = np.eye(x.shape[1])[y]

    def fitted(ridge: float) -> np.ndarray:
        scale = np.r_[1 / COSINE**2, np.full(x.shape[1], 1 / x.shape[1])]

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            log_p = log_softmax(offset + flat[0] * x + flat[1:], axis=1)
            residual = (np.exp(log_p) - onehot) / len(y)
            gradient = np.r_[(residual * x).sum(), residual.sum(0)] + 2 * ridge * scale * flat
            return -float((log_p * onehot).sum()) / len(y) + ridge * float((scale * flat**2).sum()), gradient

        return minimize(loss, np.zeros(1 + x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 1000}).x

    def val_nll(flat: np.ndarray) -> float:
        return -float(log_softmax(offset_val + flat[0] * x_val + flat[1:], axis=1)[np.arange(len(y_val)), y_val].mean())

    best = min((fitted(ridge) for ridge in ridges), key=val_nll)
    main = spaces[0]
    head = Attention(
        main.embeddings.z.shape[1], x.shape[1], len(main.statistics.sizes), 1.0, 0.5, prototypes=True, neighbours=False
    )
    assert head.prototype_gain is not None, "one of its parts"
    assert head.prototype_bias is not None, "made with the gain"
    with torch.no_grad():
        head.prototype_gain.fill_(best[0] / COSINE)
        head.prototype_bias.copy_(torch.from_numpy(best[1:]))
    return head.to(device).eval()
