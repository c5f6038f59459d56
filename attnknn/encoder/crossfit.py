"""Cross-fitting: bank rows embedded by encoders that did not see them, as more queries to fit and tune on."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from sklearn.model_selection import StratifiedKFold

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Split
from attnknn.core.errors import require
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.fit import fit_and_embed


def fold_splits(split: Split, folds: int, seed: int, refit: bool = False) -> list[Split]:
    """The same rows with other parts in each fold, for an encoder of its own: stratified, each bank row held out once.

    Half of the rows that a fold holds out become its fit rows, half its val rows; the other bank rows stay its bank.
    The rows that all folds hold out count as test rows, which no fold reads.

    Args:
        refit: fit and val rows are bank rows too: for encoders trained anew once heads and baselines are tuned.

    Raises:
        InputError: a class has fewer bank rows than there are folds.
    """
    y, part = np.asarray(split.y), split.part
    if refit:
        part = np.where(part == TEST, part, BANK).astype(part.dtype)
    bank = np.flatnonzero(part == BANK)
    fewest = int(np.bincount(y[bank]).min())
    require(
        2 <= folds <= fewest,
        f"train_embedder.folds: {folds}; the rarest class has {fewest} bank rows; give 2 … {fewest}, or 0 for none",
    )
    splits = []
    for _, held in StratifiedKFold(folds, shuffle=True, random_state=seed).split(bank, y[bank]):
        rows = bank[held]
        rows = rows[np.argsort(y[rows], kind="stable")]  # every second of them is stratified too
        fold_part = np.where(part == BANK, BANK, TEST).astype(part.dtype)
        fold_part[rows[::2]], fold_part[rows[1::2]] = FIT, VAL
        splits.append(dataclasses.replace(split, part=fold_part))
    return splits


def fold_embeddings(
    split: Split, settings: TrainEmbedder, seed: int, device: str, label: str, refit: bool = False
) -> Iterator[Embeddings]:
    """Train an encoder per fold and embed every row with it; nothing where `settings.folds` is 0.

    Args:
        refit: see `fold_splits`.
    """
    splits = fold_splits(split, settings.folds, seed, refit) if settings.folds else []
    for fold, held_out in enumerate(splits):
        yield fit_and_embed(held_out, settings, seed, device, f"{label} {fold + 1}/{len(splits)}")[0]
