"""Confusion matrices and shared errors."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

from attnknn.core.errors import InputError
from attnknn.evaluation.confusion import confusion, shared_errors
from synthetic_results import TIE, predictions

RESULTS, METHODS = predictions(TIE, 300, seed=2), ("attention", "distance_vector")


def test_confusion_is_scikit_learns() -> None:
    table = pd.DataFrame(confusion(RESULTS, METHODS))
    for method in METHODS:
        counts = table[table["method"] == method].pivot_table("count", "actual", "predicted", fill_value=0)
        predicted = RESULTS.probs[RESULTS.methods.index(method)].argmax(1)
        np.testing.assert_array_equal(counts, confusion_matrix(RESULTS.y, predicted))
    with pytest.raises(InputError, match="cnn: no such method"):
        confusion(RESULTS, ("cnn",))


def test_shared_errors_are_the_same_wrong_class_for_the_same_row() -> None:
    ours, theirs = (RESULTS.probs[RESULTS.methods.index(m)].argmax(1) for m in METHODS)
    wrong, other_wrong = ours != RESULTS.y, theirs != RESULTS.y
    assert ((ours != theirs) & wrong & other_wrong).any(), "or equal classes are not tested"
    assert shared_errors(RESULTS, METHODS) == {
        "attention": {"errors": wrong.sum(), "shared": wrong.sum()},
        "distance_vector": {"errors": other_wrong.sum(), "shared": (wrong & (ours == theirs)).sum()},
    }
