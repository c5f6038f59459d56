"""Settings of the encoder and its training."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attnknn.core.config import Block, Count, NonNegative, Positive, Rate, Share, Whole
from attnknn.nn.config import Augment

IMAGE_REPRESENTATIONS = ("self_supervised", "pretrained")
OF_TABLES = "for a table take trained, raw or pca"


class Losses(Block):
    """Loss weights."""

    cross_entropy: NonNegative = 1.0
    supcon: NonNegative = 0.0
    proxy_anchor: NonNegative = 0.0
    contrastive: NonNegative = 0.0  # on pairs, with a margin
    knn: NonNegative = 0.0  # NLL of the neighbours' votes
    entropy: NonNegative = 0.0  # negative entropy of the neighbours' weights
    calibration: NonNegative = 0.0  # soft-binned ECE of the votes

    @model_validator(mode="after")
    def _learn_something(self) -> "Losses":
        if self.cross_entropy + self.supcon + self.proxy_anchor + self.contrastive + self.knn == 0:
            raise ValueError("give cross_entropy, supcon, proxy_anchor, contrastive or knn a weight above 0")
        return self


class Knn(Block):
    """The losses knn, entropy and calibration; see `NeighbourLoss`."""

    # share of the bank embedded with each batch, all of it voting; 0 takes a memory bank
    candidates: Annotated[float, Field(ge=0, le=1)] = 0.0
    k: Count = 50
    temperature: Positive = 0.1  # initial τ, of squared distances of unit vectors
    prior: Share = 0.01  # mass ε of the bank's class shares
    # loss weight of a row whose neighbours all disagree, relative to one whose all agree
    hard_weight: Annotated[float, Field(ge=1)] = 1.0


class Numeric(Block):
    """Embeddings of a table's numeric columns."""

    kind: Literal["none", "linear", "periodic", "piecewise"] = "none"
    dim: Count = 16
    frequencies: Count = 48  # periodic
    scale: Positive = 0.05  # periodic: standard deviation of the initial frequencies
    bins: Annotated[int, Field(ge=2)] = 48  # piecewise: maximum per column


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
    period: Whole = 0  # epochs of the first cosine after the warm-up; 0 is one cosine for all epochs
    factor: Count = 2  # length of each cosine relative to the previous one


class SelfSupervised(Block):
    """Of representation self_supervised: SimCLR (Chen et al. 2020), with supcon_temperature as its temperature."""

    epochs: Count = 100
    augment: Augment = Augment(resized_crop=0.2, flip=True, jitter=0.4, grey=0.2)  # each view's; flip at random


class Vit(Block):
    """The vision transformer."""

    patch: Count = 4  # pixels a side
    width: Count = 192
    blocks: Count = 6
    heads: Count = 3

    @model_validator(mode="after")
    def _heads(self) -> "Vit":
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} do not divide width {self.width}; give a number that does")
        return self


class TrainEmbedder(Block):
    representation: Literal["trained", "raw", "pca", "self_supervised", "pretrained"] = "trained"
    encoder: Literal["convnet", "vit", "mlp", "resnet18", "resnet50"] = "convnet"
    pretrained: bool = False  # train from ImageNet weights, for the ResNets
    widths: list[Count] = [64, 256, 256]  # of the convnet's groups or the MLP's layers; [] is an MLP without layers
    depth: Count = 2  # convolutions in each group
    vit: Vit = Vit()
    # train the plain network apart, from another seed, where the encoder is one too
    separate_network: bool = False
    embed_dim: Whole = 0  # of the projection; 0 takes the backbone's features, and 64 principal components
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
    grad_clip: Positive = 1.0
    validate_every: Count = 1  # epochs
    k_val: Count = 10  # neighbours of the validation kNN that chooses the epoch
    losses: Losses = Losses()
    label_smoothing: Rate = 0.1
    supcon_temperature: Positive = 0.1
    proxy_margin: NonNegative = 0.1
    proxy_alpha: Positive = 32.0
    contrastive_margin: Positive = 0.5
    contrastive_negatives: Literal["all", "hardest"] = "all"  # pairs of two classes: all, or each row's nearest
    knn: Knn = Knn()
    lr_factors: LrFactors = LrFactors()
    restarts: Restarts = Restarts()
    augment: Augment = Augment()
    shrunk: Rate = 0.0  # share of the epochs, the first, in which images have 3/4 of their side: half the time
    self_supervised: SelfSupervised = SelfSupervised()
    weights: str = ""  # file of a torchvision ResNet's weights, of representation pretrained
    input_size: Count = 224  # to which its images are resized
    mixup: NonNegative = 0.0  # α of Beta(α, α); 0 is off
    bf16: bool = False  # bfloat16 autocast, on a device that has it
    compile: bool = False  # torch.compile
    folds: Whole = 0  # encoders of the cross-fit; see encoder/crossfit.py

    @model_validator(mode="after")
    def _check_combination(self) -> "TrainEmbedder":
        if not self.widths and self.encoder == "convnet":
            raise ValueError("widths: the convnet needs a width per group; give at least one")
        if self.representation in IMAGE_REPRESENTATIONS and self.encoder == "mlp":
            raise ValueError(f"representation: {self.representation} is of images, encoder: mlp of tables; {OF_TABLES}")
        if self.representation == "pretrained" and not self.weights:
            raise ValueError("representation: pretrained needs weights, a file of a torchvision ResNet's weights")
        calibration, candidates, period = self.losses.calibration, self.knn.candidates, self.restarts.period
        if self.decay == "linear" and period:
            raise ValueError(f"decay linear has no restarts; set decay to cosine or restarts.period {period} to 0")
        if self.pretrained and self.encoder in ("convnet", "vit"):
            raise ValueError(f"pretrained: true is of resnet18 and resnet50, not {self.encoder}; set it to false")
        if self.shrunk and self.encoder == "vit":
            raise ValueError(f"shrunk: {self.shrunk}; the vit has a position for each patch; set it to 0")
        if self.folds == 1:
            raise ValueError("folds: 1 leaves no rows to train on; give 0 for none, or 2 or more")
        if self.mixup and calibration:
            raise ValueError(
                f"mixup {self.mixup}: losses.calibration {calibration} needs one label per row; set either to 0"
            )
        if self.mixup and candidates:
            raise ValueError(f"mixup {self.mixup}: knn.candidates {candidates} are embedded unmixed; set either to 0")
        return self
