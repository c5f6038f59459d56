"""The same embeddings under a memory that is not as it should be: wrong labels, rare classes. Queries stay."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from attnknn.artifacts import BANK
from attnknn.corrupt import imbalanced, noisy_labels
from attnknn.evidence import gather_evidence
from attnknn.gather import retrieve
from attnknn.neighbourhood import Retrieved


def with_noise(
    of: Sequence[Retrieved], rate: float, rng: np.random.Generator, kind: str = "symmetric"
) -> list[Retrieved]:
    """The same memories, round(rate·N) rows of the first one's bank labelled as another class.

    Neighbours stay, since they know no labels; what their labels say of them is gathered again. Instance noise goes by
    the cosine of each row and the class means of the clean bank, in the first embeddings.

    Args:
        of: several embeddings of the same rows, as of a cross-fit; the first has the largest bank.
        kind: one of `corrupt.NOISES`.
    """
    first = of[0].embeddings
    bank, y = first.rows(BANK), np.array(first.y)
    scores = first.z[bank] @ of[0].evidence.prototypes.T if kind == "instance" else None
    y[bank] = noisy_labels(y[bank], rate, len(first.classes), kind, scores, rng)
    return relabelled(of, y)


def relabelled(of: Sequence[Retrieved], y: np.ndarray) -> list[Retrieved]:
    """The same memories, their bank rows labelled y (N,); the labels of all other rows stay."""
    made = []
    for one in of:
        e = one.embeddings
        noisy = dataclasses.replace(e, y=np.where(e.part == BANK, y, e.y))
        made.append(Retrieved(noisy, one.neighbours, gather_evidence(noisy, one.neighbours, one.evidence.sizes)))
    return made


def with_imbalance(
    of: Sequence[Retrieved],
    ratio: float,
    rng: np.random.Generator,
    device: str = "cpu",
    kind: str = "long_tail",
    most: int | None = None,
) -> list[Retrieved]:
    """The same embeddings with fewer bank rows, whose rarest class has `ratio` of the largest one's rows.

    They are searched again, exactly. Row ids are those of the rows that are left.

    Args:
        of: as for `with_noise`.
        kind: one of `corrupt.IMBALANCES`.
        most: neighbours that are searched for, beside those that the evidence needs; None for as many as before.
    """
    first = of[0].embeddings
    bank = first.rows(BANK)
    lost = np.zeros(len(first.y), dtype=bool)
    lost[bank] = True
    lost[bank[imbalanced(np.asarray(first.y[bank]), ratio, kind, rng)]] = False
    made = []
    for one in of:
        e = one.embeddings
        rows = np.flatnonzero(~(lost & (e.part == BANK)))
        logits = None if e.logits is None else e.logits[rows]
        left = dataclasses.replace(e, z=np.asarray(e.z[rows]), y=e.y[rows], part=e.part[rows], logits=logits)
        stored = one.neighbours.ids.shape[1]
        k = stored if most is None else min(stored, max(most, *one.evidence.sizes))
        made.append(retrieve(left, k, one.evidence.sizes, one.neighbours.metric, device))
    return made
