"""Attention over stored neighbours, with null neighbours as a class prior.

A head maps a `NeighbourBatch` to class probabilities (B, C), whose rows sum to 1, and the neighbours' weights (B, K).
The remaining mass is held by null neighbours, one per class, which vote for the class shares of the bank or, with
prototypes, for the classes that the query resembles; so every class has a probability above 0. Missing neighbours
(label −1, similarity −inf) have weight 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnknn.core.errors import require
from attnknn.neighbours.space import NeighbourBatch

HeadOutput = tuple[Float[Tensor, "B C"], Float[Tensor, "B K"]]  # probabilities, weights
# The signature of all heads. `needs`, a subset of `neighbours.space.NEEDS`, lists what a batch must hold for the head.
Head = Callable[[NeighbourBatch], HeadOutput]

FEATURES = ("distance", "gap", "rank", "label_share", "agreement", "density", "class_prior", "class_similarity")
SIMILARITIES = ("bank", "l2", "dot")
PROTOTYPE_SCALE = 30.0  # of prototype logits: cosines lie in [−1, 1], useful logits do not


def label_shares(labels: Tensor, n_classes: int) -> Float[Tensor, "B K"]:
    """Share of the present neighbours that carry each neighbour's label, itself included; 1 for missing neighbours."""
    present = labels >= 0
    ones = present.float()
    counts = ones.new_zeros(len(labels), n_classes).scatter_add(1, labels.clamp(min=0), ones)
    share = counts.gather(1, labels.clamp(min=0)) / ones.sum(1, keepdim=True)
    return share.masked_fill(~present, 1.0)


def log_ranks(sims: Tensor) -> Float[Tensor, "B K"]:
    """Logarithm of each neighbour's rank, from 0 for the nearest to 1 for the last of K."""
    ranks = sims.argsort(dim=1, descending=True, stable=True).argsort(1) + 1
    return ranks.to(sims).log() / math.log(max(sims.shape[1], 2))


