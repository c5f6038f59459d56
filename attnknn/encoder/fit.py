"""Train an encoder, or the same backbone as a plain classifier, from its settings."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from attnknn.core.artifacts import BANK, VAL, Embeddings, Split
from attnknn.core.progress import epoch_progress
from attnknn.encoder.config import Losses, TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed, embed_split
from attnknn.encoder.losses import EncoderLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.numeric_embeddings import fit_numeric
from attnknn.encoder.train import Row, linear_score, summary, train_encoder
from attnknn.nn.linear_probe import logistic_regression

LOSS = {"label_smoothing", "supcon_temperature", "proxy_margin", "proxy_alpha", "contrastive_margin"}
VOTES = {"knn", "entropy", "calibration"}  # terms of `NeighbourLoss`
NETWORK = {"pretrained", "widths", "depth", "embed_dim", "dropout", "flip_average"}


def fit_encoder(
    split: Split,
    settings: TrainEmbedder,
    seed: int,
    device: str,
    label: str,
    checkpoint: Path | None = None,
    judged_by: str = "knn",
) -> tuple[Encoder, list[Row]]:
    """Train an encoder on the bank rows of a split.

    Args:
        label: label of the progress bar.
        checkpoint, judged_by: see `train_encoder`.

    Returns:
        The encoder with the weights of its best epoch, and a row per epoch; see `train_encoder`. Trained without
        cross-entropy, it has the linear head of `add_linear_head`.
    """
    torch.manual_seed(seed)
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


def add_linear_head(encoder: Encoder, split: Split, device: str, bf16: bool) -> None:
    """Give an encoder without a linear head one, fitted to the bank's labels by logistic regression.

    As the head of an encoder that is trained with one, it reads e, not the unit vector.
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


def classifier_settings(settings: TrainEmbedder) -> TrainEmbedder:
    """Settings of the same backbone as a plain classifier: cross-entropy only, on the backbone's features."""
    losses = Losses(**dict.fromkeys(Losses.model_fields, 0.0) | {"cross_entropy": 1.0})
    return settings.model_copy(update={"losses": losses, "embed_dim": 0, "folds": 0})


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
    """Train the same backbone as a plain classifier, unless the encoder is one.

    Args:
        embeddings, best: of the encoder with these settings, and the row of its best epoch.
    """
    if settings.model_copy(update={"folds": 0}) == classifier_settings(settings):
        assert embeddings.logits is not None, "trained by cross-entropy"
        rows = embeddings.rows(VAL)
        accuracy, nll = linear_score(np.asarray(embeddings.logits)[rows], np.asarray(embeddings.y)[rows])
        return embeddings, [best | {"val_accuracy": accuracy, "val_nll": nll}]
    return fit_and_embed(split, settings, seed, device, label, classifier=True, checkpoint=checkpoint)


def best_classifier(split: Split, choices: Sequence[TrainEmbedder], seed: int, device: str, label: str) -> Embeddings:
    """Train a plain classifier with each of the settings; embeddings of the one with the best validation accuracy."""
    fitted = [fit_and_embed(split, settings, seed, device, label, classifier=True) for settings in choices]
    return max(fitted, key=lambda pair: summary(pair[1])[0]["val_accuracy"])[0]
