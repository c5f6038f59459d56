"""Representations of images: tokens of every row, as a network reads them, and one vector (N, D) of each."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.artifacts import BANK, Split
from attnknn.encoder.encoder import Encoder, embed
from attnknn.experiments.fields.contexts import nearest_filled, shown
from attnknn.experiments.fields.encoding import as_values
from attnknn.experiments.fields.latents import Latents, known_points

PIXELS, ENCODER = "pixels", "encoder"  # representations that no field makes


class Tokens(NamedTuple):
    """What a network reads of N images.

    Attributes:
        values: (N, L, I).
        places: which place each is of, (N, L), or (L,) where that is the same for all images.
    """

    values: Float[Tensor, "N L I"]
    places: Int[Tensor, "... L"]


def patches(x: Tensor, size: int) -> Float[Tensor, "N L I"]:
    """Images (N, C, H, W) as squares of size² pixels, values between 0 and 1; what is left at the edges is cut off.

    Squares are no larger than the image.
    """
    cut, size = x.float() / 255, min(size, *x.shape[2:])
    squares = cut.unfold(2, size, size).unfold(3, size, size)  # (N, C, H/s, W/s, s, s)
    return squares.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def pixel_tokens(split: Split, at: Int[Tensor, "N P"], patch: int) -> Tokens:
    """The images themselves: as patches where all is known, otherwise the known pixels and their places."""
    x = torch.from_numpy(np.array(split.x))
    if at.shape[1] == x.shape[2] * x.shape[3]:
        values = patches(x, patch)
        return Tokens(values, torch.arange(values.shape[1]))
    return Tokens(shown(as_values(x), at), at)


def filled(split: Split, at: Int[Tensor, "N P"]) -> list[np.ndarray]:
    """The images uint8 (N, C, H, W) as they can be completed: unknown pixels the nearest known, or the bank's mean.

    Where all is known, the images alone.
    """
    x = torch.from_numpy(np.array(split.x))
    height, width = x.shape[2:]
    if at.shape[1] == height * width:
        return [x.numpy()]
    nearest = (nearest_filled(as_values(x), at, height, width) * 255).round().to(torch.uint8)  # (N, L, C)
    mean = x[split.rows(BANK)].float().mean(0).round().to(torch.uint8).flatten(1).T  # (L, C)
    places = at[..., None].expand(-1, -1, x.shape[1])
    means = mean.repeat(len(x), 1, 1).scatter_(1, places, nearest.gather(1, places))
    return [of.transpose(1, 2).unflatten(2, (height, width)).contiguous().numpy() for of in (nearest, means)]


def standardised(vectors: np.ndarray, part: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N D"]:
    """Each dimension standardised as on bank rows, then each row at unit length.

    A dimension that is constant on the bank stays out.
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
    """Vectors of every row, as many kinds as its image can be completed in, and tokens; see `readouts.read_off`.

    Args:
        latents: folder of a `Latents` a variant and mode.
        name: a variant, `PIXELS`, or `ENCODER`, which has no tokens.
        encoder: the study's own, trained with labels on whole images; it is shown completed ones.
        share, least: of the points that are known in sparse mode; see `contexts.points_of`.
        patch: side of the patches that whole images are cut into.
    """
    if name not in (PIXELS, ENCODER):
        found = Latents.load(latents / name / mode)
        return [found.pooled()], Tokens(torch.from_numpy(np.array(found.tokens)), torch.arange(found.tokens.shape[1]))
    rows, pixels = len(split.x), split.x.shape[2] * split.x.shape[3]
    at = known_points(mode, rows, pixels, share, least, seed)
    images = filled(split, at)
    if name == ENCODER:
        return [embed(encoder, of)[0] for of in images], None
    return [of.reshape(rows, -1).astype(np.float32) / 255 for of in images], pixel_tokens(split, at, patch)
