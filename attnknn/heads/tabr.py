"""TabR (Gorishniy et al. 2024): a retrieval-augmented classifier on the query and its neighbours' values."""

import math

import torch
from torch import nn

from attnknn.heads.attention import HeadOutput
from attnknn.neighbours.space import NeighbourBatch
from attnknn.nn.votes import vote


class TabR(nn.Module):
    """Add the attended neighbour values to the query and classify the sum; equal to `Distance` at initialisation.

        sᵢ = −‖W(q − kᵢ)‖²/τ,   w = softmax(s)
        q̃ = q + Σᵢ wᵢ·(E[yᵢ] + T(W(q − kᵢ)) + V·kᵢ)
        p = softmax(log votes(w) + network(q̃))

    W = I + Δ is shared and unscaled; T is a two-layer network without bias; E embeds labels by vectors of about unit
    length at initialisation: those of torch are √D times as long and hide unit queries. TabR has no vote term: it
    is added here so that the untrained head, whose last layer is 0, is distance weighting. Under inner product
    sᵢ = (Wq)·(Wkᵢ)/τ.

    Args:
        dim, n_classes: D, C.
        temperature: initial τ.
        prior: ε of the votes, constant.
        metric: of the bank, "l2" or "ip".
        hidden: units of T and of the network.
        dropout: of the attention weights and of the hidden units.
        key: whether W is learned or I.
        label_embedding, correction: whether values include E and T.
        value: whether values include V·kᵢ, V a linear projection of the neighbour's embedding, 0 at initialisation.
    """

    needs = ("query", "keys")
    k = 0  # see `Attention`

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
        value: bool = False,
    ) -> None:
        super().__init__()
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self.prior, self.metric = prior, metric
        self.delta = nn.Parameter(torch.zeros(dim, dim), requires_grad=key)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.labels = nn.Embedding(n_classes, dim) if label_embedding else None
        if self.labels is not None:
            nn.init.normal_(self.labels.weight, std=dim**-0.5)
        hidden_layers = nn.Linear(dim, hidden, bias=False), nn.ReLU(), nn.Dropout(dropout)
        self.correct = nn.Sequential(*hidden_layers, nn.Linear(hidden, dim, bias=False)) if correction else None
        self.value = nn.Linear(dim, dim, bias=False) if value else None
        if self.value is not None:
            nn.init.zeros_(self.value.weight)
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
        sims = -difference.square().sum(2) if self.metric == "l2" else (keys @ projected[:, :, None]).squeeze(2)
        attention = (sims / self.log_temperature.exp()).masked_fill(missing, -torch.inf).softmax(1)  # (B, K)
        values = torch.zeros_like(difference)  # (B, K, D)
        if self.labels is not None:
            values = values + self.labels(n.labels.clamp(min=0))
        if self.correct is not None:
            values = values + self.correct(difference)
        if self.value is not None:
            values = values + self.value(n.require("keys")).masked_fill(missing[:, :, None], 0)
        context = query + (self.dropout(attention)[:, None] @ values).squeeze(1)
        weights = (1 - self.prior) * attention
        votes = vote(weights, torch.full_like(weights[:, 0], self.prior), n.labels, n.shares)
        probs = (votes.log() + self.answer(context)).softmax(1)
        return probs.clamp(min=torch.finfo(probs.dtype).tiny), weights
