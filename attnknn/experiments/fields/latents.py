"""Encode images with a field and score their reconstruction; latents of every image by every field."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.artifacts import Artifact, Split
from attnknn.core.device import autocast
from attnknn.core.errors import require
from attnknn.core.files import write_json
from attnknn.experiments.fields.contexts import (
    context_size,
    gather_pixels,
    hidden_mask,
    pixel_values,
    sample_pixels,
)
from attnknn.experiments.fields.perceiver import Field
from attnknn.experiments.fields.variants import MODES, VARIANTS, trained_variants

MIN_MSE = 1e-12  # of PSNR: 120 dB


def psnr(mse: float) -> float:
    """10·log₁₀(1/MSE) in dB, of values between 0 and 1; at most 120."""
    return -10 * math.log10(max(mse, MIN_MSE))


def _batches(
    x: np.ndarray, idx: Int[Tensor, "N P"], device: str, size: int
) -> Iterator[tuple[slice, Float[Tensor, "B N C"], Int[Tensor, "B P"]]]:
    """Rows, pixel values and context indices of each batch, on the device."""
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        yield rows, pixel_values(torch.from_numpy(np.array(x[rows])).to(device)), idx[rows].to(device)


@torch.inference_mode()
def encode_images(
    field: Field,
    x: np.ndarray,
    idx: Int[Tensor, "N P"],
    device: str,
    bf16: bool = False,
    batch_size: int = 250,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "N M D"]:
    """Latents of images x from the contexts with pixel indices `idx`."""
    training = field.training
    latents = torch.empty(len(x), field.config.latents, field.config.dims[-1], dtype=dtype)
    field.eval().to(device)
    for rows, values, batch_idx in _batches(x, idx, device, batch_size):
        with autocast(device, bf16):
            latents[rows] = field.encode(gather_pixels(values, batch_idx), batch_idx).cpu()
    field.train(training)
    return latents


@torch.inference_mode()
def reconstruction_error(
    field: Field, x: np.ndarray, idx: Int[Tensor, "N P"], device: str, bf16: bool = False, batch_size: int = 250
) -> float:
    """Mean squared error of the pixels outside the contexts; of all pixels if the contexts are whole images."""
    training, total, count = field.training, 0.0, 0.0
    field.eval().to(device)
    for _, values, batch_idx in _batches(x, idx, device, batch_size):
        with autocast(device, bf16):
            latents = field.encode(gather_pixels(values, batch_idx), batch_idx)
            reconstruction = field.decode(latents).float().clamp(0, 1)
        mask = hidden_mask(batch_idx, values.shape[1])
        total += float(((reconstruction - values).square().mean(2) * mask).sum())
        count += float(mask.sum())
    field.train(training)
    return total / count


@dataclass(frozen=True)
class Latents(Artifact):
    """Latents of every row of a `Split` by one field in one mode.

    Attributes:
        tokens: float16 (N, M, D), the last stage's latents.
        variant: one of `VARIANTS`.
        mode: one of `MODES`.
    """

    tokens: np.ndarray
    variant: str
    mode: str

    def __post_init__(self) -> None:
        shape, dtype = self.tokens.shape, self.tokens.dtype.name
        require(dtype == "float16", f"tokens: dtype {dtype}; expected float16")
        require(len(shape) == 3, f"tokens: shape {shape}; expected (rows, latents, width)")
        for name, value, allowed in (("variant", self.variant, VARIANTS), ("mode", self.mode, MODES)):
            require(value in allowed, f"{name}: {value}; expected {' or '.join(allowed)}")

    def pooled(self) -> Float[np.ndarray, "N D"]:
        """The mean latent of each row, float32."""
        return np.concatenate([chunk.mean(1, dtype=np.float32) for chunk in np.array_split(self.tokens, 64)])


def context_pixels(mode: str, rows: int, pixels: int, share: float, least: int, seed: int) -> Int[Tensor, "N P"]:
    """Pixel indices of each row's context, the same for every representation.

    Sparse contexts are drawn row by row, whatever the field was trained with.
    """
    sampler, size = ("full", pixels) if mode == "full" else ("image", context_size(pixels, share, least))
    return sample_pixels(sampler, rows, pixels, size, torch.Generator().manual_seed(seed))


def save_latents(split: Split, fields: Path, folder: Path, seed: int, device: str) -> None:
    """Encode every row by each trained field in each mode, one at a time: those of a large dataset are many gigabytes.

    Args:
        fields: folder with a folder per variant.
        folder: each `Latents` is saved as variant/mode in it; latents.json names the variants.
    """
    rows, pixels, summaries = len(split.x), split.x.shape[2] * split.x.shape[3], trained_variants(fields)
    common = {key: summary[key] for summary in summaries.values() for key in ("size", "share", "least")}
    write_json(folder / "latents.json", {"variants": list(summaries), **common})
    for variant, summary in summaries.items():
        field, _ = Field.load(fields / variant / "field")
        for mode in MODES:
            idx = context_pixels(mode, rows, pixels, summary["share"], summary["least"], seed)
            tokens = encode_images(field, split.x, idx, device, summary["bf16"], dtype=torch.float16)
            Latents(tokens.numpy(), variant, mode).save(folder / variant / mode)
