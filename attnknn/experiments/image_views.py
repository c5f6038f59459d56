"""Views of images for test-time augmentation: made, embedded and searched."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder, embed
from attnknn.index.bank import Bank
from attnknn.neighbours.views import View, held_out
from attnknn.nn.augment import random_crop

if TYPE_CHECKING:
    from tqdm import tqdm


def images_of(
    x: Num[Tensor, "B C H W"], flip: bool, crops: int, padding: int, seed: int
) -> Iterator[tuple[str, Num[Tensor, "B C H W"]]]:
    """The views of images besides the images themselves, one after the other, by name: `flip`, `crop_1`, `crop_2`, …

    A crop shifts each image by up to `padding` pixels both ways, one draw an image. More crops leave the first as
    they are.

    Args:
        x: images with values 0 … 255.
        flip: whether there is a mirror image, left to right.
        crops: their number; 0 for none.
    """
    if flip:
        yield "flip", x.flip(-1)
    generator = torch.Generator().manual_seed(seed)
    for i in range(1, crops + 1):
        yield f"crop_{i}", random_crop(x, padding, generator)


def see(
    encoder: Encoder, x: np.ndarray, rows: np.ndarray, bank: Bank, k_max: int, device: str = "cpu", bf16: bool = False
) -> View:
    """Embed one view x (M, C, H, W) of some rows (M,), and find the k_max nearest bank rows, or all other ones.

    A row never finds itself, by its id. A bank row with the same image is a neighbour as any other, as in `search`.
    """
    z, logits = embed(encoder, x, device, bf16)
    ids, sims = bank.search(z, min(k_max, len(bank) - 1), exclude=rows, device=device)
    return View(rows, z, ids, sims, bank.metric, logits)


def embedded_views(
    split: Split, encoder: Path, bank: Path, views: Mapping[str, Any], k_max: int, seed: int, device: str, bar: "tqdm"
) -> Iterator[tuple[str, View]]:
    """Each view of the held-out images by its name, embedded and searched.

    Args:
        encoder, bank: folders of the saved encoder and bank.
        views: flip, crops, padding.
    """
    model, about = Encoder.load(encoder)
    memory, rows = Bank.load(bank, mmap=True), held_out(split.part)
    with bar:
        for name, x in images_of(torch.from_numpy(np.asarray(split.x[rows])), **views, seed=seed):
            yield name, see(model, x.numpy(), rows, memory, k_max, device, about["bf16"])
            bar.update()
