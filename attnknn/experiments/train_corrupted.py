"""Train encoders and plain networks on wrong labels or rare classes.

Labels are cleaned by k-NN editing (Wilson 1972) in a learned space, as in deep k-NN (Bahri et al. 2020) and SSR+ (Feng
et al. 2022).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, VAL, Split
from attnknn.core.files import write_json
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.fit import best_classifier, fit_and_embed
from attnknn.experiments.corruption import NETWORK, NETWORKS, with_rare_classes, with_wrong_labels
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace, label_votes


def choose_k(space: EmbeddingSpace, y: np.ndarray, ks: Sequence[int]) -> int:
    """Select the k of highest kNN accuracy on the val rows, with labels y (N,) that may be wrong; ties to the larger k.

    If the label noise does not depend on the neighbours, the k of highest accuracy on noisy labels is also that of
    highest accuracy on the true ones.
    """
    rows = space.embeddings.rows(VAL)
    return max(ks, key=lambda k: (float((label_votes(space, y, rows, k).argmax(1) == y[rows]).mean()), k))


def clean_labels(space: EmbeddingSpace, y: np.ndarray, k: int) -> np.ndarray:
    """A copy of labels y (N,) in which each bank row has the most frequent label of its k nearest other bank rows.

    A row keeps its label on a tie. There is no threshold: at a high noise rate the true class has the most votes, but
    rarely the majority. A class that would lose all its rows keeps them, since it could not be predicted otherwise.

    Labels of fit and val rows are unchanged, wrong ones too: cleaned by the same votes they would agree with kNN, and
    everything fitted or calibrated on them would be overconfident; see `trained_on_corruption`.
    """
    rows, cleaned = space.embeddings.rows(BANK), np.array(y)
    votes = label_votes(space, y, rows, k)
    own = votes[np.arange(len(rows)), y[rows]]
    cleaned[rows] = np.where(own >= votes.max(1), y[rows], votes.argmax(1))
    missing = np.setdiff1d(y[rows], cleaned[rows])
    return np.where(np.isin(y, missing), y, cleaned)


def quality(true: np.ndarray, labels: np.ndarray, cleaned: np.ndarray) -> dict[str, float]:
    """Effect of cleaning on labels (N,); it selects nothing.

    Returns:
        wrong_before, wrong_after: shares of all rows; mended: share of the wrong labels that cleaning corrected;
        spoiled: share of the right labels that it made wrong. Shares of no rows are 0.
    """
    before, after = labels != true, cleaned != true
    return {
        "wrong_before": float(before.mean()),
        "wrong_after": float(after.mean()),
        "mended": float((before & ~after).sum() / max(1, before.sum())),
        "spoiled": float((~before & after).sum() / max(1, (~before).sum())),
    }


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
