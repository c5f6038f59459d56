"""A cascaded Perceiver IO: a set of points goes in, a few latents stand for it, and answer for any coordinate.

    M learned vectors ─cross-attend to the points─ self-attend ─widen→ … ─cross-attend─ self-attend→ L (B, M, D)
    coordinate queries ─cross-attend to L→ values there

Jaegle et al. (2022), Perceiver IO; the cascade widens its latents stage by stage, and each stage looks at the points
anew.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnknn.core.errors import InputError, require
from attnknn.core.files import load_weights, save_weights
from attnknn.experiments.fields.coordinates import fourier_features, gaussian_frequencies, grid


@dataclass(frozen=True)
class FieldConfig:
    """Sizes of a field.

    Attributes:
        height, width, channels: of an image, C channels.
        frequencies: of the Fourier features of its coordinates, so E = 2·frequencies.
        scale: their standard deviation.
        dims: width of the latents in each stage of the cascade; the last is D.
        latents: M, how many.
        heads: of every attention; they divide each of dims.
        depth: self-attention blocks after each stage's cross-attention.
        seed: draws the frequencies.
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


def attention(
    q: Float[Tensor, "B M D"], k: Float[Tensor, "B N D"], v: Float[Tensor, "B N D"], heads: int
) -> Float[Tensor, "B M D"]:
    """softmax(q·kᵀ / √(D/H))·v in H heads."""
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))  # (B, H, ·, D/H)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


class Attend(nn.Module):
    """x + W·attention(norm(x), norm(context)), then + a feed-forward layer of it; over x itself without a context."""

    def __init__(self, dim: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(context)
        self.query, self.key_value = nn.Linear(dim, dim, bias=False), nn.Linear(context, 2 * dim, bias=False)
        self.out = nn.Linear(dim, dim)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )
        # Wide enough that heads differ from the start: from torch's own start every head sees the mean of all points,
        # and most of a short training goes by before one looks anywhere.
        for layer in (self.query, self.key_value):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def forward(self, x: Float[Tensor, "B M D"], context: Float[Tensor, "B N E"] | None = None) -> Tensor:
        """(B, M, D) of x (B, M, D) and what it looks at (B, N, E)."""
        k, v = self.key_value(self.norm_context(x if context is None else context)).chunk(2, dim=-1)  # (B, N, D)
        x = x + self.out(attention(self.query(self.norm(x)), k, v, self.heads))
        return x + self.feed_forward(x)


class Field(nn.Module):
    """Points of an image to latents, latents to values at coordinates; see the module.

    Values are between 0 and 1; points are named by their places, row by row.

    Raises:
        InputError: heads do not divide a width.
    """

    def __init__(self, config: FieldConfig) -> None:
        super().__init__()
        uneven = [dim for dim in config.dims if dim % config.heads]
        require(not uneven, f"heads: {config.heads} do not divide dims {uneven}; give a number that divides them all")
        self.config = config
        first, last, heads = config.dims[0], config.dims[-1], config.heads
        frequencies = gaussian_frequencies(config.frequencies, config.scale, config.seed)
        self.positions: Tensor  # (N, E), worked out once
        self.register_buffer("positions", fourier_features(grid(config.height, config.width), frequencies))
        self.latents = nn.Parameter(0.5 * torch.randn(config.latents, first))  # (M, D₁); apart from the start, too
        self.of_value = nn.Linear(config.channels, first)
        self.of_place = nn.Linear(2 * config.frequencies, first, bias=False)
        self.widen = nn.ModuleList(nn.Linear(*of) for of in pairwise(config.dims))
        self.look = nn.ModuleList(Attend(dim, first, heads) for dim in config.dims)
        self.think = nn.ModuleList(
            nn.Sequential(*(Attend(dim, dim, heads) for _ in range(config.depth))) for dim in config.dims
        )
        self.queries = nn.Linear(2 * config.frequencies, last)
        self.answer = Attend(last, last, heads)
        self.values = nn.Sequential(nn.LayerNorm(last), nn.Linear(last, config.channels))

    def encode(self, values: Float[Tensor, "B P C"], at: Int[Tensor, "B P"]) -> Float[Tensor, "B M D"]:
        """Latents of images of which P points are known. The order of the points makes no difference.

        Args:
            values: of the points.
            at: their places.
        """
        # One product for all places: those of a batch are P times as many. The gradient of an embedding is summed in a
        # fixed order, which that of an index is not.
        context = self.of_value(2 * values - 1) + F.embedding(at, self.of_place(self.positions))  # (B, P, D₁)
        x = self.latents.expand(len(values), -1, -1)
        for stage, (look, think) in enumerate(zip(self.look, self.think, strict=True)):
            x = look(self.widen[stage - 1](x) if stage else x, context)  # (B, M, Dᵢ)
            x = think(x)
        return x

    def matrices(self) -> list[Tensor]:
        """The weights that multiply activations: all but the latents at the start, biases and norms."""
        return [layer.weight for layer in self.modules() if isinstance(layer, nn.Linear)]

    def save(self, folder: Path, **about: Any) -> None:
        """Write weights and sizes to `folder`, in one step."""
        save_weights(folder, self.state_dict(), {"field": asdict(self.config), **about})

    @classmethod
    def load(cls, folder: Path) -> tuple["Field", dict[str, Any]]:
        """Read what `save` wrote: the field in evaluation mode, and the rest of its configuration.

        Raises:
            InputError: files are missing, damaged, or do not fit each other.
        """
        state, about = load_weights(folder)
        try:
            field = cls(FieldConfig(**about.pop("field")))
            field.load_state_dict(state)
            require(all(bool(t.isfinite().all()) for t in state.values()), "NaN or infinite values")
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{folder}: weights and configuration do not fit ({reason}); run `dvc repro`") from None
        return field.eval(), about

    def decode(self, latents: Float[Tensor, "B M D"], at: Int[Tensor, " Q"] | None = None) -> Float[Tensor, "B Q C"]:
        """Values at places, the same for all images; everywhere by default."""
        positions = self.positions if at is None else self.positions[at]
        queries = self.queries(positions).expand(len(latents), -1, -1)
        return 0.5 + 0.5 * self.values(self.answer(queries, latents))
