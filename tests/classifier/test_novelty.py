"""Novelty: conformal p values of rows unlike the memory, without examples of anything new."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from attnknn import AttnKNNClassifier
from attnknn.classifier import novelty
from attnknn.classifier.novelty import LEAST, PRIOR, Novelty, fit_weights, novelty_features

DIGITS, Y = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(Y))
X, Y = DIGITS[ORDER] / 16, Y[ORDER]
KNOWN = np.isin(Y, (0, 1, 3, 4, 6, 7))
FITTED, NEW_ROWS = np.flatnonzero(KNOWN)[:600], np.flatnonzero(KNOWN)[600:]
OTHERS = np.flatnonzero(~KNOWN)


@pytest.fixture(scope="module")
def digits() -> AttnKNNClassifier:
    return AttnKNNClassifier(30, max_iter=5, random_state=0).fit(X[FITTED], Y[FITTED])


def test_features_by_hand() -> None:
    sims = -(np.arange(1, 31, dtype=np.float32)[None] ** 2)
    density = np.full((1, 30), -4.0, np.float32)
    features = novelty_features(sims, density, np.array([0.75]), 0.0)
    mean = np.mean(np.arange(1, 21.0) ** 2)
    np.testing.assert_allclose(features, [[0, np.log(25), np.log(400), np.log(mean / 4), np.log(0.25)]], rtol=1e-6)


def test_features_of_few_neighbours_are_of_as_many_as_there_are() -> None:
    sims, density = np.array([[-1, -4, -np.inf]], np.float32), np.array([[-1, -1, -9]], np.float32)
    features = novelty_features(sims, density, np.array([1.0]), 0.0)
    np.testing.assert_allclose(features, [[0, np.log(4), np.log(4), np.log(2.5), np.log(1e-6)]], rtol=1e-6)


def test_p_values_are_shares_of_held_out_rows_that_are_as_novel() -> None:
    own = Novelty(np.array([1.0, 0, 0, 0, 0]), np.zeros(5), np.ones(5), np.array([0.0, 1, 2, 3]), 0.0)
    sims = -np.exp(np.array([[-9.0], [1.0], [1.5], [99.0]])).astype(np.float64)
    np.testing.assert_allclose(own.p_values(sims, sims, np.full(4, 0.5)), [1, 0.8, 0.6, 0.2])


def test_a_class_that_is_left_out_takes_no_part_in_the_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two classes the other one is then certain."""
    seen: list[np.ndarray] = []

    def fit_and_keep(known: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        seen.append(unknown)
        return PRIOR

    monkeypatch.setattr(novelty, "fit_weights", fit_and_keep)
    rows = np.flatnonzero(np.isin(Y, (3, 8)))[:300]
    fitted = AttnKNNClassifier(30, weights="distance", random_state=0).fit(X[rows], Y[rows])._novelty
    unsure = seen[0][:, 4] * fitted.spread[4] + fitted.centre[4]
    np.testing.assert_allclose(unsure, np.log(1e-6))


def test_weights_are_those_of_logistic_regression_where_no_bound_holds() -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(size=(4000, 5)), rng.normal(size=(2000, 5)) + np.array([0.9, 0.6, 0.7, 0.5, 0.4])
    x, y = np.concatenate([known, unknown]), np.repeat([0, 1], [4000, 2000])
    expected = LogisticRegression(C=np.inf, class_weight="balanced", tol=1e-8).fit(x, y).coef_[0]
    np.testing.assert_allclose(fit_weights(known, unknown), expected, atol=0.03)


def test_weights_keep_their_bounds_and_without_rows_their_prior() -> None:
    rng = np.random.default_rng(0)
    known = rng.normal(size=(500, 5))
    weights = fit_weights(known, rng.normal(size=(500, 5)) - 2)
    np.testing.assert_allclose(weights, LEAST, atol=1e-6)
    np.testing.assert_array_equal(fit_weights(known, known[:0]), PRIOR)


def test_p_values_of_new_known_rows_are_uniform() -> None:
    rng, p = np.random.default_rng(1), []
    for seed in range(6):
        rows = rng.permutation(np.flatnonzero(KNOWN))
        model = AttnKNNClassifier(30, weights="distance", random_state=seed).fit(X[rows[:600]], Y[rows[:600]])
        p.append(model.novelty(X[rows[600:]]))
    pooled = np.concatenate(p)
    assert kstest(pooled, "uniform").statistic < 0.08
    assert 0.04 < (pooled <= 0.05).mean() < 0.06  # 0.032 without the correction for a smaller memory
    assert 0.085 < (pooled <= 0.1).mean() < 0.115


def test_rows_of_unknown_classes_are_novel(digits: AttnKNNClassifier) -> None:
    rows, unknown = np.concatenate([NEW_ROWS, OTHERS]), np.repeat([0, 1], [len(NEW_ROWS), len(OTHERS)])
    score = roc_auc_score(unknown, -digits.novelty(X[rows]))
    assert score > 0.96
    assert score > roc_auc_score(unknown, -digits.predict_proba(X[rows]).max(1)) + 0.02


def test_what_is_far_from_all_rows_has_the_least_p(digits: AttnKNNClassifier) -> None:
    far = np.concatenate([100 * X[NEW_ROWS[:20]], np.full((1, 64), 1000.0), np.full((1, 64), -1000.0)])
    least = 1 / (len(digits._novelty.scores) + 1)
    np.testing.assert_allclose(digits.novelty(far), least)
    assert all(label is None for label in digits.predict(far, reject=0.05))


def test_predict_rejects_novel_rows_alone(digits: AttnKNNClassifier) -> None:
    rows = np.concatenate([X[NEW_ROWS[:100]], X[OTHERS[:100]]])
    p, labels = digits.novelty(rows), digits.predict(rows, reject=0.1)
    assert 50 < (p <= 0.1).sum() < 190
    for label, plain, value in zip(labels, digits.predict(rows), p, strict=True):
        assert label is None if value <= 0.1 else label == plain


@pytest.mark.parametrize(
    ("reject", "message"), [(0, "above 0 and below 1"), (1.0, "above 0"), (-1, "above 0"), (1e-9, "rows allow 0.0033")]
)
def test_levels_that_reject_nothing_are_refused(digits: AttnKNNClassifier, reject: float, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        digits.predict(X[:3], reject=reject)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        digits.predict(X[:3], reject="x")  # type: ignore[arg-type]


def test_an_added_class_is_no_longer_new(digits: AttnKNNClassifier, tmp_path: Path) -> None:
    digits.save(tmp_path / "model")
    model = AttnKNNClassifier.load(tmp_path / "model")
    twos = np.flatnonzero(Y == 2)
    before = model.novelty(X[twos[100:]])
    np.testing.assert_array_equal(before, digits.novelty(X[twos[100:]]))
    after = model.partial_fit(X[twos[:100]], Y[twos[:100]]).novelty(X[twos[100:]])
    assert (before <= 0.05).mean() > 0.8
    assert (after <= 0.05).mean() < 0.2


def test_identical_rows_and_two_classes() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(2, size=(300, 3)).astype(float)
    model = AttnKNNClassifier(10, max_iter=2, random_state=0).fit(rows, rows[:, 0] > 0)
    p = model.novelty(np.concatenate([rows[:50], [[50.0, 50, 50]]]))
    assert np.isfinite(p).all()
    assert p[-1] == 1 / (len(model._novelty.scores) + 1)


def a_table(n_classes: int, n: int, separation: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = separation * np.random.default_rng(9).normal(size=(n_classes, 10))
    y = rng.permutation(np.arange(n) % n_classes)
    return centres[y] + rng.normal(size=(n, 10)), y


@pytest.mark.parametrize("k", [1, 3, 8, 30])
def test_p_values_are_uniform_with_any_number_of_neighbours(k: int) -> None:
    rejected = []
    for seed in range(3):
        rows, y = a_table(5, 2000, 1.0, seed)
        model = AttnKNNClassifier(k, weights="distance", random_state=0).fit(rows[:1000], y[:1000])
        rejected.append((model.novelty(rows[1000:]) <= 0.05).mean())
    assert 0.03 < np.mean(rejected) < 0.07


@pytest.mark.parametrize(("n_classes", "rows"), [(20, 15), (20, 10), (100, 16)])
def test_usual_rows_of_small_classes_far_apart_are_not_rejected(n_classes: int, rows: int) -> None:
    data, y = a_table(n_classes, 2 * rows * n_classes, 5.0)
    first = np.concatenate([np.flatnonzero(y == c)[:rows] for c in range(n_classes)])
    model = AttnKNNClassifier(weights="distance", random_state=0).fit(data[first], y[first])
    new = np.setdiff1d(np.arange(len(y)), first)
    assert (model.novelty(data[new]) <= 0.05).mean() < 0.12


def test_novelty_of_a_table_does_not_depend_on_the_unit_of_its_rows(tmp_path: Path) -> None:
    pytest.importorskip("lance")
    rows, y = a_table(4, 2600, 1.0)
    p = []
    for scale in (1.0, 1e-3):
        model = AttnKNNClassifier(30, weights="distance", storage=tmp_path / f"{scale}.lance", random_state=0)
        model.fit(scale * rows[:2000], y[:2000])
        p.append(model.novelty(scale * rows[2000:]))
        far = model.novelty(scale * (rows[2000:] + 50))
        np.testing.assert_allclose(far, 1 / (len(model._novelty.scores) + 1))
    np.testing.assert_allclose(*p, atol=0.02)
    assert 0.02 < (p[0] <= 0.05).mean() < 0.09
