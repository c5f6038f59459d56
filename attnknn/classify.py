"""The one forward path from neighbours to class probabilities.

x ─encoder→ z ─bank→ ids, sims (B, K) ─gather→ keys (B, K, D), labels (B, K) ─head→ weights ─vote→ probs (B, C)
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.artifacts import BANK, Embeddings, Neighbours
from attnknn.heads import Head
from attnknn.votes import class_shares, vote

_BATCH = 1024


def gather(
    embeddings: Embeddings, neighbours: Neighbours, rows: np.ndarray, k: int, labels: np.ndarray | None = None
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B K D"], Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """What a head needs of the given query rows: query, keys, sims, labels; −1 labels where a neighbour is missing.

    Args:
        labels: (N,) labels of all rows, in place of the true ones, as for studies of label noise.
    """
    ids, sims = neighbours.of(rows, k)
    y = embeddings.y if labels is None else labels
    query, keys = np.asarray(embeddings.z[rows]), np.asarray(embeddings.z[ids])
    voted = np.where(ids >= 0, y[ids], -1)
    return torch.from_numpy(query), torch.from_numpy(keys), torch.from_numpy(sims), torch.from_numpy(voted)


@torch.inference_mode()
def classify(
    head: Head,
    embeddings: Embeddings,
    neighbours: Neighbours,
    rows: np.ndarray,
    k: int,
    labels: np.ndarray | None = None,
    device: str = "cpu",
) -> np.ndarray:
    """Class probabilities float32 (len(rows), C) of query rows by their k stored neighbours under a head.

    Args:
        labels: (N,) labels of all rows, in place of the true ones.

    Raises:
        InputError: k is above the neighbours stored, or a row was never searched for.
    """
    y = np.asarray(embeddings.y if labels is None else labels)
    shares = class_shares(y[embeddings.rows(BANK)], len(embeddings.classes)).to(device)
    out = np.empty((len(rows), len(embeddings.classes)), dtype=np.float32)
    for start in range(0, len(rows), _BATCH):
        batch = gather(embeddings, neighbours, rows[start : start + _BATCH], k, labels)
        query, keys, sims, voted = (t.to(device) for t in batch)
        out[start : start + _BATCH] = vote(*head(query, keys, sims, voted), voted, shares).cpu().numpy()
    return out
