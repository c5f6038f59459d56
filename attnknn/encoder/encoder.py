"""Encoders: rows of a `Split` → unit vectors.

    x → normalise → backbone → features (B, F) → projection → e (B, D) → z = e / ‖e‖, logits = classifier(e)

kNN and the linear head use the same representation e.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor, nn

from attnknn.core.artifacts import Embeddings, Split
from attnknn.core.cluster import run_tasks
from attnknn.core.device import autocast
from attnknn.core.errors import InputError, needs_extra, require
from attnknn.core.files import load_weights, save_weights
from attnknn.encoder.convnet import HEAD_SCALE, WHITENING_IMAGES, ConvNet
from attnknn.encoder.numeric_embeddings import NumericEmbedding
from attnknn.encoder.vit import ViT

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_BLOCK = 2000  # images whose pixel values are counted at once
_TASK = 2000  # rows of a task of a cluster; whole batches of `embed`


class MLP(nn.Sequential):
    """[linear, layer norm, GELU, dropout] per width, for tables, after embeddings of numeric columns if any."""

    def __init__(self, features: int, widths: Sequence[int], dropout: float, numeric: Mapping[str, Any]) -> None:
        layers: list[nn.Module] = []
        if numeric:
            layers.append(NumericEmbedding(features, **numeric))
            features = layers[0].out_dim  # type: ignore[assignment]
        for before, width in pairwise([features, *widths]):
            layers += [nn.Linear(before, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(dropout)]
        super().__init__(*layers)
        self.out_dim = widths[-1] if widths else features


class _Components(nn.Linear):
    """A linear projection in float32, under autocast too."""

    def forward(self, x: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x)


def _resnet(kind: str, channels: int, pretrained: bool, own_stem: bool = False) -> nn.Module:
    """torchvision's ResNet, with its own stem or, for 32×32, a 3×3 stride-1 stem without max-pool.

    Args:
        pretrained: load ImageNet weights, of which a 3×3 stem takes none.
    """
    with needs_extra("pipeline", kind):
        from attnknn.core.torchvision_shim import torchvision

    models = torchvision.models
    net = getattr(models, kind)(weights=None)
    if pretrained:
        weights = models.get_model_weights(kind).IMAGENET1K_V1  # type: ignore[attr-defined]
        file = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
        try:
            net.load_state_dict(weights.get_state_dict(progress=False, check_hash=True, weights_only=True))
        except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
            raise InputError(
                f"pretrained: the ImageNet weights of {kind} are not available ({error!s:.200}); "
                f"put {weights.url} at {file}, or set pretrained: false"
            ) from None
    if not own_stem:
        net.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        net.maxpool = nn.Identity()
    net.out_dim = net.fc.in_features
    net.fc = nn.Identity()
    return net


class Encoder(nn.Module):
    """A backbone with normalisation, projection head and linear classifier.

    Args:
        kind: convnet, vit, mlp, a ResNet, or raw, which is the normalised values.
        shape: shape of one row: (C, H, W) of an image, (F,) of a table.
        n_classes: outputs of the classifier; 0 for no classifier.
        widths: widths of the ConvNet's groups or the MLP's layers.
        embed_dim: D of the projection, which is linear for raw; 0 takes the backbone's features.
        depth: convolutions in each of the ConvNet's groups.
        dropout: dropout rate of the MLP and the projection.
        pretrained: load ImageNet weights into a ResNet.
        flip_average: in evaluation mode, e is the mean over an image and its mirror image.
        numeric: keyword arguments of `NumericEmbedding` for an MLP; empty for none.
        vit: keyword arguments of `ViT`.
        input_size: side to which a ResNet with its own stem resizes images normalised as ImageNet's; 0 for neither.

    Raises:
        InputError: the kind does not fit the shape, or weights are not available.
    """

    def __init__(
        self,
        kind: str,
        shape: Sequence[int],
        n_classes: int,
        widths: Sequence[int],
        embed_dim: int,
        depth: int = 2,
        dropout: float = 0.0,
        pretrained: bool = False,
        flip_average: bool = False,
        numeric: Mapping[str, Any] = MappingProxyType({}),
        input_size: int = 0,
        vit: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        image = len(shape) == 3
        kinds, fitting = ("mlp", "raw"), "mlp for tables"
        if image:
            kinds, fitting = ("convnet", "vit", "raw", *RESNETS), "convnet, vit, resnet18 or resnet50 for images"
        require(kind in kinds, f"encoder: {kind} does not fit rows of shape {tuple(shape)}; take {fitting}")
        self.config = {"kind": kind, "shape": list(shape), "n_classes": n_classes, "widths": list(widths)}
        self.config |= {"embed_dim": embed_dim, "depth": depth, "dropout": dropout, "flip_average": flip_average}
        self.config |= {"numeric": dict(numeric), "input_size": input_size}
        self.config |= {"vit": dict(vit)} if kind == "vit" else {}
        channels = (shape[0], 1, 1) if image else (shape[0],)
        self.flip_average = flip_average and image
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))
        if kind == "convnet":
            self.backbone: nn.Module = ConvNet(shape, widths, depth)
        elif kind == "vit":
            self.backbone = ViT(shape, **vit)
        elif kind == "mlp":
            self.backbone = MLP(shape[0], widths, dropout, numeric)
        elif kind == "raw":
            self.backbone = nn.Flatten()
            self.backbone.out_dim = math.prod(shape)  # type: ignore[assignment]
        else:
            self.backbone = _resnet(kind, shape[0], pretrained, own_stem=input_size > 0)
        self.input_size = input_size
        if input_size:  # three channels, to which a single one is repeated
            self.mean, self.std = (255 * torch.tensor(v)[:, None, None] for v in (IMAGENET_MEAN, IMAGENET_STD))
        hidden = int(self.backbone.out_dim)  # type: ignore[arg-type]
        self.projection: nn.Module = nn.Identity()
        if embed_dim and kind == "raw":
            self.projection = _Components(hidden, embed_dim)
        elif embed_dim:
            layers = (nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(dropout))
            self.projection = nn.Sequential(*layers, nn.Linear(hidden, embed_dim))
        self.dim = embed_dim or hidden
        self.classifier = nn.Linear(self.dim, n_classes) if n_classes else None
        self.head_scale = HEAD_SCALE if kind == "convnet" and not embed_dim else 1.0

    def fit_normalisation(self, x: np.ndarray) -> None:
        """Fit each channel's mean and standard deviation, and a ConvNet's whitening, to uint8 images (N, C, H, W)."""
        # Histograms: the sums are exact, and only a block of the data is copied at a time.
        n, counts = x.size // x.shape[1], np.zeros((x.shape[1], 256), dtype=np.int64)
        for s in range(0, len(x), _BLOCK):
            counts += [np.bincount(x[s : s + _BLOCK, c].ravel(), minlength=256) for c in range(x.shape[1])]
        mean = counts @ np.arange(256) / n
        variance = counts @ np.arange(256) ** 2 / n - mean**2
        std = np.sqrt(np.maximum(variance, 1.0))
        self.mean.copy_(torch.from_numpy(mean)[:, None, None])
        self.std.copy_(torch.from_numpy(std)[:, None, None])
        if isinstance(self.backbone, ConvNet):
            sample = torch.from_numpy(np.array(x[:: max(1, len(x) // WHITENING_IMAGES)]))
            self.backbone.whiten((sample.float() - self.mean) / self.std)

    def _embed(self, x: Num[Tensor, "B ..."]) -> Float[Tensor, "B D"]:
        x = (x.float() - self.mean) / self.std
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if self.input_size:
            x = F.interpolate(x, (self.input_size, self.input_size), mode="bilinear", antialias=True)
        return self.projection(self.backbone(x))

    def forward(self, x: Num[Tensor, "B ..."]) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B C"] | None]:
        """Unit embeddings z and the linear head's logits (None without one) of rows as a `Split` holds them."""
        e = self._embed(x)
        if self.flip_average and not self.training:
            e = (e + self._embed(x.flip(-1))) / 2
        with torch.autocast(e.device.type, enabled=False):  # bfloat16 would make logits of two classes equal
            e = e.float()
            logits = None if self.classifier is None else self.head_scale * self.classifier(e)
            return F.normalize(e, dim=1), logits

    def save(self, folder: Path, **about: Any) -> None:
        """Write weights and configuration, with `about`, to `folder`, atomically."""
        save_weights(folder, self.state_dict(), {"encoder": self.config, **about})

    @classmethod
    def load(cls, folder: Path) -> "tuple[Encoder, dict[str, Any]]":
        """Load a saved encoder, in evaluation mode, and its `about`.

        Raises:
            InputError: files are missing or damaged, or weights and configuration do not match.
        """
        state, config = load_weights(folder)
        try:
            encoder = cls(**config.pop("encoder"))
            encoder.load_state_dict(state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{folder}: weights and configuration do not fit ({error!s:.200}); run `dvc repro`"
            ) from None
        return encoder.eval(), config


