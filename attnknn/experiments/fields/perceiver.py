"""A cascaded Perceiver IO: encodes a set of pixels into latents, and decodes values at any coordinate from these.

    M learned vectors ─cross-attend to the pixels─ self-attend ─project─ … ─cross-attend─ self-attend→ L (B, M, D)
    coordinate queries ─cross-attend to L→ values there

Jaegle et al. (2022), Perceiver IO; here the latents get wider stage by stage, and each stage attends to the pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from attnknn.core.errors import InputError
from attnknn.core.files import load_weights, save_weights


def grid(height: int, width: int) -> Float[Tensor, "N 2"]:
    """Pixel centres (y, x), row by row, each coordinate from −1 to 1; N = height · width."""
    ys, xs = (torch.linspace(-1, 1, side) if side > 1 else torch.zeros(1) for side in (height, width))
    return torch.stack(torch.meshgrid(ys, xs, indexing="ij"), dim=-1).flatten(0, 1)


def gaussian_frequencies(count: int, scale: float, seed: int) -> Float[Tensor, "2 F"]:
    """Frequencies b ~ N(0, scale²) of each axis, in periods per half image side."""
    return scale * torch.randn(2, count, generator=Generator().manual_seed(seed))


def fourier_features(coordinates: Float[Tensor, "N 2"], frequencies: Float[Tensor, "2 F"]) -> Float[Tensor, "N E"]:
    """γ(v) = [sin 2πvB, cos 2πvB], E = 2F (Tancik et al. 2020, Fourier features let networks learn high frequencies).

    Every row has squared norm F.
    """
    phase = 2 * math.pi * coordinates @ frequencies  # (N, F)
    return torch.cat([phase.sin(), phase.cos()], dim=-1)


@dataclass(frozen=True)
class FieldConfig:
    """Sizes of a field.

    Attributes:
        height, width, channels: image size; C channels.
        frequencies: number of frequencies of the Fourier features; E = 2·frequencies.
        scale: standard deviation of the frequencies.
        dims: width of the latents in each stage; the last is D.
        latents: number of latents, M.
        heads: attention heads; a divisor of each of dims.
        depth: self-attention blocks after each stage's cross-attention.
        seed: of the frequencies.
    """

    height: int
    width: int
    channels: int
    frequencies: int
    scale: float
    dims: Sequence[int]
    latents: int
    heads: int
    depth: int
    seed: int


class Attend(nn.Module):
    """Pre-norm cross-attention and feed-forward block with residual connections; self-attention without a context."""

    def __init__(self, dim: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(context)
        self.query, self.key_value = nn.Linear(dim, dim, bias=False), nn.Linear(context, 2 * dim, bias=False)
        self.out = nn.Linear(dim, dim)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )
        # Wide enough that heads differ at initialisation: with torch's default every head attends to the mean of all
        # pixels, and most of a short training passes before one becomes selective.
        for layer in (self.query, self.key_value):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def forward(
        self, x: Float[Tensor, "B M D"], context: Float[Tensor, "B N E"] | None = None
    ) -> Float[Tensor, "B M D"]:
        k, v = self.key_value(self.norm_context(x if context is None else context)).chunk(2, dim=-1)  # (B, N, D)
        parts = (self.query(self.norm(x)), k, v)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, H, ·, D/H)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.feed_forward(x)


class Field(nn.Module):
    """Perceiver IO between the pixels of an image, values in [0, 1], and latents; see the module."""

    def __init__(self, config: FieldConfig) -> None:
        super().__init__()
        self.config = config
        first, last, heads = config.dims[0], config.dims[-1], config.heads
        frequencies = gaussian_frequencies(config.frequencies, config.scale, config.seed)
        self.positions: Tensor  # (N, E), Fourier features of all pixels
        self.register_buffer("positions", fourier_features(grid(config.height, config.width), frequencies))
        self.latents = nn.Parameter(0.5 * torch.randn(config.latents, first))  # (M, D₁)
        self.value_embedding = nn.Linear(config.channels, first)
        self.position_embedding = nn.Linear(2 * config.frequencies, first, bias=False)
        self.projections = nn.ModuleList(nn.Linear(*widths) for widths in pairwise(config.dims))
        self.cross_attention = nn.ModuleList(Attend(dim, first, heads) for dim in config.dims)
        self.self_attention = nn.ModuleList(
            nn.Sequential(*(Attend(dim, dim, heads) for _ in range(config.depth))) for dim in config.dims
        )
        self.queries = nn.Linear(2 * config.frequencies, last)
        self.query_attention = Attend(last, last, heads)
        self.values = nn.Sequential(nn.LayerNorm(last), nn.Linear(last, config.channels))

    def encode(self, values: Float[Tensor, "B P C"], idx: Int[Tensor, "B P"]) -> Float[Tensor, "B M D"]:
        """Latents of a set of pixels; their order makes no difference.

        Args:
            values: of the pixels.
            idx: pixel indices, row by row.
        """
        # One product for all pixels: those of a batch are P times as many. The gradient of an embedding is summed in a
        # fixed order, that of indexing is not.
        positions = F.embedding(idx, self.position_embedding(self.positions))
        context = self.value_embedding(2 * values - 1) + positions  # (B, P, D₁)
        x = self.latents.expand(len(values), -1, -1)
        for stage, (cross, attend) in enumerate(zip(self.cross_attention, self.self_attention, strict=True)):
            x = attend(cross(self.projections[stage - 1](x) if stage else x, context))  # (B, M, Dᵢ)
        return x

    def decode(self, latents: Float[Tensor, "B M D"], idx: Int[Tensor, " Q"] | None = None) -> Float[Tensor, "B Q C"]:
        """Values at pixels, the same pixels for all images; at all pixels by default."""
        positions = self.positions if idx is None else self.positions[idx]
        queries = self.queries(positions).expand(len(latents), -1, -1)
        return 0.5 + 0.5 * self.values(self.query_attention(queries, latents))

    def matrices(self) -> list[Tensor]:
        """Weights of the linear layers, which Muon optimises."""
        return [layer.weight for layer in self.modules() if isinstance(layer, nn.Linear)]

    def save(self, folder: Path, **extra: Any) -> None:
        """Write weights and configuration to a folder, atomically."""
        save_weights(folder, self.state_dict(), {"field": asdict(self.config), **extra})

    @classmethod
    def load(cls, folder: Path) -> tuple["Field", dict[str, Any]]:
        """Load a saved field in evaluation mode, and the rest of its configuration.

        Raises:
            InputError: files are missing or damaged, or weights and configuration do not match.
        """
        state, extra = load_weights(folder)
        try:
            field = cls(FieldConfig(**extra.pop("field")))
            field.load_state_dict(state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{folder}: weights do not match config.json ({error!s:.200}); run `dvc repro`") from None
        return field.eval(), extra
