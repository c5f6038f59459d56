"""Weighted votes of neighbours, and uniform and distance weights: pure functions on tensors."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

Weights = tuple[Float[Tensor, "B K"], Float[Tensor, " B"]]  # of the neighbours, of the null neighbour


def class_shares(y: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> Float[Tensor, " C"]:
    """Share of each class among bank labels y; a class without rows counts as half a row, so that no share is 0.

    Args:
        weights: sample weights (N,), above 0; None for equal weights. Half a row is half of their mean.
    """
    counts = np.bincount(y, weights, minlength=n_classes)
    return shares_of_counts(counts, 1.0 if weights is None else float(weights.mean()))


def shares_of_counts(counts: np.ndarray, row: float = 1.0) -> Float[Tensor, " C"]:
    """`class_shares` of rows counted by class (C,); `row` is what one counts."""
    counts = np.where(counts > 0, counts, 0.5 * row)
    return torch.from_numpy(counts / counts.sum()).float()


def vote(
    weights: Float[Tensor, "B K"],
    null: Float[Tensor, " B"],
    labels: Int[Tensor, "B K"],
    shares: Float[Tensor, " C"],
) -> Float[Tensor, "B C"]:
    """Class probabilities p(c) = Σᵢ wᵢ·1[labelᵢ = c] + w₀·share_c; rows sum to 1 as the weights do."""
    return (null[:, None] * shares).scatter_add(1, labels.clamp(min=0), weights)


def uniform_weights(
    sims: Float[Tensor, "B K"], k: int, prior: float, log_weight: Float[Tensor, "B K"] | None = None
) -> Weights:
    """wᵢ = (1 − ε)/k for the k nearest, ε for the null neighbour; with sample weights, in proportion to them."""
    in_k = torch.isfinite(sims) & (torch.arange(sims.shape[1], device=sims.device) < k)  # (B, K)
    if log_weight is None:
        weights = (1 - prior) * in_k.to(sims) / in_k.sum(1, keepdim=True)
    else:
        weights = (1 - prior) * log_weight.masked_fill(~in_k, -torch.inf).softmax(1)
    return weights, torch.full_like(sims[:, 0], prior)


def distance_weights(
    sims: Float[Tensor, "B K"],
    k: int,
    temperature: float,
    prior: float,
    log_weight: Float[Tensor, "B K"] | None = None,
) -> Weights:
    """wᵢ = (1 − ε)·softmax(simᵢ/τ + log weightᵢ) over the k nearest, ε for the null neighbour."""
    beyond_k = torch.arange(sims.shape[1], device=sims.device) >= k
    scores = sims / temperature if log_weight is None else sims / temperature + log_weight
    weights = (1 - prior) * scores.masked_fill(beyond_k, -torch.inf).softmax(1)
    return weights, torch.full_like(sims[:, 0], prior)
