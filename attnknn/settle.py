"""Candidates of an index, compared by the vectors themselves and put in order.

Similarities are computed again, from the differences, and neighbours are ordered by (similarity, id): what a search
returns then depends on which candidates an index found, and on nothing else of it.
"""

import numpy as np

from attnknn.indexes import similarities
from attnknn.rounding import blur


def settle(
    queries: np.ndarray,
    z: np.ndarray,
    ids: np.ndarray,
    at: np.ndarray,
    exclude: np.ndarray,
    metric: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and similarities of candidates, the most similar first, of equally similar ones that of the lowest id.

    Args:
        queries: float32 (B, D).
        z: float32 (N, D), the vectors; only the candidates are read.
        ids: (N,), their row ids.
        at: (B, K), the candidates' positions in z, in any order; −1 is none.
        exclude: (B, E) row ids that each query must not see; −1 is nobody.
        metric: `l2` or `ip`, see `indexes.similarities`.

    Returns:
        ids (B, K) of the type of `ids`, and float32 (B, K); −1 and −inf, last, for none and for what is excluded.
    """
    found = np.take(ids, at, mode="clip")
    found[at < 0] = -1
    for column in exclude.T:
        found[found == column[:, None]] = -1
    sims = similarities(queries, z, at, metric)
    sims[found < 0] = -np.inf
    further, nearer = sims[:, :-1], sims[:, 1:]
    wrong = (nearer > further) | ((nearer == further) & (found[:, 1:] < found[:, :-1]))
    # Most rows come in order from an exact index, and to look takes a tenth of what it takes to sort.
    rows = np.flatnonzero(wrong.any(1))
    if len(rows):
        # A stable sort is quick on what is nearly in order, as rows are; by id as well only where similarities tie.
        order = np.argsort(-sims[rows], axis=1, kind="stable")
        near, names = (np.take_along_axis(values[rows], order, axis=1) for values in (sims, found))
        tied = np.flatnonzero(((near[:, 1:] == near[:, :-1]) & (names[:, 1:] < names[:, :-1])).any(1))
        order = np.lexsort((names[tied], -near[tied]), axis=-1)
        names[tied] = np.take_along_axis(names[tied], order, axis=1)
        found[rows], sims[rows] = names, near
    return found, sims


def undecided(near: np.ndarray, k: int, queries: np.ndarray | None = None) -> np.ndarray:
    """Whether a row that was not found may be as near as the k-th: where that ties with the last that was found.

    Args:
        near: similarities (B, K) in order, −inf where nothing was found.
        queries: (B, D) of an index that compares squared distances by the expanded square; two within its `blur` tie.
    """
    last = np.isfinite(near).sum(1) - 1
    furthest = near[np.arange(len(near)), last]
    with np.errstate(invalid="ignore"):
        margin = 0.0 if queries is None else blur(queries, -furthest)
        return (last >= k) & (near[:, k - 1] - furthest <= margin)
