"""Confusion matrices, and the errors that methods share with attention."""

from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation.paired_tests import Table


def predicted_classes(predictions: Predictions, method: str) -> np.ndarray:
    """Predicted class of each row, (N,).

    Raises:
        InputError: unknown method.
    """
    require(method in predictions.methods, f"{method}: no such method; there are {', '.join(predictions.methods)}")
    return np.asarray(predictions.probs[predictions.methods.index(method)]).argmax(1)


def confusion(predictions: Predictions, methods: Sequence[str]) -> Table:
    """Nonzero entries of the confusion matrices: rows of method, actual, predicted, count, in order of the classes."""
    from sklearn.metrics import confusion_matrix

    names, table = predictions.classes, []
    for method in methods:
        counts = confusion_matrix(predictions.y, predicted_classes(predictions, method), labels=range(len(names)))
        table += [
            {"method": method, "actual": names[a], "predicted": names[b], "count": int(counts[a, b])}
            for a, b in np.argwhere(counts)
        ]
    return table


def shared_errors(predictions: Predictions, methods: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count each method's errors, and those that attention makes too: the same wrong class for the same row."""
    y, ours = np.asarray(predictions.y), predicted_classes(predictions, "attention")
    counts = {}
    for name in methods:
        predicted = predicted_classes(predictions, name)
        wrong = predicted != y
        counts[name] = {"errors": int(wrong.sum()), "shared": int((wrong & (predicted == ours)).sum())}
    return counts
