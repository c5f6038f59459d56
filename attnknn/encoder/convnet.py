"""The image backbone: a small convolutional network of the family of Jordan (2024), arXiv 2404.00498.

    whitened 2×2 patches → GELU → groups of [conv 3×3, max-pool 2, BN, GELU, conv 3×3, BN, GELU] → max over space

Pooling right after a group's first convolution leaves the others a quarter of the work. Filters start as the identity,
batch norms have no scale of their own, and the first layer is worked out from the data and not trained.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

HEAD_SCALE = 1 / 9  # of the logits of a linear head on the features, so that it starts out unsure
_PATCH = 2
WHITENED = 2000  # images that are enough to know the patches' covariance
_EPSILON = 5e-4  # added to the covariance's eigenvalues: directions with next to no variance stay small


class Filters(nn.Module):
    """A 3×3 convolution that keeps its filters as a matrix (outputs, inputs·9), for optimisers that want matrices."""

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
        widths: outputs of each group's convolutions.
        depth: convolutions of each group.
    """

    def __init__(self, shape: Sequence[int], widths: Sequence[int], depth: int) -> None:
        super().__init__()
        channels, height, width = shape
        whitened = 2 * channels * _PATCH**2
        self.whitening: Tensor
        self.register_buffer("whitening", torch.zeros(whitened, channels, _PATCH, _PATCH))
        self.whitening_bias = nn.Parameter(torch.zeros(whitened))
        # An image of one pixel's width has no 2×2 patch, and one that is small would be pooled to nothing.
        self.padding = int(min(height, width) < _PATCH)
        small = min(height, width) - 1 < 2 ** len(widths)
        layers: list[nn.Module] = []
        for before, after in zip([whitened, *widths[:-1]], widths, strict=True):
            layers += [Filters(before, after), nn.MaxPool2d(2, ceil_mode=small), _norm(after), nn.GELU()]
            for _ in range(depth - 1):
                layers += [Filters(after, after), _norm(after), nn.GELU()]
        self.groups = nn.Sequential(*layers)
        self.out_dim = widths[-1]

    @torch.no_grad()
    def whiten(self, x: Float[Tensor, "N C H W"]) -> None:
        """Set the first layer from normalised images: ±v/√(λ + ε), v and λ of their patches' covariance."""
        images = F.pad(x, (self.padding,) * 4)
        patches = F.unfold(images, _PATCH).transpose(1, 2).flatten(0, 1).double()  # (M, C·2·2)
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (directions / (variances + _EPSILON).sqrt()).T.reshape(-1, *self.whitening.shape[1:])
        self.whitening.copy_(torch.cat([filters, -filters]))

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F"]:
        x = F.gelu(F.conv2d(x, self.whitening, self.whitening_bias, padding=self.padding))
        # In float32: torch.compile's gradient of a maximum of bfloat16 over space is NaN (torch 2.13, on a CPU).
        return self.groups(x).float().amax((2, 3))
