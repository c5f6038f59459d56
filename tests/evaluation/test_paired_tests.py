"""Scores, intervals, paired tests and reliability as tables."""

import numpy as np
import pytest

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import InputError
from attnknn.evaluation.metrics import METRICS
from attnknn.evaluation.paired_tests import BASE, intervals_and_tests, pairs, reliability, scores, values
from synthetic_results import TIE, predictions

METHODS = tuple(TIE)


def test_scorecard() -> None:
    made = predictions(TIE, 300)
    table = scores(made, 15)
    against = [("attention", name) for name in METHODS if name != "attention"]
    intervals, paired = intervals_and_tests(made, against, 15, 200, 0.95, seed=0)
    assert set(table) == set(METHODS)
    assert len(intervals) == len(METHODS) * len(METRICS)
    for row in intervals:
        assert row["value"] == table[row["method"]][row["metric"]]
        assert row["low"] <= row["value"] <= row["high"], "also ECE, whose resamples are biased upwards"
    assert [(r["baseline"], r["metric"]) for r in paired] == [
        (name, m) for _, name in against for m in ("accuracy", "nll", "ece")
    ]
    for row in paired:
        expected = table["attention"][row["metric"]] - table[row["baseline"]][row["metric"]]
        assert row["difference"] == pytest.approx(expected)
        assert 0 < row["p"] <= 1


def test_reliability_makes_up_the_ece_and_is_of_the_methods_asked_for() -> None:
    made = predictions(TIE, 300)
    named = reliability(made, 15)
    assert {row["method"] for row in named} == set(METHODS) & set(BASE)
    bins = reliability(made, 15, ("attention",))
    assert bins == [row for row in named if row["method"] == "attention"]
    assert sum(row["count"] for row in bins) == len(made.y)
    full = [row for row in bins if row["count"]]
    assert all(row["low"] < row["confidence"] <= row["high"] for row in full)
    gap = sum(row["count"] * abs(row["confidence"] - row["accuracy"]) for row in full) / len(made.y)
    assert gap == pytest.approx(scores(made, 15)["attention"]["ece"])


def test_pairs_set_like_against_like() -> None:
    methods = ("uniform", "distance", "attention", "distance_vector", "attention_vector", "uniform_isotonic", "linear")
    found = pairs(methods)
    assert found[:6] == [("attention", name) for name in methods if name != "attention"]
    assert found[6:] == [("attention_vector", "distance_vector")], "there is no uniform_vector to test it against"


def test_a_pair_is_the_mirror_of_the_pair_the_other_way_round() -> None:
    made = predictions(TIE, 200)
    there, back = intervals_and_tests(
        made, [("attention", "uniform"), ("uniform", "attention")], 15, 200, 0.95, seed=0
    )[1][::3]
    assert there["difference"] == -back["difference"]
    assert (there["p"], there["errors"]) == (back["p"], back["errors"])


def test_a_pair_of_an_absent_method_is_told() -> None:
    with pytest.raises(InputError, match="prototypes: no such method; there are uniform"):
        intervals_and_tests(predictions({"uniform": (2.0, 2.0)}, 30), [("uniform", "prototypes")], 15, 10, 0.95, 0)


def test_values_are_the_scores_that_are_tested() -> None:
    made = predictions(TIE, 100)
    found = {(row["method"], row["metric"]): row["value"] for row in values(made, 15)}
    table = scores(made, 15)
    assert found == {(name, m): table[name][m] for name in METHODS for m in ("accuracy", "nll", "ece")}


def twice(exponent: float) -> tuple[Predictions, list[dict]]:
    """A method and its copy raised to a power, and the tests of one against the other."""
    made = predictions({"attention": (2.0, 2.0)}, 300)
    close = np.asarray(made.probs[0], dtype=np.float64) ** exponent
    close = (close / close.sum(1, keepdims=True)).astype(np.float32)
    both = Predictions(made.rows, made.y, np.stack([made.probs[0], close]), ("attention", "copy"), made.classes)
    return both, intervals_and_tests(both, [("attention", "copy")], 15, 200, 0.95, seed=0)[1]


def test_a_method_against_its_own_copy_is_no_finding() -> None:
    made = predictions({"attention": (2.0, 2.0)}, 300)
    both = Predictions(made.rows, made.y, made.probs[[0, 0]], ("attention", "copy"), made.classes)
    for row in intervals_and_tests(both, [("attention", "copy")], 15, 200, 0.95, seed=0)[1]:
        assert row["difference"] == row["low"] == row["high"] == 0
        assert row["p"] == 1


def test_the_same_method_up_to_rounding_is_no_finding() -> None:
    made, found = twice(1 + 1e-8)
    for row in found:
        assert abs(row["difference"]) < 1e-6
        assert row["p"] == 1
        assert row["errors"] == (made.probs[0].argmax(1) != made.y).sum()
    assert min(row["p"] for row in twice(1.5)[1]) < 0.02, "a real change is a finding"
