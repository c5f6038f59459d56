"""Which pixels of an image a field is shown: all of them, or a few, drawn for each image or for a whole batch."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


def points_of(pixels: int, share: float, least: int) -> int:
    """Points of a sparse context: a share of the pixels, rounded down, but no fewer than `least`, or all there are."""
    return min(pixels, max(least, int(share * pixels + 1e-9)))


def draw_points(sampler: str, images: int, pixels: int, points: int, generator: Generator) -> Int[Tensor, "B P"]:
    """Places of the pixels that each image shows, all different and in rising order.

    Args:
        sampler: `full` shows every pixel; `image` draws for each image anew; `batch` draws the same for all of them,
            as the study that this goes back to did.
        points: P; `full` does not read it.
    """
    if sampler == "full":
        return torch.arange(pixels).expand(images, -1)
    drawn = torch.rand(images if sampler == "image" else 1, pixels, generator=generator)
    return drawn.topk(points, dim=1).indices.sort(dim=1).values.expand(images, -1)


def shown(values: Float[Tensor, "B N C"], at: Int[Tensor, "B P"]) -> Float[Tensor, "B P C"]:
    """The values of the pixels at these places."""
    return values.gather(1, at[..., None].expand(-1, -1, values.shape[-1]))


def nearest_filled(
    values: Float[Tensor, "B N C"], at: Int[Tensor, "B P"], height: int, width: int
) -> Float[Tensor, "B N C"]:
    """Every pixel as the shown one that is nearest to it, in rows and columns; of two as near, the first.

    What a reconstruction from few points has to be better than.
    """
    y, x = (of.flatten() for of in np.mgrid[:height, :width])
    apart = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2  # (N, N), whole numbers, so that ties are ties
    # A part of the images at a time: distances of a hundred are gigabytes less than those of ten thousand.
    parts = [apart[some.numpy()].argmin(1) for some in at.split(100)]  # (B, P, N) → (B, N), which of the shown
    return shown(values, at.gather(1, torch.from_numpy(np.concatenate(parts))))
