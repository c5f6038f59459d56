"""The image backbone: a small convolutional network after Jordan (2024), arXiv 2404.00498.

    whitened 2×2 patches → GELU → groups of [conv 3×3, max-pool 2, BN, GELU, conv 3×3, BN, GELU] → global max-pool

Pooling right after a group's first convolution leaves a quarter of the work to the others. Filters are initialised to
the identity, batch norms have no learned scale, and the first layer is computed from the data and not trained.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

HEAD_SCALE = 1 / 9  # factor of the linear head's logits, so that initial probabilities are near uniform
_PATCH = 2
WHITENING_IMAGES = 2000  # enough to estimate the patches' covariance
_EPSILON = 5e-4  # added to the covariance's eigenvalues, so that directions of little variance stay small


class Filters(nn.Module):
    """A 3×3 convolution whose filters are one matrix (outputs, inputs·9), as Muon needs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.shape = (outputs, inputs, 3, 3)
        weight = nn.init.kaiming_uniform_(torch.empty(self.shape), a=math.sqrt(5))
        nn.init.dirac_(weight[:inputs])
        self.weight = nn.Parameter(weight.flatten(1))

    def forward(self, x: Float[Tensor, "B I H W"]) -> Float[Tensor, "B O H W"]:
        return F.conv2d(x, self.weight.view(self.shape), padding=1)


def _norm(width: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width, momentum=0.4)
    norm.weight.requires_grad_(False)
    return norm


class ConvNet(nn.Module):
    """Features (B, widths[-1]) of normalised images (B, C, H, W), for 8×8 to 32×32.

    Args:
        shape: (C, H, W).
        widths: output channels of each group.
        depth: convolutions per group.
    """

    def __init__(self, shape: Sequence[int], widths: Sequence[int], depth: int) -> None:
        super().__init__()
        channels, height, width = shape
        filters = 2 * channels * _PATCH**2
        self.whitening: Tensor
        self.register_buffer("whitening", torch.zeros(filters, channels, _PATCH, _PATCH))
        self.whitening_bias = nn.Parameter(torch.zeros(filters))
        # An image one pixel wide has no 2×2 patch, and rounding down would pool a small one to size 0.
        self.padding = int(min(height, width) < _PATCH)
        small = min(height, width) - 1 < 2 ** len(widths)
        layers: list[nn.Module] = []
        for before, after in zip([filters, *widths[:-1]], widths, strict=True):
            layers += [Filters(before, after), nn.MaxPool2d(2, ceil_mode=small), _norm(after), nn.GELU()]
            for _ in range(depth - 1):
                layers += [Filters(after, after), _norm(after), nn.GELU()]
        self.groups = nn.Sequential(*layers)
        self.out_dim = widths[-1]

    @torch.no_grad()
    def whiten(self, x: Float[Tensor, "N C H W"]) -> None:
        """Set the first layer to ±v/√(λ + ε), v and λ eigenvectors and eigenvalues of the patches' second moments."""
        images = F.pad(x, (self.padding,) * 4)
        patches = F.unfold(images, _PATCH).transpose(1, 2).flatten(0, 1).double()  # (M, C·2·2)
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (directions / (variances + _EPSILON).sqrt()).T.reshape(-1, *self.whitening.shape[1:])
        self.whitening.copy_(torch.cat([filters, -filters]))

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F"]:
        x = F.gelu(F.conv2d(x, self.whitening, self.whitening_bias, padding=self.padding))
        # In float32: torch.compile's gradient of a maximum of bfloat16 over space is NaN (torch 2.13, on a CPU).
        return self.groups(x).float().amax((2, 3))
