"""The same embeddings under a memory that is not as it should be: wrong labels, rare classes. Queries stay."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from attnknn.artifacts import BANK
from attnknn.corrupt import long_tail, symmetric_noise
from attnknn.evidence import gather_evidence
from attnknn.gather import retrieve
from attnknn.neighbourhood import Retrieved


def with_noise(of: Sequence[Retrieved], rate: float, rng: np.random.Generator) -> list[Retrieved]:
    """The same memories, round(rate·N) rows of the first one's bank labelled as another class, at random.

    Neighbours stay, since they know no labels; what their labels say of them is gathered again.

    Args:
        of: several embeddings of the same rows, as of a cross-fit; the first has the largest bank.
    """
    first = of[0].embeddings
    bank, y = first.rows(BANK), np.array(first.y)
    y[bank] = symmetric_noise(y[bank], rate, len(first.classes), rng)
    made = []
    for one in of:
        e = one.embeddings
        noisy = dataclasses.replace(e, y=np.where(e.part == BANK, y, e.y))
        made.append(Retrieved(noisy, one.neighbours, gather_evidence(noisy, one.neighbours, one.evidence.sizes)))
    return made


def with_long_tail(
    of: Sequence[Retrieved], ratio: float, rng: np.random.Generator, device: str = "cpu"
) -> list[Retrieved]:
    """The same embeddings with fewer bank rows, whose class sizes fall off to `ratio` of the largest.

    They are searched again, exactly. Row ids are those of the rows that are left. Args as for `with_noise`.
    """
    first = of[0].embeddings
    bank = first.rows(BANK)
    lost = np.zeros(len(first.y), dtype=bool)
    lost[bank] = True
    lost[bank[long_tail(np.asarray(first.y[bank]), ratio, rng)]] = False
    made = []
    for one in of:
        e = one.embeddings
        rows = np.flatnonzero(~(lost & (e.part == BANK)))
        logits = None if e.logits is None else e.logits[rows]
        left = dataclasses.replace(e, z=np.asarray(e.z[rows]), y=e.y[rows], part=e.part[rows], logits=logits)
        made.append(retrieve(left, one.neighbours.ids.shape[1], one.evidence.sizes, one.neighbours.metric, device))
    return made
