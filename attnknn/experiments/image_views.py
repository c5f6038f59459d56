"""Augmented views of images for test-time augmentation: generate, embed, search."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder, embed
from attnknn.index.stored import SearchableBank, open_bank
from attnknn.neighbours.views import View, held_out
from attnknn.nn.augment import random_crop


def generate_views(
    x: Num[Tensor, "B C H W"], flip: bool, crops: int, padding: int, seed: int
) -> Iterator[tuple[str, Num[Tensor, "B C H W"]]]:
    """Generate augmented views of images, with their names: `flip`, `crop_1`, `crop_2`, …

    A crop shifts each image by up to `padding` pixels in both directions. The first crops do not depend on `crops`.

    Args:
        x: images with values 0 … 255.
        flip: whether to mirror the images horizontally.
        crops: number of random crops.
    """
    if flip:
        yield "flip", x.flip(-1)
    generator = torch.Generator().manual_seed(seed)
    for i in range(1, crops + 1):
        yield f"crop_{i}", random_crop(x, padding, generator)


def embed_view(
    encoder: Encoder,
    x: np.ndarray,
    rows: np.ndarray,
    bank: SearchableBank,
    k_max: int,
    device: str = "cpu",
    bf16: bool = False,
) -> View:
    """Embed a view x (M, C, H, W) of rows (M,), and search for its k_max nearest bank rows, or all others if fewer.

    A row is excluded from its own neighbours by its id; duplicates of its image are not, as in `neighbours.search`.
    """
    z, logits = embed(encoder, x, device, bf16)
    ids, sims = bank.search(z, min(k_max, len(bank) - 1), exclude=rows, device=device)
    return View(rows, ids, sims, bank.metric, z, logits)


def embedded_views(
    split: Split, encoder: Path, bank: Path, views: Mapping[str, Any], k_max: int, seed: int, device: str
) -> Iterator[tuple[str, View]]:
    """Embed and search each view of the held-out images; yields names and views.

    Args:
        encoder, bank: folders of the saved encoder and bank.
        views: flip, crops, padding.
    """
    model, config = Encoder.load(encoder)
    memory, rows = open_bank(bank), held_out(split.part)
    for name, x in generate_views(torch.from_numpy(np.asarray(split.x[rows])), **views, seed=seed):
        yield name, embed_view(model, x.numpy(), rows, memory, k_max, device, config["bf16"])
