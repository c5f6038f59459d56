"""Heads: how much each neighbour counts. Uniform, distance-weighted and attention share one signature.

A head maps a `NeighbourBatch` to class probabilities (B, C), rows ≥ 0 that sum to 1, and the weights (B, K) that the
neighbours have in them. What the neighbours leave, the null neighbours hold, one of each class: they vote for the class
shares of the bank, or, with prototypes, for what the query itself resembles. So no class ever gets probability 0.
Neighbours that are missing (label −1, similarity −inf) weigh 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnknn.core.errors import InputError
from attnknn.neighbours.space import NeighbourBatch

HeadOutput = tuple[Float[Tensor, "B C"], Float[Tensor, "B K"]]  # probabilities, weights
# The one signature. Its `needs`, out of `neighbourhood.NEEDS`, name what is to be gathered for it.
Head = Callable[[NeighbourBatch], HeadOutput]

FEATURES = ("distance", "gap", "rank", "label_share", "agreement", "density", "class_prior")
SIMILARITIES = ("bank", "l2", "dot")
COSINE = 30.0  # unit of the prototypes' gain: a cosine of unit vectors moves little, a logit much


def label_shares(labels: Tensor, n_classes: int) -> Float[Tensor, "B K"]:
    """Share of the neighbours there are that carry each neighbour's label, itself included; 1 where it is missing."""
    there = labels >= 0
    ones = there.float()
    counts = ones.new_zeros(len(labels), n_classes).scatter_add(1, labels.clamp(min=0), ones)
    share = counts.gather(1, labels.clamp(min=0)) / ones.sum(1, keepdim=True)
    return share.masked_fill(~there, 1.0)


