"""Confusion matrices, and tests of single confusions between methods."""

from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation.metrics import mcnemar
from attnknn.evaluation.paired_tests import Table

PAIRED_COLUMNS = ("actual", "predicted", "rows", "method", "count", "baseline", "baseline_count", "both", "p")


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


def confusion_tests(predictions: Predictions, method: str, baseline: str) -> Table:
    """Compare each confusion (actual, predicted) of a method with a baseline's, most frequent first.

    p is of McNemar's exact test of equal frequency, not adjusted for the number of confusions.

    Returns:
        Rows of actual, predicted, rows (of the actual class), method, count, baseline, baseline_count, both, p.
    """
    y, names = np.asarray(predictions.y), predictions.classes
    a, b = predicted_classes(predictions, method), predicted_classes(predictions, baseline)
    table = []
    for actual, predicted in {
        (int(t), int(p)) for classes in (a, b) for t, p in zip(y, classes, strict=True) if t != p
    }:
        ours, theirs = ((y == actual) & (classes == predicted) for classes in (a, b))
        table.append(
            {
                "actual": names[actual],
                "predicted": names[predicted],
                "rows": int((y == actual).sum()),
                "method": method,
                "count": int(ours.sum()),
                "baseline": baseline,
                "baseline_count": int(theirs.sum()),
                "both": int((ours & theirs).sum()),
                "p": mcnemar(ours, theirs),
            }
        )
    return sorted(table, key=lambda row: (-row["count"], -row["baseline_count"], row["actual"], row["predicted"]))


def shared_errors(predictions: Predictions, methods: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count each method's errors, and those that attention makes too: the same wrong class for the same row."""
    y, ours = np.asarray(predictions.y), predicted_classes(predictions, "attention")
    counts = {}
    for name in methods:
        predicted = predicted_classes(predictions, name)
        wrong = predicted != y
        counts[name] = {"errors": int(wrong.sum()), "shared": int((wrong & (predicted == ours)).sum())}
    return counts
