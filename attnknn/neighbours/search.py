"""The memory of the study: a bank over the embeddings of part bank, and the neighbours of every row in it."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import BANK, FIT, VAL, Embeddings, Neighbours
from attnknn.core.errors import require
from attnknn.index.bank import Bank, build
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics


def memory(embeddings: Embeddings, **index: object) -> Bank:
    """A bank (see `bank.build`) over the rows of part bank, and no others: held-out rows are never in the memory."""
    rows = embeddings.rows(BANK)
    contiguous = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
    z = embeddings.z[rows[0] : rows[-1] + 1] if contiguous else np.asarray(embeddings.z)[rows]
    return build(z, rows, **index)  # type: ignore[arg-type]


def search(bank: Bank, embeddings: Embeddings, k_max: int, device: str = "cpu") -> Neighbours:
    """The k_max nearest bank rows of every row, itself excluded by its id; all others where the bank has fewer.

    Held-out rows are the queries of heads and baselines; the neighbours of bank rows are evidence about them.

    Raises:
        InputError: the bank is a single row, which has no neighbour, or rows of it are none of the embeddings'.
    """
    size = len(bank)
    require(size > 1, "bank: a single row; its rows are each other's neighbours, so give it two or more")
    rows = np.arange(len(embeddings.z))
    known = int(bank.ids.max()) < len(rows)
    require(known, "bank: holds rows that the embeddings do not have; they are of another run, so run `dvc repro`")
    ids, sims = bank.search(embeddings.z, min(k_max, size - 1), exclude=rows, device=device)
    return Neighbours(rows.astype(np.int32), ids, sims, bank.metric)


def retrieve(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> EmbeddingSpace:
    """Exact neighbours of every row (see `memory.search`), and the evidence."""
    neighbours = search(memory(embeddings, metric=metric), embeddings, k_max, device)
    return EmbeddingSpace(embeddings, neighbours, neighbour_statistics(embeddings, neighbours, sizes))


def with_larger_bank(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> EmbeddingSpace:
    """The same with a memory that takes fit and val rows too, which nothing is tuned or fitted on any more."""
    known = np.isin(embeddings.part, (FIT, VAL))
    part = np.where(known, np.int8(BANK), embeddings.part)
    return retrieve(dataclasses.replace(embeddings, part=part), k_max, sizes, metric, device)
