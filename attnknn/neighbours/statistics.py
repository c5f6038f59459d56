"""Leave-one-out statistics of bank rows from their neighbours (label agreement, density), and class prototypes.

Low agreement indicates label noise.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from attnknn.core.artifacts import BANK, Embeddings, Neighbours, NeighbourStatistics
from attnknn.core.errors import require


def neighbour_statistics(
    embeddings: Embeddings, neighbours: Neighbours, sizes: Sequence[int], log_weight: np.ndarray | None = None
) -> NeighbourStatistics:
    """Leave-one-out label agreement and density of every bank row, and the class prototypes.

    Args:
        sizes: numbers of neighbours; those above the stored number are clipped to it and kept as duplicates, because a
            head fitted on several banks needs equally many from each.
        log_weight: (N,) of the rows' sample weights; None for equal weights.

    Raises:
        InputError: bank rows have no stored neighbours, or `sizes` is empty.
    """
    stored = neighbours.ids.shape[1]
    sizes = sorted(min(size, stored) for size in sizes)
    require(bool(sizes) and sizes[0] >= 1, f"sizes: {sizes}; give at least one, of 1 or more")
    rows, y = embeddings.rows(BANK), np.asarray(embeddings.y)
    ids, sims = neighbours.take(rows, sizes[-1])  # (N, K)
    agreement = np.zeros((len(y), len(sizes)), dtype=np.float32)
    density = np.zeros(len(y), dtype=np.float32)
    weight = np.ones(len(y), np.float32) if log_weight is None else np.exp(log_weight)
    labels = np.where(ids >= 0, y[ids], -1)
    agreement[rows], density[rows] = agreement_and_density(y[rows], labels, sims, sizes, weight[ids])
    sums = class_sums(embeddings.z[rows], y[rows], weight[rows], len(embeddings.classes))
    return NeighbourStatistics(agreement, density, class_prototypes(sums), tuple(sizes))


def agreement_and_density(
    labels: Int[np.ndarray, " M"],
    neighbour_labels: Int[np.ndarray, "M K"],
    sims: Float[np.ndarray, "M K"],
    sizes: Sequence[int],
    weights: Float[np.ndarray, "M K"] | None = None,
) -> tuple[Float[np.ndarray, "M S"], Float[np.ndarray, " M"]]:
    """Label agreement at S sizes, and density, of rows from their nearest other rows.

        agreement_s(i) = Σⱼ wⱼ·1[yⱼ = yᵢ] / Σⱼ wⱼ     over the s nearest other rows j of i
        density(i)     = mean similarity to the K nearest

    Both are 0 for a row without neighbours.

    Args:
        neighbour_labels: nearest first, padded by −1.
        weights: float32 sample weights of the neighbours; None for equal weights.
    """
    present = neighbour_labels >= 0
    weights = present.astype(np.float32) if weights is None else np.where(present, weights, np.float32(0))
    agreeing = weights * (neighbour_labels == labels[:, None])
    agreement = np.zeros((len(labels), len(sizes)), dtype=np.float32)
    for s, size in enumerate(sizes):
        total = weights[:, :size].sum(1)
        agreement[:, s] = agreeing[:, :size].sum(1) / np.where(total > 0, total, 1)
    density = np.where(present, sims, 0).sum(1) / np.maximum(present.sum(1), 1)
    return agreement, density.astype(np.float32)


def class_sums(z: np.ndarray, y: np.ndarray, weights: np.ndarray, n_classes: int) -> Float[np.ndarray, "C D"]:
    """Σ weight·z over the rows of each class, float64."""
    rows = np.arange(len(z))
    return csr_array((np.asarray(weights, np.float64), (y, rows)), shape=(n_classes, len(z))) @ z


def class_prototypes(sums: Float[np.ndarray, "C D"]) -> Float[np.ndarray, "C D"]:
    """Mean vector of each class at unit length, float32; zeros for a class without rows."""
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0).astype(np.float32)
