"""Classes that come with added rows, and go with the last row that is forgotten, without a fit.

A new class has the share of its rows, its own class mean or row of the linear classifier, which is fitted anew, and
otherwise the mean of what was fitted for the classes of before.
"""

from typing import Any

import numpy as np
from jaxtyping import Int
from sklearn.utils.multiclass import check_classification_targets

from attnknn.core.errors import InputError, require


def all_classes(classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sorted labels of a model and of rows to be added; InputError if they are of another type."""
    y = np.asarray(y)
    if not len(y):
        return classes
    if {classes.dtype.kind, y.dtype.kind} == {"U", "O"} and all(isinstance(v, str) for v in [*classes, *y]):
        y = y.astype(str if classes.dtype.kind == "U" else object)  # pandas has texts as objects
    kinds = {classes.dtype.kind, y.dtype.kind}
    same = len(kinds) == 1 or kinds <= {"i", "u"} or (classes.dtype.kind == "f" and kinds <= {"i", "u", "f"})
    require(same, f"y: labels of type {y.dtype}; those of this model are of type {classes.dtype}")
    if y.dtype.kind == "f":
        try:
            with np.errstate(invalid="ignore"):
                check_classification_targets(y)
        except ValueError as error:
            raise InputError(f"y: {error}") from None
    try:
        return np.unique(np.concatenate([classes, y]))
    except TypeError as error:  # of Python objects
        raise InputError(f"y: labels that cannot be sorted with those of this model ({error})") from None


def sources(earlier: np.ndarray, classes: np.ndarray) -> Int[np.ndarray, " C"]:
    """Number of each class among earlier ones, −1 for a new one; both are sorted."""
    numbers = np.searchsorted(earlier, classes).clip(max=len(earlier) - 1)
    return np.where(earlier[numbers] == classes, numbers, -1)


def by_class(array: np.ndarray, source: Int[np.ndarray, " C"], new: Any = None) -> np.ndarray:
    """Array of an entry for each class in their new order; those of new classes are `new`, None for the mean."""
    result = array[source]
    result[source < 0] = array.mean(0) if new is None else new
    return result


def renumbered(y: Int[np.ndarray, " N"], source: Int[np.ndarray, " C"], n_earlier: int) -> Int[np.ndarray, " N"]:
    """Class numbers in the new order; −1 for a class that is gone."""
    number = np.full(n_earlier, -1)
    number[source[source >= 0]] = np.flatnonzero(source >= 0)
    return number[y]


def transition_by_class(transition: np.ndarray | None, source: Int[np.ndarray, " C"]) -> np.ndarray | None:
    """Transition matrix T (C, C) of the classes in their new order; labels of new classes are right."""
    if transition is None:
        return None
    present = source >= 0
    result = np.eye(len(source))
    result[np.ix_(present, present)] = transition[np.ix_(source[present], source[present])]
    return result / result.sum(1, keepdims=True)
