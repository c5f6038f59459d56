"""Encode images with a field, and score their reconstruction, batch by batch in evaluation mode."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.experiments.fields.contexts import gather_pixels, hidden_mask, pixel_values
from attnknn.experiments.fields.perceiver import Field


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
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bf16):
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
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bf16):
            latents = field.encode(gather_pixels(values, batch_idx), batch_idx)
            reconstruction = field.decode(latents).float().clamp(0, 1)
        mask = hidden_mask(batch_idx, values.shape[1])
        total += float(((reconstruction - values).square().mean(2) * mask).sum())
        count += float(mask.sum())
    field.train(training)
    return total / count
