"""Embedding spaces to fit and calibrate a head on: held-out folds of the memory, or separate labelled rows."""

import numpy as np

from attnknn.classifier.memory import SIZES, Memory, pad_columns
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours
from attnknn.core.duplicates import first_identical, split_groups
from attnknn.index.bank import build
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics

FOLDS = 5
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
    first = split_groups(first_identical(queries), queries)
    turn = _stratified_rank(y, first, np.random.default_rng(seed)) % 2
    part = np.concatenate([np.full(len(z), BANK), np.where(turn == 0, FIT, VAL)]).astype(np.int8)
    k = min(max(k, SIZES[-1]), len(z) - 1)
    ids, sims = memory.bank.search(queries, k)
    ids = np.concatenate([pad_columns(memory.neighbour_ids[:, :k], k, -1), ids])
    sims = np.concatenate([pad_columns(memory.neighbour_sims[:, :k], k, -np.inf), sims])
    return _space(memory, np.concatenate([z, queries]), np.concatenate([memory.y, y]), part, ids, sims)


def nearest_sims(spaces: list[EmbeddingSpace]) -> np.ndarray:
    """Similarity of every held-out row to its nearest neighbour."""
    return np.concatenate([space.neighbours.sims[np.isin(space.embeddings.part, (FIT, VAL)), 0] for space in spaces])


def _space(
    memory: Memory, z: np.ndarray, y: np.ndarray, part: np.ndarray, ids: np.ndarray, sims: np.ndarray
) -> EmbeddingSpace:
    embeddings = Embeddings(z, y, part, tuple(map(str, range(len(memory.sums)))))
    rows = np.arange(len(z), dtype=np.int32)
    neighbours = Neighbours(rows, ids.astype(np.int32), sims.astype(np.float32), memory.bank.metric)
    log_weight = np.pad(np.log(memory.weight), (0, len(z) - len(memory.weight))) if memory.weighted else None
    return EmbeddingSpace(embeddings, neighbours, neighbour_statistics(embeddings, neighbours, SIZES), log_weight)
