"""A head that reads its neighbours instead of counting their votes, after TabR (Gorishniy et al. 2024)."""

import math

import torch
from torch import nn

from attnknn.heads.attention import HeadOutput
from attnknn.neighbours.space import NeighbourBatch
from attnknn.nn.votes import vote


class TabR(nn.Module):
    """What the neighbours carry is added to the query, and a small network answers; it starts as distance weighting.

        sᵢ = −‖W(q − kᵢ)‖²/τ,   w = softmax(s)
        q̃ = q + Σᵢ wᵢ·(E[yᵢ] + T(W(q − kᵢ)))
        p = softmax(log votes(w) + network(q̃))

    W = I + Δ is shared and unscaled; T is a two-layer network without bias; E embeds labels. TabR has no votes in its
    answer: here they are what an untrained head answers with, for the last layer of the network is 0 at the start.
    Under inner product sᵢ = (Wq)·(Wkᵢ)/τ.

    Args:
        dim, n_classes: D, C.
        temperature, prior: τ and the votes' ε at the start; ε stays.
        metric: that of the bank.
        hidden: units of T and of the network.
        dropout: of the weights and of the hidden units.
        key: whether W is learned; else it is I.
        label_embedding: whether there is E; else neighbours say where they are and not what.
        correction: whether there is T.
    """

    needs = ("query", "keys")

    def __init__(
        self,
        dim: int,
        n_classes: int,
        temperature: float,
        prior: float,
        metric: str = "l2",
        hidden: int = 32,
        dropout: float = 0.0,
        key: bool = True,
        label_embedding: bool = True,
        correction: bool = True,
    ) -> None:
        super().__init__()
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self.prior, self.metric = prior, metric
        self.delta = nn.Parameter(torch.zeros(dim, dim), requires_grad=key)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.labels = nn.Embedding(n_classes, dim) if label_embedding else None
        hidden_layers = nn.Linear(dim, hidden, bias=False), nn.ReLU(), nn.Dropout(dropout)
        self.correct = nn.Sequential(*hidden_layers, nn.Linear(hidden, dim, bias=False)) if correction else None
        self.answer = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, n_classes)
        )
        self.dropout = nn.Dropout(dropout)
        last = self.answer[-1]
        nn.init.zeros_(last.weight)  # type: ignore[arg-type]
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]

    def forward(self, n: NeighbourBatch) -> HeadOutput:
        query, keys = n.require("query"), n.require("keys")
        missing = ~torch.isfinite(n.sims)
        projected = query + query @ self.delta.T  # (B, D)
        keys = keys + keys @ self.delta.T
        difference = (projected[:, None] - keys).masked_fill(missing[:, :, None], 0)  # (B, K, D)
        closeness = -difference.square().sum(2) if self.metric == "l2" else (keys @ projected[:, :, None]).squeeze(2)
        weights = (closeness / self.log_temperature.exp()).masked_fill(missing, -torch.inf).softmax(1)  # (B, K)
        values = torch.zeros_like(difference)  # (B, K, D)
        if self.labels is not None:
            values = values + self.labels(n.labels.clamp(min=0))
        if self.correct is not None:
            values = values + self.correct(difference)
        context = query + (self.dropout(weights)[:, None] @ values).squeeze(1)
        counted = (1 - self.prior) * weights
        votes = vote(counted, torch.full_like(counted[:, 0], self.prior), n.labels, n.shares)
        probs = (votes.log() + self.answer(context)).softmax(1)
        return probs.clamp(min=torch.finfo(probs.dtype).tiny), counted
