"""Scores, intervals, paired tests and reliability as tables."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import InputError
from attnknn.evaluation import metrics
from attnknn.evaluation.metrics import METRICS
from attnknn.evaluation.paired_tests import BASE, TESTED, compare_repeats, intervals_and_tests, reliability, scores
from synthetic_results import TIE, predictions

METHODS = tuple(TIE)


def test_scorecard() -> None:
    results = predictions(TIE, 300)
    table = scores(results, 15)
    against = [("attention", name) for name in METHODS if name != "attention"]
    intervals, paired = intervals_and_tests(results, against, 15, 200, 0.95, seed=0)
    assert set(table) == set(METHODS)
    assert len(intervals) == len(METHODS) * len(METRICS)
    for row in intervals:
        assert row["value"] == table[row["method"]][row["metric"]]
        assert row["low"] <= row["value"] <= row["high"], "also ECE, whose resamples are biased upwards"
    assert [(r["baseline"], r["metric"]) for r in paired] == [(name, m) for _, name in against for m in TESTED]
    for row in paired:
        expected = table["attention"][row["metric"]] - table[row["baseline"]][row["metric"]]
        assert row["difference"] == pytest.approx(expected)
        assert 0 < row["p"] <= 1


def test_reliability_is_that_of_the_methods_asked_for() -> None:
    results = predictions(TIE, 300)
    named = reliability(results, 15)
    assert {row["method"] for row in named} == set(METHODS) & set(BASE)
    probs = results.probs[METHODS.index("attention")]
    expected = [{"method": "attention", **row} for row in metrics.reliability(probs, results.y, 15)]
    assert reliability(results, 15, ("attention",)) == expected
    assert [row for row in named if row["method"] == "attention"] == expected


def test_pairs_are_mirrored_the_other_way_round_and_absent_methods_are_named() -> None:
    results = predictions(TIE, 200)
    both_ways = [("attention", "uniform"), ("uniform", "attention")]
    forward, back = intervals_and_tests(results, both_ways, 15, 200, 0.95, seed=0)[1][::3]
    assert forward["difference"] == -back["difference"]
    assert (forward["p"], forward["errors"]) == (back["p"], back["errors"])
    with pytest.raises(InputError, match="cnn: no such method; there are uniform"):
        intervals_and_tests(results, [("uniform", "cnn")], 15, 10, 0.95, 0)


def against_its_power(exponent: float) -> tuple[Predictions, list[dict]]:
    """A method and its copy raised to a power, and the tests of one against the other."""
    results = predictions({"attention": (2.0, 2.0)}, 300)
    both = replace(results, probs=results.probs[[0, 0]], methods=("attention", "copy"))
    if exponent != 1:
        powers = np.asarray(results.probs[0], dtype=np.float64) ** exponent
        both.probs[1] = powers / powers.sum(1, keepdims=True)
    return both, intervals_and_tests(both, [("attention", "copy")], 15, 200, 0.95, seed=0)[1]


def test_the_same_method_up_to_rounding_is_no_finding() -> None:
    for row in against_its_power(1)[1]:
        assert row["difference"] == row["low"] == row["high"] == 0
        assert row["p"] == 1
    both, tests = against_its_power(1 + 1e-8)
    for row in tests:
        assert abs(row["difference"]) < 1e-6
        assert row["p"] == 1
        assert row["errors"] == (both.probs[0].argmax(1) != both.y).sum()
    assert min(row["p"] for row in against_its_power(1.5)[1]) < 0.02, "a real change is a finding"


def test_repeats_by_scipys_paired_t_test_and_wider_with_shared_test_rows():
    a, b = np.array([0.9, 0.92, 0.95, 0.91]), np.array([0.88, 0.9, 0.9, 0.9])
    test, own = stats.ttest_rel(a, b), compare_repeats(a, b)
    ends = test.confidence_interval(0.95)
    assert [own["p"], own["low"], own["high"]] == pytest.approx([test.pvalue, ends.low, ends.high])
    shared = compare_repeats(a, b, shared=0.5)
    assert shared["high"] - shared["low"] == pytest.approx((ends.high - ends.low) * 5**0.5)  # 1/4 + 1 for 1/4
    assert shared["p"] > own["p"]
    assert np.isnan(compare_repeats(a, a)["p"])
