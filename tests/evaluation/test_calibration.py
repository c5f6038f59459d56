"""Calibration: known answers, known minima, and the edges: few rows, absent classes, two classes, zeros."""

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from attnknn.core.errors import InputError
from attnknn.evaluation import calibration
from attnknn.evaluation.calibration import KINDS, PRIOR, UNCHANGED, calibrate, fit_vector_scaling, vector_scale

RIDGES = (0.0001, 0.01, 1.0, 100.0)
Rows = tuple[np.ndarray, np.ndarray]


def rows(n: int, seed: int, classes: int = 4, sharp: float = 3.0) -> Rows:
    """Labels drawn from softmax(logits), and probabilities softmax(sharp · logits): too sure where sharp > 1."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 1.5
    y = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return softmax(sharp * logits, 1).astype(np.float32), y


def parts(n: int, classes: int = 4, sharp: float = 3.0) -> tuple[np.ndarray, ...]:
    """Fit, val and test rows, each with their labels."""
    return tuple(array for seed in range(3) for array in rows(n, seed, classes, sharp))


def mean_nll(probs: np.ndarray, y: np.ndarray) -> float:
    return -float(np.log(probs[np.arange(len(y)), y].astype(np.float64)).mean())


def are_distributions(*probs: np.ndarray) -> bool:
    return all(p.dtype == np.float32 and (p > 0).all() and np.abs(p.sum(1) - 1).max() < 1e-6 for p in probs)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_sure_comes_near_the_truth(kind: str) -> None:
    """The labels' own probabilities have the lowest NLL there is; calibration wins back most of what is lost to it."""
    *known, test, y = parts(1500)
    truth = mean_nll(rows(1500, 2, sharp=1.0)[0], y)
    result = calibrate(kind, *known, test, RIDGES)
    assert are_distributions(result.val, result.test)
    assert mean_nll(result.test, y) - truth < 0.25 * (mean_nll(test, y) - truth)
    assert result.settings != UNCHANGED
    one = calibrate(kind, *known, test[:1], RIDGES)  # test rows change nothing about the fit
    assert one.settings == result.settings
    np.testing.assert_allclose(one.test, result.test[:1], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_change_where_fit_rows_mislead(kind: str) -> None:
    """Fit rows whose labels say nothing: whatever is fitted to them is worse on val than the probabilities as given."""
    fit, y_fit, val, y_val, test, _ = parts(60, sharp=1.0)
    result = calibrate(kind, fit, (y_fit + 1) % 4, val, y_val, test, (0.0001,))
    assert result.settings == UNCHANGED
    np.testing.assert_allclose(result.test, test, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_zeros_and_classes_without_a_fit_row(kind: str) -> None:
    """Class 3 is absent from fit rows. Rows that gave it nearly all are still given to it."""
    for n, classes in itertools.product((1, 10, 25), (2, 3)):
        fit, y_fit, val, y_val, test, _ = parts(n, classes)
        fit[0], test[0], val[0] = np.eye(classes)[[0, 1, 1]]
        result = calibrate(kind, fit, y_fit, val, y_val, test, RIDGES)
        assert are_distributions(result.val, result.test)
    known = [array[y != 3] for probs, y in (rows(400, 0), rows(400, 1)) for array in (probs, y)]
    test = np.array([[1e-6, 1e-6, 1e-6, 1 - 3e-6]], dtype=np.float32)
    result = calibrate(kind, *known, test, RIDGES)
    assert result.settings != UNCHANGED
    assert are_distributions(result.test)
    assert result.test[0, 3] > 1e-4


def test_isotonic_by_hand() -> None:
    """p(1) = .2, .4, .6, .8 with labels 0, 1, 0, 1: the middle two are pooled at ½; .2 becomes 1/202 of 200 rows."""
    p = np.array([0.2, 0.4, 0.6, 0.8] * 50)
    y = np.array([0, 1, 0, 1] * 50)
    both = np.stack([1 - p, p], 1)
    result = calibrate("isotonic", both, y, both, y, both[:4], ())
    mix = result.settings["mix"]
    assert mix == 0.001
    isotonic = np.array([1 / 202, 0.5, 0.5, 201 / 202])
    np.testing.assert_allclose(result.test[:, 1], (1 - mix) * isotonic + mix * p[:4], rtol=1e-5)


def test_isotonic_does_not_exclude_a_rare_class() -> None:
    """No fit row of class 1 below p(1) = .5: a test row of it there costs log 202, not the log of its own 1e-9."""
    p = np.array([1e-9, 0.9] * 100)
    y = (p > 0.5).astype(int)
    both = np.stack([1 - p, p], 1)
    result = calibrate("isotonic", both, y, both, y, both[:1], ())
    assert -np.log(result.test[0, 1]) < np.log(202) + 0.01


def test_temperature_is_what_made_them_too_sure_and_explains_the_probabilities() -> None:
    *known, test, _ = parts(20_000)
    result = calibrate("temperature", *known, test, RIDGES)
    assert result.settings["temperature"] == pytest.approx(3, rel=0.05)
    np.testing.assert_allclose(result.test, softmax(np.log(test) / result.settings["temperature"], 1), rtol=1e-4)
    np.testing.assert_array_equal(result.test.argmax(1), test.argmax(1))


def test_an_unknown_kind_is_told() -> None:
    with pytest.raises(InputError, match="platt unknown; allowed are temperature"):
        calibrate("platt", *parts(3)[:-1], RIDGES)


def fit_to_the_end(log_probs: np.ndarray, y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Scale and bias, where the gradient of the convex problem is 0."""
    scale, bias = fit_vector_scaling(log_probs, y, ridge)
    classes = log_probs.shape[1]
    residual = (softmax(scale * log_probs + bias, 1) - np.eye(classes)[y]) / len(y)
    assert np.abs((residual * log_probs).sum(0) + 2 * ridge * (scale - 1) / classes).max() < 1e-6
    assert np.abs(residual.sum(0) + 2 * ridge * bias / classes).max() < 1e-6
    return scale, bias


def test_vector_scaling_reaches_the_known_minimum_and_ridge_holds_it_back() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3)) * 2
    y = (logits * [1.0, 2.0, 0.5] + [0.5, -0.5, 0.0] + rng.gumbel(size=logits.shape)).argmax(1)
    log_probs = log_softmax(logits, axis=1)
    best = mean_nll(vector_scale(log_probs, *fit_to_the_end(log_probs, y, 1e-6)), y)
    # A full linear map on the same inputs has more freedom, so its optimum bounds ours from below, and not by much.
    full = LogisticRegression(C=1e6, max_iter=1000).fit(log_probs, y).predict_proba(log_probs)
    assert mean_nll(full, y) - 1e-4 <= best < mean_nll(np.exp(log_probs), y) - 0.03
    for held, unchanged in zip(fit_to_the_end(log_probs, y, 1e6), (1, 0), strict=True):
        np.testing.assert_allclose(held, unchanged, atol=1e-3)
    hopeless = log_softmax(rng.normal(0, 40, (60, 4)), axis=1)  # true classes as unlikely as e⁻¹⁰⁰
    for ridge in (1e-4, 1.0):
        fit_to_the_end(hopeless, rng.integers(3, size=60), ridge)  # the last class never comes


def test_dirichlet_is_the_same_by_either_solver_and_in_any_order_of_ridges(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(4, size=400)
    probs = softmax(2 * np.eye(4)[y] + rng.normal(0, 1.5, (400, 4)), 1)
    ridges = [0.01, 1.0, 0.1]
    newton, turned = (calibration._fit_dirichlet(probs, y, order) for order in (ridges, ridges[::-1]))
    monkeypatch.setattr(calibration, "_NEWTON_CLASSES", 3)
    quasi = calibration._fit_dirichlet(probs, y, ridges)
    result = [step(probs) for step in newton]
    np.testing.assert_allclose([step(probs) for step in turned[::-1]], result, atol=1e-12)
    np.testing.assert_allclose([step(probs) for step in quasi], result, atol=2e-3)
    assert np.abs(result[0] - result[1]).max() > 0.01, "each ridge keeps its own fit"
    (without_last,) = calibration._fit_dirichlet(probs[y < 3], y[y < 3], [0.1])
    np.testing.assert_array_equal(without_last(probs)[:, 3], probs[:, 3])
    np.testing.assert_allclose(without_last(probs).sum(1), 1)


def test_the_prior_is_taken_out_by_hand() -> None:
    """(.6, .3, .1) over shares (.6, .3, .1) is uniform at η = 1; at ½ it goes as √; at 0 nothing changes."""
    shares = np.array([0.6, 0.3, 0.1])
    for eta, expected in ((1.0, np.full(3, 1 / 3)), (0.5, np.sqrt(shares) / np.sqrt(shares).sum()), (0.0, shares)):
        np.testing.assert_allclose(calibration.correct_prior(shares[None], shares, eta), [expected])


def skewed(n: int, seed: int, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of classes as the shares have it, and their true posterior."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=shares)
    x = rng.normal(size=(n, 3)) + 2 * np.eye(3)[y]
    return softmax(2 * x + np.log(shares), 1).astype(np.float32), y


def test_eta_is_that_of_the_lowest_class_balanced_nll_on_val() -> None:
    """The posterior under skewed shares, corrected by η = 1, is that under even ones, of lowest balanced NLL."""
    shares = np.array([0.8, 0.15, 0.05])
    (fit, y_fit), (val, y_val) = skewed(50, 0, shares), skewed(20_000, 1, shares)
    test, y = skewed(20_000, 2, np.full(3, 1 / 3))
    test = softmax(np.log(test) + np.log(shares), 1)  # as a model of the skewed rows answers
    result = calibrate(PRIOR, fit, y_fit, val, y_val, test, RIDGES, shares)
    assert result.settings == {"eta": 1.0}
    assert mean_nll(result.test, y) < mean_nll(test, y) - 0.05
    even = calibrate(PRIOR, fit, y_fit, val, y_val, test, RIDGES, np.full(3, 1 / 3))
    assert even.settings == UNCHANGED, "even shares leave nothing to correct"
    assert are_distributions(result.test)
