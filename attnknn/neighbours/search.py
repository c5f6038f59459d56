"""Build a bank over the embeddings of part bank, and search it for the neighbours of every row."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import BANK, FIT, VAL, Embeddings, Neighbours
from attnknn.core.errors import require
from attnknn.index.bank import Bank, build
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics


def memory(embeddings: Embeddings, **index: object) -> Bank:
    """Build a bank (see `bank.build`) over the rows of part bank only."""
    rows = embeddings.rows(BANK)
    contiguous = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
    z = embeddings.z[rows[0] : rows[-1] + 1] if contiguous else np.asarray(embeddings.z)[rows]
    return build(z, rows, **index)  # type: ignore[arg-type]


def search(bank: Bank, embeddings: Embeddings, k_max: int, device: str = "cpu") -> Neighbours:
    """The k_max (or as many as the bank has) nearest bank rows of every row, itself excluded by its id.

    Held-out rows are queries of heads and baselines; neighbours of bank rows give the neighbour statistics.

    Raises:
        InputError: the bank has a single row, or rows that the embeddings do not have.
    """
    require(len(bank) > 1, "bank: a single row has no neighbours; give two rows or more")
    rows = np.arange(len(embeddings.z))
    require(bank.ids.max() < len(rows), "bank: holds rows that the embeddings do not have; run `dvc repro`")
    ids, sims = bank.search(embeddings.z, min(k_max, len(bank) - 1), exclude=rows, device=device)
    return Neighbours(rows.astype(np.int32), ids, sims, bank.metric)


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
