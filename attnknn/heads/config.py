"""Settings of heads, and the search grids of the baselines."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attnknn.core.config import Block, Count, NonNegative, Positive, Rate

Feature = Literal["distance", "gap", "rank", "label_share", "agreement", "density", "class_prior", "class_similarity"]


class Parts(Block):
    """Parts of the attention head; without any of them it is distance weighting."""

    similarity: Literal["bank", "l2", "dot"] = "bank"  # of the search; one shared projection; separate ones of q and k
    heads: Count = 1  # of dot
    temperature_bounds: list[Positive] = []  # [low, high], times the tuned temperature
    features: list[Feature] = ["distance", "gap", "label_share", "agreement", "density", "class_prior"]
    hidden: Count = 32  # units of the feature network
    self_attention: bool = False  # among the neighbours' features
    refine_keys: bool = False  # by self-attention among the neighbours' embeddings, of l2 and dot
    label_bias: bool = False  # learned for each class
    prototypes: bool = False  # class means of the bank score the null neighbours
    linear: bool = False  # the encoder's linear head scores them
    move_prototypes: bool = False  # whether class means are learned
    hierarchical: bool = False  # coarse attention over clusters of the bank, fine attention in them
    class_correction: bool = False
    learned_prior: bool = True  # the null neighbours' mass
    dropout: Rate = 0.0  # probability that a neighbour is left out in training
    value: bool = False  # tabr: whether the neighbours' values include a projection of their embeddings

    @model_validator(mode="after")
    def _check_compatible(self) -> "Parts":
        if self.heads > 1 and self.similarity != "dot":
            raise ValueError(f"heads: {self.heads} need similarity: dot, not {self.similarity}; set heads: 1")
        bounds = self.temperature_bounds
        if bounds and not (len(bounds) == 2 and bounds[0] < 1 < bounds[1]):
            raise ValueError(f"temperature_bounds: {bounds}; give [low, high] with low < 1 < high, or []")
        if self.self_attention and not self.features:
            raise ValueError("self_attention: true needs features to attend to; name some, or set it false")
        if self.refine_keys and self.similarity == "bank":
            raise ValueError("refine_keys: true needs similarity: l2 or dot; set one, or this false")
        if self.move_prototypes and not self.prototypes:
            raise ValueError("move_prototypes: true needs prototypes: true; set it, or this false")
        if len(set(self.features)) < len(self.features):
            raise ValueError(f"features: {self.features} names one twice")
        return self


class TrainAttention(Block):
    # tabr: a network on the neighbours' values; of parts it reads hidden, dropout and value
    kind: Literal["attention", "tabr"] = "attention"
    epochs: Count = 200
    batch_size: Count = 256
    lr: Positive = 0.01
    weight_decay: NonNegative = 0.05  # of projections, moved prototypes and the feature network
    patience: Count = 10  # epochs in which the validation NLL falls by less than 1e-4
    label_smoothing: Rate = 0.0
    # loss weight of a query whose neighbours all have other classes; 1 for equal weights
    hard_weight: Annotated[float, Field(ge=1)] = 1.0
    entropy_weight: NonNegative = 0.0  # of the attention weights' entropy, which is maximised
    calibration_weight: NonNegative = 0.0  # of the soft-binned calibration error
    parts: Parts = Parts()

    @model_validator(mode="after")
    def _check_kind(self) -> "TrainAttention":
        if self.parts.value and self.kind != "tabr":
            raise ValueError("parts.value: true needs kind: tabr; set it, or this false")
        return self


class Tune(Block):
    """Search grids of the baselines and of calibration, on val."""

    # values below k_eval are searched, and k_eval
    ks: Annotated[list[Count], Field(min_length=1)] = [
        1, 3, 5, 10, 16, 20, 32, 50, 64, 100, 128, 256,
    ]  # fmt: skip
    # times `baselines.similarity_scale`; the last is practically uniform
    temperatures: Annotated[list[Positive], Field(min_length=1)] = [
        0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0,
    ]  # fmt: skip
    # ε, the mass of the bank's class shares
    priors: Annotated[list[Annotated[float, Field(ge=1e-6, lt=1)]], Field(min_length=1)] = [
        0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.5,
    ]  # fmt: skip
    # penalty of vector scaling towards the identity
    ridges: Annotated[list[Positive], Field(min_length=1)] = [0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 1000.0]
