"""Settings of the encoder and its training."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attnknn.core.config import Block, Count, NonNegative, Positive, Rate, Share, Whole
from attnknn.nn.config import Augment


class Losses(Block):
    """Loss weights."""

    cross_entropy: NonNegative = 1.0
    supcon: NonNegative = 0.0
    proxy_anchor: NonNegative = 0.0
    contrastive: NonNegative = 0.0  # on pairs, with a margin
    knn: NonNegative = 0.0  # NLL of the neighbours' votes
    entropy: NonNegative = 0.0  # of the votes' weights; a higher one is rewarded
    calibration: NonNegative = 0.0  # soft-binned ECE of the votes

    @model_validator(mode="after")
    def _learn_something(self) -> "Losses":
        if self.cross_entropy + self.supcon + self.proxy_anchor + self.contrastive + self.knn == 0:
            raise ValueError(
                "nothing learns the classes; "
                "give cross_entropy, supcon, proxy_anchor, contrastive or knn a weight above 0"
            )
        return self


class Knn(Block):
    """The losses knn, entropy and calibration."""

    candidates: Annotated[float, Field(ge=0, le=1)] = (
        0.0  # share of the bank embedded with each batch, all of it voting; 0 is a memory
    )
    k: Count = 50
    temperature: Positive = 0.1  # initial τ, of squared distances of unit vectors
    prior: Share = 0.01  # mass ε of the bank's class shares
    refresh: Count = 1  # epochs after which the memory of bank rows is embedded again
    momentum: Annotated[float, Field(ge=0, le=1)] = (
        1.0  # in between, a batch's rows become m·old + (1 − m)·new; 1 leaves them
    )
    hard_weight: Annotated[float, Field(ge=1)] = (
        1.0  # loss weight of a row whose neighbours all disagree, relative to one whose all agree
    )
    bins: Annotated[int, Field(ge=2)] = 15
    sharpness: Positive = 1000.0  # of the bins' edges


class Numeric(Block):
    """Embeddings of a table's numeric columns."""

    kind: Literal["none", "linear", "periodic", "piecewise"] = "none"
    dim: Count = 16
    frequencies: Count = 48  # of periodic ones
    scale: Positive = 0.05  # of periodic ones' initial frequencies
    bins: Annotated[int, Field(ge=2)] = 48  # of piecewise ones, at most for a column


class LrFactors(Block):
    """Factors of lr."""

    backbone: NonNegative = 1.0
    projection: NonNegative = 1.0  # with the linear head and the proxies
    knn: NonNegative = 1.0  # τ


class Muon(Block):
    """Optimiser of the convnet's filters; lr 0 leaves them to AdamW, as for other encoders."""

    lr: NonNegative = 0.1
    momentum: Rate = 0.6


class Restarts(Block):
    period: Whole = 0  # epochs of the first cosine after the warm-up; 0 makes it one for all epochs
    factor: Count = 2  # length of each further cosine relative to the one before; the last is cut off by the end


class TrainEmbedder(Block):
    encoder: Literal["convnet", "mlp", "resnet18", "resnet50"] = "convnet"
    pretrained: bool = False  # ImageNet weights, for the ResNets
    widths: list[Count] = [64, 256, 256]  # of the convnet's groups, or the MLP's layers; [] for an MLP of none
    depth: Count = 2  # convolutions in each group
    embed_dim: Whole = 0  # of a projection on top; 0 takes the backbone's features as they are
    dropout: Rate = 0.0  # in the MLP and the projection
    numeric: Numeric = Numeric()
    flip_average: bool = False  # embed as the mean over an image and its mirror image
    epochs: Count = 20
    batch_size: Annotated[int, Field(ge=2)] = 500
    lr: Positive = 0.005  # of AdamW
    weight_decay: NonNegative = 0.0  # of AdamW
    muon: Muon = Muon()
    decay: Literal["cosine", "linear"] = "linear"
    warmup: Rate = 0.05  # share of all steps
    look_ahead: Whole = 0  # steps after which fast weights return to slow ones; 0 for none
    grad_clip: Positive = 1.0
    validate_every: Count = 1  # epochs
    k_val: Count = 10  # neighbours of the validation kNN that chooses the epoch
    losses: Losses = Losses()
    label_smoothing: Rate = 0.1
    supcon_temperature: Positive = 0.1
    proxy_margin: NonNegative = 0.1
    proxy_alpha: Positive = 32.0
    contrastive_margin: Positive = 0.5
    knn: Knn = Knn()
    lr_factors: LrFactors = LrFactors()
    restarts: Restarts = Restarts()
    augment: Augment = Augment()
    mixup: NonNegative = 0.0  # α of Beta(α, α); 0 mixes nothing
    bf16: bool = False  # bfloat16 autocast
    compile: bool = False  # torch.compile

    # encoders trained for cross-fitting: bank rows embedded by encoders that did not see them, as more fit and val rows
    folds: Whole = 0

    @model_validator(mode="after")
    def _go_together(self) -> "TrainEmbedder":
        if not self.widths and self.encoder == "convnet":
            raise ValueError("widths: none, and the convnet needs a width for each of its groups; give some")
        if self.mixup and self.losses.calibration:
            raise ValueError(
                f"mixup {self.mixup} gives a row two labels, and losses.calibration {self.losses.calibration} "
                "needs one; set either to 0"
            )
        if self.decay == "linear" and self.restarts.period:
            raise ValueError(
                f"decay linear goes down once, and restarts.period {self.restarts.period} asks for more; "
                "set decay to cosine or restarts.period to 0"
            )
        if self.folds == 1:
            raise ValueError("folds: 1 leaves no rows to train on; give 0 for none, or 2 or more")
        votes = self.losses.knn or self.losses.entropy
        if self.mixup and self.knn.candidates:
            raise ValueError(
                f"mixup {self.mixup} mixes rows, and knn.candidates {self.knn.candidates} are rows as they are; "
                "set either to 0"
            )
        if self.mixup and votes and self.knn.momentum < 1:
            raise ValueError(
                f"mixup {self.mixup} embeds no row as it is, so knn.momentum {self.knn.momentum} has nothing to put "
                "into the memory; set knn.momentum to 1.0 or mixup to 0"
            )
        return self
