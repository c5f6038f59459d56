"""Heads: how much each neighbour counts. Uniform, distance-weighted and attention share one signature.

A head maps (query (B, D), keys (B, K, D), sims (B, K), labels (B, K)) to weights (B, K) and the null neighbour's
weight (B,), all ≥ 0 and together 1 in each row. The null neighbour votes for the class shares of the bank, so no class
ever gets probability 0. Neighbours that are missing (label −1, similarity −inf) weigh 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnknn.errors import InputError
from attnknn.files import load_weights, save_weights
from attnknn.votes import Weights, distance_weights, uniform_weights

# The one signature: (query, keys, sims, labels) → (weights, null).
Head = Callable[[Tensor, Tensor, Tensor, Tensor], Weights]


@dataclass(frozen=True)
class Uniform:
    """Uniform kNN with prior mass: see `uniform_weights`."""

    k: int
    prior: float

    def __call__(
        self,
        query: Float[Tensor, "B D"],
        keys: Float[Tensor, "B K D"],
        sims: Float[Tensor, "B K"],
        labels: Int[Tensor, "B K"],
    ) -> Weights:
        return uniform_weights(sims, self.k, self.prior)


@dataclass(frozen=True)
class Distance:
    """Distance-weighted kNN with prior mass: see `distance_weights`."""

    k: int
    temperature: float
    prior: float

    def __call__(
        self,
        query: Float[Tensor, "B D"],
        keys: Float[Tensor, "B K D"],
        sims: Float[Tensor, "B K"],
        labels: Int[Tensor, "B K"],
    ) -> Weights:
        return distance_weights(sims, self.k, self.temperature, self.prior)


class Attention(nn.Module):
    """Learned similarity with a null neighbour; untrained, it is exactly `Distance` over all K neighbours.

        sᵢ = −‖W(q − kᵢ)‖²/τ   (metric l2)      or      sᵢ = (Wq)·(Wkᵢ)/τ   (metric ip)
        w₀ = σ(b + a·maxᵢ sᵢ·τ/u),    wᵢ = (1 − w₀)·softmax(s)ᵢ

    W = I + Δ is shared by query and keys and not scaled by √D (TabR, Gorishniy et al. 2024). Δ = 0, a = 0 and
    b = logit ε at the start. The null neighbour's weight so depends on how near the nearest neighbour is.

    Args:
        dim: D.
        temperature: τ at the start.
        prior: ε at the start.
        metric: that of the bank the sims come from.
        unit: u, the size of a usual difference among similarities (`tuning.spread`), so that a has none.
    """

    def __init__(self, dim: int, temperature: float, prior: float, metric: str = "l2", unit: float = 1.0) -> None:
        super().__init__()
        self.config = {"dim": dim, "temperature": temperature, "prior": prior, "metric": metric, "unit": unit}
        self.unit = unit
        self.metric = metric
        self.delta = nn.Parameter(torch.zeros(dim, dim))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.null_bias = nn.Parameter(torch.tensor(math.log(prior) - math.log1p(-prior)))
        self.null_slope = nn.Parameter(torch.tensor(0.0))

    def scores(self, query: Float[Tensor, "B D"], keys: Float[Tensor, "B K D"]) -> Float[Tensor, "B K"]:
        """Learned similarities over the temperature."""
        if self.metric == "ip":
            query, keys = query + query @ self.delta.T, keys + keys @ self.delta.T
            similarity = (keys @ query[:, :, None]).squeeze(2)
        else:
            difference = query[:, None] - keys  # (B, K, D)
            similarity = -(difference + difference @ self.delta.T).square().sum(2)
        return similarity / self.log_temperature.exp()

    def forward(
        self,
        query: Float[Tensor, "B D"],
        keys: Float[Tensor, "B K D"],
        sims: Float[Tensor, "B K"],
        labels: Int[Tensor, "B K"],
    ) -> Weights:
        scores = self.scores(query, keys).masked_fill(~torch.isfinite(sims), -torch.inf)  # (B, K)
        nearest = scores.amax(1) * self.log_temperature.exp() / self.unit  # (B,)
        null = torch.sigmoid(self.null_bias + self.null_slope * nearest)  # (B,)
        return (1 - null)[:, None] * scores.softmax(1), null

    def save(self, folder: Path) -> None:
        """Write weights and configuration to `folder`, in one step."""
        save_weights(folder, self.state_dict(), self.config)

    @classmethod
    def load(cls, folder: Path) -> "Attention":
        """Read what `save` wrote, in evaluation mode.

        Raises:
            InputError: files are missing, damaged, or do not fit each other.
        """
        state, config = load_weights(folder)
        try:
            head = cls(**config)
            head.load_state_dict(state)
        except (TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{folder}: weights and configuration do not fit ({reason}); run `dvc repro`") from None
        return head.eval()
