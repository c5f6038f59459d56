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
from scipy.special import softmax

from attnknn.core.artifacts import BANK, TEST
from attnknn.heads.classify import classify
from attnknn.heads.fit import fit_head
from attnknn.heads.registry import LearnedHead
from attnknn.heads.transition import (
    PRECISE,
    TINY,
    count_labels,
    expect_labels,
    lower_bound,
    posterior,
    share_of_wrong,
    sharpen,
)
from attnknn.neighbours.space import EmbeddingSpace, label_votes
from attnknn.neighbours.statistics import neighbour_statistics
from attnknn.nn.linear_probe import forward_regression

NEIGHBOURS = 20  # whose labels are the first guess of a row's class
FOLDS = 3  # of the bank, for logits that do not read a row's own label
STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # inverse penalties of the logistic regression that the head corrects
# Share of the class shares in every answer: through T, a probability of 0.99 has nearly the loss of 1.
DOUBT = 0.01
_MOST = 10_000  # rows to fit the logistic regression on


class LabelNoise(NamedTuple):
    """Estimated label noise.

    Attributes:
        transition: T; the identity unless evident.
        head: attention that corrects a logistic regression, fitted through T.
        strength: inverse penalty of this regression.
        sharpness: power of the head's probabilities, see `expect_labels`.
        wrong: estimated share of wrong labels among the rows.
        evident: see `share_of_wrong`.
    """

    transition: Float[np.ndarray, "C C"]
    head: LearnedHead
    strength: float
    sharpness: float
    wrong: float
    evident: bool


def with_forward_logits(
    space: EmbeddingSpace, transition: Float[np.ndarray, "C C"], strengths: Sequence[float] = STRENGTHS
) -> tuple[EmbeddingSpace, float]:
    """The space with logits of `forward_regression` on its bank rows, and the strength of the lowest NLL through T.

    Bank rows are predicted out of three folds, so that no row's own label is read; others by the mean of all logits.
    The strength is chosen on the first fold and the rows that are not of the bank.
    """
    e = space.embeddings
    z, y, bank = np.asarray(e.z), np.asarray(e.y), e.rows(BANK)
    weight = np.ones(len(y)) if space.log_weight is None else np.exp(space.log_weight)
    folds = np.array_split(np.random.default_rng(0).permutation(bank), FOLDS)

    def logits_without(i: int, strength: float) -> np.ndarray:
        rows = np.concatenate([*folds[i + 1 :], *folds[:i]])[:_MOST]
        coef, bias = forward_regression(z[rows], transition[:, y[rows]].T, weight[rows], strength)
        return z @ coef.T + bias

    def loss(logits: np.ndarray) -> float:
        rows = np.concatenate([folds[0], np.flatnonzero((e.part != TEST) & (e.part != BANK))])
        joint = softmax(logits[rows], axis=1) * transition[:, y[rows]].T
        return -float(np.log(np.maximum(joint.sum(1), TINY)).mean())

    first, strength = min(((logits_without(0, s), s) for s in strengths), key=lambda choice: loss(choice[0]))
    by_fold = [first, *(logits_without(i, strength) for i in range(1, FOLDS))]
    logits = np.asarray(np.mean(by_fold, axis=0), dtype=np.float32)
    for fold, own in zip(folds, by_fold, strict=True):
        logits[fold] = own[fold]
    return dataclasses.replace(space, embeddings=dataclasses.replace(e, logits=logits)), strength


