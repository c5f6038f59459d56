"""The one forward path from neighbours to class probabilities.

x ─encoder→ z ─bank→ ids, sims (B, K) ─gather→ keys (B, K, D), labels (B, K) ─head→ weights ─vote→ probs (B, C)
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours
from attnknn.bank import Bank, build
from attnknn.heads import Head

_BATCH = 1024


def memory(embeddings: Embeddings, **index: object) -> Bank:
    """A bank (see `bank.build`) over the rows of part bank, and no others: held-out rows are never in the memory."""
    rows = embeddings.rows(BANK)
    return build(np.asarray(embeddings.z)[rows], rows, **index)  # type: ignore[arg-type]


def search(bank: Bank, embeddings: Embeddings, k_max: int, device: str = "cpu") -> Neighbours:
    """The k_max nearest bank rows (fewer if the bank is smaller) of every fit, val and test row, itself excluded by id."""
    rows = np.flatnonzero(np.isin(embeddings.part, (FIT, VAL, TEST)))
    ids, sims = bank.search(np.asarray(embeddings.z)[rows], min(k_max, len(bank.ids)), exclude=rows, device=device)
    return Neighbours(rows.astype(np.int32), ids, sims, bank.metric)


def class_shares(y: np.ndarray, n_classes: int) -> Float[Tensor, " C"]:
    """Share of each class among bank labels y; the null neighbour's vote."""
    return torch.from_numpy(np.bincount(y, minlength=n_classes) / len(y)).float()


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


def vote(
    weights: Float[Tensor, "B K"], null: Float[Tensor, " B"], labels: Int[Tensor, "B K"], shares: Float[Tensor, " C"]
) -> Float[Tensor, "B C"]:
    """p(c) = Σᵢ wᵢ·1[labelᵢ = c] + w₀·share_c; rows sum to 1 because weights do."""
    return (null[:, None] * shares).scatter_add(1, labels.clamp(min=0), weights)


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
