"""Neighbours and evidence in one go, for embeddings that no stage has searched."""

from collections.abc import Sequence

from attnknn.artifacts import Embeddings
from attnknn.evidence import gather_evidence
from attnknn.memory import memory, search
from attnknn.neighbourhood import Retrieved


def retrieve(
    embeddings: Embeddings, k_max: int, sizes: Sequence[int], metric: str = "l2", device: str = "cpu"
) -> Retrieved:
    """Exact neighbours of every row (see `memory.search`), and the evidence."""
    found = search(memory(embeddings, metric=metric), embeddings, k_max, device)
    return Retrieved(embeddings, found, gather_evidence(embeddings, found, sizes))
