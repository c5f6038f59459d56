"""Candidates of an index, compared by the vectors themselves and put in order.

Similarities are computed again, from the differences, and neighbours are ordered by (similarity, id): what a search
returns then depends on which candidates an index found, and on nothing else of it.
"""

import numpy as np

from attnknn.index.faiss_index import similarities


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


_PAIRED = 4 * 2**20  # pairs of a query and a row near it that `within` gives at once
_HELD_VALUES = 2**20  # of rows in float64 that it holds at once, beside as many pairs as above


def within(queries: np.ndarray, z: np.ndarray, furthest: np.ndarray, k: int) -> np.ndarray | None:
    """Positions int64 (B, K) of all rows of z that may be among the k nearest, by products in float64; −1 is none.

    Args:
        queries: float32 (B, D).
        furthest: (B,), squared distances, as `indexes.similarities` has them, that no k-th nearest is beyond.
        k: at most as many as z has rows.

    Returns:
        None where these are millions, and fewer queries have to be asked at once.
    """
    asked = queries.astype(np.float64)
    square = np.einsum("bd,bd->b", asked, asked)[:, None]
    # What `indexes.similarities` may be off by, rounded and where its squares vanish.
    single, terms = np.finfo(np.float32), 2 * (queries.shape[1] + 4)
    rounding, vanished = 1 + terms * float(single.eps), terms * float(single.tiny)

    def reach(furthest: np.ndarray) -> np.ndarray:
        return (furthest * rounding + vanished + blur(asked, furthest))[:, None] - square

    limit = reach(furthest.astype(np.float64))
    step = max(1, min(_HELD_VALUES // queries.shape[1], _PAIRED // max(1, len(queries))))
    pairs = [np.empty((2, 0), dtype=np.int64)]
    for s in range(0, len(z), step):
        keys = z[s : s + step].astype(np.float64)
        far = asked @ keys.T
        far *= -2
        far += np.einsum("nd,nd->n", keys, keys)  # less ‖q‖²
        near = far <= limit
        if len(keys) >= k and near.sum() > 4 * k * len(queries):  # the k nearest of these are nearer than was known
            kth = np.partition(far, k - 1, axis=1)[:, k - 1 : k] + square
            limit = np.minimum(limit, reach(np.maximum(kth[:, 0], 0)))
            near = far <= limit
        of, at = np.nonzero(near)
        pairs.append(np.stack([of, at + s]))
        if len(queries) > 1 and sum(part.shape[1] for part in pairs) > _PAIRED:
            return None
    of, at = np.concatenate(pairs, axis=1)
    order, counts = np.argsort(of, kind="stable"), np.bincount(of, minlength=len(queries))
    most = counts.max(initial=0)
    if len(queries) > 1 and len(queries) * most > _PAIRED:
        return None
    found = np.full((len(queries), most), -1, dtype=np.int64)
    found[of[order], np.arange(len(of)) - np.repeat(counts.cumsum() - counts, counts)] = at[order]
    return found


def blur(queries: np.ndarray, furthest: np.ndarray) -> np.ndarray:
    """How much nearer than the furthest row found (B,) another can be that the expanded square took for further.

    ‖q‖² + ‖k‖² − 2q·k, as faiss and torch work it out for many queries at once, is off by less than
    D·ε·(‖q‖² + ‖k‖²), whatever order its sums are taken in (Higham 2002, 3.1; ε of the type of the queries, which is
    twice its unit roundoff). No row at the distance d is longer than ‖q‖ + d. Twice that of the furthest is what two
    rows' products and the rounding of their differences add up to, and not less; the smallest normal number stands for
    squares that vanish.

    Args:
        furthest: ‖q − k‖² of the furthest that was found.
    """
    dimensions, kind = queries.shape[1], np.finfo(queries.dtype)
    square = np.einsum("bd,bd->b", queries, queries)
    longest = np.sqrt(square) + np.sqrt(furthest)
    return 2 * (dimensions + 4) * (kind.eps * (square + longest * longest) + kind.tiny)
