"""Losses of fields: PSNR for reconstruction, InfoNCE with hard or soft targets."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

MIN_MSE = 1e-12  # of PSNR: 120 dB


def psnr(mse: float) -> float:
    """10·log₁₀(1/MSE) in dB, of values between 0 and 1; at most 120."""
    return -10 * math.log10(max(mse, MIN_MSE))


def info_nce(
    a: Float[Tensor, "B D"], b: Float[Tensor, "B D"], temperature: float, targets: Float[Tensor, "B B"] | None = None
) -> Float[Tensor, ""]:
    """Symmetric InfoNCE of two views of each image, with s the cosines of aᵢ and bⱼ over τ:

        −½·meanᵢ Σⱼ qᵢⱼ·(log softmaxⱼ sᵢⱼ + log softmaxⱼ sⱼᵢ)

    With q = I, the default, this is the loss of van den Oord et al. (2018) and CLIP. If all cosines between two of B
    images are c, and 1 between views of one, it is log(1 + (B − 1)·exp((c − 1)/τ)), lowest at c = −1/(B − 1).

    Args:
        targets: q, rows sum to 1; see `soft_targets`.
    """
    logits = F.normalize(a.float(), dim=1) @ F.normalize(b.float(), dim=1).T / temperature  # (B, B)
    target = torch.arange(len(a), device=a.device) if targets is None else targets
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def soft_targets(values: Float[Tensor, "B N C"], scale: float) -> Float[Tensor, "B B"]:
    """qᵢⱼ ∝ exp(−‖xᵢ − xⱼ‖² / (2·scale²·m)), with m the mean squared distance of two images.

    Similar images are then not pushed apart. As scale → 0 it approaches the identity, and the loss InfoNCE.
    """
    flat = values.flatten(1).float()
    distances = torch.cdist(flat, flat).square()  # (B, B)
    distances.fill_diagonal_(0)  # cdist has rounding errors there
    mean = distances.sum() / max(1, len(flat) * (len(flat) - 1))
    return (-distances / (2 * scale**2 * mean.clamp_min(1e-12))).softmax(dim=1)
