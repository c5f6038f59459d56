"""Learned stopping: halting probabilities, exact gradient, and NLL on val at most that of the default k."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import expit, softmax

from attnknn.experiments import learned_stopping as stopping

KS = (3, 7, 20)
START = np.array([-2.0, 0, 0, 0, 0])


def synthetic_probs(n: int = 211, steps: int = 3, classes: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random probabilities (n, steps, classes) after each step, and true classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    logits = rng.normal(size=(n, steps, classes)) + 1.5 * np.eye(classes)[y][:, None]
    return softmax(logits, 2).astype(np.float32), y


def noisy_or_late(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose first prediction is right and whose last is wrong; and rows whose first is uniform."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    early = rng.random(n) < 0.5
    right, wrong, none = np.array([0.97, 0.03]), np.array([0.1, 0.9]), np.array([0.5, 0.5])
    probs = np.where(early[:, None, None], np.stack([right, wrong]), np.stack([none, right]))
    return np.where(y[:, None, None] == 0, probs, probs[:, :, ::-1]).astype(np.float32), y


def nll(probs: np.ndarray, y: np.ndarray) -> float:
    return -float(np.log(probs[np.arange(len(y)), y]).mean())


def test_halting_probs_by_hand_sum_to_one() -> None:
    logits = np.log(np.array([[0.25 / 0.75, 0.6 / 0.4]]))
    np.testing.assert_allclose(np.exp(stopping.log_halting_probs(logits)), [[0.25, 0.75 * 0.6, 0.75 * 0.4]])
    logits = np.random.default_rng(0).normal(size=(97, 4)) * 300
    halting_probs = np.exp(stopping.log_halting_probs(logits))
    assert np.isfinite(stopping.log_halting_probs(logits)).all()
    np.testing.assert_allclose(halting_probs.sum(1), 1)
    probs, _ = synthetic_probs()
    halting_probs = stopping.learned(KS, np.array([0.3, -2, 1, 4, 0.5]), probs)
    np.testing.assert_allclose(halting_probs.sum(1), 1)
    np.testing.assert_allclose(stopping.mixture(halting_probs, probs).sum(1), 1, rtol=1e-5)


def test_features_by_hand() -> None:
    probs = np.array([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]]])
    expected = {"constant": [1, 1], "entropy": [1.5 * np.log(2) / np.log(3), 0], "max_prob": [0.5, 1]}
    expected |= {"margin": [0.25, 1], "log_k": np.log([3 / 20, 7 / 20])}
    by_name = dict(zip(stopping.FEATURES, stopping.features(probs, KS)[0].T, strict=True))
    np.testing.assert_allclose([by_name[name] for name in expected], list(expected.values()))


def test_loss_is_that_of_the_mixture_and_its_gradient_is_one() -> None:
    probs, y = synthetic_probs()
    x, log_probs = stopping.features(probs, KS), np.log(probs[np.arange(len(y)), :, y].astype(np.float64))
    w = np.array([-0.7, 1.1, 0.4, -2.0, 0.8])
    value, _ = stopping.loss(w, x, log_probs, 0.3, START)
    chance = np.column_stack([expit(x @ w), np.ones(len(y))])  # of stopping at each step, if it comes to it
    left = np.column_stack([np.ones(len(y)), (1 - chance[:, :-1]).cumprod(1)])
    nlls = -np.log((left * chance * probs[np.arange(len(y)), :, y]).sum(1))
    assert value == pytest.approx(nlls.mean() + 0.3 * ((w - START) ** 2).sum())
    args = x, log_probs, 0.3, START
    assert check_grad(lambda w: stopping.loss(w, *args)[0], lambda w: stopping.loss(w, *args)[1], w) < 1e-5


def test_a_fixed_step_is_exactly_its_prediction() -> None:
    probs, _ = synthetic_probs()
    for step in (1, -1):
        np.testing.assert_array_equal(stopping.mixture(stopping.fixed(step, probs), probs), probs[:, step])


def test_nll_on_val_is_at_most_that_of_the_default_and_the_largest_k() -> None:
    """Also if the first step is right on fit rows, and the last on val rows."""
    (fit, y_fit), (val, y_val) = noisy_or_late(), noisy_or_late(seed=1)
    for default in (3, 20):
        for probs in (val, val[:, ::-1]):
            stop = stopping.fit_stopping(fit, y_fit, probs, y_val, (3, 20), default, [1e-4, 1.0])
            own = nll(stopping.mixture(stop(probs), probs), y_val)
            assert own <= min(nll(probs[:, -1], y_val), nll(probs[:, (3, 20).index(default)], y_val)) + 1e-6


def test_it_stops_where_the_votes_suffice() -> None:
    (fit, y_fit), (val, y_val), (test, y) = noisy_or_late(), noisy_or_late(seed=1), noisy_or_late(seed=2)
    stop = stopping.fit_stopping(fit, y_fit, val, y_val, (3, 20), 20, [1e-5])
    early = test[:, 0].max(1) > 0.9
    assert stop(test)[early, 0].min() > 0.8
    assert stop(test)[~early, 0].max() < 0.2
    assert nll(stopping.mixture(stop(test), test), y) < min(nll(test[:, 0], y), nll(test[:, 1], y)) / 2


def test_the_usual_k_stays_where_all_answer_alike_and_one_k_is_that_k() -> None:
    probs, y = synthetic_probs(steps=1)
    same = np.repeat(probs, 3, 1)
    stop = stopping.fit_stopping(same, y, same, y, KS, 7, [0.01])
    np.testing.assert_array_equal(stop(same), [[0, 1, 0]] * len(y))
    stop = stopping.fit_stopping(probs, y, probs, y, [20], 20, [0.01])
    np.testing.assert_array_equal(stopping.mixture(stop(probs), probs), probs[:, 0])
