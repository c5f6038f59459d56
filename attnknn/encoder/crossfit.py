"""Cross-fitting: bank rows embedded by encoders that were not trained on them, as more fit and val rows."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from sklearn.model_selection import StratifiedKFold

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Split
from attnknn.core.duplicates import first_identical, split_groups
from attnknn.core.errors import require
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.fit import fit_and_embed


def fold_splits(split: Split, folds: int, seed: int, refit: bool = False) -> list[Split]:
    """Stratified folds of the bank, each a split of the same rows for an encoder of its own.

    Half of the bank rows that a fold holds out become its fit rows, half its val rows; the others stay its bank. All
    other rows become test rows, which no fold reads. Identical rows and groups are in one fold and in one half of it;
    see `split_groups`.

    Args:
        refit: fit and val rows count as bank rows: for encoders refitted after heads and baselines are tuned.

    Raises:
        InputError: a class has fewer distinct bank rows than there are folds.
    """
    y, part = np.asarray(split.y), split.part
    if refit:
        part = np.where(part == TEST, part, BANK).astype(part.dtype)
    bank = np.flatnonzero(part == BANK)
    x = np.asarray(split.x)[bank]
    first = split_groups(first_identical(x), x, None if split.groups is None else split.groups[bank])
    distinct = bank[first == np.arange(len(bank))]
    n = int(np.bincount(y[distinct]).min())
    kind = "bank rows" if len(distinct) == len(bank) else "distinct bank rows"
    message = f"train_embedder.folds: {folds}; the rarest class has {n} {kind}; give 2 … {n}, or 0 for none"
    require(2 <= folds <= n, message)
    splits = []
    for _, idx in StratifiedKFold(folds, shuffle=True, random_state=seed).split(distinct, y[distinct]):
        rows = distinct[idx]
        rows = rows[np.argsort(y[rows], kind="stable")]  # so that every second row is a stratified half
        fold_part = np.where(part == BANK, BANK, TEST).astype(part.dtype)
        fold_part[rows[::2]], fold_part[rows[1::2]] = FIT, VAL
        fold_part[bank] = fold_part[bank[first]]
        splits.append(dataclasses.replace(split, part=fold_part))
    return splits


def fold_embeddings(
    split: Split, settings: TrainEmbedder, seed: int, device: str, label: str, refit: bool = False
) -> Iterator[Embeddings]:
    """Train an encoder per fold and embed every row with it; yield nothing if `settings.folds` is 0.

    Args:
        refit: see `fold_splits`.
    """
    splits = fold_splits(split, settings.folds, seed, refit) if settings.folds else []
    for i, fold in enumerate(splits, 1):
        yield fit_and_embed(fold, settings, seed, device, f"{label} {i}/{len(splits)}")[0]
