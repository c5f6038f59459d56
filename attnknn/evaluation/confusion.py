"""Confusion matrices."""

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
