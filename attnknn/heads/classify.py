"""Class probabilities of query rows under any head, in batches: the forward path of all methods.

x ─encoder→ z ─index→ ids, sims (B, K) ─gather→ keys (B, K, D), labels (B, K) ─head→ weights ─vote→ probs (B, C)
"""

from collections.abc import Sequence

import numpy as np
import torch

from attnknn.heads.attention import Head
from attnknn.neighbours.space import EmbeddingSpace, part_rows

_BATCH = 1024


@torch.inference_mode()
def classify(head: Head, space: EmbeddingSpace, rows: np.ndarray, k: int, device: str = "cpu") -> np.ndarray:
    """Class probabilities float32 (M, C) of query rows (M,), by a head over their k nearest stored neighbours.

    A head that was fitted or tuned with fewer neighbours is given as many.

    Raises:
        InputError: k is above the number of stored neighbours, or a row has none stored.
    """
    k = min(k, getattr(head, "k", 0) or k)
    out = np.empty((len(rows), len(space.embeddings.classes)), dtype=np.float32)
    for start in range(0, len(rows), _BATCH):
        batch = space.around(rows[start : start + _BATCH], k, head.needs).to(device)
        out[start : start + _BATCH] = head(batch)[0].cpu().numpy()
    return out


def classify_part(head: Head, spaces: Sequence[EmbeddingSpace], part: int, k: int, device: str = "cpu") -> np.ndarray:
    """`classify` the rows of a part of all embedding spaces, in the order of `part_rows`."""
    return np.concatenate([classify(head, space, rows, k, device) for space, rows in part_rows(spaces, part)])
