"""Exact re-ranking of index candidates.

Similarities then do not depend on the index: exact duplicates are at distance 0, and all indexes agree to the bit on
the neighbours that they all return.
"""

import numpy as np

from attnknn.index.faiss_index import similarities


def rerank(
    queries: np.ndarray,
    vectors: np.ndarray,
    row_ids: np.ndarray,
    candidates: np.ndarray,
    exclude: np.ndarray,
    metric: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Sort index candidates by exact similarity, ties by row id.

    Args:
        queries: float32 (B, D).
        vectors: float32 (N, D); only the candidates are read.
        row_ids: int (N,), the id of each vector.
        candidates: int (B, K), positions in `vectors`, in any order; −1 pads.
        exclude: int (B, E), row ids hidden from each query; −1 pads.
        metric: `l2` or `ip`; see `faiss_index.similarities`.

    Returns:
        ids (B, K) and float32 similarities (B, K), best first; padding (−1, −inf) comes last.
    """
    ids = np.take(row_ids, candidates, mode="clip")
    ids[candidates < 0] = -1
    for column in exclude.T:
        ids[ids == column[:, None]] = -1
    sims = similarities(queries, vectors, candidates, metric)
    sims[ids < 0] = -np.inf
    # An exact index returns most rows in order, and ties are rare: lexsort of all rows would add 5 % to a search.
    rows = np.flatnonzero((sims[:, 1:] > sims[:, :-1]).any(1))
    _reorder(ids, sims, rows, np.argsort(-sims[rows], axis=1, kind="stable"))
    rows = np.flatnonzero(((sims[:, 1:] == sims[:, :-1]) & (ids[:, 1:] < ids[:, :-1])).any(1))
    _reorder(ids, sims, rows, np.lexsort((ids[rows], -sims[rows]), axis=-1))
    return ids, sims


def _reorder(ids: np.ndarray, sims: np.ndarray, rows: np.ndarray, order: np.ndarray) -> None:
    """Permute each of the rows in place; order is (len(rows), K)."""
    for values in (ids, sims):
        values[rows] = np.take_along_axis(values[rows], order, axis=1)
