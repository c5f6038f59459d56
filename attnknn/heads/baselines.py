"""Uniform and distance-weighted kNN, and the grid search of k, τ and prior mass ε on validation rows by NLL.

The search computes votes once for each (k, τ); each ε then only mixes them with the class shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

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
    votes: torch.Tensor,
    y: np.ndarray,
    shares: torch.Tensor,
    priors: Sequence[float],
    weight: torch.Tensor | None = None,
) -> np.ndarray:
    """Mean NLL of (1 − ε)·votes + ε·shares for each ε, from the votes (B, C) without prior mass."""
    true_vote, true_share = votes[torch.arange(len(y)), y].double(), shares[y].double()  # (B,)
    epsilon = torch.tensor(priors, dtype=torch.float64)[:, None]
    losses = -((1 - epsilon) * true_vote + epsilon * true_share).log()
    return (losses.mean(1) if weight is None else losses @ weight.double() / weight.double().sum()).numpy()


def tune_uniform(
    sims: np.ndarray,
    labels: np.ndarray,
    y: np.ndarray,
    shares: torch.Tensor,
    ks: Sequence[int],
    priors: Sequence[float],
) -> Tuned:
    """Search the k and ε of lowest NLL for uniform kNN; ties go to the earlier values.

    Args:
        sims, labels: (B, K) of the validation rows' neighbours.
        y: (B,) the validation rows' classes.
        shares: (C,) class shares of the bank.
    """
    s, v = torch.from_numpy(sims), torch.from_numpy(labels)
    nll = np.stack([_nll_by_prior(vote(*uniform_weights(s, k, 0.0), v, shares), y, shares, priors) for k in ks])
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
) -> Tuned:
    """Search the k, τ and ε of lowest NLL for distance-weighted kNN; ties go to the earlier values.

    Args:
        temperatures: in units of `similarity_scale(sims)`.
        weight: (B,) sample weights of the mean NLL; None for equal ones.
        others: as for `tune_uniform`.

    Returns:
        k, prior, and the temperature in the units of sims.
    """
    s, v = torch.from_numpy(sims), torch.from_numpy(labels)
    scale = similarity_scale(sims)
    votes = [[vote(*distance_weights(s, k, t * scale, 0.0), v, shares) for t in temperatures] for k in ks]
    nll = np.array([[_nll_by_prior(table, y, shares, priors, weight) for table in row] for row in votes])
    h, i, j = map(int, np.unravel_index(int(nll.argmin()), nll.shape))
    return {"k": ks[h], "temperature": temperatures[i] * scale, "prior": priors[j]}
