"""Representations of images: one vector per row, and tokens for a transformer."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.artifacts import BANK, Split
from attnknn.core.files import read_json
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


@dataclass(frozen=True)
class Representations:
    """The representations of a dataset's images: pixels, latents of fields, embeddings of an encoder.

    Attributes:
        latents: folder of `Latents` by variant and mode.
        encoder: supervised encoder of whole images; sparse ones are filled for it.
        share, least: size of sparse contexts; see `contexts.context_size`.
        patch: side of the patches of whole images.
        seed: of the contexts.
    """

    split: Split
    latents: Path
    encoder: Encoder
    share: float
    least: int
    patch: int
    seed: int

    @classmethod
    def open(cls, split: Path, latents: Path, encoder: Path, patch: int, seed: int) -> "Representations":
        """Representations from the folders of a split, of latents (see `latents.save_latents`) and of an encoder."""
        size = {key: value for key, value in read_json(latents / "latents.json").items() if key in ("share", "least")}
        return cls(Split.load(split), latents, Encoder.load(encoder)[0], **size, patch=patch, seed=seed)

    def context(self, mode: str) -> Int[Tensor, "N P"]:
        """Pixel indices of each row's context; see `latents.context_pixels`."""
        n, _, height, width = self.split.x.shape
        return context_pixels(mode, n, height * width, self.share, self.least, self.seed)

    def load(self, name: str, mode: str) -> tuple[list[np.ndarray], Tokens | None]:
        """Vectors of every row, an array for each way of filling the images, and tokens.

        Args:
            name: a variant, `PIXELS`, or `ENCODER`, which has no tokens.
        """
        if name not in (PIXELS, ENCODER):
            stored = Latents.load(self.latents / name / mode)
            tokens = torch.from_numpy(np.array(stored.tokens))
            return [stored.pooled()], Tokens(tokens, torch.arange(tokens.shape[1]))
        idx = self.context(mode)
        images = filled_images(self.split, idx)
        if name == ENCODER:
            return [embed(self.encoder, x)[0] for x in images], None
        vectors = [x.reshape(len(x), -1).astype(np.float32) / 255 for x in images]
        return vectors, pixel_tokens(self.split, idx, self.patch)
