"""Which rows each fold of a cross-fit holds out, so that these become queries that their encoder never saw."""

import dataclasses

import numpy as np
from sklearn.model_selection import StratifiedKFold

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import require


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
        f"crossfit.folds: {folds}; the rarest class has {fewest} bank rows, so 2 … {fewest} can be had, or 0 for none",
    )
    made = []
    for _, held in StratifiedKFold(folds, shuffle=True, random_state=seed).split(bank, y[bank]):
        rows = bank[held]
        rows = rows[np.argsort(y[rows], kind="stable")]  # every second of them is stratified too
        of_fold = np.where(part == BANK, BANK, TEST).astype(part.dtype)
        of_fold[rows[::2]], of_fold[rows[1::2]] = FIT, VAL
        made.append(dataclasses.replace(split, part=of_fold))
    return made
