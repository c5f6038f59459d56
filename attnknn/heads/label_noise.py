"""Wrong labels: estimate from neighbours how classes are confused, and correct the bank's labels.

The noise model is a transition matrix T[c, g] = P(given label g | true class c), the same for all rows of a class. A
head is fitted through it by forward correction, −log Σ_c p(c)·T[c, g] (Patrini et al. 2017), so that p is the
probability of the true class although no label is known to be right.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attnknn.core.artifacts import BANK, TEST
from attnknn.core.errors import InputError, require
from attnknn.heads.classify import classify
from attnknn.heads.fit import fit_head
from attnknn.heads.registry import LearnedHead
from attnknn.neighbours.space import EmbeddingSpace, label_votes
from attnknn.neighbours.statistics import neighbour_statistics

NEIGHBOURS = 20  # whose labels are the first guess of a row's class
SURE = 0.92  # mean probability of the surest rows' classes, above which their labels are counted
RIGHT = 0.02  # share of wrong labels up to which all are taken as right
PRECISE = 30  # surest rows a class, of which a share of 0.6 has a standard error of 0.09
# Share of the class shares in every answer: through T, a probability of 0.99 has nearly the loss of 1.
DOUBT = 0.01
_FEWEST = 5  # rows to count of a class
_TINY = float(np.finfo(np.float32).tiny)


class LabelNoise(NamedTuple):
    """Estimated label noise.

    Attributes:
        transition: T.
        head: attention by neighbours alone, fitted through T.
        wrong: estimated share of wrong labels among the rows.
        sure: mean probability of the classes of the rows that T is estimated from.
        evident: whether these are enough (see `PRECISE`), and both `wrong` and their share of labels of another class,
            less two standard errors, are above `RIGHT`.
    """

    transition: Float[np.ndarray, "C C"]
    head: LearnedHead
    wrong: float
    sure: float
    evident: bool


def check_transition(transition: Any, n_classes: int) -> Float[np.ndarray, "C C"]:
    """T as float64; InputError unless it is (C, C) with rows of probabilities that sum to 1."""
    try:
        matrix = np.asarray(transition, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"label_noise: no matrix of numbers ({error!s:.100})") from None
    size = (n_classes, n_classes)
    require(matrix.shape == size, f"label_noise: a matrix of shape {matrix.shape}; give {size}, a row a true class")
    valid = bool((matrix >= 0).all()) and np.allclose(matrix.sum(1), 1, atol=1e-6)
    require(valid, "label_noise: rows must be probabilities of the given labels that sum to 1, one row a true class")
    return matrix


def surest(probs: Float[np.ndarray, "N C"]) -> list[Int[np.ndarray, " M"]]:
    """Of each class, half of the rows predicted as it, with its highest probabilities."""
    top = probs.argmax(1)
    # Ties in random order: rows sorted by label would else be counted by label.
    order = np.lexsort((np.random.default_rng(0).random(len(probs)), -probs.max(1)))
    by_class = [order[top[order] == c] for c in range(probs.shape[1])]
    return [rows[: max(_FEWEST, len(rows) // 2)] for rows in by_class]


def count_labels(probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"]) -> Float[np.ndarray, "C C"]:
    """T by the labels of each class's surest rows, which must not have taken part in `probs`; see `surest`.

    A class that is never predicted keeps its labels.
    """
    n_classes = probs.shape[1]
    transition = np.eye(n_classes)
    for c, rows in enumerate(surest(probs)):
        if len(rows):
            transition[c] = np.bincount(y[rows], minlength=n_classes) / len(rows)
    return transition


def posterior(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"], transition: Float[np.ndarray, "C C"]
) -> Float[np.ndarray, "N C"]:
    """P(true class c | row, given label g) ∝ p_c·T[c, g]."""
    joint = np.maximum(probs * transition[:, y].T, _TINY)
    return joint / joint.sum(1, keepdims=True)


def expect_labels(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"], transition: Float[np.ndarray, "C C"], steps: int = 20
) -> Float[np.ndarray, "C C"]:
    """T of highest likelihood for the surest rows by expectation maximisation from `transition`, given `probs`."""
    rows = np.concatenate(surest(probs))
    for _ in range(steps):
        onehot = np.eye(len(transition))[y[rows]]
        counts = posterior(probs[rows], y[rows], transition).T @ onehot
        transition = counts / counts.sum(1, keepdims=True)
    return transition


def estimate_label_noise(
    spaces: Sequence[EmbeddingSpace], transition: np.ndarray | None = None, **fitting: Any
) -> LabelNoise:
    """Estimate T without a clean label, or take a known one, and fit a head through it.

    1. T ← labels of the rows with the surest votes of 20 neighbours.
    2. Fit attention through T; T ← labels of the rows that it is surest of.
    3. Where it is not sure enough of these (see `SURE`), T ← expectation maximisation on them instead.

    Labels of test rows are not read.

    Args:
        spaces: the main space, whose rows T is estimated from, then those of cross-fitting folds, if any.
        transition: known T; None to estimate it.
        fitting: arguments of `fit_head`.
    """
    e = spaces[0].embeddings
    y, rows = np.asarray(e.y), np.flatnonzero(np.asarray(e.part) != TEST)
    known = transition is not None
    current = transition if known else count_labels(label_votes(spaces[0], y, rows, NEIGHBOURS), y[rows])
    head, _ = fit_head(spaces, transition=current, **fitting)
    probs = classify(head, spaces[0], rows, fitting["k_train"], fitting["device"]).astype(np.float64)
    chosen = np.concatenate(surest(probs))
    sure = float(probs[chosen].max(1).mean())
    if not known:
        current = count_labels(probs, y[rows]) if sure >= SURE else expect_labels(probs, y[rows], current)
    wrong = 1 - float(posterior(probs, y[rows], current)[np.arange(len(rows)), y[rows]].mean())
    other = probs[chosen].argmax(1) != y[rows][chosen]
    evident = bool(other.mean() - 2 * other.std() / np.sqrt(len(other)) > RIGHT)
    evident &= wrong > RIGHT and len(chosen) >= PRECISE * len(current)
    return LabelNoise(current, head, wrong, sure, evident)


def draw_labels(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"], transition: Float[np.ndarray, "C C"], seed: int
) -> Int[np.ndarray, " N"]:
    """Draw true classes from their `posterior`, so that votes keep its uncertainty, as the most probable would not."""
    cumulative = posterior(probs, y, transition).cumsum(1)
    return (cumulative > cumulative[:, -1:] * np.random.default_rng(seed).random((len(y), 1))).argmax(1)


def correct_labels(space: EmbeddingSpace, noise: LabelNoise, seed: int, device: str = "cpu") -> Int[np.ndarray, " N"]:
    """A copy of the labels with `draw_labels` of the bank rows, each predicted without itself.

    A class that would lose all its rows keeps them. Labels of fit and val rows stay as given, since a head is fitted
    and validated through T.
    """
    e = space.embeddings
    rows, y = e.rows(BANK), np.array(e.y)
    probs = classify(noise.head, space, rows, space.neighbours.ids.shape[1], device)
    drawn = draw_labels(probs.astype(np.float64), y[rows], noise.transition, seed)
    y[rows] = np.where(np.isin(y[rows], np.setdiff1d(y[rows], drawn)), y[rows], drawn)
    return y


def significantly_above(losses: Float[np.ndarray, " M"], others: Float[np.ndarray, " M"]) -> bool:
    """Whether the mean of paired losses is above that of others by two standard errors.

    Corrected labels are kept unless it is, for the losses of val labels as given: through T the loss is blunt, so that
    the lowest mean alone would often keep wrong labels.
    """
    difference = losses - others
    return bool(difference.mean() > 2 * difference.std() / np.sqrt(len(difference)))


def with_labels(space: EmbeddingSpace, y: np.ndarray) -> EmbeddingSpace:
    """The same space with other labels (N,), and the neighbour statistics that follow from them."""
    e = dataclasses.replace(space.embeddings, y=y)
    return dataclasses.replace(
        space, embeddings=e, statistics=neighbour_statistics(e, space.neighbours, space.statistics.sizes)
    )


def with_corrected_labels(
    spaces: Sequence[EmbeddingSpace], noise: LabelNoise, seed: int, device: str = "cpu"
) -> list[EmbeddingSpace]:
    """The spaces with `correct_labels` of each, so that no label of a held-out row is read in its own space."""
    return [with_labels(space, correct_labels(space, noise, seed, device)) for space in spaces]
