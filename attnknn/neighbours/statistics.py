"""What is known of each bank row beyond distance: how far its own neighbours agree with its label, how dense it lies.

Label noise shows as a row whose neighbours carry another label. All of it comes from the bank alone, each row left out
of its own neighbourhood, so it says nothing about the queries.
"""

from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import BANK, Embeddings, Neighbours, NeighbourStatistics
from attnknn.core.errors import require


def neighbour_statistics(embeddings: Embeddings, neighbours: Neighbours, sizes: Sequence[int]) -> NeighbourStatistics:
    """Leave-one-out label agreement and density of every bank row, and the class prototypes.

        agreement_s(i) = (1/s)·Σⱼ 1[yⱼ = yᵢ]     over the s nearest other bank rows j of i
        density(i)     = mean similarity to the nearest max(sizes)
        prototype(c)   = mean of z over the bank rows of class c, at unit length

    Args:
        sizes: neighbourhood sizes; those above what is stored shrink to it, and stay as many: a head that is fitted on
            several banks expects as many of each.

    Raises:
        InputError: bank rows have no stored neighbours, or there is no size.
    """
    stored = neighbours.ids.shape[1]
    sizes = sorted(min(size, stored) for size in sizes)
    require(bool(sizes) and sizes[0] >= 1, f"sizes: {sizes}; give at least one, of 1 or more")
    rows, y, z = embeddings.rows(BANK), np.asarray(embeddings.y), embeddings.z
    ids, sims = neighbours.take(rows, sizes[-1])  # (N, K)
    found = ids >= 0
    agrees = (y[ids] == y[rows][:, None]) & found
    agreement = np.zeros((len(y), len(sizes)), dtype=np.float32)
    for s, size in enumerate(sizes):
        agreement[rows, s] = agrees[:, :size].sum(1) / found[:, :size].sum(1)
    density = np.zeros(len(y), dtype=np.float32)
    density[rows] = np.where(found, sims, 0).sum(1) / found.sum(1)
    # A label that no bank row carries has a prototype of zeros, which resembles nobody.
    sums = np.zeros((len(embeddings.classes), z.shape[1]))
    np.add.at(sums, y[rows], z[rows])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    prototypes = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return NeighbourStatistics(agreement, density, prototypes.astype(np.float32), tuple(sizes))
