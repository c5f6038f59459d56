"""The one forward path from neighbours to class probabilities.

x ─encoder→ z ─bank→ ids, sims (B, K) ─gather→ keys (B, K, D), labels (B, K) ─head→ weights ─vote→ probs (B, C)
"""

from collections.abc import Sequence

import numpy as np
import torch

from attnknn.heads.attention import Head
from attnknn.neighbours.space import EmbeddingSpace, part_rows

_BATCH = 1024


@torch.inference_mode()
def classify(head: Head, retrieved: EmbeddingSpace, rows: np.ndarray, k: int, device: str = "cpu") -> np.ndarray:
    """Class probabilities float32 (len(rows), C) of query rows by their k stored neighbours under a head.

    Raises:
        InputError: k is above the neighbours stored, or a row was never searched for.
    """
    out = np.empty((len(rows), len(retrieved.embeddings.classes)), dtype=np.float32)
    for start in range(0, len(rows), _BATCH):
        batch = retrieved.around(rows[start : start + _BATCH], k, head.needs).to(device)
        out[start : start + _BATCH] = head(batch)[0].cpu().numpy()
    return out


def classify_part(head: Head, spaces: Sequence[EmbeddingSpace], part: int, k: int, device: str = "cpu") -> np.ndarray:
    """`classify` for the rows of a part in several embedding spaces, one after the other."""
    return np.concatenate([classify(head, space, rows, k, device) for space, rows in part_rows(spaces, part)])
