"""Wrong labels: estimate from neighbours how classes are confused, and correct the bank's labels.

The noise model is a transition matrix T[c, g] = P(given label g | true class c), the same for all rows of a class. A
head is fitted through it by forward correction, −log Σ_c p(c)·T[c, g] (Patrini et al. 2017), so that p is the
probability of the true class although no label is known to be right.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from attnknn.core.artifacts import BANK, TEST
from attnknn.core.errors import InputError, require
from attnknn.heads.classify import classify
from attnknn.heads.fit import fit_head
from attnknn.heads.registry import LearnedHead
from attnknn.neighbours.space import EmbeddingSpace, label_votes
from attnknn.neighbours.statistics import neighbour_statistics
from attnknn.nn.linear_probe import forward_regression

NEIGHBOURS = 20  # whose labels are the first guess of a row's class
FOLDS = 3  # of the bank, for logits that do not read a row's own label
SHARPNESS = (1.0, 0.7, 1.4, 0.5, 2.0, 2.8, 4.0, 8.0, 16.0)  # powers of the head's probabilities, nearest to 1 first
MARGIN = 2.0  # of log-likelihood: p < .05 in a likelihood-ratio test
STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # inverse penalties of the logistic regression that the head corrects
RIGHT = 0.02  # share of wrong labels up to which all are taken as right
FALL = 0.5  # least ratio of the shares of other labels in the surest tenth and the surest half
INVERTIBLE = 0.1  # least singular value of T; below, errors of T make probabilities extreme
PRECISE = 30  # surest rows a class, of which a share of 0.6 has a standard error of 0.09; fewest labels of a class
KEPT = 0.05  # least ratio of a class's expected rows and its labels
# Share of the class shares in every answer: through T, a probability of 0.99 has nearly the loss of 1.
DOUBT = 0.01
_SINGULAR = 1e-3  # a least singular value below which a known T is refused
_FEWEST = 5  # rows to count of a class
_MOST = 10_000  # rows to fit the logistic regression on
_TINY = float(np.finfo(np.float32).tiny)

Result = TypeVar("Result")


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


def check_transition(transition: Any, n_classes: int) -> Float[np.ndarray, "C C"]:
    """T as float64; InputError unless it is (C, C), invertible, with rows of probabilities that sum to 1."""
    require(not hasattr(transition, "columns"), "label_noise: a data frame; give its values, in the order of classes_")
    try:
        matrix = np.array(transition)
        require(not np.iscomplexobj(matrix), "label_noise: a complex matrix; give probabilities")
        matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"label_noise: no matrix of numbers ({error!s:.100})") from None
    size = (n_classes, n_classes)
    require(matrix.shape == size, f"label_noise: a matrix of shape {matrix.shape}; give {size}, a row a true class")
    valid = bool((matrix >= 0).all()) and np.allclose(matrix.sum(1), 1, atol=1e-6)
    require(valid, "label_noise: rows must be probabilities of the given labels that sum to 1, one row a true class")
    singular = "label_noise: a singular matrix (nearly), by which labels cannot tell some classes apart"
    require(np.linalg.svd(matrix, compute_uv=False)[-1] >= _SINGULAR, singular)
    return matrix


def too_few_rows(n_rows: int, n_classes: int) -> bool:
    """Whether label noise cannot be evident, whatever the labels: see `PRECISE`."""
    return n_rows // 2 + _FEWEST * n_classes < PRECISE * n_classes


def surest(probs: Float[np.ndarray, "N C"], share: float = 0.5) -> list[Int[np.ndarray, " M"]]:
    """Of each class, a share of the rows predicted as it, with its highest probabilities."""
    top = probs.argmax(1)
    # Ties in random order: rows sorted by label would else be counted by label.
    order = np.lexsort((np.random.default_rng(0).random(len(probs)), -probs.max(1)))
    by_class = [order[top[order] == c] for c in range(probs.shape[1])]
    return [rows[: max(_FEWEST, int(share * len(rows)))] for rows in by_class]


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


def sharpen(probs: Float[np.ndarray, "N C"], sharpness: float) -> Float[np.ndarray, "N C"]:
    """p^b, normalised: a temperature of 1/b."""
    return softmax(sharpness * np.log(np.maximum(probs, _TINY)), axis=1)


def expect_labels(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"], transition: Float[np.ndarray, "C C"], steps: int = 20
) -> tuple[Float[np.ndarray, "C C"], float]:
    """T of highest likelihood of the labels by expectation maximisation, and the sharpness b of `probs`.

    Predictions of a model fitted on wrong labels are often less sure than they should be, and T of `probs` as they are
    would have too few wrong labels; of probabilities that are too sure, too many. b is the first in `SHARPNESS` whose
    log-likelihood is within `MARGIN` of the highest; without steps, for the given T.
    """
    onehot = np.eye(len(transition))[y]

    def maximise(sharpness: float) -> tuple[float, tuple[np.ndarray, float]]:
        p, t = sharpen(probs, sharpness), transition
        for _ in range(steps):
            counts = posterior(p, y, t).T @ onehot
            t = counts / counts.sum(1, keepdims=True)
        return float(np.log((p * t[:, y].T).sum(1) + _TINY).sum()), (t, sharpness)

    return _most_likely(list(map(maximise, SHARPNESS)))


def expect_uniform(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"], steps: int = 50
) -> tuple[Float[np.ndarray, "C C"], float]:
    """As `expect_labels`, where rows are too few for a whole T: wrong labels are of all other classes alike.

    T is the identity if less than `RIGHT` of the labels are wrong.
    """
    n_classes, own = probs.shape[1], (np.arange(len(y)), y)

    def maximise(sharpness: float) -> tuple[float, tuple[float, float]]:
        p, share = sharpen(probs, sharpness)[own], 0.1
        for _ in range(steps):
            wrong = share * (1 - p) / (n_classes - 1)
            share = float((wrong / ((1 - share) * p + wrong + _TINY)).mean())
        likelihood = (1 - share) * p + share * (1 - p) / (n_classes - 1)
        return float(np.log(likelihood + _TINY).sum()), (share, sharpness)

    share, sharpness = _most_likely(list(map(maximise, SHARPNESS)))
    if share < RIGHT:
        return np.eye(n_classes), 1.0
    transition = np.full((n_classes, n_classes), share / (n_classes - 1))
    np.fill_diagonal(transition, 1 - share)
    return transition, sharpness


def _most_likely(results: Sequence[tuple[float, Result]]) -> Result:
    """The first of which the log-likelihood is within `MARGIN` of the highest."""
    highest = max(likelihood for likelihood, _ in results)
    return next(result for likelihood, result in results if likelihood >= highest - MARGIN)


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
        return -float(np.log(np.maximum(joint.sum(1), _TINY)).mean())

    first, strength = min(((logits_without(0, s), s) for s in strengths), key=lambda choice: loss(choice[0]))
    by_fold = [first, *(logits_without(i, strength) for i in range(1, FOLDS))]
    logits = np.asarray(np.mean(by_fold, axis=0), dtype=np.float32)
    for fold, own in zip(folds, by_fold, strict=True):
        logits[fold] = own[fold]
    return dataclasses.replace(space, embeddings=dataclasses.replace(e, logits=logits)), strength


def _lower_bound(values: np.ndarray) -> float:
    """The mean, less two standard errors."""
    return float(values.mean() - 2 * values.std() / np.sqrt(len(values)))


def share_of_wrong(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"], transition: Float[np.ndarray, "C C"], sharpness: float
) -> tuple[float, bool]:
    """Estimated share of wrong labels, and whether it is evident that some are.

    It is if the surest half of the rows is large enough (see `PRECISE`), its share of labels of another class, less two
    standard errors, and that of wrong labels are above `RIGHT`, and the share in the surest tenth is not much lower
    (see `FALL`), as it would be where classes overlap; if drawn labels are expected to be right more often than given
    ones, by two standard errors; if no class loses all its rows, as one that is nowhere the most frequent would (see
    `KEPT`), or gets another label more often than its own; and if T can be inverted (`INVERTIBLE`).
    """
    true, counts = posterior(sharpen(probs, sharpness), y, transition), np.bincount(y, minlength=len(transition))
    right = true[np.arange(len(y)), y]
    wrong = 1 - float(right.mean())
    gain = (true**2).sum(1) - right  # in the share of right labels, if labels were drawn
    differs = probs.argmax(1) != y
    half, tenth = (differs[np.concatenate(surest(probs, share))] for share in (0.5, 0.1))
    evident = bool(
        _lower_bound(half) > RIGHT
        and tenth.mean() > FALL * half.mean()
        and _lower_bound(gain) > 0
        and wrong > RIGHT
        and len(half) >= PRECISE * len(transition)
        and (true.sum(0) >= KEPT * counts)[counts >= PRECISE].all()
        and (transition.argmax(1) == np.arange(len(transition))).all()
        and np.linalg.svd(transition, compute_uv=False)[-1] >= INVERTIBLE
    )
    return wrong, evident


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
    return _lower_bound(losses - others) > 0


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
