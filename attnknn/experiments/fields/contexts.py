"""Contexts: the pixels of an image that a field is shown, all of them or a random subset."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


def pixel_values(x: Tensor) -> Float[Tensor, "B N C"]:
    """Images (B, C, H, W) with values 0 … 255 as values between 0 and 1 of their N = H·W pixels."""
    return x.float().flatten(2).transpose(1, 2) / 255


def context_size(pixels: int, share: float, least: int) -> int:
    """Number of pixels in a sparse context: a share, rounded down, but no fewer than `least`, and at most all."""
    return min(pixels, max(least, int(share * pixels + 1e-9)))


def sample_pixels(sampler: str, images: int, pixels: int, size: int, generator: Generator) -> Int[Tensor, "B P"]:
    """Pixel indices of each image's context, distinct and ascending.

    Args:
        sampler: `full` takes every pixel; `image` draws for each image; `batch` draws once for all images.
        size: P, ignored by `full`.
    """
    if sampler == "full":
        return torch.arange(pixels).expand(images, -1)
    scores = torch.rand(images if sampler == "image" else 1, pixels, generator=generator)
    return scores.topk(size, dim=1).indices.sort(dim=1).values.expand(images, -1)


def gather_pixels(values: Float[Tensor, "B N C"], idx: Int[Tensor, "B P"]) -> Float[Tensor, "B P C"]:
    """Values of the pixels with these indices."""
    return values.gather(1, idx[..., None].expand(-1, -1, values.shape[-1]))


def hidden_mask(idx: Int[Tensor, "B P"], pixels: int) -> Float[Tensor, "B N"]:
    """1 for the pixels outside the context, 0 for those in it; 1 everywhere if the context is the whole image."""
    mask = torch.ones(len(idx), pixels, device=idx.device)
    return mask.scatter_(1, idx, 0.0) if idx.shape[1] < pixels else mask


def fill_nearest(
    values: Float[Tensor, "B N C"], idx: Int[Tensor, "B P"], height: int, width: int
) -> Float[Tensor, "B N C"]:
    """Nearest-neighbour interpolation: each pixel from the closest one in the context, ties to the lower index."""
    y, x = (axis.flatten() for axis in np.mgrid[:height, :width])
    distances = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2  # (N, N), integers, so ties are exact
    # In batches: the distances (B, P, N) of all images would take gigabytes.
    nearest = [distances[batch.numpy()].argmin(1) for batch in idx.split(100)]  # (B, N), positions in the context
    return gather_pixels(values, idx.gather(1, torch.from_numpy(np.concatenate(nearest))))