@torch.inference_mode()
def embed(
    encoder: Encoder, x: np.ndarray, device: str = "cpu", bf16: bool = False, batch_size: int | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Embeddings float32 (N, D) and logits float32 (N, C) or None of all rows x, in evaluation mode."""
    # On a CPU, batches that fit the cache take half the time.
    batch_size = batch_size or (250 if device == "cpu" else 2000)
    training = encoder.training
    encoder.eval().to(device)
    z, logits = [], []
    for start in range(0, len(x), batch_size):
        rows = torch.from_numpy(np.array(x[start : start + batch_size])).to(device)
        with autocast(device, bf16):
            z_rows, logit_rows = encoder(rows)
        z.append(z_rows.float().cpu())
        logits.append(None if logit_rows is None else logit_rows.float().cpu())
    encoder.train(training)
    return torch.cat(z).numpy(), None if logits[0] is None else torch.cat(logits).numpy()


def embed_split(
    encoder: Encoder, split: Split, device: str = "cpu", bf16: bool = False, cluster: str | None = None
) -> Embeddings:
    """Embed every row of a split; on the CPUs of a cluster if there is one, see `run_tasks`."""
    if cluster is None:
        z, logits = embed(encoder, split.x, device, bf16)
    else:
        tasks = [(start, split.x[start : start + _TASK]) for start in range(0, len(split.x), _TASK)]
        results = run_tasks(partial(_embed_block, encoder.cpu(), bf16), tasks, cluster, "embed")
        _, blocks, outputs = zip(*sorted(results, key=lambda result: result[0]), strict=True)
        z, logits = np.concatenate(blocks), None if outputs[0] is None else np.concatenate(outputs)
    return Embeddings(z, split.y, split.part, split.classes, logits)


def _embed_block(
    encoder: Encoder, bf16: bool, task: tuple[int, np.ndarray]
) -> tuple[int, np.ndarray, np.ndarray | None]:
    return task[0], *embed(encoder, task[1], bf16=bf16)
