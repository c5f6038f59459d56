"""Queries that the memory does not hold: rows are taken out of it in folds, to fit a head on and to choose by."""

import numpy as np

from attnknn.classifier.memory import SIZES, Memory
from attnknn.core.artifacts import BANK, FIT, VAL, Embeddings, Neighbours
from attnknn.index.bank import build
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics

FOLDS = 5
_QUERIES = 10_000  # rows taken out, at most: more tell a head of a thousand weights nothing


def fold_parts(y: np.ndarray, seed: int, folds: int = FOLDS, queries: int = _QUERIES) -> list[np.ndarray]:
    """The part of every row in each fold: held-out rows are by turns FIT and VAL, the others BANK.

    Folds are stratified. Where rows are many, as many folds are left out as keep the queries to so many.
    """
    rng, n = np.random.default_rng(seed), len(y)
    order = rng.permutation(n)
    order = order[np.argsort(y[order], kind="stable")]
    fold, turn = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    folds = min(folds, n)
    fold[order], turn[order] = np.arange(n) % folds, np.arange(n) // folds % 2
    parts = []
    for f in range(max(1, min(folds, queries * folds // n))):
        held = np.flatnonzero(fold == f)
        part = np.full(n, BANK, dtype=np.int8)
        taken = rng.permutation(len(held))[: max(2, queries)] if len(held) > queries else np.arange(len(held))
        part[held[taken]] = np.where(turn[held[taken]] == f % 2, FIT, VAL)
        parts.append(part)
    return parts


def held_out_spaces(
    memory: Memory, z: np.ndarray, classes: int, k: int, parts: list[np.ndarray]
) -> list[EmbeddingSpace]:
    """What `retrieve` would give for each fold's memory, by leaving rows out of the neighbours that are known.

    Args:
        memory: of the rows of z, none of them added or forgotten since.
        k: neighbours that are needed; fewer where a fold's memory is smaller.
    """
    return [_without(memory, z, classes, k, part) for part in parts]


def _without(memory: Memory, z: np.ndarray, classes: int, k: int, part: np.ndarray) -> EmbeddingSpace:
    in_bank = part == BANK
    wanted = min(max(k, SIZES[-1]), int(in_bank.sum()) - 1)
    kept = in_bank[memory.near_ids] & (memory.near_ids >= 0)
    order = np.argsort(~kept, axis=1, kind="stable")[:, :wanted]
    ids = np.full((len(z), wanted), -1, dtype=np.int32)
    sims = np.full((len(z), wanted), -np.inf, dtype=np.float32)
    width = order.shape[1]
    ids[:, :width] = np.take_along_axis(memory.near_ids, order, 1)
    sims[:, :width] = np.take_along_axis(memory.near_sims, order, 1)
    short = np.flatnonzero(kept.sum(1) < wanted)
    if len(short):
        at = np.flatnonzero(in_bank)
        left = build(z[at], at, metric=memory.bank.metric)
        ids[short], sims[short] = left.search(z[short], wanted, exclude=short)
    return _space(memory, z, memory.y, part, classes, ids, sims)


def asked_space(
    memory: Memory, z: np.ndarray, classes: int, k: int, asked: np.ndarray, y: np.ndarray, seed: int
) -> EmbeddingSpace:
    """What `retrieve` would give for a memory and rows that are not in it, half of them FIT and half VAL, by class.

    Args:
        memory: of the rows of z, none of them added or forgotten since.
        asked: (M, D). y: (M,) their class numbers.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    turn = np.empty(len(y), dtype=np.int64)
    turn[order[np.argsort(y[order], kind="stable")]] = np.arange(len(y)) % 2
    part = np.concatenate([np.full(len(z), BANK), np.where(turn == 0, FIT, VAL)]).astype(np.int8)
    wanted = min(max(k, SIZES[-1]), len(z) - 1)
    near = memory.near_ids[:, :wanted], memory.near_sims[:, :wanted]
    found = memory.bank.search(asked, wanted)
    ids, sims = (
        np.concatenate([np.pad(of, ((0, 0), (0, wanted - of.shape[1])), constant_values=nothing), more])
        for of, more, nothing in zip(near, found, (-1, -np.inf), strict=True)
    )
    return _space(memory, np.concatenate([z, asked]), np.concatenate([memory.y, y]), part, classes, ids, sims)


def _space(
    memory: Memory,
    z: np.ndarray,
    y: np.ndarray,
    part: np.ndarray,
    classes: int,
    ids: np.ndarray,
    sims: np.ndarray,
) -> EmbeddingSpace:
    names = tuple(map(str, range(classes)))
    embeddings = Embeddings(z, y, part, names)
    found = Neighbours(
        np.arange(len(z), dtype=np.int32), ids.astype(np.int32), sims.astype(np.float32), memory.bank.metric
    )
    log_weight = np.log(memory.weight) if memory.weighted else None
    if log_weight is not None:
        log_weight = np.pad(log_weight, (0, len(z) - len(log_weight)))
    return EmbeddingSpace(embeddings, found, neighbour_statistics(embeddings, found, SIZES), log_weight)
