"""Representations of images: one vector per row, and tokens for a transformer."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.artifacts import BANK, Split
from attnknn.encoder.encoder import Encoder, embed
from attnknn.experiments.fields.contexts import fill_nearest, gather_pixels, pixel_values
from attnknn.experiments.fields.latents import Latents, context_pixels
from attnknn.experiments.fields.variants import ENCODER, PIXELS


class Tokens(NamedTuple):
    """Input tokens of N images.

    Attributes:
        values: (N, L, I).
        positions: index of each token's position, (N, L), or (L,) if all images share them.
    """

    values: Float[Tensor, "N L I"]
    positions: Int[Tensor, "... L"]


def patches(x: Tensor, size: int) -> Float[Tensor, "N L I"]:
    """Images (N, C, H, W) as patches of size² pixels, values in [0, 1]; the remainder at the edges is cut off.

    Patches are at most as large as the image.
    """
    size = min(size, *x.shape[2:])
    grid = (x.float() / 255).unfold(2, size, size).unfold(3, size, size)  # (N, C, H/s, W/s, s, s)
    return grid.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def pixel_tokens(split: Split, idx: Int[Tensor, "N P"], patch: int) -> Tokens:
    """Patches of whole images, or the single pixels of sparse contexts."""
    x = torch.from_numpy(np.array(split.x))
    if idx.shape[1] == x.shape[2] * x.shape[3]:
        values = patches(x, patch)
        return Tokens(values, torch.arange(values.shape[1]))
    return Tokens(gather_pixels(pixel_values(x), idx), idx)


def filled_images(split: Split, idx: Int[Tensor, "N P"]) -> list[np.ndarray]:
    """Images uint8 (N, C, H, W) with the pixels outside the context filled in two ways: nearest pixel, bank mean.

    Whole images are returned once, as they are.
    """
    x = torch.from_numpy(np.array(split.x))
    height, width = x.shape[2:]
    if idx.shape[1] == height * width:
        return [x.numpy()]
    nearest = (fill_nearest(pixel_values(x), idx, height, width) * 255).round().to(torch.uint8)  # (N, L, C)
    mean = x[split.rows(BANK)].float().mean(0).round().to(torch.uint8).flatten(1).T  # (L, C)
    index = idx[..., None].expand(-1, -1, x.shape[1])
    means = mean.repeat(len(x), 1, 1).scatter_(1, index, nearest.gather(1, index))
    return [values.transpose(1, 2).unflatten(2, (height, width)).contiguous().numpy() for values in (nearest, means)]


def standardise(vectors: np.ndarray, part: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N D"]:
    """Standardise each dimension by the bank rows, then scale each row to unit length.

    Dimensions that are constant on the bank become 0.
    """
    z = np.asarray(vectors, dtype=np.float32)
    bank = z[part == BANK]
    std = bank.std(0)
    z = (z - bank.mean(0)) / np.where(std > 1e-6, std, np.inf)
    return (z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def representation(
    split: Split,
    latents: Path,
    name: str,
    mode: str,
    encoder: Encoder,
    share: float,
    least: int,
    patch: int,
    seed: int,
) -> tuple[list[np.ndarray], Tokens | None]:
    """Vectors of every row, one array for each way of filling the image, and tokens; see `readouts.read_out`.

    Args:
        latents: folder of `Latents` by variant and mode.
        name: a variant, `PIXELS`, or `ENCODER`, which has no tokens.
        encoder: supervised encoder of whole images; sparse ones are filled for it.
        share, least: size of sparse contexts; see `contexts.context_size`.
        patch: side of the patches of whole images.
    """
    if name not in (PIXELS, ENCODER):
        stored = Latents.load(latents / name / mode)
        return [stored.pooled()], Tokens(
            torch.from_numpy(np.array(stored.tokens)), torch.arange(stored.tokens.shape[1])
        )
    rows, pixels = len(split.x), split.x.shape[2] * split.x.shape[3]
    idx = context_pixels(mode, rows, pixels, share, least, seed)
    images = filled_images(split, idx)
    if name == ENCODER:
        return [embed(encoder, x)[0] for x in images], None
    return [x.reshape(rows, -1).astype(np.float32) / 255 for x in images], pixel_tokens(split, idx, patch)
