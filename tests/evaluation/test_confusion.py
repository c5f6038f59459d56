"""Confusion matrices and tests of single mistakes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

from attnknn.core.errors import InputError
from attnknn.evaluation.confusion import confusion, confusion_tests, shared_errors
from attnknn.evaluation.metrics import mcnemar
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


def test_mistakes_are_tested_on_the_same_rows() -> None:
    results = predictions(TIE, 300, seed=2)
    a, b = (results.probs[results.methods.index(m)].argmax(1) for m in ("attention", "distance_vector"))
    table = confusion_tests(results, "attention", "distance_vector")
    assert sum(row["count"] for row in table) == (a != results.y).sum()
    assert sum(row["baseline_count"] for row in table) == (b != results.y).sum()
    assert [row["count"] for row in table] == sorted((row["count"] for row in table), reverse=True)
    first = table[0]
    t, p = results.classes.index(first["actual"]), results.classes.index(first["predicted"])
    ours, theirs = (a == p) & (results.y == t), (b == p) & (results.y == t)
    assert (first["both"], first["rows"]) == ((ours & theirs).sum(), (results.y == t).sum())
    assert first["p"] == mcnemar(ours, theirs)
    shared = shared_errors(results, ("attention", "distance_vector"))
    assert shared["attention"]["errors"] == shared["attention"]["shared"] == (a != results.y).sum()
    assert shared["distance_vector"]["shared"] == sum(row["both"] for row in table)
