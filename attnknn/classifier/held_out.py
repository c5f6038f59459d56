"""Embedding spaces to fit and calibrate a head on: held-out folds of the memory, or separate labelled rows."""

import warnings
from typing import TYPE_CHECKING

import numpy as np

from attnknn.classifier.memory import Memory, pad_columns
from attnknn.classifier.nearest import SIZES
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours, NeighbourStatistics
from attnknn.core.duplicates import first_identical, split_groups
from attnknn.index.bank import build
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics

if TYPE_CHECKING:
    from attnknn.classifier.table_memory import TableMemory

FOLDS = 5
_SPARE = 32  # rows searched beyond those asked for, in place of hidden ones
_QUERIES = 10_000  # maximum number of held-out rows; more do not help a head of a thousand weights


def fold_parts(y: np.ndarray, seed: int, queries: int = _QUERIES, first: np.ndarray | None = None) -> list[np.ndarray]:
    """Part of every row (N,) in each stratified fold: held-out rows alternate between FIT and VAL, the rest are BANK.

    Identical rows have the same part (see `split_groups`); if not all of them are held out, the others are TEST, which
    is not read. With more than `queries` held-out rows, fewer folds are returned.

    Args:
        first: (N,) of `split_groups`; None if all rows differ.
    """
    rng, n = np.random.default_rng(seed), len(y)
    rank = _stratified_rank(y, np.arange(n) if first is None else first, rng)
    folds = min(FOLDS, int(rank.max()) + 1)
    fold, turn = rank % folds, rank // folds % 2
    parts = []
    for f in range(max(1, min(folds, queries * folds // n))):
        rows = np.flatnonzero(fold == f)
        part = np.full(n, BANK, dtype=np.int8)
        if len(rows) > queries:
            rows = rows[rng.permutation(len(rows))[: max(2, queries)]]
            part[np.isin(rank, rank[rows])] = TEST
        part[rows] = np.where(turn[rows] == f % 2, FIT, VAL)
        parts.append(part)
    return parts


def _stratified_rank(y: np.ndarray, first: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank of each row (N,) in random order by class; identical rows share one; see `split_groups`."""
    order = rng.permutation(len(y))
    distinct = order[first[order] == order]
    rank = np.empty(len(y), dtype=np.int64)
    rank[distinct[np.argsort(y[distinct], kind="stable")]] = np.arange(len(distinct))
    return rank[first]


def held_out_space(memory: Memory, k: int, part: np.ndarray) -> EmbeddingSpace:
    """Embedding space of one fold: k neighbours, as a memory of its bank rows alone would have; fewer if it is smaller.

    Args:
        memory: just built.
        part: (N,) of `fold_parts`.
    """
    z, in_bank = memory.bank.z, part == BANK
    k = min(max(k, SIZES[-1]), int(in_bank.sum()) - 1)
    valid = in_bank[memory.neighbour_ids] & (memory.neighbour_ids >= 0)
    order = np.argsort(~valid, axis=1, kind="stable")[:, :k]
    ids = pad_columns(np.take_along_axis(memory.neighbour_ids, order, 1), k, -1)
    sims = pad_columns(np.take_along_axis(memory.neighbour_sims, order, 1), k, -np.inf)
    short = np.flatnonzero(valid.sum(1) < k)
    if len(short):
        rows = np.flatnonzero(in_bank)
        bank = build(z[rows], rows, metric=memory.bank.metric)
        ids[short], sims[short] = bank.search(z[short], k, exclude=short)
    return _space(memory, z, memory.y, part, ids, sims)


def query_space(memory: Memory, k: int, queries: np.ndarray, y: np.ndarray, seed: int) -> EmbeddingSpace:
    """Embedding space of a memory (BANK) and of rows outside it, half FIT and half VAL, stratified by class.

    Identical rows outside it are in the same half; see `split_groups`. k is clipped to the size of the memory.

    Args:
        memory: just built.
        queries: (M, D). y: (M,) their class numbers.
    """
    z = memory.bank.z
    part = np.concatenate([np.full(len(z), BANK, dtype=np.int8), _halves(queries, y, seed)])
    k = min(max(k, SIZES[-1]), len(z) - 1)
    ids, sims = memory.bank.search(queries, k)
    ids = np.concatenate([pad_columns(memory.neighbour_ids[:, :k], k, -1), ids])
    sims = np.concatenate([pad_columns(memory.neighbour_sims[:, :k], k, -np.inf), sims])
    return _space(memory, np.concatenate([z, queries]), np.concatenate([memory.y, y]), part, ids, sims)


def _halves(queries: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    first = split_groups(first_identical(queries), queries)
    turn = _stratified_rank(y, first, np.random.default_rng(seed)) % 2
    return np.where(turn == 0, FIT, VAL).astype(np.int8)


def sample_rows(memory: "TableMemory", seed: int) -> np.ndarray:
    """Ids (M,) of rows of a table to be held out: a fifth of them, at most as many as in `fold_parts`."""
    rng, n = np.random.default_rng(seed), len(memory)
    rows = rng.choice(n, max(2, min(n // FOLDS, _QUERIES)), replace=False)
    return memory.bank.take(np.sort(rows), ["id"])["id"]


def table_space(
    memory: "TableMemory", k: int, queries: np.ndarray, y: np.ndarray, seed: int, ids: np.ndarray | None = None
) -> tuple[EmbeddingSpace, np.ndarray]:
    """Embedding space of queries, half FIT and half VAL, and of their nearest rows of a table, without their vectors.

    Args:
        queries: (M, D). y: (M,) their class numbers.
        ids: (M,) of the queries if they are rows of the table. These, and rows identical to a query unless most queries
            have such, are left out of the neighbours. Neighbour statistics must not know of them.

    Returns:
        the space, and the similarities (M,) of the queries to their nearest rows.
    """
    removed = np.empty(0, np.int64) if ids is None else ids
    counts, sums = memory.totals(removed)
    rows = int(counts.sum())
    k = min(max(k, SIZES[-1]), rows - 1)
    nearest = memory.nearest(queries, k if ids is None else min(k * len(memory) // rows + _SPARE, len(memory)))
    hidden = (nearest.ids < 0) | np.isin(nearest.ids, removed)
    if ids is not None:
        copies = (nearest.sims == 0) & ~hidden
        others = ~hidden & ~copies
        hidden |= copies & others.any(1)[:, None] & (copies.any(1).mean() <= 0.5)
    order = np.argsort(hidden, axis=1, kind="stable")[:, :k]
    hidden = np.take_along_axis(hidden, order, 1)
    sims = np.where(hidden, np.float32(-np.inf), np.take_along_axis(nearest.sims, order, 1))
    _, first, number = np.unique(nearest.ids, return_index=True, return_inverse=True)
    position = len(queries) + np.take_along_axis(number.reshape(nearest.ids.shape), order, 1)
    squared = np.float32(memory.unit**2)
    z = np.zeros((len(queries) + len(first), queries.shape[1]), np.float32)  # only pages that are written take memory
    z[: len(queries)] = memory.centred(queries)
    part = np.concatenate([_halves(queries, y, seed), np.full(len(first), BANK, dtype=np.int8)])
    names = tuple(map(str, range(len(counts))))
    embeddings = Embeddings(z, np.concatenate([y, nearest.y.ravel()[first]]), part, names)
    number = np.where(hidden, -1, position).astype(np.int32)
    neighbours = Neighbours(np.arange(len(queries), dtype=np.int32), number, sims / squared, memory.bank.metric)
    agreement, density = nearest.agreement.reshape(-1, len(SIZES))[first], nearest.density.ravel()[first] / squared
    agreement, density = np.pad(agreement, ((len(queries), 0), (0, 0))), np.pad(density, (len(queries), 0))
    statistics = NeighbourStatistics(agreement, density, memory.prototypes(counts, sums), SIZES)
    return EmbeddingSpace(embeddings, neighbours, statistics, counts=counts), sims[:, 0]


def nearest_sims(spaces: list[EmbeddingSpace]) -> np.ndarray:
    """Similarity of every held-out row to its nearest neighbour."""
    return np.concatenate([space.neighbours.sims[np.isin(space.embeddings.part, (FIT, VAL)), 0] for space in spaces])


def without_copies(sims: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Similarities (M,) of held-out rows to their nearest without those of copies of rows of X, with a warning."""
    n, total = int(copies.sum()), len(copies)
    if n:
        warnings.warn(f"held_out: {n} of {total} rows are identical to rows of X; give others", stacklevel=6)
    return sims[~copies] if n < total else sims


def _space(
    memory: Memory, z: np.ndarray, y: np.ndarray, part: np.ndarray, ids: np.ndarray, sims: np.ndarray
) -> EmbeddingSpace:
    embeddings = Embeddings(z, y, part, tuple(map(str, range(len(memory.sums)))))
    rows = np.arange(len(z), dtype=np.int32)
    neighbours = Neighbours(rows, ids.astype(np.int32), sims.astype(np.float32), memory.bank.metric)
    log_weight = np.pad(np.log(memory.weight), (0, len(z) - len(memory.weight))) if memory.weighted else None
    statistics = neighbour_statistics(embeddings, neighbours, SIZES, log_weight)
    return EmbeddingSpace(embeddings, neighbours, statistics, log_weight)
