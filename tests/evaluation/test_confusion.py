"""Confusion matrices and shared errors."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

from attnknn.core.errors import InputError
from attnknn.evaluation.confusion import confusion, shared_errors
from synthetic_results import TIE, predictions


def test_confusion_is_scikit_learns() -> None:
    results = predictions(TIE, 300, seed=2)
    table = pd.DataFrame(confusion(results, ("attention", "distance_vector")))
    for method in ("attention", "distance_vector"):
        counts = table[table["method"] == method].pivot_table("count", "actual", "predicted", fill_value=0)
        predicted = results.probs[results.methods.index(method)].argmax(1)
        np.testing.assert_array_equal(counts, confusion_matrix(results.y, predicted))
    with pytest.raises(InputError, match="cnn: no such method"):
        confusion(results, ("cnn",))


def test_shared_errors_are_the_same_wrong_class_for_the_same_row() -> None:
    results = predictions(TIE, 300, seed=2)
    ours, theirs = (results.probs[results.methods.index(m)].argmax(1) for m in ("attention", "distance_vector"))
    wrong, other_wrong = ours != results.y, theirs != results.y
    assert ((ours != theirs) & wrong & other_wrong).any(), "or equal classes are not tested"
    assert shared_errors(results, ("attention", "distance_vector")) == {
        "attention": {"errors": wrong.sum(), "shared": wrong.sum()},
        "distance_vector": {"errors": other_wrong.sum(), "shared": (wrong & (ours == theirs)).sum()},
    }
