"""Train encoders and plain networks on wrong labels or rare classes."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, Split
from attnknn.core.files import write_json
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.fit import best_classifier, fit_and_embed
from attnknn.experiments.corruption import NETWORK, NETWORKS, with_rare_classes, with_wrong_labels
from attnknn.experiments.label_cleaning import choose_k, clean_labels, quality
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace


def train_on_noise(
    clean: Split,
    kind: str,
    rate: float,
    settings: TrainEmbedder,
    rounds: int,
    share: float,
    search: Mapping[str, Any],
    seed: int,
    label: str,
    out: Path,
) -> None:
    """Train on noisy and on cleaned labels; write the spaces and networks to folders in `out`.

    Encoders stop early, before they memorise wrong labels; plain networks have the number of epochs that is best on
    val.

    Args:
        rounds: of label cleaning and training.
        share: of the epochs for encoders.
        search: k_max, sizes, metric, device of `retrieve`.
    """
    device = search["device"]
    short = settings.model_copy(update={"epochs": max(1, round(share * settings.epochs))})
    noisy = with_wrong_labels(clean, rate, kind, np.random.default_rng(seed))

    def embedded(split: Split, number: int = 0) -> EmbeddingSpace:
        return retrieve(fit_and_embed(split, short, seed, device, f"{label}, round {number}")[0], **search)

    space, labels = embedded(noisy), []
    space.save(out / "plain")
    for number in range(1, rounds + 1):
        # Every round votes with the original labels, so that errors of a round do not carry over to the next.
        labels.append(clean_labels(space, noisy.y, choose_k(space, noisy.y, search["sizes"])))
        space = embedded(dataclasses.replace(noisy, y=labels[-1]), number)
    space.save(out / "cleaned")
    for network, y in zip(NETWORKS, (noisy.y, labels[-1]), strict=True):
        split = dataclasses.replace(noisy, y=y)
        best_classifier(split, [short, settings], seed, device, f"{label}, {network}").save(out / network)
    bank = noisy.rows(BANK)
    write_json(out / "cleaning.json", {"rounds": [quality(clean.y[bank], noisy.y[bank], y[bank]) for y in labels]})


def train_on_imbalance(
    split: Split,
    kind: str,
    ratio: float,
    settings: TrainEmbedder,
    search: Mapping[str, Any],
    seed: int,
    label: str,
    out: Path,
) -> None:
    """Train an encoder and a plain network on rare classes; write space and network to folders in `out`."""
    rare = with_rare_classes(split, ratio, kind, np.random.default_rng(seed))
    device = search["device"]
    retrieve(fit_and_embed(rare, settings, seed, device, label)[0], **search).save(out / "plain")
    fit_and_embed(rare, settings, seed, device, f"{label}, {NETWORK}", classifier=True)[0].save(out / NETWORK)
