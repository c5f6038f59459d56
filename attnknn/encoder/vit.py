"""A vision transformer (Dosovitskiy et al. 2021) for small images."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnknn.core.errors import require


class ViT(nn.Module):
    """Features (B, width): patches with learned positions → pre-norm transformer blocks → layer norm → mean.

    Args:
        shape: (C, H, W); sides must be multiples of the patch.
        patch: side of a patch, in pixels.
        width, blocks, heads: of the transformer; hidden layers have 4 · width units.
    """

    def __init__(self, shape: Sequence[int], patch: int = 4, width: int = 192, blocks: int = 6, heads: int = 3) -> None:
        super().__init__()
        channels, height, wide = shape
        whole = height % patch == 0 and wide % patch == 0
        require(whole, f"vit.patch: {patch} does not divide images of {height}×{wide}; give a divisor of both")
        require(width % heads == 0, f"vit.heads: {heads} does not divide width {width}; give a divisor")
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn(height * wide // patch**2, width))
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, blocks, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.out_dim = width

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F"]:
        return self.blocks(self.patches(x).flatten(2).mT + self.positions).mean(1)
