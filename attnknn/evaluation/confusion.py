"""Which classes are taken for which: confusion matrices, and tests of single mistakes."""

from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation.metrics import mcnemar
from attnknn.evaluation.paired_tests import Table


def predicted_classes(predictions: Predictions, method: str) -> np.ndarray:
    """The class a method gives each row, (N,).

    Raises:
        InputError: no such method.
    """
    require(method in predictions.methods, f"{method}: no such method; there are {', '.join(predictions.methods)}")
    return np.asarray(predictions.probs[predictions.methods.index(method)]).argmax(1)


def confusion(predictions: Predictions, methods: Sequence[str]) -> Table:
    """How often each class was taken for each, where it was: method, actual, predicted, count, classes in order."""
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
    """Each mistake, a class taken for another, of a method beside a baseline's, the most frequent first.

    McNemar's exact test asks whether one of them makes it more often; it is not adjusted for the number of mistakes.

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


def shared_errors(
    predictions: Predictions, methods: Sequence[str], reference: str = "attention"
) -> dict[str, dict[str, int]]:
    """Count each method's errors, and those that `reference` makes too: the same wrong class for the same row."""
    y, ours = np.asarray(predictions.y), predicted_classes(predictions, reference)
    predicted = {name: predicted_classes(predictions, name) for name in methods}
    return {
        name: {"errors": int((classes != y).sum()), "shared": int(((classes != y) & (classes == ours)).sum())}
        for name, classes in predicted.items()
    }
