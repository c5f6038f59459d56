"""Neighbours and evidence in one go, for embeddings that no stage has searched."""

from collections.abc import Sequence

from attnknn.artifacts import BANK, Embeddings
from attnknn.bank import memory, search
from attnknn.evidence import gather_evidence
from attnknn.neighbourhood import Retrieved


def retrieve(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> Retrieved:
    """Exact neighbours of every row, and the evidence; at most k_max, and at most the other rows of the bank."""
    k = min(k_max, len(embeddings.rows(BANK)) - 1)
    found = search(memory(embeddings, metric=metric), embeddings, k, device)
    return Retrieved(embeddings, found, gather_evidence(embeddings, found, sizes))
