"""Uniform and distance-weighted kNN, and the grid search of k, τ and prior mass ε on validation rows by NLL.

The search computes votes once for each (k, τ); each ε then only mixes them with the class shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnknn.heads.attention import HeadOutput
from attnknn.neighbours.space import NeighbourBatch
from attnknn.nn.votes import distance_weights, uniform_weights, vote

Tuned = dict[str, int | float]


@dataclass(frozen=True)
class Uniform:
    """Uniform kNN with prior mass; see `votes.uniform_weights`."""

    k: int
    prior: float
    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, n: NeighbourBatch) -> HeadOutput:
        weights, null = uniform_weights(n.sims, self.k, self.prior, n.log_weight)
        return vote(weights, null, n.labels, n.shares), weights


@dataclass(frozen=True)
class Distance:
    """Distance-weighted kNN with prior mass; see `votes.distance_weights`."""

    k: int
    temperature: float
    prior: float
    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, n: NeighbourBatch) -> HeadOutput:
        weights, null = distance_weights(n.sims, self.k, self.temperature, self.prior, n.log_weight)
        return vote(weights, null, n.labels, n.shares), weights


def choices_of_k(grid: Sequence[int], k_eval: int) -> list[int]:
    """Return the grid's values below k_eval, and k_eval."""
    return sorted({k for k in grid if k < k_eval} | {k_eval})


def similarity_scale(sims: np.ndarray) -> float:
    """Median over queries of the range of their neighbours' similarities, the unit of τ; 1 where that is 0."""
    furthest = np.where(np.isfinite(sims), sims, np.inf).min(1)
    median = float(np.median(sims[:, 0] - furthest))
    return median if median > 0 else 1.0


def _nll_by_prior(
    weights: Float[Tensor, "B K"],  # without prior mass
    right: Bool[Tensor, "B K"] | Float[Tensor, "B K"],  # probability of the query's label, given a neighbour's class
    true_share: Float[Tensor, " B"],  # of the query's label in the bank
    priors: Sequence[float],
    sample_weight: Float[Tensor, " B"] | None = None,
) -> Float[np.ndarray, " E"]:
    """Mean NLL of (1 − ε)·Σᵢ wᵢ·1[labelᵢ = y] + ε·share_y for each ε."""
    true_vote = (weights * right).sum(1).double()  # not (B, C): there may be thousands of classes
    epsilon = torch.tensor(priors, dtype=torch.float64)[:, None]
    losses = -((1 - epsilon) * true_vote + epsilon * true_share.double()).log()
    return (losses.mean(1) if sample_weight is None else losses @ sample_weight / sample_weight.sum()).numpy()


def _of_given(
    labels: np.ndarray, y: np.ndarray, shares: torch.Tensor, transition: np.ndarray | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probability of the query's label y given each neighbour's class (B, K), and shares of the given labels (C,)."""
    if transition is None:
        return torch.from_numpy(labels == y[:, None]), shares
    right = torch.from_numpy(transition[labels, y[:, None]]).float()  # missing neighbours have weight 0
    return right, shares @ torch.from_numpy(transition).float()


def tune_uniform(
    sims: np.ndarray,
    labels: np.ndarray,
    y: np.ndarray,
    shares: torch.Tensor,
    ks: Sequence[int],
    priors: Sequence[float],
    transition: np.ndarray | None = None,
) -> Tuned:
    """Search the k and ε of lowest NLL for uniform kNN; ties go to the earlier values.

    Args:
        sims, labels: (B, K) of the validation rows' neighbours.
        y: (B,) the validation rows' classes.
        shares: (C,) class shares of the bank.
        transition: T[c, g] = P(given label g | class c) of y, see `label_noise`; None if y is right.
    """
    s, (right, shares) = torch.from_numpy(sims), _of_given(labels, y, shares, transition)
    nll = np.stack([_nll_by_prior(uniform_weights(s, k, 0.0)[0], right, shares[y], priors) for k in ks])
    i, j = map(int, np.unravel_index(int(nll.argmin()), nll.shape))
    return {"k": ks[i], "prior": priors[j]}


def tune_distance(
    sims: np.ndarray,
    labels: np.ndarray,
    y: np.ndarray,
    shares: torch.Tensor,
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    weight: torch.Tensor | None = None,
    transition: np.ndarray | None = None,
) -> Tuned:
    """Search the k, τ and ε of lowest NLL for distance-weighted kNN; ties go to the earlier values.

    Args:
        temperatures: in units of `similarity_scale(sims)`.
        weight: (B,) sample weights of the mean NLL; None for equal ones.
        others: as for `tune_uniform`.

    Returns:
        k, prior, and the temperature in the units of sims.
    """
    s, (right, shares) = torch.from_numpy(sims), _of_given(labels, y, shares, transition)
    scale, sample_weight = similarity_scale(sims), None if weight is None else weight.double()
    nll = np.array(
        [
            [
                _nll_by_prior(distance_weights(s, k, t * scale, 0.0)[0], right, shares[y], priors, sample_weight)
                for t in temperatures
            ]
            for k in ks
        ]
    )
    h, i, j = map(int, np.unravel_index(int(nll.argmin()), nll.shape))
    return {"k": ks[h], "temperature": temperatures[i] * scale, "prior": priors[j]}