class Attention(nn.Module):
    """Softmax attention over neighbours and null neighbours; at initialisation equal to `Distance` with k = K.

        sᵢₕ = similarityᵢₕ/τₕ + log weightᵢ                                      (neighbour i, head h)
        aᵢₕ = sᵢₕ + biasᵢ,     n_ch = logΣⱼ exp sⱼₕ + logit ε + slope·maxⱼ simⱼ/u + log share_c + bias_c   (null one c)
        w = mean over h of softmax([a₁ₕ … a_Kₕ, n₁ₕ … n_Cₕ]),     p(c) = w_null,c + Σᵢ wᵢ·1[yᵢ = c]

    Each term of the bias is optional, and 0 at initialisation:

    * features: a two-layer network (`hidden` units) of each neighbour's `distance` (sim/u), `gap` (to the nearest),
      `rank`, `label_share` (log share of its label among the K), `agreement` and `density` (of its own neighbours in
      the bank), `class_prior` (log share of its class in the bank) and `class_similarity` (cosine of its embedding and
      the mean of its class).
    * self_attention: residual self-attention among the neighbours, over the network's hidden units.
    * refine_keys: of `l2` and `dot`, residual self-attention among the neighbours' embeddings, from which the
      similarities are then computed: k + g·Attention(k, k, k), with g (D,) 0 at initialisation.
    * label_bias: s_y·log(label share) + b_y for a neighbour of class y, b_c for the null neighbours. (A bias that is
      the same for all neighbours would cancel in the softmax.)
    * prototypes: 30·g·q·(P_y + Δ_y) + d_y for a neighbour of class y and for that class's null neighbour, with P the
      mean embeddings of the classes in the bank.
    * linear: g·ℓ_y + d_y − log share_y likewise, with ℓ the logits of the encoder's linear head and g = 1 at
      initialisation. The null neighbours then vote for that head's classes, and neighbours correct it:
      p_c ∝ exp(g·ℓ_c + d_c)·(weight of null neighbours + vote_c/share_c).
    * hierarchical: coarse attention weights regions of the bank (k-means clusters), fine attention neighbours in them:
      sᵢₕ + g·c_r/τₕ + (m − 1)·logΣ_{j in r} exp sⱼₕ instead of sᵢₕ, with c_r the query's similarity to the centroid of
      i's region r, whose neighbours so share a weight ∝ exp(g·c_r/τₕ)·(Σ_{j in r} exp sⱼₕ)^m before the bias. At
      initialisation g = 0 and m = 1.
    * class_correction: −η·log share_y, for neighbours only, which corrects votes for the class shares of the bank.

    Similarities: `bank` takes those of the search. `l2` learns one projection W = I + Δ shared by query and keys,
    −‖W(q − k)‖² (or (Wq)·(Wk) under inner product), not scaled by √D (TabR, Gorishniy et al. 2024). `dot` adds to the
    bank's similarity a learned (A_h q)·(B_h k) for each of H heads of D/H dimensions, A random and B zero at
    initialisation (the form of Vaswani et al. 2017).

    Args:
        dim, n_classes, n_sizes: D, C and the number of neighbourhood sizes of the statistics.
        temperature: initial τ, in the units of the similarities.
        prior: initial ε.
        metric: of the bank, "l2" or "ip".
        sim_scale: u, the typical difference between similarities (`baselines.similarity_scale`).
        similarity, heads: see above; several heads need `dot`.
        temperature_bounds: lowest and highest τₕ as multiples of the initial τ, low < 1 < high; empty for none.
        features: names out of `FEATURES`; empty for none.
        learned_prior: whether logit ε and slope are learned.
        neighbours: False masks all neighbours, so that the null neighbours alone vote.
        dropout: probability that a neighbour is masked during training.
        move_prototypes: whether Δ_y is learned.

    Raises:
        InputError: an unknown name, or incompatible arguments.
    """

    k = 0  # neighbours that it was fitted with, the most that `classify` gives it; 0 for any number

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
        refine_keys: bool = False,
        label_bias: bool = False,
        prototypes: bool = False,
        move_prototypes: bool = False,
        linear: bool = False,
        hierarchical: bool = False,
        class_correction: bool = False,
        learned_prior: bool = True,
        neighbours: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self.config |= {"temperature_bounds": list(temperature_bounds), "features": list(features)}
        unknown = sorted(set(features) - set(FEATURES))
        require(not unknown, f"features: {', '.join(unknown)} unknown; allowed are {', '.join(FEATURES)}")
        require(similarity in SIMILARITIES, f"similarity: {similarity} unknown; allowed are {', '.join(SIMILARITIES)}")
        require(heads == 1 or similarity == "dot", f"heads: {heads} need similarity dot, not {similarity}")
        require(bool(features) or not self_attention, "self_attention: needs features; name some, or switch it off")
        require(similarity != "bank" or not refine_keys, "refine_keys: needs similarity l2 or dot, or switch it off")
        self.metric, self.sim_scale, self.similarity, self.features = metric, sim_scale, similarity, tuple(features)
        projects = similarity != "bank"
        needs = {"query": projects or prototypes, "keys": projects or "class_similarity" in features}
        needs |= {name: name in features for name in ("agreement", "density")} | {"logits": linear}
        needs |= dict.fromkeys(("region", "region_sims"), hierarchical)
        self.needs = tuple(name for name, needed in needs.items() if needed)
        self.neighbours = neighbours
        self.dropout = dropout
        self.log_temperature = math.log(temperature)
        self.log_bounds = tuple(math.log(bound) for bound in temperature_bounds)
        offset = 0.0  # log(τ/initial τ); with bounds, the logit of its relative position between their logarithms
        if self.log_bounds:
            position = -self.log_bounds[0] / (self.log_bounds[1] - self.log_bounds[0])
            offset = math.log(position) - math.log1p(-position)
        self.log_temperature_offset = nn.Parameter(torch.full((heads,), offset))
        self.null_bias = nn.Parameter(torch.tensor(math.log(prior) - math.log1p(-prior)), requires_grad=learned_prior)
        self.null_slope = nn.Parameter(torch.tensor(0.0), requires_grad=learned_prior)
        if similarity == "l2":
            self.delta = nn.Parameter(torch.zeros(dim, dim))
        if similarity == "dot":
            size = max(1, dim // heads)
            self.query_projection = nn.Parameter(torch.randn(heads, size, dim) / math.sqrt(dim))
            self.key_projection = nn.Parameter(torch.zeros(heads, size, dim))
        if refine_keys:
            self.refine = nn.Linear(dim, 3 * dim, bias=False)
            self.refine_residual = nn.Parameter(torch.zeros(dim))
        self.refines_keys = refine_keys
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
        self.linear_gain = nn.Parameter(torch.tensor(1.0)) if linear else None
        self.linear_bias = nn.Parameter(torch.zeros(n_classes)) if linear else None
        self.region_gain = nn.Parameter(torch.tensor(0.0)) if hierarchical else None
        self.region_mass = nn.Parameter(torch.tensor(1.0)) if hierarchical else None
        self.correction = nn.Parameter(torch.tensor(0.0)) if class_correction else None

    def temperatures(self) -> Float[Tensor, " H"]:
        """τₕ, in the units of the similarities."""
        if not self.log_bounds:
            return (self.log_temperature + self.log_temperature_offset).exp()
        low, high = self.log_bounds
        return (self.log_temperature + low + (high - low) * self.log_temperature_offset.sigmoid()).exp()

    def precompute(self, n: NeighbourBatch) -> NeighbourBatch:
        """Add the inputs that do not depend on parameters, log_share and features, once for many forward passes."""
        log_share = label_shares(n.labels, len(n.shares)).to(n.sims).log()
        return replace(
            n, log_share=log_share, features=self.neighbour_features(n, log_share) if self.features else None
        )

    def similarities(self, n: NeighbourBatch) -> Float[Tensor, "B H K"]:
        """Similarities of queries and neighbours before the temperature; arbitrary where missing."""
        # Finite everywhere: −inf/τ has no gradient.
        sims = n.sims.masked_fill(~torch.isfinite(n.sims), 0.0)[:, None]
        if self.similarity == "bank":
            return sims
        query, keys = n.require("query"), n.require("keys")
        if self.refines_keys:
            keys = keys + self.refine_residual * self._attend(self.refine(keys), n)
        if self.similarity == "dot":
            q = torch.einsum("hed,bd->bhe", self.query_projection, query)
            # (A q)·(B k) = (Bᵀ A q)·k, so that the (B, K, D) keys need no projection.
            q = torch.einsum("hed,bhe->bhd", self.key_projection, q)
            return sims + torch.einsum("bhd,bkd->bhk", q, keys)
        if self.metric == "ip":
            q, keys = query + query @ self.delta.T, keys + keys @ self.delta.T
            return (keys @ q[:, :, None]).squeeze(2)[:, None]
        difference = query[:, None] - keys  # (B, K, D)
        return -(difference + difference @ self.delta.T).square().sum(2)[:, None]

    def neighbour_features(self, n: NeighbourBatch, log_share: Float[Tensor, "B K"]) -> Float[Tensor, "B K F"]:
        """Input of the feature network for each neighbour; 0 for missing neighbours."""
        present = torch.isfinite(n.sims)
        nearest = n.sims.amax(1, keepdim=True)
        sims = torch.where(present, n.sims, nearest) / self.sim_scale  # (B, K)
        log_prior = n.shares.log() - n.shares.log().mean()
        compute = {
            "distance": lambda: sims,
            "gap": lambda: sims - nearest / self.sim_scale,
            "rank": lambda: log_ranks(n.sims),
            "label_share": lambda: log_share,
            "agreement": lambda: n.require("agreement"),
            "density": lambda: n.require("density") / self.sim_scale,
            "class_prior": lambda: log_prior[n.labels.clamp(min=0)],
            "class_similarity": lambda: nn.functional.cosine_similarity(
                n.require("keys"), n.prototypes[n.labels.clamp(min=0)], dim=2
            ),
        }
        columns = [compute[name]() for name in self.features]
        columns = [column if column.ndim == 3 else column[:, :, None] for column in columns]
        return torch.cat(columns, 2).masked_fill(~present[:, :, None], 0)

    def feature_bias(self, n: NeighbourBatch) -> Float[Tensor, "B K"]:
        """Output of the feature network, with self-attention among the neighbours where configured."""
        hidden = nn.functional.gelu(self.fc1(n.features))  # (B, K, hidden)
        if self.has_self_attention:
            hidden = hidden + self.residual * self._attend(self.attend(hidden), n)
        return self.fc2(hidden).squeeze(2)

    @staticmethod
    def _attend(projected: Float[Tensor, "B K P"], n: NeighbourBatch) -> Float[Tensor, "B K E"]:
        """Self-attention among the present neighbours, of queries, keys and values side by side."""
        q, k, v = projected.chunk(3, 2)
        present = torch.isfinite(n.sims)[:, None]  # (B, 1, K)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=present)

    def scores(self, n: NeighbourBatch) -> tuple[Float[Tensor, "B H K"], Float[Tensor, "B H C"]]:
        """Logits of the neighbours and of the null neighbours."""
        n = self.precompute(n) if n.log_share is None else n
        assert n.log_share is not None, "set by `precompute`"
        missing = ~torch.isfinite(n.sims)[:, None]  # (B, 1, K)
        if self.training and self.dropout:
            dropped = missing | (torch.rand_like(n.sims) < self.dropout)[:, None]
            missing = torch.where(dropped.all(2, keepdim=True), missing, dropped)
        labels = n.labels.clamp(min=0)
        scores = self.similarities(n) / self.temperatures()[:, None]  # (B, H, K)
        if n.log_weight is not None:
            scores = scores + n.log_weight[:, None]
        scores = scores.masked_fill(missing, -torch.inf)
        if self.region_gain is not None:
            scores = scores + self.region_bias(n, scores).masked_fill(missing, 0)
        class_bias = torch.zeros_like(n.shares)[None]  # (1 or B, C), of neighbours and null neighbours alike
        if self.label_bias is not None:
            class_bias = class_bias + self.label_bias
        if self.prototype_gain is not None:
            assert self.prototype_bias is not None, "set with the gain"
            prototypes = n.prototypes if self.prototype_move is None else n.prototypes + self.prototype_move
            query = PROTOTYPE_SCALE * self.prototype_gain * n.require("query")
            class_bias = torch.addmm(class_bias + self.prototype_bias, query, prototypes.T)
        if self.linear_gain is not None:
            assert self.linear_bias is not None, "set with the gain"
            logits = self.linear_gain * n.require("logits")
            class_bias = class_bias + logits + self.linear_bias - n.shares.log()
        nearest = self.null_slope * n.sims.amax(1, keepdim=True) / self.sim_scale  # (B, 1)
        log_mass = scores.logsumexp(2, keepdim=True)  # (B, H, 1)
        offset = log_mass + (self.null_bias + nearest)[:, None]  # (B, H, 1)
        null = offset + (n.shares.log() + class_bias)[:, None]  # (B, H, C)
        bias = class_bias.expand(len(labels), -1).gather(1, labels)
        if self.label_scale is not None:
            bias = bias + self.label_scale[labels] * n.log_share
        if self.correction is not None:
            bias = bias - self.correction * n.shares.log()[labels]
        if self.features:
            bias = bias + self.feature_bias(n)
        if not self.neighbours:
            missing = torch.ones_like(missing)
        return (scores + bias[:, None]).masked_fill(missing, -torch.inf), null

    def region_bias(self, n: NeighbourBatch, scores: Float[Tensor, "B H K"]) -> Float[Tensor, "B H K"]:
        """What the coarse level of `hierarchical` adds to the scores; arbitrary where missing."""
        region = n.require("region")
        others = (region[:, :, None] != region[:, None, :])[:, None]  # (B, 1, K, K)
        finite = scores.clamp(min=torch.finfo(scores.dtype).min)  # missing ones are regions of their own
        mass = finite[:, :, None].masked_fill(others, -torch.inf).logsumexp(3)
        assert self.region_gain is not None
        assert self.region_mass is not None
        coarse = self.region_gain * n.require("region_sims")[:, None] / self.temperatures()[:, None]
        return coarse + (self.region_mass - 1) * mass

    def forward(self, n: NeighbourBatch) -> HeadOutput:
        scores, null = self.scores(n)
        probs = torch.cat([scores, null], 2).softmax(2)
        probs = probs.mean(1) if probs.shape[1] > 1 else probs[:, 0]  # (B, K + C)
        weights, null_votes = probs.split([n.labels.shape[1], len(n.shares)], 1)
        null_votes = null_votes.clamp(min=torch.finfo(probs.dtype).tiny)  # above 0 despite underflow
        return null_votes.scatter_add(1, n.labels.clamp(min=0), weights), weights
