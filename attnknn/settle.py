"""Candidates of an index, compared by the vectors themselves and put in order.

Similarities are computed again, in float32 differences, and neighbours are ordered by (similarity, id): what a search
returns then depends on which candidates an index found, and on nothing else of it.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_GATHERED = 2**16  # floats gathered at once: they stay in a core's cache


def similarity(queries: np.ndarray, keys: np.ndarray, metric: str, scratch: np.ndarray | None = None) -> np.ndarray:
    """Similarity of each query to its own keys: −‖q − k‖² (`l2`) or q·k (`ip`).

    Args:
        queries: (B, D).
        keys: (B, K, D).
        scratch: (B, K, D), where differences are written to; may be `keys`.

    Returns:
        float32 (B, K).
    """
    if metric == "ip":
        return np.einsum("bd,bkd->bk", queries, keys)
    difference = np.subtract(keys, queries[:, None], out=scratch)  # (B, K, D)
    return -np.einsum("bkd,bkd->bk", difference, difference)


def settle(
    queries: np.ndarray,
    z: np.ndarray,
    ids: np.ndarray,
    at: np.ndarray,
    exclude: np.ndarray,
    metric: str,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and similarities of candidates, the most similar first, of equally similar ones that of the lowest id.

    Args:
        queries: (B, D).
        z: (N, D), the vectors; only the candidates are read.
        ids: (N,), their row ids.
        at: (B, K), the candidates' positions in z, in any order; −1 is none.
        exclude: (B, E) row ids that each query must not see; −1 is nobody.
        metric: `l2` or `ip`, see `similarity`.

    Returns:
        ids (B, K) of the type of `ids`, and float32 (B, K); −1 and −inf, last, for none and for what is excluded.
    """
    found = np.take(ids, at, mode="clip")
    found[at < 0] = -1
    for column in exclude.T:
        found[found == column[:, None]] = -1
    sims = _similarities(queries, z, at, metric, threads)
    sims[found < 0] = -np.inf
    further, nearer = sims[:, :-1], sims[:, 1:]
    wrong = (nearer > further) | ((nearer == further) & (found[:, 1:] < found[:, :-1]))
    # Most rows come in order from an exact index, and to sort them all takes ten times as long as to look.
    rows = np.flatnonzero(wrong.any(1))
    order = np.lexsort((found[rows], -sims[rows]), axis=-1)
    for values in (found, sims):
        values[rows] = np.take_along_axis(values[rows], order, axis=1)
    return found, sims


def _similarities(queries: np.ndarray, z: np.ndarray, at: np.ndarray, metric: str, threads: int) -> np.ndarray:
    """Similarity float32 (B, K) of each query to its candidates, a few queries at a time."""
    size, k, dimensions = len(at), at.shape[1], z.shape[1]
    out = np.empty((size, k), dtype=np.float32)
    step = max(1, _GATHERED // (k * dimensions))

    def some(starts: Sequence[int]) -> None:
        held = np.empty((min(step, size), k, dimensions), dtype=np.float32)
        for s in starts:
            part = slice(s, s + step)
            keys = held[: len(at[part])]
            np.take(z, at[part], axis=0, out=keys, mode="clip")  # of none it is row 0, whose similarity is then masked
            out[part] = similarity(queries[part], keys, metric, scratch=keys)

    starts = range(0, size, step)
    if threads == 1 or len(starts) <= 1:
        some(starts)
    else:  # numpy lets go of the interpreter's lock while it gathers and adds
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(some, [starts[i::threads] for i in range(threads)]))
    return out
