"""Fit an encoder, or train the same backbone as a plain classifier, from its settings."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from sklearn.decomposition import PCA
from torch import nn

from attnknn.core.artifacts import BANK, VAL, Embeddings, Split
from attnknn.core.errors import InputError, require
from attnknn.core.progress import epoch_progress
from attnknn.encoder.config import IMAGE_REPRESENTATIONS, OF_TABLES, Losses, TrainEmbedder
from attnknn.encoder.encoder import RESNETS, Encoder, embed, embed_split
from attnknn.encoder.losses import EncoderLoss, ViewsLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.numeric_embeddings import fit_numeric
from attnknn.encoder.train import Row, knn_score, linear_score, summary, train_encoder
from attnknn.nn.linear_probe import logistic_regression

LOSS = {"label_smoothing", "supcon_temperature", "proxy_margin", "proxy_alpha"}
LOSS |= {"contrastive_margin", "contrastive_negatives"}
VOTES = {"knn", "entropy", "calibration"}  # terms of `NeighbourLoss`
NETWORK = {"pretrained", "widths", "depth", "vit", "embed_dim", "dropout", "flip_average"}
PROJECTED = 128  # outputs of the MLP that `ViewsLoss` reads
COMPONENTS = 64  # principal components unless embed_dim names their number


def fit_encoder(
    split: Split,
    settings: TrainEmbedder,
    seed: int,
    device: str,
    label: str,
    checkpoint: Path | None = None,
    judged_by: str = "knn",
) -> tuple[Encoder, list[Row]]:
    """Fit an encoder to the bank rows of a split.

    Of the representations, only `trained` reads labels; see `fixed_encoder` and `train_on_views`.

    Args:
        label: label of the progress bar.
        checkpoint, judged_by: see `train_encoder`.

    Returns:
        The encoder with the weights of its best epoch, and a row per epoch; see `train_encoder`. One that is not
        trained has a row for epoch 0, without loss and lr. Without a term of cross-entropy, the linear head is that of
        `add_linear_head`.
    """
    kind = settings.representation
    fitting = split.is_image or kind not in IMAGE_REPRESENTATIONS
    require(fitting, f"train_embedder.representation: {kind} is of images; {OF_TABLES}")
    torch.manual_seed(seed)
    if kind == "self_supervised":
        return train_on_views(split, settings, seed, device, label, checkpoint)
    if kind != "trained":
        encoder = fixed_encoder(split, settings, seed)
        e_bank, e_val = add_linear_head(encoder, split, device, settings.bf16)
        z_bank, z_val = (e / np.linalg.norm(e, axis=1, keepdims=True).clip(1e-12) for e in (e_bank, e_val))
        y_bank, y_val = split.y[split.rows(BANK)], split.y[split.rows(VAL)]
        accuracy, nll = knn_score(z_bank, y_bank, z_val, y_val, settings.k_val, len(split.classes))
        return encoder, [{"epoch": 0, "val_accuracy": accuracy, "val_nll": nll}]
    n_classes, bank = len(split.classes), split.part == BANK
    vote_losses, neighbours = settings.losses.model_dump(include=VOTES), None
    network = settings.model_dump(include=NETWORK)
    network["numeric"] = {} if split.is_image else fit_numeric(split.x[bank], **settings.numeric.model_dump())
    logits = n_classes if settings.losses.cross_entropy else 0
    encoder = Encoder(settings.encoder, split.x.shape[1:], logits, **network)
    losses = settings.losses.model_dump(exclude=VOTES) | settings.model_dump(include=LOSS)
    loss = EncoderLoss(n_classes, encoder.dim, **losses)
    if any(vote_losses.values()):
        vote_losses |= {**settings.knn.model_dump(), "label_smoothing": settings.label_smoothing}
        neighbours = NeighbourLoss(split.y[bank], n_classes, encoder.dim, **vote_losses)
    options = {"neighbours": neighbours, "seed": seed, "device": device, "judged_by": judged_by, "resume": checkpoint}
    with epoch_progress(label, settings.epochs) as progress:
        history = train_encoder(split, encoder, loss, settings, **options, progress=progress)
    if encoder.classifier is None:
        add_linear_head(encoder, split, device, settings.bf16)
    return encoder, history


def train_on_views(
    split: Split, settings: TrainEmbedder, seed: int, device: str, label: str, checkpoint: Path | None
) -> tuple[Encoder, list[Row]]:
    """Train an encoder without labels, by `ViewsLoss` behind an MLP; keep the last epoch, the only one validated."""
    own = settings.self_supervised
    changes = {"epochs": own.epochs, "validate_every": own.epochs, "augment": own.augment, "mixup": 0.0}
    network: dict[str, Any] = settings.model_dump(include=NETWORK) | {"embed_dim": 0}
    encoder = Encoder(settings.encoder, split.x.shape[1:], 0, **network)
    encoder.classifier = nn.Sequential(  # type: ignore[assignment]
        nn.Linear(encoder.dim, encoder.dim), nn.ReLU(), nn.Linear(encoder.dim, PROJECTED)
    )
    loss, options = ViewsLoss(settings.supcon_temperature), {"seed": seed, "device": device, "resume": checkpoint}
    with epoch_progress(label, own.epochs) as progress:
        history = train_encoder(split, encoder, loss, settings.model_copy(update=changes), **options, progress=progress)
    add_linear_head(encoder, split, device, settings.bf16)
    return encoder, history


def fixed_encoder(split: Split, settings: TrainEmbedder, seed: int) -> Encoder:
    """Make an encoder that is not trained.

    - raw: the values, those of images standardised per channel on bank rows; tables are standardised already.
    - pca: `raw` in its first `embed_dim` principal components of bank rows.
    - pretrained: the features of a ResNet with the `weights`.
    """
    shape = split.x.shape[1:]
    if settings.representation == "pretrained":
        return pretrained_encoder(shape, Path(settings.weights), settings.input_size, settings.flip_average)
    x = np.asarray(split.x)[split.rows(BANK)]
    encoder = Encoder("raw", shape, 0, [], 0).eval()
    if split.is_image:
        encoder.fit_normalisation(x)
    if settings.representation == "raw":
        return encoder
    with torch.inference_mode():
        values = ((torch.from_numpy(x) - encoder.mean) / encoder.std).flatten(1).numpy()
    pca = PCA(min(settings.embed_dim or COMPONENTS, *values.shape), random_state=seed).fit(values)
    projected = Encoder("raw", shape, 0, [], pca.n_components_)
    state = {"projection.weight": pca.components_, "projection.bias": pca.transform(np.zeros_like(values[:1]))[0]}
    projected.load_state_dict(encoder.state_dict() | {name: torch.from_numpy(value) for name, value in state.items()})
    return projected


def pretrained_encoder(shape: Sequence[int], path: Path, input_size: int, flip_average: bool) -> Encoder:
    """Load the weights of a torchvision ResNet, whose number of layers they tell.

    Args:
        shape: (C, H, W) of the images, C 1 or 3.
        path: a state dict written by `torch.save`, or a .safetensors file.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    where = f"train_embedder.weights: {path}"
    require(path.is_file(), f"{where}: no such file; put the state dict of a torchvision ResNet there")
    try:
        whole = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
        state = {name: tensor for name, tensor in whole.items() if not name.startswith("fc.")}
        layers = 1 + sum(bool(re.search(r"conv\d\.weight$", name)) for name in state)
        require(f"resnet{layers}" in RESNETS, "no convolutions of a ResNet's depth")
        encoder = Encoder(f"resnet{layers}", shape, 0, [], 0, flip_average=flip_average, input_size=input_size)
        encoder.backbone.load_state_dict(state)
    except Exception as error:  # unpickling raises anything
        remedy = f"take one of {', '.join(RESNETS)} and write it by torch.save(model.state_dict(), {path.name!r})"
        raise InputError(f"{where}: no state dict of a torchvision ResNet ({error!s:.100}); {remedy}") from None
    return encoder