def estimate_label_noise(
    spaces: Sequence[EmbeddingSpace], transition: np.ndarray | None = None, held_out: bool = False, **fitting: Any
) -> LabelNoise:
    """Estimate T without a clean label, or take a known one, and fit a head through it.

    1. T ← labels of the rows with the surest votes of 20 neighbours.
    2. Twice: fit a logistic regression and attention that corrects it through T; T ← `expect_labels` of all rows, each
       predicted without its own label, which only its neighbours' `agreement` counts.
    3. T ← identity unless wrong labels are evident.

    The labels of a class with fewer than `PRECISE` are taken as right.

    Labels of test rows are not read.

    Args:
        spaces: the main space, whose rows T is estimated from, then those of cross-fitting folds, if any.
        transition: known T; None to estimate it.
        held_out: count labels of fit and val rows alone, where an encoder was trained on the bank's: it has memorised
            some of the wrong ones, which seem right.
        fitting: arguments of `fit_head`.
    """
    e = spaces[0].embeddings
    y, rows = np.asarray(e.y), np.flatnonzero(~np.isin(e.part, (TEST, BANK) if held_out else TEST))
    counts = np.bincount(y[rows], minlength=len(e.classes))
    frequent, identity = counts >= PRECISE, np.eye(len(counts))
    fitting |= {"kind": "attention", "parts": {"features": fitting["parts"].get("features", ()), "linear": True}}

    def fit(transition: np.ndarray, strengths: Sequence[float]) -> tuple[LearnedHead, float, np.ndarray]:
        space, strength = with_forward_logits(spaces[0], transition, strengths)
        others = [with_forward_logits(other, transition, (strength,))[0] for other in spaces[1:]]
        head, _ = fit_head([space, *others], transition=transition, **fitting)
        return head, strength, classify(head, space, rows, fitting["k_train"], fitting["device"]).astype(np.float64)

    def of_frequent(transition: np.ndarray) -> np.ndarray:
        return np.where(frequent[:, None], transition, identity)

    if transition is not None:
        current = transition
        head, strength, probs = fit(current, STRENGTHS)
        _, sharpness = expect_labels(probs, y[rows], current, steps=0)
    else:
        current = of_frequent(count_labels(label_votes(spaces[0], y, rows, NEIGHBOURS), y[rows]))
        _, strength, probs = fit(current, STRENGTHS)
        current = of_frequent(expect_labels(probs, y[rows], current)[0])
        head, strength, probs = fit(current, (strength,))
        current, sharpness = expect_labels(probs, y[rows], current)
        current = of_frequent(current)
    wrong, evident = share_of_wrong(probs, y[rows], current, sharpness)
    if not evident and transition is None:
        current, wrong = identity, 0.0
    return LabelNoise(current, head, strength, sharpness, wrong, evident)


def draw_labels(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"], transition: Float[np.ndarray, "C C"], seed: int
) -> Int[np.ndarray, " N"]:
    """Draw true classes from their `posterior`, so that votes keep its uncertainty, as the most probable would not."""
    cumulative = posterior(probs, y, transition).cumsum(1)
    return (cumulative > cumulative[:, -1:] * np.random.default_rng(seed).random((len(y), 1))).argmax(1)


def true_class_probs(space: EmbeddingSpace, noise: LabelNoise, device: str = "cpu") -> Float[np.ndarray, "M C"]:
    """Probabilities of the true class of every bank row, each predicted without itself."""
    space, _ = with_forward_logits(space, noise.transition, (noise.strength,))
    rows = space.embeddings.rows(BANK)
    probs = classify(noise.head, space, rows, space.neighbours.ids.shape[1], device)
    return sharpen(probs.astype(np.float64), noise.sharpness)


def correct_labels(space: EmbeddingSpace, noise: LabelNoise, seed: int, device: str = "cpu") -> Int[np.ndarray, " N"]:
    """A copy of the labels with `draw_labels` of the bank rows by `true_class_probs`.

    A class that would lose all its rows keeps them. Labels of fit and val rows stay as given, since a head is fitted
    and validated through T.
    """
    e = space.embeddings
    rows, y = e.rows(BANK), np.array(e.y)
    drawn = draw_labels(true_class_probs(space, noise, device), y[rows], noise.transition, seed)
    y[rows] = np.where(np.isin(y[rows], np.setdiff1d(y[rows], drawn)), y[rows], drawn)
    return y


def significantly_above(losses: Float[np.ndarray, " M"], others: Float[np.ndarray, " M"]) -> bool:
    """Whether the mean of paired losses is above that of others by two standard errors.

    Corrected labels are kept unless it is, for the losses of val labels as given: through T the loss is blunt, so that
    the lowest mean alone would often keep wrong labels.
    """
    return lower_bound(losses - others) > 0


def with_labels(space: EmbeddingSpace, y: np.ndarray) -> EmbeddingSpace:
    """The same space with other labels (N,), and the neighbour statistics that follow from them."""
    e, sizes = dataclasses.replace(space.embeddings, y=y), space.statistics.sizes
    statistics = neighbour_statistics(e, space.neighbours, sizes, space.log_weight)
    return dataclasses.replace(space, embeddings=e, statistics=statistics)


def with_corrected_labels(
    spaces: Sequence[EmbeddingSpace], noise: LabelNoise, seed: int, device: str = "cpu"
) -> list[EmbeddingSpace]:
    """The spaces with `correct_labels` of each, so that no label of a held-out row is read in its own space."""
    return [with_labels(space, correct_labels(space, noise, seed, device)) for space in spaces]
