"""Rows that represent a memory: those nearest to the k-means centres of each class."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Int

_ITERATIONS = 20


def rows_by_class(counts: Int[np.ndarray, " C"], n: int) -> Int[np.ndarray, " C"]:
    """How many of n rows each class gets: one of each that has rows, the largest first, the rest in proportion."""
    present = (counts > 0).astype(np.int64)
    present[np.argsort(-counts, kind="stable")[n:]] = 0
    share = (n - present.sum()) * (counts - present) / max(1, counts.sum() - present.sum())
    rows = present + np.floor(share).astype(np.int64)
    rows[np.argsort(np.floor(share) - share, kind="stable")[: n - rows.sum()]] += 1
    return rows


def representative_rows(
    z: Float[np.ndarray, "N D"], y: Int[np.ndarray, " N"], weight: Float[np.ndarray, " N"], n: int, seed: int
) -> Int[np.ndarray, " n"]:
    """Positions of n rows, ascending.

    The k-means of a class starts from k of its rows at random; where two centres have the same nearest row, another row
    is drawn.
    """
    from sklearn.cluster import KMeans  # a slow import
    from sklearn.exceptions import ConvergenceWarning

    rng, kept = np.random.default_rng(seed), []
    for number, k in enumerate(rows_by_class(np.bincount(y), n).tolist()):
        rows = rng.permutation(np.flatnonzero(y == number))
        if 0 < k < len(rows):
            with warnings.catch_warnings(category=ConvergenceWarning, action="ignore"):  # fewer distinct rows than k
                groups: Any = KMeans(k, init=z[rows[:k]], max_iter=_ITERATIONS)  # type: ignore[arg-type]
                groups.fit(z[rows], sample_weight=weight[rows])
            distances = ((z[rows] - groups.cluster_centers_[groups.labels_]) ** 2).sum(1)
            order = np.lexsort([distances, groups.labels_])
            first = np.unique(groups.labels_[order], return_index=True)[1]
            nearest = rows[order[first]]
            rows = np.concatenate([nearest, np.setdiff1d(rows, nearest, assume_unique=True)])
        kept.append(rows[:k])
    return np.sort(np.concatenate(kept))
