"""Confusion matrices and shared errors."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

from attnknn.core.errors import InputError
from attnknn.evaluation.confusion import confusion
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
