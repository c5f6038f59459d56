"""Abstention: hand-computed curves and slow loops."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from attnknn.core.errors import InputError
from attnknn.evaluation import metrics
from attnknn.evaluation.conformal import conformal, selective_tables
from attnknn.evaluation.selective import AREAS, abstention, aurc, best_forms, log_complement, risk_coverage, threshold
from synthetic_results import TIE, predictions

LOSS = TIE | {"attention": (1.2, 2.0)}


def over_orders(confidence: np.ndarray, wrong: np.ndarray) -> float:
    """AURC as the mean over every order of the rows that goes from sure to unsure."""
    orders = [list(o) for o in permutations(range(len(wrong))) if (np.diff(confidence[list(o)]) <= 0).all()]
    return float(np.mean([wrong[o].cumsum() / np.arange(1, len(wrong) + 1) for o in orders]))


def test_five_rows_by_hand() -> None:
    confidence, wrong = np.array([0.5, 0.9, 0.6, 0.8, 0.7]), np.array([True, False, False, True, False])
    # From sure to unsure: right, wrong, right, right, wrong.
    area = (0 + 1 / 2 + 1 / 3 + 1 / 4 + 2 / 5) / 5
    best = (0 + 0 + 0 + 1 / 4 + 2 / 5) / 5
    assert aurc(confidence, wrong)[0] == pytest.approx([area, area - best])
    coverage, risk = risk_coverage(confidence, wrong)
    assert coverage == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert risk == pytest.approx([0, 1 / 2, 1 / 3, 1 / 4, 2 / 5])
    for same, expected in ((False, [0, 0]), (True, [1, 0])):
        assert aurc(confidence, np.full(5, same))[0] == pytest.approx(expected)


def test_ties_are_the_mean_over_their_orders_and_no_order_of_rows_matters() -> None:
    confidence = np.array([0.9, 0.5, 0.5, 0.9, 0.5, 0.2, 0.9])
    wrong = np.array([False, True, False, True, True, True, False])
    expected = aurc(confidence, wrong)[0]
    assert expected[0] == pytest.approx(over_orders(confidence, wrong))
    curve = risk_coverage(confidence, wrong)
    assert expected[0] == pytest.approx(curve[1].mean()), "the curve that is drawn has this area"
    rng = np.random.default_rng(3)
    for _ in range(5):
        order = rng.permutation(7)
        assert aurc(confidence[order], wrong[order])[0] == pytest.approx(expected)
        assert risk_coverage(confidence[order], wrong[order])[1] == pytest.approx(curve[1])


def test_resamples_are_as_if_their_rows_were_written_out() -> None:
    rng = np.random.default_rng(0)
    confidence, wrong = rng.integers(6, size=37) / 5, rng.random(37) < 0.3
    counts = next(metrics.bootstrap_counts(37, 11, seed=2)).T.astype(np.int32)
    result = aurc(confidence, wrong, counts)
    for r, count in enumerate(counts.T):
        drawn = np.repeat(np.arange(37), count)
        assert result[r] == pytest.approx(aurc(confidence[drawn], wrong[drawn])[0])


def test_a_long_curve_is_thinned_to_even_coverages() -> None:
    rng = np.random.default_rng(0)
    confidence, wrong = rng.random(1013), rng.random(1013) < 0.2
    coverage, risk = risk_coverage(confidence, wrong)
    assert len(coverage) == 25
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(wrong.mean())
    first = np.argsort(-confidence)[: round(coverage[0] * 1013)]
    assert risk[0] == pytest.approx(wrong[first].mean())


def test_the_threshold_is_the_lowest_that_keeps_the_risk_and_takes_ties_whole() -> None:
    confidence = np.array([0.9, 0.8, 0.7, 0.7, 0.6, 0.5])
    wrong = np.array([False, False, True, False, False, True])
    assert threshold(confidence, wrong, 0.2) == 0.6, "1 of 5; behind 0.7 it was 1 of 4"
    assert [threshold(confidence, wrong, risk) for risk in (0.25, 0.1, 0.5)] == [0.6, 0.8, 0.5]
    assert threshold(confidence, ~wrong, 0.1) == math.inf


def test_doubt_is_precise_where_a_probability_is_all_but_one() -> None:
    small = np.array([1e-9, 2e-9, 2e-9 * (1 + 1e-7)], dtype=np.float32)
    probs = np.stack([1 - small, small], 1).astype(np.float32)
    assert (probs[:, 0] == 1).all(), "float32 has lost the difference"
    result = log_complement(probs)
    assert result[0, 0] == pytest.approx(math.log(1e-9), abs=1e-4)
    assert result[0, 0] < result[1, 0] == result[2, 0], "and rounding makes none"
    assert log_complement(np.array([[0.25, 0.75]])) == pytest.approx(np.log([[0.75, 0.25]]), abs=1e-5)


def test_tables_agree_with_each_other_and_with_the_rows() -> None:
    test, val = predictions(TIE, 307, seed=1), predictions(TIE, 211, seed=2)
    result, tables = selective_tables(test, val, [0.05, 0.1], [0.05, 0.1], 200, 0.95, 0)
    curves, scores, tests, sets = (
        tables[name] for name in ("risk_coverage", "selective", "selective_paired", "conformal")
    )
    by_score = {(r["method"], r["metric"]): r for r in scores}
    for row in scores:
        assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1
    opponents = ["uniform", "distance_vector", "prototypes", "linear_temperature"]
    areas, sizes = ([r for r in tests if (r["metric"] in AREAS) == of_area] for of_area in (True, False))
    for row in areas:
        ours, theirs = (by_score[method, row["metric"]]["value"] for method in ("attention", row["baseline"]))
        assert row["difference"] == ours - theirs
        assert row["low"] <= row["high"]
        assert 0 < row["p"] <= 1
    assert [r["baseline"] for r in areas[::2]] == [r["baseline"] for r in sizes[::2]] == opponents
    wrong = test.probs[0].argmax(1) != test.y
    assert [r["risk"] for r in curves if r["method"] == "uniform"][-1] == pytest.approx(wrong.mean())
    kept = threshold(-log_complement(val.probs[0]).min(1), val.probs[0].argmax(1) != val.y, 0.05)
    answered = -log_complement(test.probs[0]).min(1) >= kept
    assert by_score["uniform", "coverage_at_5"]["value"] == answered.mean()
    assert by_score["uniform", "risk_at_5"]["value"] == wrong[answered].mean()
    size = {(r["method"], r["kind"], r["alpha"]): r["size"] for r in sets}
    for row in sizes:
        alpha = {"size_at_95": 0.05, "size_at_90": 0.1}[row["metric"]]
        expected = size["attention", "split", alpha] - size[row["baseline"], "split", alpha]
        assert row["difference"] == pytest.approx(expected)
        assert row["low"] <= row["difference"] <= row["high"]
    linear = "linear_temperature"
    assert result[linear]["aurc"] == by_score[linear, "aurc"]["value"]
    assert result[linear]["split_size_at_90"] == size[linear, "split", 0.1]
    assert all(isinstance(v, float) for scores_ in result.values() for v in scores_.values())


def test_only_what_answers_val_rows_too_is_measured_and_attention_must() -> None:
    test, val = predictions(TIE, 50, seed=1), predictions({"attention": TIE["attention"]}, 50, seed=2)
    assert {r["method"] for r in abstention(test, val, [0.1], 100, 0.95, 0)[1]} == {"attention"}
    with pytest.raises(InputError, match="attention: not among the methods on test and val"):
        conformal(predictions({"linear": (1.0, 1.0)}, 50), val, [0.1], 100, 0.95, 0)


def test_each_method_stands_with_the_calibration_that_val_rows_choose() -> None:
    """Bare rows of two strengths are out of order until they are calibrated; the test rows prefer what val refuses."""
    forms = {"prototypes": (2.0, 9.0), "prototypes_isotonic": (2.0, 1.9), "attention": (2.0, 1.9)}
    forms |= {"attention_vector": (2.0, 9.0), "distance": (2.0, 1.9), "distance_temperature": (2.0, 1.9)}
    val = predictions(forms, 400, seed=3)
    place = val.methods.index("distance")
    val.probs[place + 1] = val.probs[place]
    test = predictions(forms | {"prototypes": (4.0, 1.9), "attention_vector": (4.0, 1.9)}, 400, seed=4)
    chosen = {"distance": "distance", "attention": "attention", "prototypes": "prototypes_isotonic"}
    assert best_forms(test, val) == chosen, "and bare where the calibration changes nothing"
    calibrated = tuple({"attention": "attention_isotonic"}.get(name, name) for name in val.methods)
    test, val = (replace(p, methods=calibrated) for p in (test, val))
    for tests in (abstention(test, val, [0.1], 100, 0.95, 0)[2], conformal(test, val, [0.1], 100, 0.95, 0)[1]):
        assert {r["method"] for r in tests} == {"attention_isotonic"}, "attention is calibrated as its opponents are"
        assert [r["baseline"] for r in tests][-1] == "prototypes_isotonic"


def test_a_copy_is_no_finding_and_a_worse_order_is_one() -> None:
    results, val = predictions({"attention": (2.0, 2.0)}, 900), predictions({"attention": (2.0, 2.0)}, 100, seed=1)
    probs = results.probs[0]
    shuffled = np.where((probs.argmax(1) == results.y)[:, None], 0.5 * probs + 0.1, probs)
    names = ("attention", "uniform", "distance")
    test = replace(results, probs=np.stack([probs, probs, shuffled]).astype(np.float32), methods=names)
    val = replace(val, probs=val.probs[[0, 0, 0]], methods=names)
    copy, _, worse, excess = abstention(test, val, [0.1], 300, 0.95, 0)[2]
    assert (copy["difference"], copy["low"], copy["high"], copy["p"]) == (0, 0, 0, 1)
    for row in (worse, excess):
        assert row["high"] < 0
        assert row["p"] < 0.01
