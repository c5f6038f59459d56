"""The linear classifier of a memory, and the choice of what scores the null neighbours."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import scale

from attnknn import AttnKNNClassifier
from attnknn.classifier import fitting, linear
from attnknn.classifier import memory as memory_module
from attnknn.classifier.fitting import fit_and_calibrate
from attnknn.classifier.held_out import fold_parts, held_out_space
from attnknn.classifier.linear import STRENGTHS, fit_linear, with_logits
from attnknn.classifier.memory import Memory
from attnknn.core.artifacts import BANK
from attnknn.neighbours.space import EmbeddingSpace


def wine(classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    X, y = map(np.asarray, load_wine(return_X_y=True))
    X, y = X[y < classes], y[y < classes]
    X = scale(X) + np.random.default_rng(0).normal(size=X.shape)
    return (X / np.sqrt((X**2).sum(1).mean())).astype(np.float32), y


def spaces(seed: int = 0, y: np.ndarray | None = None) -> list[EmbeddingSpace]:
    X, labels = wine()
    memory = Memory.build(X, labels if y is None else y, np.ones(len(X)), 3)
    return [held_out_space(memory, 10, part) for part in fold_parts(labels, seed)]


def model_of(null_scores: str = "linear", **settings: Any) -> tuple[np.ndarray, np.ndarray, AttnKNNClassifier]:
    X, y = wine()
    settings = {"max_iter": 3, "random_state": 0, "null_scores": null_scores} | settings
    return X, y, AttnKNNClassifier(10, **settings).fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_the_logistic_regression_of_scikit_learn(classes: int) -> None:
    X, y = wine(classes)
    weight = 1.0 + y
    fitted = fit_linear(X, y, weight, classes, 10.0)
    model = LogisticRegression(C=10, max_iter=200).fit(X.astype(float), y, weight)
    np.testing.assert_allclose(softmax(fitted.logits(X), axis=1), model.predict_proba(X), atol=1e-9)
    converged = model.set_params(tol=1e-8, max_iter=1000).fit(X.astype(float), y, weight).predict_proba(X)
    for factor in (1, 3):  # from the solution, and from afar
        start = linear.LinearClassifier(fitted.coef * factor, fitted.intercept)
        probs = softmax(fit_linear(X, y, weight, classes, 10.0, start).logits(X), axis=1)
        np.testing.assert_allclose(probs, converged, atol=2e-2)


@pytest.mark.parametrize("transition", [None, 0.7 * np.eye(4) + 0.075])
def test_a_class_without_rows_has_the_odds_of_half_a_row_and_changes_no_other(transition: Any) -> None:
    X, y = wine()
    known = None if transition is None else transition[:3, :3] / transition[:3, :3].sum(1, keepdims=True)
    other = fit_linear(X, y, np.ones(len(y)), 3, 10.0, transition=known)
    y = np.where(y > 0, y + 1, y)  # class 1 is empty
    fitted = fit_linear(X, y, np.ones(len(y)), 4, 10.0, transition=transition)
    probs = softmax(fitted.logits(X), axis=1)
    np.testing.assert_allclose(probs[:, 1], 0.5 / (len(y) + 0.5))
    rest = np.delete(probs, 1, 1)
    np.testing.assert_allclose(rest / rest.sum(1, keepdims=True), softmax(other.logits(X), axis=1))
    again = fit_linear(X, y, np.ones(len(y)), 4, 10.0, fitted, transition)
    np.testing.assert_allclose(again.logits(X), fitted.logits(X), atol=0.05)
    single = fit_linear(X, y * 0, np.ones(len(y)), 2, 10.0)
    assert (softmax(single.logits(X), axis=1)[:, 0] > 0.9).all()


def test_held_out_logits_are_those_of_the_bank_and_c_has_the_lowest_nll() -> None:
    own = spaces()
    strength, with_them = with_logits(own)
    X, y = wine()

    def held_out(strength: float) -> np.ndarray:
        """Probabilities of every row by scikit-learn, held out of the bank."""
        probs = np.empty((len(X), 3))
        for space in own:
            bank = space.embeddings.part == BANK
            model = LogisticRegression(C=strength, max_iter=200).fit(X[bank].astype(float), y[bank])
            probs[~bank] = model.predict_proba(X[~bank].astype(float))
        return probs

    nll = [log_loss(y, held_out(strength)) for strength in STRENGTHS]
    assert strength == STRENGTHS[int(np.argmin(nll))]
    for space in with_them:
        rows = space.embeddings.part != BANK
        logits = softmax(np.asarray(space.embeddings.logits)[rows], axis=1)
        np.testing.assert_allclose(logits, held_out(strength)[rows], atol=2e-2)


def test_held_out_labels_do_not_change_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "STRENGTHS", (10.0,))
    _, y = wine()
    part = fold_parts(y, 0)[0]
    relabelled = np.where(part == BANK, y, (y + 1) % 3)
    first = [with_logits(spaces(y=labels)[:1])[1][0].embeddings.logits for labels in (y, relabelled)]
    np.testing.assert_array_equal(first[0], first[1])


def test_auto_has_the_lowest_val_nll_of_all() -> None:
    chosen = set()
    for seed in range(2):
        params = AttnKNNClassifier(10, max_iter=5).get_params()
        fits = {
            name: fit_and_calibrate(spaces(seed), params | {"null_scores": name}, seed, "cpu")
            for name in ("shares", "means", "linear", "auto")
        }
        nll = {name: fitted.losses().mean() for name, fitted in fits.items()}
        assert nll.pop("auto") == min(nll.values())
        best = min(nll, key=lambda name: nll[name])
        assert fits["auto"].strength == fits[best].strength
        chosen.add(best)
        np.testing.assert_array_equal(fits["auto"].votes, fits[best].votes)
    assert "linear" in chosen


def test_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    for prototypes, expected in ((True, "means"), (False, "shares")):
        assert model_of("auto", prototypes=prototypes)[2].null_scores_ == expected
        with pytest.raises(ValueError, match=f"prototypes: {prototypes} with null_scores linear; give one of them"):
            model_of(prototypes=prototypes)
    with pytest.raises(ValueError, match="prior: is learned with null_scores linear"):
        model_of(prior=0.1)
    assert model_of()[2].null_scores_ == "linear"
    assert model_of("linear", weights="distance")[2].null_scores_ == "shares"
    auto = model_of("auto", max_iter=1)[2]
    assert auto.null_scores_ == "linear"
    assert model_of("auto", max_iter=1, prior=0.1)[2].null_scores_ != "linear"
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_MAX_LINEAR", 0)
        assert model_of("auto", max_iter=1)[2].null_scores_ != "linear"
    monkeypatch.setattr(fitting, "_FEW", 0)  # chosen after some epochs, then fitted in full
    X, _, screened = model_of("auto", max_iter=25)
    full = model_of(screened.null_scores_, max_iter=25)[2]
    np.testing.assert_array_equal(screened.predict_proba(X), full.predict_proba(X))


def test_added_and_forgotten_rows_leave_a_refit() -> None:
    X, y, model = model_of()
    rng = np.random.default_rng(0)
    more, labels = X[:30] + rng.normal(scale=0.1, size=(30, X.shape[1])), rng.integers(0, 3, 30)
    before = model.predict_proba(X)
    model.partial_fit(more, labels)
    added = model.predict_proba(X)
    assert np.abs(added - before).max() > 1e-3
    gone = np.flatnonzero(y == 2)
    model.forget(gone)  # a whole class, but for added rows
    kept = model.memory_.ids
    z, y_kept = model._vectors(np.r_[X, more])[kept], np.r_[y, labels][kept]
    refit = fit_linear(z, y_kept, np.ones(len(z)), 3, model.memory_.strength or 0.0)
    np.testing.assert_array_equal(model.memory_.linear_classifier().coef, refit.coef)
    rebuilt = copy.deepcopy(model)
    rebuilt.memory_ = Memory.build(z, y_kept, np.ones(len(z)), 3)
    rebuilt.memory_.strength = model.memory_.strength
    np.testing.assert_allclose(model.predict_proba(X), rebuilt.predict_proba(X), atol=1e-9)
    model.forget(kept[y_kept == 2])
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert probabilities.shape == (len(X), 2)
    assert (probabilities > 0).all()


@pytest.mark.parametrize("large", [False, True])
def test_leaving_rows_out_is_forgetting_them(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "_LARGE_FIT", 0 if large else 1e6)
    X, _, model = model_of()
    explanation = model.explain_rows([3])
    forgotten = copy.deepcopy(model).forget([3]).predict_proba(X[3:4])
    np.testing.assert_allclose(explanation.probabilities, forgotten, atol=5e-3 if large else 1e-9)


def test_save_and_load(tmp_path: Path) -> None:
    X, _, model = model_of()
    for change in (lambda: None, lambda: model.forget([7, 9])):  # the second is saved before it predicts
        change()
        model.save(tmp_path / "m")
        loaded = AttnKNNClassifier.load(tmp_path / "m")
        assert (loaded.null_scores_, loaded.memory_.strength) == ("linear", model.memory_.strength)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        for changed in (loaded, model):
            changed.forget([int(model.memory_.ids[0])])
        np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-9)


def test_neighbours_correct_the_logistic_regression() -> None:
    X, y = map(np.asarray, load_digits(return_X_y=True))
    X = X + np.random.default_rng(0).normal(size=X.shape)
    model = AttnKNNClassifier(null_scores="linear", random_state=0).fit(X[:900], y[:900])
    alone = softmax(model.memory_.linear_classifier().logits(model._vectors(X[900:])), axis=1)
    assert log_loss(y[900:], model.predict_proba(X[900:])) < 0.8 * log_loss(y[900:], alone)


def test_shares_of_the_votes() -> None:
    for null_scores in ("shares", "means", "linear"):
        X, _, model = model_of(null_scores)
        e = model.explain(X[:20])
        np.testing.assert_allclose(e.shares.sum(1) + e.null_share, 1, atol=1e-9)
        assert ((e.null_share > 0) & (e.null_share < 1)).all()
