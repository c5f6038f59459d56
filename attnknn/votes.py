"""Votes and the two classic ways to weigh them. Pure functions on tensors; nothing of ours is imported."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

Weights = tuple[Float[Tensor, "B K"], Float[Tensor, " B"]]  # of the neighbours, of the null neighbour


def class_shares(y: np.ndarray, n_classes: int) -> Float[Tensor, " C"]:
    """Share of each class among bank labels y; a class without a row counts as half a row, so no share is 0."""
    counts = np.maximum(np.bincount(y, minlength=n_classes), 0.5)
    return torch.from_numpy(counts / counts.sum()).float()


def vote(
    weights: Float[Tensor, "B K"],
    null: Float[Tensor, " B"],
    labels: Int[Tensor, "B K"],
    shares: Float[Tensor, " C"],
) -> Float[Tensor, "B C"]:
    """p(c) = Σᵢ wᵢ·1[labelᵢ = c] + w₀·share_c; rows sum to 1 because weights do."""
    return (null[:, None] * shares).scatter_add(1, labels.clamp(min=0), weights)


def uniform_weights(sims: Float[Tensor, "B K"], k: int, prior: float) -> Weights:
    """wᵢ = (1 − ε)/k for the k nearest, ε for the null neighbour."""
    near = torch.isfinite(sims) & (torch.arange(sims.shape[1], device=sims.device) < k)  # (B, K)
    weights = (1 - prior) * near / near.sum(1, keepdim=True)
    return weights, torch.full_like(sims[:, 0], prior)


def distance_weights(sims: Float[Tensor, "B K"], k: int, temperature: float, prior: float) -> Weights:
    """wᵢ = (1 − ε)·softmax(simᵢ/τ) over the k nearest, ε for the null neighbour."""
    far = torch.arange(sims.shape[1], device=sims.device) >= k
    weights = (1 - prior) * (sims / temperature).masked_fill(far, -torch.inf).softmax(1)
    return weights, torch.full_like(sims[:, 0], prior)
