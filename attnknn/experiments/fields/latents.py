"""What fields make of every image, and of a few of its points: the latents that readouts work on."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.artifacts import Artifact
from attnknn.core.errors import require
from attnknn.experiments.fields.contexts import draw_points, points_of

VARIANTS = ("full", "sparse", "full_nce", "sparse_nce")  # of fields, by what they learnt from
MODES = ("full", "sparse")  # what is known of an image that is to be classified: all of it, or some points


@dataclass(frozen=True)
class Latents(Artifact):
    """Latents of every row of a `Split` by one field in one mode.

    Attributes:
        tokens: float16 (N, M, D), the last stage's latents.
        variant: of `VARIANTS`.
        mode: of `MODES`.
    """

    tokens: np.ndarray
    variant: str
    mode: str

    def __post_init__(self) -> None:
        shape, kind = self.tokens.shape, self.tokens.dtype.name
        require(kind == "float16", f"tokens: dtype {kind}; expected float16")
        require(len(shape) == 3, f"tokens: shape {shape}; expected (rows, latents, width)")
        for name, value, known in (("variant", self.variant, VARIANTS), ("mode", self.mode, MODES)):
            require(value in known, f"{name}: {value}; expected {' or '.join(known)}")

    def pooled(self) -> Float[np.ndarray, "N D"]:
        """The mean latent of each row, float32."""
        return np.concatenate([part.mean(1, dtype=np.float32) for part in np.array_split(self.tokens, 64)])


def known_points(mode: str, rows: int, pixels: int, share: float, least: int, seed: int) -> Int[Tensor, "N P"]:
    """The places at which each row is known in a mode, the same whoever asks.

    Sparse ones are drawn for each row by itself, however the field learnt.
    """
    sampler, points = ("full", pixels) if mode == "full" else ("image", points_of(pixels, share, least))
    return draw_points(sampler, rows, pixels, points, torch.Generator().manual_seed(seed))