def add_linear_head(encoder: Encoder, split: Split, device: str, bf16: bool) -> tuple[np.ndarray, np.ndarray]:
    """Give an encoder without a linear head one, fitted to the bank's labels by logistic regression.

    As the head of an encoder that is trained with one, it reads e, not the unit vector.

    Returns:
        e of bank and of val rows.
    """
    encoder.classifier = nn.Identity()  # type: ignore[assignment]  # so that its logits are e, times head_scale
    x, bank, val = np.asarray(split.x), split.rows(BANK), split.rows(VAL)
    e_bank, e_val = (np.asarray(embed(encoder, x[rows], device, bf16)[1]) for rows in (bank, val))
    weight, bias = logistic_regression(e_bank, split.y[bank], e_val, split.y[val], len(split.classes))
    encoder.classifier = nn.Linear(*weight.T.shape)
    with torch.no_grad():
        encoder.classifier.weight.copy_(torch.from_numpy(weight))
        encoder.classifier.bias.copy_(torch.from_numpy(bias / encoder.head_scale))
    encoder.config["n_classes"] = len(split.classes)
    return e_bank, e_val


def classifier_settings(settings: TrainEmbedder) -> TrainEmbedder:
    """Settings of the same backbone as a plain classifier: cross-entropy only, on the backbone's features."""
    losses = Losses(**dict.fromkeys(Losses.model_fields, 0.0) | {"cross_entropy": 1.0})
    return settings.model_copy(update={"representation": "trained", "losses": losses, "embed_dim": 0, "folds": 0})


