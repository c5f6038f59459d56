"""Images into a field and out of it again, a batch at a time, in evaluation mode."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.experiments.fields.contexts import shown
from attnknn.experiments.fields.perceiver import Field


def as_values(x: Tensor) -> Float[Tensor, "B N C"]:
    """Images (B, C, H, W) with values 0 … 255 as values between 0 and 1 of their N = H·W places."""
    return x.float().flatten(2).transpose(1, 2) / 255


@torch.inference_mode()
def latents_of(
    field: Field,
    x: np.ndarray,
    at: Int[Tensor, "N P"],
    device: str,
    bf16: bool = False,
    batch_size: int = 250,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "N M D"]:
    """Latents of all images, each known at its places, in evaluation mode."""
    training, made = field.training, torch.empty(len(x), field.config.latents, field.config.dims[-1], dtype=dtype)
    field.eval().to(device)
    for start in range(0, len(x), batch_size):
        places = at[start : start + batch_size].to(device)
        values = as_values(torch.from_numpy(np.array(x[start : start + batch_size])).to(device))
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bf16):
            made[start : start + batch_size] = field.encode(shown(values, places), places).cpu()
    field.train(training)
    return made


@torch.inference_mode()
def reconstruct(
    field: Field, x: np.ndarray, at: Int[Tensor, "N P"], device: str, bf16: bool = False, batch_size: int = 250
) -> tuple[Float[Tensor, "N L C"], float]:
    """All pixels of images that are known at some places, and the mean squared error of those that are not.

    Where all are known, of all.
    """
    training, made, wrong, counted = field.training, [], 0.0, 0.0
    field.eval().to(device)
    for start in range(0, len(x), batch_size):
        places = at[start : start + batch_size].to(device)
        values = as_values(torch.from_numpy(np.array(x[start : start + batch_size])).to(device))
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bf16):
            answer = field.decode(field.encode(shown(values, places), places)).float().clamp(0, 1)
        hidden = torch.ones(values.shape[:2], device=device)
        if places.shape[1] < values.shape[1]:
            hidden.scatter_(1, places, 0.0)
        wrong += float(((answer - values).square().mean(2) * hidden).sum())
        counted += float(hidden.sum())
        made.append(answer.cpu())
    field.train(training)
    return torch.cat(made), wrong / counted
