"""A dataset in which all that is learned from is corrupted; test rows stay as they are."""

import dataclasses

import numpy as np

from attnknn.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.corrupt import imbalanced, noisy_labels, resemblance

_LEARNED_FROM = (BANK, FIT, VAL)
NETWORK = "cross_entropy"  # the variant that is a plain network, trained with cross-entropy alone


def with_wrong_labels(split: Split, rate: float, kind: str, rng: np.random.Generator) -> Split:
    """The same rows, round(rate·N) labels wrong in each of bank, fit and val; the labels of test rows stay.

    Instance noise goes by how near each row as it is lies to the class means: no encoder has seen it yet.

    Args:
        kind: one of `corrupt.NOISES`.
    """
    y, c = np.array(split.y), len(split.classes)
    for part in _LEARNED_FROM:
        rows = split.rows(part)
        scores = resemblance(np.asarray(split.x[rows]), y[rows], c) if kind == "instance" else None
        y[rows] = noisy_labels(y[rows], rate, c, kind, scores, rng)
    return dataclasses.replace(split, y=y)


def with_rare_classes(split: Split, ratio: float, kind: str, rng: np.random.Generator) -> Split:
    """Fewer rows: bank, fit and val each fall off to `ratio`, and keep a row a class; test rows stay.

    Row ids are those of the rows that are left.

    Args:
        kind: one of `corrupt.IMBALANCES`.
    """
    kept = [split.rows(TEST)]
    for part in _LEARNED_FROM:
        rows = split.rows(part)
        kept.append(rows[imbalanced(np.asarray(split.y[rows]), ratio, kind, rng)])
    rows = np.sort(np.concatenate(kept))
    return dataclasses.replace(split, x=np.asarray(split.x[rows]), y=split.y[rows], part=split.part[rows])
