"""What fields are trained on: reconstruction, and latents of two contexts of one image that find each other."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

LEAST = 1e-12  # of a mean squared error that is told as PSNR


def psnr(mse: float) -> float:
    """10·log₁₀(1/MSE) in dB, of values between 0 and 1; 120 at most, where next to nothing is wrong."""
    return -10 * math.log10(max(mse, LEAST))


def contrast(
    a: Float[Tensor, "B D"], b: Float[Tensor, "B D"], temperature: float, targets: Float[Tensor, "B B"] | None = None
) -> Float[Tensor, ""]:
    """InfoNCE of two views of each image, both ways round, of s = cosines of aᵢ and bⱼ over τ:

        −½·meanᵢ Σⱼ qᵢⱼ·(log softmaxⱼ sᵢⱼ + log softmaxⱼ sⱼᵢ)

    With qᵢⱼ = 1 where i = j, as by default, this is the loss of van den Oord et al. (2018) and CLIP. Of B images whose
    cosines are 1 with themselves and c with all others it is log(1 + (B − 1)·exp((c − 1)/τ)), which is smallest where
    all others are as far apart as B vectors can be, c = −1/(B − 1).

    Args:
        targets: q, rows that sum to 1; for the soft form see `alike`.
    """
    cosines = F.normalize(a.float(), dim=1) @ F.normalize(b.float(), dim=1).T / temperature  # (B, B)
    if targets is None:
        own = torch.arange(len(a), device=a.device)
        return (F.cross_entropy(cosines, own) + F.cross_entropy(cosines.T, own)) / 2
    return (F.cross_entropy(cosines, targets) + F.cross_entropy(cosines.T, targets)) / 2


def alike(values: Float[Tensor, "B N C"], scale: float) -> Float[Tensor, "B B"]:
    """Targets of the soft form: qᵢⱼ ∝ exp(−‖xᵢ − xⱼ‖² / (2·scale²·m)), m the mean over pairs of two images.

    Images that look alike are then not pushed apart. As scale → 0 it is the identity, and the loss InfoNCE.
    """
    flat = values.flatten(1).float()
    apart = torch.cdist(flat, flat).square()  # (B, B)
    apart.fill_diagonal_(0)  # cdist leaves a rounding there
    mean = apart.sum() / max(1, len(flat) * (len(flat) - 1))
    return (-apart / (2 * scale**2 * mean.clamp_min(1e-12))).softmax(dim=1)
