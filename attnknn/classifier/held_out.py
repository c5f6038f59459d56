"""Queries to fit and calibrate a head on: rows held out of the memory in folds, or rows that were never in it."""

import numpy as np

from attnknn.classifier.memory import SIZES, Memory
from attnknn.core.artifacts import BANK, FIT, VAL, Embeddings, Neighbours
from attnknn.index.bank import build
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics

FOLDS = 5
_QUERIES = 10_000  # rows held out at most; more do not help a head of a thousand weights


def fold_parts(y: np.ndarray, seed: int, folds: int = FOLDS, queries: int = _QUERIES) -> list[np.ndarray]:
    """The part of every row in each stratified fold: held-out rows are by turns FIT and VAL, the others BANK.

    Args:
        queries: held-out rows at most; with many rows, only as many folds are returned.
    """
    rng, n = np.random.default_rng(seed), len(y)
    order = rng.permutation(n)
    order = order[np.argsort(y[order], kind="stable")]
    fold, turn = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    folds = min(folds, n)
    fold[order], turn[order] = np.arange(n) % folds, np.arange(n) // folds % 2
    parts = []
    for f in range(max(1, min(folds, queries * folds // n))):
        rows = np.flatnonzero(fold == f)
        kept = rng.permutation(len(rows))[: max(2, queries)] if len(rows) > queries else np.arange(len(rows))
        part = np.full(n, BANK, dtype=np.int8)
        part[rows[kept]] = np.where(turn[rows[kept]] == f % 2, FIT, VAL)
        parts.append(part)
    return parts


def held_out_spaces(
    memory: Memory, z: np.ndarray, classes: int, k: int, parts: list[np.ndarray]
) -> list[EmbeddingSpace]:
    """The embedding space of each fold: what `retrieve` would give, from the stored neighbours less rows held out.

    Args:
        memory: of the rows of z, none of them added or removed since.
        k: neighbours wanted; fewer where a fold's bank is smaller.
    """
    return [_held_out_space(memory, z, classes, k, part) for part in parts]


def _held_out_space(memory: Memory, z: np.ndarray, classes: int, k: int, part: np.ndarray) -> EmbeddingSpace:
    in_bank = part == BANK
    k = min(max(k, SIZES[-1]), int(in_bank.sum()) - 1)
    kept = in_bank[memory.neighbour_ids] & (memory.neighbour_ids >= 0)
    order = np.argsort(~kept, axis=1, kind="stable")[:, :k]
    ids = _padded(np.take_along_axis(memory.neighbour_ids, order, 1), k, -1)
    sims = _padded(np.take_along_axis(memory.neighbour_sims, order, 1), k, -np.inf)
    short = np.flatnonzero(kept.sum(1) < k)
    if len(short):
        rows = np.flatnonzero(in_bank)
        bank = build(z[rows], rows, metric=memory.bank.metric)
        ids[short], sims[short] = bank.search(z[short], k, exclude=short)
    return _space(memory, z, memory.y, part, classes, ids, sims)


def query_space(
    memory: Memory, z: np.ndarray, classes: int, k: int, queries: np.ndarray, y: np.ndarray, seed: int
) -> EmbeddingSpace:
    """What `retrieve` would give for a memory and rows that are not in it, half of them FIT and half VAL, by class.

    Args:
        memory: of the rows of z, none of them added or removed since.
        queries: (M, D). y: (M,) their class numbers.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    turn = np.empty(len(y), dtype=np.int64)
    turn[order[np.argsort(y[order], kind="stable")]] = np.arange(len(y)) % 2
    part = np.concatenate([np.full(len(z), BANK), np.where(turn == 0, FIT, VAL)]).astype(np.int8)
    k = min(max(k, SIZES[-1]), len(z) - 1)
    ids, sims = memory.bank.search(queries, k)
    ids = np.concatenate([_padded(memory.neighbour_ids[:, :k], k, -1), ids])
    sims = np.concatenate([_padded(memory.neighbour_sims[:, :k], k, -np.inf), sims])
    return _space(memory, np.concatenate([z, queries]), np.concatenate([memory.y, y]), part, classes, ids, sims)


def _padded(array: np.ndarray, width: int, fill: float) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill)


def _space(
    memory: Memory,
    z: np.ndarray,
    y: np.ndarray,
    part: np.ndarray,
    classes: int,
    ids: np.ndarray,
    sims: np.ndarray,
) -> EmbeddingSpace:
    embeddings = Embeddings(z, y, part, tuple(map(str, range(classes))))
    rows = np.arange(len(z), dtype=np.int32)
    neighbours = Neighbours(rows, ids.astype(np.int32), sims.astype(np.float32), memory.bank.metric)
    log_weight = None
    if memory.weighted:
        log_weight = np.pad(np.log(memory.weight), (0, len(z) - len(memory.weight)))
    return EmbeddingSpace(embeddings, neighbours, neighbour_statistics(embeddings, neighbours, SIZES), log_weight)
