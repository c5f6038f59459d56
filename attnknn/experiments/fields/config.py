"""Settings of neural fields and of the probes."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attnknn.core.config import Block, Count, Name, Positive, Rate, Resamples, Whole
from attnknn.nn.config import Augment


class FieldSize(Block):
    frequencies: Count  # of the Fourier features
    scale: Positive  # their standard deviation, in periods over half a side
    dims: Annotated[list[Count], Field(min_length=1)]  # widths of the cascade's latents
    latents: Count
    heads: Count
    depth: Whole = 1  # self-attention blocks after each cross-attention
    least: Count  # points of a sparse context, where `share` gives fewer
    decoded: Whole = 0  # pixels decoded in a step; 0 is all
    epochs: Count
    batch_size: Annotated[int, Field(ge=2)]
    lr: Positive  # of AdamW
    muon: Positive  # of the matrices
    bf16: bool = False
    compile: bool = False

    @model_validator(mode="after")
    def _heads(self) -> "FieldSize":
        if uneven := [dim for dim in self.dims if dim % self.heads]:
            raise ValueError(f"heads: {self.heads} do not divide dims {uneven}; give a number that divides them all")
        return self


class Finetune(Block):
    """Of sparse_nce and sparse_views, which start from sparse."""

    epochs: Annotated[float, Field(gt=0, le=1)] = 0.4  # share of the epochs
    rate: Annotated[float, Field(gt=0, le=1)] = 0.5  # share of the learning rates


class TrainField(Block):
    """Neural fields: networks that learn images as functions of their coordinates, without labels."""

    size: Name = "none"  # none, or one of `sizes`
    sizes: dict[Name, FieldSize] = {  # type: ignore[assignment]  # small: 8×8 images in seconds; medium: 8,000 of 32×32 in an hour; half: longer; full: a GPU
        "small": {
            "frequencies": 16, "scale": 0.5, "dims": [32, 64], "latents": 8, "heads": 4, "least": 8, "epochs": 7,
            "batch_size": 32, "lr": 0.003, "muon": 0.015,
        },
        "medium": {
            "frequencies": 48, "scale": 1.5, "dims": [64, 96, 128], "latents": 32, "heads": 4, "least": 64,
            "decoded": 256, "epochs": 6, "batch_size": 32, "lr": 0.003, "muon": 0.015, "bf16": True,
        },
        "half": {
            "frequencies": 96, "scale": 1.5, "dims": [128, 192, 256], "latents": 64, "heads": 8, "least": 64,
            "decoded": 256, "epochs": 8, "batch_size": 32, "lr": 0.003, "muon": 0.015, "bf16": True,
        },
        "full": {
            "frequencies": 96, "scale": 15.0, "dims": [256, 384, 512], "latents": 256, "heads": 8, "least": 64,
            "epochs": 50, "batch_size": 64, "lr": 0.001, "muon": 0.005, "bf16": True, "compile": True,
        },
    }  # fmt: skip
    sampler: Literal["image", "batch"] = "image"  # of sparse contexts: image draws points per image, batch per batch
    share: Annotated[float, Field(gt=0, le=1)] = 0.2  # of the pixels in a sparse context
    warmup: Rate = 0.05  # share of all steps
    grad_clip: Positive = 1.0
    contrast_weight: Positive = 0.01  # of InfoNCE between two views of an image, in the variants with nce
    temperature: Positive = 0.1  # τ of InfoNCE
    augment: Augment = Augment(rotate=10.0)  # that views differ by, of variants with nce or views
    finetune: Finetune = Finetune()

    @model_validator(mode="after")
    def _known(self) -> "TrainField":
        if self.size != "none" and self.size not in self.sizes:
            raise ValueError(f"size: {self.size} is not among sizes; known are none, {', '.join(self.sizes)}")
        return self


class Transformer(Block):
    patch: Count  # side of the patches that whole images are cut into
    dim: Count
    heads: Count = 4
    layers: Count = 2
    dropout: Rate = 0.1
    epochs: Count = 30
    patience: Count = 3
    batch_size: Annotated[int, Field(ge=2)] = 64
    lr: Positive = 0.001

    @model_validator(mode="after")
    def _heads(self) -> "Transformer":
        if self.dim % self.heads:
            raise ValueError(f"heads: {self.heads} do not divide dim {self.dim}; give a number that does")
        return self


class Probe(Block):
    """Classifiers on images, latents of fields and embeddings."""

    strengths: Annotated[list[Positive], Field(min_length=1)] = [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]  # C of logistic
    transformers: dict[Name, Transformer] = {  # type: ignore[assignment]  # by train_field.size
        "small": {"patch": 2, "dim": 64, "dropout": 0.0, "patience": 4},
        "medium": {"patch": 4, "dim": 128},
        "half": {"patch": 4, "dim": 128},
        "full": {"patch": 4, "dim": 256},
    }
    resamples: Resamples = 1000
    tsne_rows: Count = 250
    perplexity: Positive = 30.0  # of the t-SNE
    pictures: Count = 6  # images reconstructed in the report
    k: Count | None = None
