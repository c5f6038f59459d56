"""Scores against numbers worked out by hand, against other libraries, and against slow loops."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, log_loss, recall_score

from attnknn.core.errors import InputError
from attnknn.evaluation import metrics
from attnknn.evaluation.confusion import confusion
from attnknn.evaluation.metrics import METRICS, bootstrap, interval, mcnemar, oracle, paired_p, reliability, scores
from synthetic_results import TIE, predictions, skewed_losses

# Predicted 0, 0, 1, 2, 0, 2: right, wrong, right, right, wrong, right.
SIX = np.array(
    [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.8, 0.1], [0.25, 0.35, 0.4], [0.6, 0.3, 0.1], [0.05, 0.05, 0.9]]
)
SIX_Y = np.array([0, 1, 1, 2, 2, 2])


def sample(n: int, c: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random distributions (N, C), and labels drawn from them, so that they are calibrated."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(c, 0.7), size=n) * 0.99 + 0.01 / c
    return probs, (rng.random((n, 1)) > probs.cumsum(1)[:, :-1]).sum(1)


def width_bins(values: np.ndarray, bins: int) -> np.ndarray:
    """The bin b with b/bins < value ≤ (b+1)/bins."""
    return np.searchsorted(np.arange(1, bins) / bins, values)


def mass_bins(confidence: np.ndarray, bins: int) -> np.ndarray:
    """Rank · bins / N, the rank being how many values are lower."""
    return (confidence < confidence[:, None]).sum(1) * bins // len(confidence)


def binned_gap(values: np.ndarray, truth: np.ndarray, bin_of: np.ndarray) -> float:
    """Σ_b |Σ_{i∈b} (value − truth)| / N."""
    return np.abs(np.bincount(bin_of, values - truth)).sum() / len(values)


def sharpened(probs: np.ndarray) -> np.ndarray:
    return probs**2 / (probs**2).sum(1, keepdims=True)


def test_calibration_errors_of_six_rows_by_hand() -> None:
    # (.25, .5]: .5 miss, .4 hit; (.5, .75]: .7 hit, .6 miss; (.75, 1]: .8 hit, .9 hit.
    expected = {"ece": (0.1 + 0.3 + 0.3) / 6}
    # By rank {.4 hit, .5 miss}, {.6 miss}, {.7 hit, .8 hit}, {.9 hit}.
    expected["ece_adaptive"] = (0.1 + 0.6 + 0.5 + 0.1) / 6
    # Class 0: .4 + .5 + .3; class 1: .25 + .05 + .2; class 2: .6 + .6 + .1.
    expected["ece_classwise"] = (1.2 + 0.5 + 1.3) / 3 / 6
    result = scores(SIX, SIX_Y, bins=4)
    assert tuple(result) == METRICS
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [3, 211])
def test_scores_against_scikit_learn(n: int) -> None:
    """Of three rows, some classes are never true and some never predicted."""
    probs, y = sample(n, 7)
    predicted, result = probs.argmax(1), scores(probs, y)
    assert (len({*y, *predicted}) < 7) == (n == 3)
    assert result["accuracy"] == pytest.approx(accuracy_score(y, predicted))
    assert result["f1_macro"] == pytest.approx(f1_score(y, predicted, average="macro"))
    assert result["balanced_accuracy"] == pytest.approx(
        recall_score(y, predicted, labels=np.unique(y), average="macro")
    )
    assert result["nll"] == pytest.approx(log_loss(y, probs, labels=range(7)))


@pytest.mark.parametrize("bins", [2, 11, 15])
def test_ece_against_torchmetrics(bins: int) -> None:
    import torch

    from attnknn.core.torchvision_shim import torchvision  # noqa: F401  (torchmetrics imports it too)

    from torchmetrics.functional.classification import multiclass_calibration_error  # isort: skip

    probs, y = sample(307, 5, bins)
    probs = sharpened(probs)
    expected = multiclass_calibration_error(torch.tensor(probs), torch.tensor(y), num_classes=5, n_bins=bins)
    assert scores(probs, y, bins)["ece"] == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("bins", [3, 13])
def test_calibration_and_brier_by_their_definitions(bins: int) -> None:
    probs, y = sample(151, 5, bins)
    probs[:40] = np.round(probs[:40] * 0.98, 1) + 0.001  # ties
    probs /= probs.sum(1, keepdims=True)
    confidence, hit = probs.max(1), probs.argmax(1) == y
    result = scores(probs, y, bins)
    classwise = [binned_gap(p, y == c, width_bins(p, bins)) for c, p in enumerate(probs.T)]
    assert result["brier"] == pytest.approx(((probs - np.eye(5)[y]) ** 2).sum(1).mean())
    assert result["ece"] == pytest.approx(binned_gap(confidence, hit, width_bins(confidence, bins)))
    assert result["ece_adaptive"] == pytest.approx(binned_gap(confidence, hit, mass_bins(confidence, bins)))
    assert result["ece_classwise"] == pytest.approx(np.mean(classwise))


rows = st.builds(sample, st.integers(1, 40), st.integers(2, 7), st.integers(0, 2**32 - 1))


@settings(max_examples=60, deadline=None)
@given(rows, st.randoms(use_true_random=False), st.integers(2, 4), st.integers(1, 20))
def test_scores_are_in_range_and_invariant(data, random, times: int, bins: int) -> None:
    """To relabelled classes, reordered rows and repeated rows, whose equal confidences share an equal-mass bin."""
    probs, y = data
    label = np.array(random.sample(range(probs.shape[1]), probs.shape[1]))
    order = np.array(random.sample(range(len(y)), len(y)))
    relabelled = np.empty_like(probs)
    relabelled[:, label] = probs
    result = scores(probs, y, bins)
    expected = pytest.approx(result, abs=1e-9)
    assert scores(relabelled, label[y], bins) == expected
    assert scores(probs[order], y[order], bins) == expected
    assert scores(np.tile(probs, (times, 1)), np.tile(y, times), bins) == expected
    top = {"nll": math.inf, "brier": 2.0}
    assert all(0 <= value <= top.get(name, 1.0) for name, value in result.items())


def test_certain_and_right_is_the_best_of_every_score() -> None:
    y = np.arange(11) % 3
    best = {"accuracy": 1, "f1_macro": 1, "balanced_accuracy": 1}
    assert scores(np.eye(3)[y], y) == {name: best.get(name, 0) for name in METRICS}


def test_fault_7_probability_zero_of_a_true_class_is_an_error_and_never_clipped() -> None:
    probs, y = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0])
    for refused in (scores, reliability, lambda probs, y: bootstrap(probs[None], y, 15, 10, 0)):
        with pytest.raises(ValueError, match=r"a true class has probability 0.*prior mass"):
            refused(probs, y)
    assert scores(probs, np.array([0, 0]))["nll"] == pytest.approx(math.log(2) / 2)
    tiny = np.array([[1 - 1e-12, 1e-12]])
    assert scores(tiny, np.array([1]))["nll"] == pytest.approx(12 * math.log(10))


@pytest.mark.parametrize(
    ("probs", "y", "message"),
    [
        ([[0.5, 0.6]], [0], "sum to 1"),
        ([[1.5, -0.5]], [0], "not negative"),
        ([[math.nan, 0.5]], [0], "finite"),
        ([[0.5, 0.5]], [2], "2 … 2 for 2 classes"),
        ([[0.5, 0.5]], [-1], "-1 … -1 for 2 classes"),
        ([[0.5, 0.5]], [0, 1], r"\(1, 2\) and y \(2,\)"),
        ([0.5, 0.5], [0, 1], r"probs \(2,\)"),
        (np.empty((0, 2)), np.empty(0, dtype=int), "N > 0"),
    ],
)
def test_what_is_no_distribution_is_refused(probs, y, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scores(np.array(probs), np.array(y))


def test_resamples_draw_n_rows_each_with_equal_chances() -> None:
    counts = np.concatenate(list(metrics.bootstrap_counts(31, 230, seed=3)))
    assert counts.shape == (230, 31)
    assert (counts.sum(1) == 31).all()
    # 230 · 31 draws over 31 rows: 230 each, with a standard deviation of 15.
    assert abs(counts.sum(0) - 230).max() < 75
    # A row is absent from a share (1 − 1/31)³¹ = .362 of the resamples.
    assert (counts == 0).mean() == pytest.approx(0.362, abs=0.02)


@pytest.mark.filterwarnings("error")
def test_bootstrap_against_scores_of_the_drawn_rows() -> None:
    """Few rows, so that classes go missing. Equal-mass bins stay those of all rows, so they are summed here."""
    y = np.arange(13) % 5
    probs = np.stack([sample(13, 5, seed)[0] for seed in (0, 1)])
    result = bootstrap(probs, y, bins=4, resamples=30, seed=7)
    assert result.shape == (2, 30, 8)
    counts = np.concatenate(list(metrics.bootstrap_counts(13, 30, seed=7))).astype(int)
    drawn = [np.repeat(np.arange(13), row) for row in counts]
    assert min(len(set(y[idx])) for idx in drawn) < 5
    for p, resampled in zip(probs, result, strict=True):
        confidence, hit, mass = p.max(1), p.argmax(1) == y, mass_bins(p.max(1), 4)
        for idx, values in zip(drawn, resampled, strict=True):
            expected = scores(p[idx], y[idx], bins=4)
            expected["ece_adaptive"] = binned_gap(confidence[idx], hit[idx], mass[idx])
            assert dict(zip(METRICS, values, strict=True)) == pytest.approx(expected)


def test_bootstrap_is_paired_repeats_and_is_the_same_in_groups_of_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    probs, y = sample(101, 3)
    four = np.stack([probs, probs, sharpened(probs), probs[:, ::-1]])
    result = bootstrap(four, y, 15, 250, seed=5)
    np.testing.assert_allclose(result[0], result[1], atol=1e-12)
    assert (result == bootstrap(four, y, 15, 250, seed=5)).all()
    np.testing.assert_allclose(result[:1], bootstrap(probs[None], y, 15, 250, seed=5), atol=1e-12)
    assert not (result == bootstrap(four, y, 15, 250, seed=6)).all()
    monkeypatch.setattr(metrics, "_MAX_TERMS", 2 * 101 * (3 + 9 + 30 + 45))
    np.testing.assert_allclose(bootstrap(four, y, 15, 250, seed=5), result, atol=1e-12)


def test_interval_by_hand() -> None:
    values = np.random.default_rng(0).permutation(101).astype(float)
    assert interval(values, 0.9) == pytest.approx((5, 95))
    assert interval(values, 0.5) == pytest.approx((25, 75))


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        (np.repeat([1.0, 2, 3, -1], 10), 2 * (10 + 1) / 41),  # 10 of 40 are below 0: counted
        (np.array([1.0, 2, 3, -1]), math.erfc(1.25 / math.sqrt(2.1875) / math.sqrt(2))),  # mean 1.25, variance 35/16
        (np.ones(99), 2 / 100),
        (-np.ones(99), 2 / 100),
        (np.zeros(99), 1.0),
        (np.array([-1.0, 1.0]), 1.0),
    ],
)
def test_paired_p_by_hand(differences: np.ndarray, expected: float) -> None:
    assert paired_p(differences) == pytest.approx(expected)


def test_paired_p_goes_on_where_counting_ends() -> None:
    """Six standard errors off: of 2,000 resamples none crosses 0, and p is 2Φ(−6) = 2·10⁻⁹ all the same."""
    differences = np.random.default_rng(0).normal(6, 1, 2000)
    assert (differences > 0).all()
    assert 1e-10 < paired_p(differences) < 1e-8


def test_paired_t_by_hand_and_as_scipy() -> None:
    """Mean 1, sd 4/√3 of 2 values each of −1 and 3, not skewed, κ = −2; a third value without tails is a t test."""
    assert metrics.paired_t(np.array([-1.0, -1, 3, 3])) == pytest.approx(2 * stats.t.sf(math.sqrt(3) / 2, 3))
    d = np.random.default_rng(0).uniform(-1, 1.2, 400)
    d = np.concatenate([d, 0.2 - d])  # symmetric about 0.1
    assert metrics.paired_t(d) == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    assert metrics.paired_t(d) == metrics.paired_t(-d)
    assert (metrics.paired_t(np.zeros(9)), metrics.paired_t(np.ones(9)), metrics.paired_t(np.ones(1))) == (1, 0, 0)


def test_paired_t_is_honest_where_losses_are_skewed() -> None:
    """No difference in truth; 66 of 320 rows are wrong, and cost more in one method: p < .001 must stay that rare."""
    d = skewed_losses(200_000, sharpness=2.0)
    d = np.random.default_rng(1).choice(d, (4000, 320))
    assert np.mean([metrics.paired_t(row) < 0.001 for row in d]) <= 0.0015
    assert np.mean(stats.ttest_1samp(d, 0, axis=1).pvalue < 0.001) > 0.003, "a t test is not"


def test_repeated_t_by_hand() -> None:
    """Means of rows and of repeats are 1 and 3: a = b = 1, ν = 2, t = √2, p = 1 − √2/2; `paired_t` has a higher p."""
    low, high, p = metrics.repeated_t(np.array([[0.0, 2], [2, 4]]), 0.5)
    assert p == pytest.approx(1 - 2 * math.atan(2) / math.pi)
    half = 1 / math.sqrt(1.5) * math.sqrt(2) / math.sqrt(2)  # median of |t₂| is √(2/3)
    assert (low, high) == pytest.approx((2 - half * math.sqrt(2), 2 + half * math.sqrt(2)))
    assert metrics.repeated_t(np.ones((2, 3)), 0.95) == (1, 1, 0)
    assert metrics.repeated_t(np.zeros((2, 3)), 0.95) == (0, 0, 1)


@pytest.mark.parametrize(("of_rows", "of_repeats"), [(1.0, 0.0), (0.0, 0.3), (1.0, 0.3), (0.0, 0.0)])
def test_repeated_t_allows_for_other_rows_and_other_repeats(of_rows: float, of_repeats: float) -> None:
    rng = np.random.default_rng(0)
    n_trials, n_repeats, n_rows = 1000, 5, 100
    d = of_rows * rng.normal(size=(n_trials, 1, n_rows)) + of_repeats * rng.normal(size=(n_trials, n_repeats, 1))
    d += rng.normal(size=(n_trials, n_repeats, n_rows))
    results = [metrics.repeated_t(own, 0.95) for own in d]
    assert np.mean([p < 0.05 for *_, p in results]) < 0.07
    assert np.mean([low < 0 < high for low, high, _ in results]) > 0.93
    if of_repeats:
        assert np.mean([metrics.paired_t(own.mean(0)) < 0.05 for own in d]) > 0.15, "rows alone are too sure"


def test_mcnemar_by_hand() -> None:
    """Rows that both or neither get right say nothing: 5 against 1 gives 2 · (1 + 6) / 2⁶."""
    a = np.array([1] * 5 + [0] + [1] * 8 + [0] * 3, dtype=bool)
    b = np.array([0] * 5 + [1] + [1] * 8 + [0] * 3, dtype=bool)
    assert mcnemar(a, b) == mcnemar(b, a) == pytest.approx(14 / 64)
    assert mcnemar(a[6:], b[6:]) == 1.0
    assert mcnemar(a[:5], b[:5]) == pytest.approx(2 / 2**5)


@pytest.mark.filterwarnings("error")
def test_reliability_by_hand_and_as_parts_of_the_ece() -> None:
    rows = [0, 0.25, 0, None, None], [0.25, 0.5, 2, 0.45, 0.5], [0.5, 0.75, 2, 0.65, 0.5], [0.75, 1, 2, 0.85, 1.0]
    for row, values in zip(reliability(SIX, SIX_Y, bins=4), rows, strict=True):
        assert list(row.values()) == pytest.approx(values)
    probs, y = sample(173, 7)
    for bins in (1, 15, 200):
        result = [b for b in reliability(probs, y, bins) if b["count"]]
        assert sum(b["count"] for b in result) == 173
        assert all(b["low"] < b["confidence"] <= b["high"] for b in result)
        gap = sum(b["count"] * abs(b["confidence"] - b["accuracy"]) for b in result) / 173
        assert gap == pytest.approx(scores(probs, y, bins)["ece"])


def test_wilson_by_hand() -> None:
    """8 of 10 at 95 %: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n) with z = 1.96; and 10 of 10 has a width."""
    hits = np.array([True] * 8 + [False] * 2)
    z, n, p = 1.959964, 10, 0.8
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    ends = np.array([centre - half, centre + half]) / (1 + z * z / n)
    assert metrics.wilson(hits, 0.95) == pytest.approx(tuple(ends))
    assert metrics.wilson(np.ones(10, dtype=bool), 0.95) == (pytest.approx(1 / (1 + z * z / 10)), 1.0)


def test_oracle_by_hand() -> None:
    """Three rows of classes 0, 1, 2: found first, found third, never found; −1 is no neighbour."""
    labels, y = np.array([[0, 1, 2], [0, 2, 1], [0, 1, -1]]), np.array([0, 1, 2])
    assert [oracle(labels, y, k) for k in (1, 2, 3)] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="k: 4 of 3"):
        oracle(labels, y, 4)


def test_confusion_is_scikit_learns() -> None:
    results = predictions(TIE, 300, seed=2)
    table = pd.DataFrame(confusion(results, ("attention", "distance_vector")))
    for method in ("attention", "distance_vector"):
        counts = table[table["method"] == method].pivot_table("count", "actual", "predicted", fill_value=0)
        predicted = results.probs[results.methods.index(method)].argmax(1)
        np.testing.assert_array_equal(counts, confusion_matrix(results.y, predicted))
    with pytest.raises(InputError, match="cnn: no such method"):
        confusion(results, ("cnn",))
