"""Where pixels are, as a network reads it: Gaussian Fourier features of their coordinates."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor


def grid(height: int, width: int) -> Float[Tensor, "N 2"]:
    """Centres of the pixels of an image, row by row: (y, x), each from −1 to 1, so N = height · width."""
    ys, xs = (torch.linspace(-1, 1, side) if side > 1 else torch.zeros(1) for side in (height, width))
    return torch.stack(torch.meshgrid(ys, xs, indexing="ij"), dim=-1).flatten(0, 1)


def gaussian_frequencies(count: int, scale: float, seed: int) -> Float[Tensor, "2 F"]:
    """Frequencies b ~ N(0, scale²) of each axis, in periods over half a side."""
    return scale * torch.randn(2, count, generator=Generator().manual_seed(seed))


def fourier_features(at: Float[Tensor, "N 2"], frequencies: Float[Tensor, "2 F"]) -> Float[Tensor, "N E"]:
    """γ(v) = [sin 2πvB, cos 2πvB], E = 2F (Tancik et al. 2020, Fourier features let networks learn high frequencies).

    Every row has the squared length F.
    """
    phase = 2 * math.pi * at @ frequencies  # (N, F)
    return torch.cat([phase.sin(), phase.cos()], dim=-1)
