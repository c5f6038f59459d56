"""Search the bank, which holds the embeddings of part bank, for the neighbours of every row."""

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np

from attnknn.core.artifacts import BANK, FIT, VAL, Embeddings, Neighbours
from attnknn.core.cluster import run_tasks
from attnknn.core.errors import require
from attnknn.index.bank import Bank, build
from attnknn.index.stored import SearchableBank
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics

_BLOCK = 4096  # queries of a task of a cluster


def bank_rows(embeddings: Embeddings) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (N, D) and row ids (N,) of part bank."""
    rows = embeddings.rows(BANK)
    contiguous = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
    return embeddings.z[rows[0] : rows[-1] + 1] if contiguous else np.asarray(embeddings.z)[rows], rows


def memory(embeddings: Embeddings, **index: object) -> Bank:
    """Build a bank (see `bank.build`) over the rows of part bank only."""
    return build(*bank_rows(embeddings), **index)  # type: ignore[arg-type]


def search(
    bank: SearchableBank, embeddings: Embeddings, k_max: int, device: str = "cpu", cluster: str | None = None
) -> Neighbours:
    """The k_max (or as many as the bank has) nearest bank rows of every row, itself excluded by its id.

    Held-out rows are queries of heads and baselines; neighbours of bank rows give the neighbour statistics.

    Args:
        cluster: of a Lance table, see `run_tasks`.

    Raises:
        InputError: the bank has a single row, or rows that the embeddings do not have.
    """
    require(len(bank) > 1, "bank: a single row has no neighbours; give two rows or more")
    z, k = embeddings.z, min(k_max, len(bank) - 1)
    rows = np.arange(len(z))
    if cluster is None:
        ids, sims = bank.search(z, k, exclude=rows, device=device)
    else:
        tasks = [(start, z[start : start + _BLOCK]) for start in range(0, len(z), _BLOCK)]
        blocks = sorted(
            run_tasks(partial(_search_block, bank, k), tasks, cluster, "search"), key=lambda block: block[0]
        )
        ids, sims = (np.concatenate(parts) for parts in list(zip(*blocks, strict=True))[1:])
    require(ids.max() < len(rows), "bank: holds rows that the embeddings do not have; run `dvc repro`")
    return Neighbours(rows.astype(np.int32), ids.astype(np.int32, copy=False), sims, bank.metric)


def _search_block(bank: SearchableBank, k: int, task: tuple[int, np.ndarray]) -> tuple[int, np.ndarray, np.ndarray]:
    start, z = task
    return start, *bank.search(z, k, exclude=np.arange(start, start + len(z)))


def retrieve(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> EmbeddingSpace:
    """Embedding space with exact neighbours of every row (see `search`) and neighbour statistics."""
    neighbours = search(memory(embeddings, metric=metric), embeddings, k_max, device)
    return EmbeddingSpace(embeddings, neighbours, neighbour_statistics(embeddings, neighbours, sizes))


def with_larger_bank(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> EmbeddingSpace:
    """`retrieve` with fit and val rows moved to the bank; for use after fitting and tuning."""
    part = np.where(np.isin(embeddings.part, (FIT, VAL)), np.int8(BANK), embeddings.part)
    return retrieve(dataclasses.replace(embeddings, part=part), k_max, sizes, metric, device)