def fit_and_embed(
    split: Split,
    settings: TrainEmbedder,
    seed: int,
    device: str,
    label: str,
    classifier: bool = False,
    checkpoint: Path | None = None,
) -> tuple[Embeddings, list[Row]]:
    """Train an encoder, or the same backbone as a plain classifier; embeddings of every row, and a row per epoch."""
    settings = classifier_settings(settings) if classifier else settings
    judged_by = "logits" if classifier else "knn"
    encoder, history = fit_encoder(split, settings, seed, device, label, checkpoint, judged_by)
    return embed_split(encoder, split, device, settings.bf16), history


def fit_plain_classifier(
    split: Split,
    settings: TrainEmbedder,
    seed: int,
    device: str,
    label: str,
    checkpoint: Path,
    embeddings: Embeddings,
    best: Row,
) -> tuple[Embeddings, list[Row]]:
    """Train the same backbone as a plain classifier, unless the encoder is one and `separate_network` is off.

    One that is trained beside an encoder with the same settings starts from another seed.

    Args:
        embeddings, best: of the encoder with these settings, and the row of its best epoch.
    """
    same = settings.model_copy(update={"folds": 0}) == classifier_settings(settings)
    if same and not settings.separate_network:
        assert embeddings.logits is not None, "trained by cross-entropy"
        rows = embeddings.rows(VAL)
        accuracy, nll = linear_score(np.asarray(embeddings.logits)[rows], np.asarray(embeddings.y)[rows])
        return embeddings, [best | {"val_accuracy": accuracy, "val_nll": nll}]
    return fit_and_embed(split, settings, seed + same, device, label, classifier=True, checkpoint=checkpoint)


def best_classifier(split: Split, choices: Sequence[TrainEmbedder], seed: int, device: str, label: str) -> Embeddings:
    """Train a plain classifier with each of the settings; embeddings of the one with the best validation accuracy."""
    fitted = [fit_and_embed(split, settings, seed, device, label, classifier=True) for settings in choices]
    return max(fitted, key=lambda pair: summary(pair[1])[0]["val_accuracy"])[0]
