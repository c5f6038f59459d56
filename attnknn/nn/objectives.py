"""What votes and weights can be trained on. Pure functions on tensors; nothing of ours is imported.

All give a scalar in nats or shares, and a finite gradient wherever they are defined, float32 or float64.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def _tiny(x: Tensor) -> float:
    """The smallest normal number of x's type, which keeps logarithms and quotients finite."""
    return torch.finfo(x.dtype).tiny


def nll(
    probs: Float[Tensor, "B C"],
    y: Int[Tensor, " B"],
    smoothing: float = 0.0,
    weight: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, ""]:
    """−Σ_c t_c log p_c with t = (1 − s)·1[c = y] + s/C, its mean over rows or, with weights w, Σ w·l / Σ w.

    It is linear in t, so MixUp's loss is λ·nll(probs, y) + (1 − λ)·nll(probs, y′).
    """
    log_p = probs.clamp(min=_tiny(probs)).log()  # (B, C)
    own = log_p.gather(1, y[:, None])[:, 0]
    losses = -(1 - smoothing) * own - smoothing * log_p.mean(1)  # (B,)
    return losses.mean() if weight is None else (weight * losses).sum() / weight.sum()


def entropy(weights: Float[Tensor, "B K"]) -> Float[Tensor, ""]:
    """Mean over rows of −Σᵢ wᵢ log wᵢ, w renormalised over the neighbours; 0·log 0 = 0, as for missing ones."""
    # A row whose neighbours have next to no weight, beside a null neighbour, would get an infinite gradient.
    w = weights / weights.sum(1, keepdim=True).clamp(min=torch.finfo(weights.dtype).eps)
    return -(w * w.clamp(min=_tiny(w)).log()).sum(1).mean()


def soft_ece(
    probs: Float[Tensor, "B C"], y: Int[Tensor, " B"], bins: int = 15, sharpness: float = 1000.0
) -> Float[Tensor, ""]:
    """Soft-binned calibration error √(Σ_b n_b/n · (acc_b − conf_b)²) of the top class (Karandikar et al. 2021).

    Row i belongs to bin b by u_ib = softmax_b(−s·(conf_i − centre_b)²), n_b = Σ_i u_ib. As the sharpness s (the
    paper's 1/T) grows, it becomes the calibration error over equal-width bins in the 2-norm. Accuracy is a constant
    to the gradient.
    """
    confidence, top = probs.max(1)
    right = (top == y).to(probs.dtype)
    centres = (torch.arange(bins, dtype=probs.dtype, device=probs.device) + 0.5) / bins
    member = (-sharpness * (confidence[:, None] - centres).square()).softmax(1)  # (B, bins)
    size = member.sum(0)
    gap = (member * (right - confidence)[:, None]).sum(0)  # n_b · (acc_b − conf_b)
    # A bin that hardly a row belongs to would divide by its squared size in the gradient, which underflows.
    error = (gap.square() / size.clamp(min=torch.finfo(probs.dtype).eps)).sum() / len(probs)
    return error.clamp(min=_tiny(probs)).sqrt()  # the root has no gradient at 0


def hardness(labels: Int[Tensor, "B K"], y: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Share of each row's neighbours that carry another label than y.

    Missing neighbours have label −1 and do not count; a row without neighbours has 0.
    """
    valid = labels >= 0
    return (valid & (labels != y[:, None])).sum(1) / valid.sum(1).clamp(min=1)


def hard_weights(hardness: Float[Tensor, " B"], factor: float) -> Float[Tensor, " B"]:
    """1 + (h − 1)·hardness: a query whose neighbours all disagree counts h = `factor` times one whose all agree."""
    return 1 + (factor - 1) * hardness
