"""Neighbours and evidence in one go, for embeddings that no stage has searched."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from attnknn.artifacts import BANK, FIT, VAL, Embeddings
from attnknn.evidence import gather_evidence
from attnknn.memory import memory, search
from attnknn.neighbourhood import Retrieved


def retrieve(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> Retrieved:
    """Exact neighbours of every row (see `memory.search`), and the evidence."""
    found = search(memory(embeddings, metric=metric), embeddings, k_max, device)
    return Retrieved(embeddings, found, gather_evidence(embeddings, found, sizes))


def grown(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> Retrieved:
    """The same with a memory that takes fit and val rows too, which nothing is tuned or fitted on any more."""
    known = np.isin(embeddings.part, (FIT, VAL))
    part = np.where(known, np.int8(BANK), embeddings.part)
    return retrieve(dataclasses.replace(embeddings, part=part), k_max, sizes, metric, device)