class Attention(nn.Module):
    """Learned weights over neighbours and null neighbours; untrained, it is exactly `Distance` over all K neighbours.

        aᵢₕ = similarityᵢₕ/τₕ + log weightᵢ + biasᵢ                             (neighbour i, head h)
        n_ch = logΣⱼ weightⱼ·exp(similarityⱼₕ/τₕ) + logit ε + slope·maxⱼ simⱼ/u + log share_c + bias_c   (null one c)
        w = mean over h of softmax([a₁ₕ … a_Kₕ, n₁ₕ … n_Cₕ]),     p(c) = w_null,c + Σᵢ wᵢ·1[yᵢ = c]

    Each part of the bias is a switch, and 0 at the start:

    * features: a small network (`hidden` units) of what is known of each neighbour: `distance` (sim/u), `gap` (to the
      nearest), `rank`, `label_share` (log share of its label among the K), `agreement` and `density` of its own
      neighbourhood in the bank, `class_prior` (log share of its class in the bank).
    * self_attention: that network's units first attend to those of the other neighbours, by a residual.
    * label_bias: s_y·log(label share) + b_y for a neighbour of class y, b_c for the null neighbours. (A bias that is
      the same for all neighbours would do nothing under softmax.)
    * prototypes: 30·g·q·(P_y + Δ_y) + d_y for a neighbour of class y and for that class's null neighbour, with P the
      mean embeddings of the classes in the bank.
    * class_correction: −η·log share_y, for neighbours only: votes corrected for how common a class is in the bank.

    Similarities: `bank` takes those of the search. `l2` learns one projection W = I + Δ that query and keys share,
    −‖W(q − k)‖² (or (Wq)·(Wk) under inner product), not scaled by √D (TabR, Gorishniy et al. 2024). `dot` adds to the
    bank's similarity a learned (A_h q)·(B_h k) of each of H heads, A random and B zero at the start, with D/H
    dimensions a head (the form of Vaswani et al. 2017).

    Args:
        dim, n_classes, n_sizes: D, C and the number of neighbourhood sizes.
        temperature: τ at the start, in the units of the similarities.
        prior: ε at the start.
        metric: that of the bank the sims come from.
        sim_scale: u, the typical difference among similarities (`baselines.similarity_scale`), unit of the features.
        similarity, heads: see above; several heads need `dot`.
        temperature_bounds: lowest and highest τₕ as multiples of the start, low < 1 < high; empty for none.
        features: names out of `FEATURES`; empty for none.
        learned_prior: whether logit ε and slope, the null neighbours' mass, are learned.
        neighbours: False takes their votes away, so that the null neighbours answer alone.
        dropout: chance in training that a neighbour is left out of the softmax.
        move_prototypes: whether Δ_y is learned.

    Raises:
        InputError: an unknown name, or parts that do not go together.
    """

    def __init__(
        self,
        dim: int,
        n_classes: int,
        n_sizes: int,
        temperature: float,
        prior: float,
        metric: str = "l2",
        sim_scale: float = 1.0,
        similarity: str = "bank",
        heads: int = 1,
        temperature_bounds: Sequence[float] = (),
        features: Sequence[str] = (),
        hidden: int = 32,
        self_attention: bool = False,
        label_bias: bool = False,
        prototypes: bool = False,
        move_prototypes: bool = False,
        class_correction: bool = False,
        learned_prior: bool = True,
        neighbours: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self.config |= {"temperature_bounds": list(temperature_bounds), "features": list(features)}
        unknown = set(features) - set(FEATURES)
        if unknown:
            raise InputError(f"features: {', '.join(sorted(unknown))} unknown; allowed are {', '.join(FEATURES)}")
        if similarity not in SIMILARITIES:
            raise InputError(f"similarity: {similarity} unknown; allowed are {', '.join(SIMILARITIES)}")
        if heads > 1 and similarity != "dot":
            raise InputError(f"heads: {heads} need similarity dot, not {similarity}")
        if self_attention and not features:
            raise InputError("self_attention: needs features to attend to; name some, or switch it off")
        self.metric, self.sim_scale, self.similarity, self.features = metric, sim_scale, similarity, tuple(features)
        compares = similarity != "bank"
        needed = {"query": compares or prototypes, "keys": compares}
        needed |= {name: name in features for name in ("agreement", "density")}
        self.needs = tuple(name for name, whether in needed.items() if whether)
        self.neighbours = neighbours
        self.dropout = dropout
        self.start = math.log(temperature)
        self.bounds = tuple(math.log(bound) for bound in temperature_bounds)
        offset = 0.0  # log of τ over its start, or where that lies between the bounds, as a logit
        if self.bounds:
            share = -self.bounds[0] / (self.bounds[1] - self.bounds[0])
            offset = math.log(share) - math.log1p(-share)
        self.log_temperature_offset = nn.Parameter(torch.full((heads,), offset))
        self.null_bias = nn.Parameter(torch.tensor(math.log(prior) - math.log1p(-prior)), requires_grad=learned_prior)
        self.null_slope = nn.Parameter(torch.tensor(0.0), requires_grad=learned_prior)
        if similarity == "l2":
            self.delta = nn.Parameter(torch.zeros(dim, dim))
        if similarity == "dot":
            size = max(1, dim // heads)
            self.query_projection = nn.Parameter(torch.randn(heads, size, dim) / math.sqrt(dim))
            self.key_projection = nn.Parameter(torch.zeros(heads, size, dim))
        if features:
            self.fc1 = nn.Linear(len(features) + ("agreement" in features) * (n_sizes - 1), hidden)
            self.fc2 = nn.Linear(hidden, 1)
            nn.init.zeros_(self.fc2.weight)
            nn.init.zeros_(self.fc2.bias)
        if self_attention:
            self.attend = nn.Linear(hidden, 3 * hidden)
            self.residual = nn.Parameter(torch.zeros(hidden))
        self.has_self_attention = self_attention
        self.label_scale = nn.Parameter(torch.zeros(n_classes)) if label_bias else None
        self.label_bias = nn.Parameter(torch.zeros(n_classes)) if label_bias else None
        self.prototype_gain = nn.Parameter(torch.tensor(0.0)) if prototypes else None
        self.prototype_bias = nn.Parameter(torch.zeros(n_classes)) if prototypes else None
        self.prototype_move = nn.Parameter(torch.zeros(n_classes, dim)) if prototypes and move_prototypes else None
        self.correction = nn.Parameter(torch.tensor(0.0)) if class_correction else None

    def temperatures(self) -> Float[Tensor, " H"]:
        """τₕ, in the units of the similarities."""
        if not self.bounds:
            return (self.start + self.log_temperature_offset).exp()
        low, high = self.bounds
        return (self.start + low + (high - low) * self.log_temperature_offset.sigmoid()).exp()

    def prepared(self, n: NeighbourBatch) -> NeighbourBatch:
        """The same with what the head reads of it and never learns, worked out once for many calls."""
        log_share = label_shares(n.labels, len(n.shares)).to(n.sims).log()
        return replace(
            n, log_share=log_share, features=self.neighbour_features(n, log_share) if self.features else None
        )

    def similarities(self, n: NeighbourBatch) -> Float[Tensor, "B H K"]:
        """Similarity of the query to each neighbour, per head, before the temperature.

        Of a missing neighbour it is finite, and means nothing.
        """
        # Finite everywhere: −inf over τ would have no gradient.
        sims = n.sims.masked_fill(~torch.isfinite(n.sims), 0.0)[:, None]
        if self.similarity == "bank":
            return sims
        query, keys = n.require("query"), n.require("keys")
        if self.similarity == "dot":
            q = torch.einsum("hed,bd->bhe", self.query_projection, query)
            # (A q)·(B k) = (Bᵀ A q)·k: the keys are met once, by a vector a head.
            seen = torch.einsum("hed,bhe->bhd", self.key_projection, q)
            return sims + torch.einsum("bhd,bkd->bhk", seen, keys)
        if self.metric == "ip":
            q, keys = query + query @ self.delta.T, keys + keys @ self.delta.T
            return (keys @ q[:, :, None]).squeeze(2)[:, None]
        difference = query[:, None] - keys  # (B, K, D)
        return -(difference + difference @ self.delta.T).square().sum(2)[:, None]

    def neighbour_features(self, n: NeighbourBatch, log_share: Float[Tensor, "B K"]) -> Float[Tensor, "B K F"]:
        """What the feature network sees of each neighbour; 0 where it is missing."""
        there = torch.isfinite(n.sims)
        nearest = n.sims.amax(1, keepdim=True)
        sims = torch.where(there, n.sims, nearest) / self.sim_scale  # (B, K)
        log_prior = n.shares.log() - n.shares.log().mean()

        def rank() -> Float[Tensor, "B K"]:
            places = n.sims.argsort(dim=1, descending=True, stable=True).argsort(1) + 1
            return places.to(sims).log() / math.log(max(sims.shape[1], 2))

        known = {
            "distance": lambda: sims,
            "gap": lambda: sims - nearest / self.sim_scale,
            "rank": rank,
            "label_share": lambda: log_share,
            "agreement": lambda: n.require("agreement"),
            "density": lambda: n.require("density") / self.sim_scale,
            "class_prior": lambda: log_prior[n.labels.clamp(min=0)],
        }
        parts = [known[name]() for name in self.features]
        parts = [part if part.ndim == 3 else part[:, :, None] for part in parts]
        return torch.cat(parts, 2).masked_fill(~there[:, :, None], 0)

    def feature_bias(self, n: NeighbourBatch) -> Float[Tensor, "B K"]:
        """The feature network's output, with attention among the neighbours where that is switched on."""
        units = nn.functional.gelu(self.fc1(n.features))  # (B, K, hidden)
        if self.has_self_attention:
            q, k, v = self.attend(units).chunk(3, 2)
            there = torch.isfinite(n.sims)[:, None]  # (B, 1, K)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=there)
            units = units + self.residual * mixed
        return self.fc2(units).squeeze(2)

    def scores(self, n: NeighbourBatch) -> tuple[Float[Tensor, "B H K"], Float[Tensor, "B H C"]]:
        """Logits of the neighbours and of the null neighbours."""
        n = self.prepared(n) if n.log_share is None else n
        assert n.log_share is not None, "just prepared"
        missing = ~torch.isfinite(n.sims)[:, None]  # (B, 1, K)
        if self.training and self.dropout:
            left_out = missing | (torch.rand_like(n.sims) < self.dropout)[:, None]
            missing = torch.where(left_out.all(2, keepdim=True), missing, left_out)
        labels = n.labels.clamp(min=0)
        scores = self.similarities(n) / self.temperatures()[:, None]  # (B, H, K)
        if n.log_weight is not None:
            scores = scores + n.log_weight[:, None]
        scores = scores.masked_fill(missing, -torch.inf)
        mass = scores.logsumexp(2, keepdim=True)  # (B, H, 1)
        by_class = torch.zeros_like(n.shares)[None]  # (1 or B, C), for neighbours and null neighbours alike
        if self.label_bias is not None:
            by_class = by_class + self.label_bias
        if self.prototype_gain is not None:
            prototypes = n.prototypes if self.prototype_move is None else n.prototypes + self.prototype_move
            assert self.prototype_bias is not None, "made with the gain"
            by_class = (
                by_class + COSINE * self.prototype_gain * (n.require("query") @ prototypes.T) + self.prototype_bias
            )
        nearest = self.null_slope * n.sims.amax(1, keepdim=True) / self.sim_scale  # (B, 1)
        null = mass + (self.null_bias + nearest + n.shares.log() + by_class)[:, None]  # (B, H, C)
        bias = by_class.expand(len(labels), -1).gather(1, labels)
        if self.label_scale is not None:
            bias = bias + self.label_scale[labels] * n.log_share
        if self.correction is not None:
            bias = bias - self.correction * n.shares.log()[labels]
        if self.features:
            bias = bias + self.feature_bias(n)
        if not self.neighbours:
            missing = torch.ones_like(missing)
        return (scores + bias[:, None]).masked_fill(missing, -torch.inf), null

    def forward(self, n: NeighbourBatch) -> HeadOutput:
        scores, null = self.scores(n)
        weights = torch.cat([scores, null], 2).softmax(2).mean(1)  # (B, K + C)
        k = n.labels.shape[1]
        rest = weights[:, k:].clamp(min=torch.finfo(weights.dtype).tiny)  # (B, C), above 0 also where it underflows
        return rest.scatter_add(1, n.labels.clamp(min=0), weights[:, :k]), weights[:, :k]
