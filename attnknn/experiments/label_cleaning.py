"""Wrong labels found and mended by the neighbours of the rows that carry them, and a temperature for what is left.

k-NN editing (Wilson 1972) in a learned space, as deep k-NN (Bahri et al. 2020) and SSR+ (Feng et al. 2022) do. All of
it reads the labels as they are given, wrong ones among them; only `quality`, which chooses nothing, knows the truth.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from attnknn.core.artifacts import BANK, VAL, Split
from attnknn.neighbours.space import EmbeddingSpace

_TINY = float(np.finfo(np.float32).tiny)


def label_votes(space: EmbeddingSpace, y: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """Share of each label among the k nearest bank rows of the given rows, none its own neighbour: float64 (M, C).

    Args:
        y: (N,) the labels that vote.
        rows: (M,) row ids.
        k: at most what is stored is taken.
    """
    ids = space.neighbours.take(rows, min(k, space.neighbours.ids.shape[1]))[0]  # (M, K)
    c, rows_idx = len(space.embeddings.classes), np.arange(len(rows))[:, None]
    votes = np.bincount((rows_idx * c + y[ids])[ids >= 0], minlength=len(rows) * c).reshape(len(rows), c)
    return votes / votes.sum(1, keepdims=True)


def choose_k(space: EmbeddingSpace, y: np.ndarray, ks: Sequence[int]) -> int:
    """The k whose votes name most labels y (N,) of the val rows as they are given; ties go to the larger k.

    As long as wrong labels are no rule that neighbours share, who names most given labels names most true ones too.
    """
    rows = space.embeddings.rows(VAL)
    return max(ks, key=lambda k: (float((label_votes(space, y, rows, k).argmax(1) == y[rows]).mean()), k))


def clean_labels(space: EmbeddingSpace, y: np.ndarray, k: int) -> np.ndarray:
    """A copy of labels y (N,) in which each bank row carries the class that most of its k nearest other ones carry.

    A row whose own label has as many votes as any other keeps it. There is no threshold: at a high noise rate the true
    class of a row has the most votes, but seldom the majority. A class that nobody votes for keeps its rows, for a
    memory without it could never answer it.

    Labels of fit and val rows stay, wrong ones too: cleaned by the votes of this memory they would say what it says,
    and whatever is fitted, tuned or calibrated on them would be told it is right. `forward_temperature` is for these.
    """
    rows, cleaned = space.embeddings.rows(BANK), np.array(y)
    votes = label_votes(space, y, rows, k)
    own = votes[np.arange(len(rows)), y[rows]]
    cleaned[rows] = np.where(own >= votes.max(1), y[rows], votes.argmax(1))
    lost = np.setdiff1d(y[rows], cleaned[rows])
    return np.where(np.isin(y, lost), y, cleaned)


def clean_in_rounds(
    data: Split, plain: EmbeddingSpace, embed: Callable[[Split, int], EmbeddingSpace], ks: Sequence[int], rounds: int
) -> tuple[EmbeddingSpace, list[np.ndarray]]:
    """Clean, train on what was cleaned, and clean the given labels again in that better space, some times over.

    Each round votes with the labels as they were given, so that an error of one round is no evidence in the next.

    Args:
        data: rows with the labels as they are given.
        plain: their embeddings by an encoder that was trained on these labels.
        embed: trains an encoder on a Split and retrieves; given the number of the round, from 1.
        ks: what `choose_k` chooses among.

    Returns:
        What the last round retrieved, and the labels (N,) after each round.
    """
    space, labels = plain, []
    for number in range(1, rounds + 1):
        labels.append(clean_labels(space, data.y, choose_k(space, data.y, ks)))
        space = embed(dataclasses.replace(data, y=labels[-1]), number)
    return space, labels


def transitions(labels: np.ndarray, cleaned: np.ndarray, n_classes: int) -> np.ndarray:
    """T[c, g] = share of label g among the rows (N,) that were cleaned to class c: float64 (C, C), rows sum to 1.

    An estimate of P(given label | true class) (Patrini et al. 2017). A row that kept its label is added to each class.
    """
    counts = np.eye(n_classes)
    np.add.at(counts, (cleaned, labels), 1)
    return counts / counts.sum(1, keepdims=True)


def forward_temperature(probs: np.ndarray, labels: np.ndarray, transition: np.ndarray) -> float:
    """The temperature t under which p^(1/t), normalised, explains labels of which some are wrong.

        t = argmin −Σᵢ log Σ_c pᵢ(c; t)·T[c, gᵢ]     (the forward correction of Patrini et al. 2017, for one parameter)

    What is fitted on wrong labels answers how likely each *given* label is, and so is far too unsure of the true class;
    no temperature that is fitted to these labels as they are could tell.

    Args:
        probs: (N, C), rows sum to 1, above 0.
        labels: (N,), wrong ones among them, of rows that `probs` was not fitted on.
        transition: T (C, C), see `transitions`.
    """
    log_p = np.log(np.maximum(probs.astype(np.float64), _TINY))
    towards = transition[:, labels].T  # (N, C)

    def loss(log_t: float) -> float:
        return -float(np.log((softmax(log_p / np.exp(log_t), axis=1) * towards).sum(1)).mean())

    result: Any = minimize_scalar(loss, bounds=(-3, 3), method="bounded")
    return float(np.exp(result.x)) if loss(result.x) < loss(0.0) else 1.0


def sharpened(probs: np.ndarray, temperature: float) -> np.ndarray:
    """p^(1/t), normalised: float32 (N, C), rows sum to 1 and none is 0."""
    log_p = np.log(np.maximum(probs.astype(np.float64), _TINY))
    p = np.maximum(softmax(log_p / temperature, axis=1), 2 * _TINY)
    return (p / p.sum(1, keepdims=True)).astype(np.float32)


def quality(true: np.ndarray, labels: np.ndarray, cleaned: np.ndarray) -> dict[str, float]:
    """How cleaning changed labels (N,): `wrong_before`, `wrong_after` (shares of all rows), `mended` and `spoiled`.

    mended: of the wrong labels, the share that is right now; spoiled: of the right ones, the share that is wrong now.
    Where there is none of a kind, the share is 0.
    """
    before, after = labels != true, cleaned != true
    return {
        "wrong_before": float(before.mean()),
        "wrong_after": float(after.mean()),
        "mended": float((before & ~after).sum() / max(1, before.sum())),
        "spoiled": float((~before & after).sum() / max(1, (~before).sum())),
    }
