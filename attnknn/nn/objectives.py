"""Objectives on votes and attention weights: pure functions with finite gradients, in float32 or float64."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny  # the smallest normal number, which keeps logarithms finite


def nll(
    probs: Float[Tensor, "B C"],
    y: Int[Tensor, " B"],
    smoothing: float = 0.0,
    weight: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, ""]:
    """Negative log-likelihood l = −Σ_c t_c log p_c, t = (1 − s)·1[c = y] + s/C: mean, or with weights w, Σ w·l / Σ w.

    It is linear in t, so MixUp's loss is λ·nll(probs, y) + (1 − λ)·nll(probs, y′).
    """
    tiny = _tiny(probs)
    losses = -(1 - smoothing) * probs.gather(1, y[:, None])[:, 0].clamp(min=tiny).log()  # (B,)
    if smoothing:
        losses = losses - smoothing * probs.clamp(min=tiny).log().mean(1)
    return losses.mean() if weight is None else (weight * losses).sum() / weight.sum()


def entropy(weights: Float[Tensor, "B K"]) -> Float[Tensor, ""]:
    """Mean over rows of −Σᵢ wᵢ log wᵢ, w renormalised over the neighbours; 0·log 0 = 0, as for missing ones."""
    # Clamped, because a row with all weight on the null neighbour would get an infinite gradient.
    w = weights / weights.sum(1, keepdim=True).clamp(min=torch.finfo(weights.dtype).eps)
    return -(w * w.clamp(min=_tiny(w)).log()).sum(1).mean()


def soft_ece(
    probs: Float[Tensor, "B C"], y: Int[Tensor, " B"], bins: int = 15, sharpness: float = 1000.0
) -> Float[Tensor, ""]:
    """Soft-binned calibration error √(Σ_b n_b/n · (acc_b − conf_b)²) of the top class (Karandikar et al. 2021).

    Row i is a member of bin b to the degree u_ib = softmax_b(−s·(conf_i − centre_b)²), n_b = Σ_i u_ib. As the sharpness
    s (the paper's 1/T) grows, the limit is the 2-norm calibration error over equal-width bins. No gradient flows
    through the accuracy.
    """
    confidence, top = probs.max(1)
    correct = (top == y).to(probs.dtype)
    centres = (torch.arange(bins, dtype=probs.dtype, device=probs.device) + 0.5) / bins
    membership = (-sharpness * (confidence[:, None] - centres).square()).softmax(1)  # (B, bins)
    size = membership.sum(0)
    gap = (membership * (correct - confidence)[:, None]).sum(0)  # n_b · (acc_b − conf_b)
    # Clamped, because the gradient divides by the squared size, which underflows in an almost empty bin.
    error = (gap.square() / size.clamp(min=torch.finfo(probs.dtype).eps)).sum() / len(probs)
    return error.clamp(min=_tiny(probs)).sqrt()  # the root's gradient is infinite at 0


def hardness(labels: Int[Tensor, "B K"], y: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Share of each row's neighbours whose label differs from y; label −1 is a missing neighbour, 0 if all are."""
    valid = labels >= 0
    return (valid & (labels != y[:, None])).sum(1) / valid.sum(1).clamp(min=1)


def hard_weights(hardness: Float[Tensor, " B"], factor: float) -> Float[Tensor, " B"]:
    """Row weights 1 + (h − 1)·hardness, h = `factor`: between 1 (all neighbours agree) and h (all disagree)."""
    return 1 + (factor - 1) * hardness
