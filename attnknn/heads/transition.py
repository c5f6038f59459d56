"""Transition matrices of label noise, estimated from probabilities of the classes and the labels."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from attnknn.core.errors import InputError, require

SHARPNESS = (1.0, 0.7, 1.4, 0.5, 2.0, 2.8, 4.0, 8.0, 16.0)  # powers of the head's probabilities, nearest to 1 first
MARGIN = 2.0  # of log-likelihood: p < .05 in a likelihood-ratio test
RIGHT = 0.02  # share of wrong labels up to which all are taken as right
FALL = 0.5  # least ratio of the shares of other labels in the surest tenth and the surest half
INVERTIBLE = 0.1  # least singular value of T; below, errors of T make probabilities extreme
PRECISE = 30  # surest rows a class, of which a share of 0.6 has a standard error of 0.09; fewest labels of a class
KEPT = 0.05  # least ratio of a class's expected rows and its labels
_SINGULAR = 1e-3  # a least singular value below which a known T is refused
_FEWEST = 5  # rows to count of a class
TINY = float(np.finfo(np.float32).tiny)

Result = TypeVar("Result")


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
    joint = np.maximum(probs * transition[:, y].T, TINY)
    return joint / joint.sum(1, keepdims=True)


def sharpen(probs: Float[np.ndarray, "N C"], sharpness: float) -> Float[np.ndarray, "N C"]:
    """p^b, normalised: a temperature of 1/b."""
    return softmax(sharpness * np.log(np.maximum(probs, TINY)), axis=1)


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
        return float(np.log((p * t[:, y].T).sum(1) + TINY).sum()), (t, sharpness)

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
            share = float((wrong / ((1 - share) * p + wrong + TINY)).mean())
        likelihood = (1 - share) * p + share * (1 - p) / (n_classes - 1)
        return float(np.log(likelihood + TINY).sum()), (share, sharpness)

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
        lower_bound(half) > RIGHT
        and tenth.mean() > FALL * half.mean()
        and lower_bound(gain) > 0
        and wrong > RIGHT
        and len(half) >= PRECISE * len(transition)
        and (true.sum(0) >= KEPT * counts)[counts >= PRECISE].all()
        and (transition.argmax(1) == np.arange(len(transition))).all()
        and np.linalg.svd(transition, compute_uv=False)[-1] >= INVERTIBLE
    )
    return wrong, evident


def lower_bound(values: np.ndarray) -> float:
    """The mean, less two standard errors."""
    return float(values.mean() - 2 * values.std() / np.sqrt(len(values)))
