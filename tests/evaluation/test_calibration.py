"""Calibration: known answers, known minima, and the edges: few rows, absent classes, two classes, zeros."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from attnknn.core.errors import InputError
from attnknn.evaluation import calibration
from attnknn.evaluation.calibration import (
    KINDS,
    PRIOR,
    UNCHANGED,
    calibrate,
    correct_prior,
    fit_temperature,
    fit_vector_scaling,
    vector_scale,
)

RIDGES = (0.0001, 0.01, 1.0, 100.0)
Rows = tuple[np.ndarray, np.ndarray]


def rows(n: int, seed: int, classes: int = 4, sharp: float = 3.0) -> Rows:
    """Labels drawn from softmax(logits), and probabilities softmax(sharp · logits): too sure where sharp > 1."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 1.5
    y = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return softmax(sharp * logits, 1).astype(np.float32), y


def mean_nll(probs: np.ndarray, y: np.ndarray) -> float:
    return -float(np.log(probs[np.arange(len(y)), y].astype(np.float64)).mean())


def are_distributions(probs: np.ndarray) -> bool:
    return probs.dtype == np.float32 and (probs > 0).all() and np.abs(probs.sum(1) - 1).max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_sure_comes_near_the_truth(kind: str) -> None:
    """The labels' own probabilities have the lowest NLL there is; calibration wins back most of what is lost to it."""
    (fit, y_fit), (val, y_val), (test, y) = (rows(1500, seed) for seed in range(3))
    truth = mean_nll(rows(1500, 2, sharp=1.0)[0], y)
    result = calibrate(kind, fit, y_fit, val, y_val, test, RIDGES)
    assert are_distributions(result.val)
    assert are_distributions(result.test)
    assert mean_nll(result.test, y) - truth < 0.25 * (mean_nll(test, y) - truth)
    assert result.settings != UNCHANGED


