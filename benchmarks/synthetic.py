"""Synthetic data from fixed seeds: clustered embeddings, and queries with stored neighbours."""

from collections.abc import Iterator

import numpy as np

from attnknn.core.artifacts import BANK, TEST, Embeddings, Neighbours, NeighbourStatistics
from attnknn.neighbours.space import EmbeddingSpace

CLASSES = 10
_RANK, _WITHIN, _NOISE = 16, 0.5, 0.15  # within-class spread: its dimensions, its size; isotropic noise
_OWN = 0.8  # share of neighbours of the query's own class
_CLUSTER_CLASSES, _CLUSTERS, _WRONG = 100, 2_000, 0.1  # of `clusters`; the last is the share of wrong labels
_BLOCK = 100_000  # rows of a block of `clusters`


def clustered(rows: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors float32 (rows, dim) around CLASSES centres, and their classes int64 (rows,).

        z ∝ centre_y + .5·A_y·u + .15·v,   u of 16 dimensions and v of all, normal, both of expected length 1

    Like a trained encoder's embeddings, they vary within a class in few directions. Uniform noise would have no near
    neighbours, and approximate search would look worse on it than it is.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=rows)
    centres = rng.standard_normal((CLASSES, dim), dtype=np.float32) / np.sqrt(dim)
    spans = rng.standard_normal((CLASSES, _RANK, dim), dtype=np.float32) / np.sqrt(dim * _RANK)
    z = _NOISE / np.sqrt(dim) * rng.standard_normal((rows, dim), dtype=np.float32)
    for c in range(CLASSES):
        ids = np.flatnonzero(y == c)
        z[ids] += centres[c] + _WITHIN * rng.standard_normal((len(ids), _RANK), dtype=np.float32) @ spans[c]
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32), y


def random_space(rows: int, queries: int, dim: int, k: int, sizes: tuple[int, ...], seed: int = 0) -> EmbeddingSpace:
    """A bank of `rows` and `queries` test rows with k random neighbours each, four in five of their own class.

    For timing what follows the search, which does not depend on which rows the neighbours are.
    """
    rng = np.random.default_rng(seed)
    n = rows + queries
    y, part = np.arange(n) % CLASSES, np.full(n, BANK, dtype=np.int8)
    part[rows:] = TEST
    own = rng.random((queries, k)) < _OWN
    labels = np.where(own, y[rows:, None], rng.integers(CLASSES, size=(queries, k)))
    ids = (rng.integers(rows // CLASSES, size=(queries, k)) * CLASSES + labels).astype(np.int32)
    sims = -np.sort(rng.random((queries, k), dtype=np.float32), axis=1)
    z = rng.standard_normal((n, dim), dtype=np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    agreement, density = rng.random((n, len(sizes)), dtype=np.float32), -rng.random(n, dtype=np.float32)
    prototypes = rng.standard_normal((CLASSES, dim), dtype=np.float32)
    return EmbeddingSpace(
        Embeddings(z, y, part, tuple("abcdefghij")),
        Neighbours(np.arange(rows, n, dtype=np.int32), ids, sims, "l2"),
        NeighbourStatistics(agreement, density, prototypes, sizes),
    )


def clusters(rows: int, dim: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks of float32 vectors (M, dim) and labels (M,); the sign of a direction of a cluster is its class.

    The same seed gives the same blocks: the first ones of more rows are those of fewer.
    """
    shared = np.random.default_rng(0)
    centres = shared.standard_normal((_CLUSTERS, dim), dtype=np.float32) / np.sqrt(dim)
    spans = shared.standard_normal((_CLUSTERS, _RANK, dim), dtype=np.float32) / np.sqrt(dim * _RANK)
    classes = shared.integers(_CLUSTER_CLASSES, size=(_CLUSTERS, 2))
    for start in range(0, rows, _BLOCK):
        rng = np.random.default_rng((seed, start))
        cluster = rng.integers(_CLUSTERS, size=_BLOCK)
        u = _WITHIN * rng.standard_normal((_BLOCK, _RANK), dtype=np.float32)
        z = _NOISE / np.sqrt(dim) * rng.standard_normal((_BLOCK, dim), dtype=np.float32)
        order = np.argsort(cluster, kind="stable")
        ends = np.searchsorted(cluster[order], np.arange(_CLUSTERS + 1))
        for c in range(_CLUSTERS):
            members = order[ends[c] : ends[c + 1]]
            z[members] += centres[c] + u[members] @ spans[c]
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        y = classes[cluster, (u[:, 0] > 0).astype(int)]
        wrong = rng.random(_BLOCK) < _WRONG
        y[wrong] = rng.integers(_CLUSTER_CLASSES, size=int(wrong.sum()))
        count = min(_BLOCK, rows - start)
        yield z[:count], y[:count]
