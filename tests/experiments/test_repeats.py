"""Scores over repeated splits, against hand-computed values and scipy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from attnknn.experiments.repeats import COLUMNS, PAIRED, corrected_t_test, over_splits
from synthetic_results import binary


def predictions(seed, lift=0.0, n=30):
    """Attention that is right more often by `lift`, and two others."""
    return binary({"attention": 0.6 + lift, "distance": 0.6, "forest": 0.6}, n, seed)


def test_the_t_test_is_that_of_scipy_and_shared_rows_make_it_less_certain():
    x = np.random.default_rng(0).normal(0.4, 1, 12)
    result = corrected_t_test(x, 0.0, 0.95)
    oracle = stats.ttest_1samp(x, 0.0)
    interval = oracle.confidence_interval(0.95)
    np.testing.assert_allclose(result, [x.mean(), x.std(ddof=1), interval.low, interval.high, oracle.pvalue])
    # Mean 2, sd 1; error √(1/3 + 1/4) = .7638; t = 2.6186 of 2 degrees.
    result = corrected_t_test([1.0, 2.0, 3.0], 0.25, 0.95)
    half = 4.30265 * np.sqrt(7 / 12)
    assert result == pytest.approx((2, 1, 2 - half, 2 + half, 2 * stats.t.sf(2 / np.sqrt(1 / 3 + 1 / 4), 2)), rel=1e-5)
    assert corrected_t_test([0.5, 0.5], 0.25, 0.95) == (0.5, 0, 0.5, 0.5, 0.0)
    assert corrected_t_test([0.0, 0.0], 0.25, 0.95)[-1] == 1.0


def test_means_and_differences_over_the_splits():
    by_seed = {seed: predictions(seed) for seed in range(4)}
    table, paired = over_splits(by_seed, rows=150, bins=5, confidence=0.9)
    hits = np.array([(p.probs.argmax(2) == p.y).mean(1) for p in by_seed.values()])
    rows = {(r["method"], r["metric"]): r for r in table}
    assert list(table[0]) == list(COLUMNS)
    assert list(paired[0]) == list(PAIRED)
    assert rows["forest", "accuracy"]["value"] == pytest.approx(hits[:, 2].mean())
    assert rows["forest", "accuracy"]["sd"] == pytest.approx(hits[:, 2].std(ddof=1))
    (move,) = [r for r in paired if (r["baseline"], r["metric"]) == ("distance", "accuracy")]
    right = corrected_t_test(hits[:, 0] - hits[:, 1], 30 / 120, 0.9)
    np.testing.assert_allclose([move[k] for k in ("difference", "sd", "low", "high", "p")], right)
    assert {r["baseline"] for r in paired} == {"distance", "forest"}
    assert {r["method"] for r in paired} == {"attention"}


def test_the_mean_over_folds_is_compared_with_all_as_well():
    by_seed = {}
    for seed in range(4):
        one = predictions(seed)
        methods = (*one.methods[:2], "attention-folds", "forest")
        by_seed[seed] = replace(one, probs=one.probs[[0, 1, 2, 2]], methods=methods)
    table, paired = over_splits(by_seed, 150, 5, 0.9)
    assert [r["method"] for r in table[::3]] == ["distance", "attention", "attention-folds", "forest"]
    rows = {(r["method"], r["baseline"]): r["difference"] for r in paired if r["metric"] == "nll"}
    assert len(rows) == 6
    assert rows["attention-folds", "forest"] == 0
    assert rows["attention-folds", "attention"] == pytest.approx(-rows["attention", "attention-folds"])