@pytest.mark.parametrize("kind", KINDS)
def test_no_change_where_fit_rows_mislead(kind: str) -> None:
    """Fit rows whose labels say nothing: whatever is fitted to them is worse on val than the probabilities as given."""
    (fit, y_fit), (val, y_val), (test, _) = (rows(60, seed, sharp=1.0) for seed in range(3))
    result = calibrate(kind, fit, (y_fit + 1) % 4, val, y_val, test, (0.0001,))
    assert result.settings == UNCHANGED
    np.testing.assert_allclose(result.test, test, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("n", [1, 10, 25])
def test_few_rows_and_zeros(kind: str, classes: int, n: int) -> None:
    (fit, y_fit), (val, y_val), (test, _) = (rows(n, seed, classes) for seed in range(3))
    fit[0], test[0], val[0] = np.eye(classes)[[0, 1, 1]]
    result = calibrate(kind, fit, y_fit, val, y_val, test, RIDGES)
    assert are_distributions(result.val)
    assert are_distributions(result.test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_without_a_fit_row_can_still_be_answered(kind: str) -> None:
    """Class 3 is absent from fit rows. Rows that gave it nearly all are still given to it."""
    (fit, y_fit), (val, y_val) = rows(400, 0), rows(400, 1)
    fit, y_fit = fit[y_fit != 3], y_fit[y_fit != 3]
    val, y_val = val[y_val != 3], y_val[y_val != 3]
    test = np.array([[1e-6, 1e-6, 1e-6, 1 - 3e-6]], dtype=np.float32)
    result = calibrate(kind, fit, y_fit, val, y_val, test, RIDGES)
    assert result.settings != UNCHANGED
    assert are_distributions(result.test)
    assert result.test[0, 3] > 1e-4


def test_isotonic_by_hand() -> None:
    """p(1) = .2, .4, .6, .8 with labels 0, 1, 0, 1: the middle two are pooled at ½, so .6 becomes .5 (less the mix)."""
    p = np.array([0.2, 0.4, 0.6, 0.8] * 50)
    y = np.array([0, 1, 0, 1] * 50)
    both = np.stack([1 - p, p], 1)
    result = calibrate("isotonic", both, y, both, y, both[:4], ())
    mix = result.settings["mix"]
    assert mix == 0.001
    np.testing.assert_allclose(result.test[:, 1], (1 - mix) * np.array([0, 0.5, 0.5, 1]) + mix * p[:4], rtol=1e-5)


def test_temperature_settings_explain_the_probabilities() -> None:
    (fit, y_fit), (val, y_val), (test, _) = (rows(300, seed) for seed in range(3))
    result = calibrate("temperature", fit, y_fit, val, y_val, test, RIDGES)
    np.testing.assert_allclose(result.test, softmax(np.log(test) / result.settings["temperature"], 1), rtol=1e-4)
    np.testing.assert_array_equal(result.test.argmax(1), test.argmax(1))


def test_test_rows_change_nothing_about_the_fit() -> None:
    (fit, y_fit), (val, y_val), (test, _) = (rows(200, seed) for seed in range(3))
    for kind in KINDS:
        whole = calibrate(kind, fit, y_fit, val, y_val, test, RIDGES)
        one = calibrate(kind, fit, y_fit, val, y_val, test[:1], RIDGES)
        assert one.settings == whole.settings
        np.testing.assert_allclose(one.test, whole.test[:1], rtol=1e-6)


def test_an_unknown_kind_is_told() -> None:
    with pytest.raises(InputError, match="platt unknown; allowed are temperature"):
        calibrate("platt", *rows(3, 0), *rows(3, 1), rows(3, 2)[0], RIDGES)


def test_temperature_undoes_a_known_one() -> None:
    """Labels drawn from softmax(logits): scaling the logits by 3 must be answered by T = 3."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 4)) * 2
    y = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    assert fit_temperature(3 * logits, y) == pytest.approx(3, rel=0.05)


def test_vector_scaling_reaches_the_known_minimum_and_ridge_holds_it_back() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3)) * 2
    y = (logits * [1.0, 2.0, 0.5] + [0.5, -0.5, 0.0] + rng.gumbel(size=logits.shape)).argmax(1)
    log_probs = log_softmax(logits, axis=1)

    def nll(scale: np.ndarray, bias: np.ndarray) -> float:
        return -float(np.log(vector_scale(log_probs, scale, bias)[np.arange(len(y)), y]).mean())

    scale, bias = fit_vector_scaling(log_probs, y, 1e-6)
    best = nll(scale, bias)
    for step in (-0.05, 0.05):
        for i in range(3):
            assert nll(scale + step * np.eye(3)[i], bias) >= best - 1e-6
            assert nll(scale, bias + step * np.eye(3)[i]) >= best - 1e-6
    # A full linear map on the same inputs has more freedom, so its optimum bounds ours from below, and not by much.
    full = LogisticRegression(C=1e6, max_iter=1000).fit(log_probs, y).predict_proba(log_probs)
    assert -np.log(full[np.arange(len(y)), y]).mean() - 1e-4 <= best < nll(np.ones(3), np.zeros(3)) - 0.03
    held = fit_vector_scaling(log_probs, y, 1e6)
    np.testing.assert_allclose(held[0], 1, atol=1e-3)
    np.testing.assert_allclose(held[1], 0, atol=1e-3)


def test_vector_scaling_ends_where_the_gradient_is_zero_even_from_hopeless_probabilities() -> None:
    rng = np.random.default_rng(3)
    log_probs = log_softmax(rng.normal(0, 40, (60, 4)), axis=1)  # true classes as unlikely as e⁻¹⁰⁰
    y = rng.integers(3, size=60)  # the last class never comes
    for ridge in (1e-4, 1.0):
        scale, bias = fit_vector_scaling(log_probs, y, ridge)
        residual = (softmax(scale * log_probs + bias, 1) - np.eye(4)[y]) / 60
        assert np.abs((residual * log_probs).sum(0) + ridge * (scale - 1) / 2).max() < 1e-6
        assert np.abs(residual.sum(0) + ridge * bias / 2).max() < 1e-6


def test_dirichlet_is_the_same_by_either_solver_and_in_any_order_of_ridges(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(4, size=400)
    probs = softmax(2 * np.eye(4)[y] + rng.normal(0, 1.5, (400, 4)), 1)
    ridges = [0.01, 1.0, 0.1]
    newton, turned = (calibration._fit_dirichlet(probs, y, order) for order in (ridges, ridges[::-1]))
    monkeypatch.setattr(calibration, "_NEWTON_CLASSES", 3)
    quasi = calibration._fit_dirichlet(probs, y, ridges)
    result = [step(probs) for step in newton]
    for i in range(3):
        np.testing.assert_allclose(turned[::-1][i](probs), result[i], atol=1e-12)
        np.testing.assert_allclose(quasi[i](probs), result[i], atol=2e-3)
    assert np.abs(result[0] - result[1]).max() > 0.01, "each ridge keeps its own fit"


def test_the_prior_is_taken_out_by_hand() -> None:
    """(.6, .3, .1) over shares (.6, .3, .1) is uniform at η = 1; at ½ it goes as √; at 0 nothing changes."""
    shares = np.array([0.6, 0.3, 0.1])
    np.testing.assert_allclose(correct_prior(shares[None], shares, 1.0), [[1 / 3] * 3])
    root = np.sqrt(shares) / np.sqrt(shares).sum()
    np.testing.assert_allclose(correct_prior(shares[None], shares, 0.5), [root])
    np.testing.assert_allclose(correct_prior(shares[None], shares, 0.0), [shares])


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
