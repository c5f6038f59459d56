"""`AttnKNNClassifier`: scikit-learn's conventions, explanations, changes of the memory, persistence, invalid input."""

import copy
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import cpu_count
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from attnknn import AttnKNNClassifier
from attnknn.classifier import fitting, scaling
from attnknn.classifier.held_out import fold_parts, held_out_space, query_space
from attnknn.classifier.memory import Memory
from attnknn.classifier.predict import FAR
from attnknn.core.artifacts import BANK, FIT, VAL
from attnknn.core.errors import InputError
from attnknn.evaluation.calibration import apply_scaling, fit_scaling
from attnknn.evaluation.conformal import true_class_scores
from attnknn.heads.fit import fit_head
from attnknn.heads.label_noise import DOUBT
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.linear_probe import forward_regression

FAST = {"max_iter": 3, "random_state": 0}


def blobs(n: int = 200, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return 2 * np.eye(classes, 4)[y] + rng.normal(size=(n, 4)), y


def fitted(n: int = 200, k: int = 12, **settings: Any) -> tuple[np.ndarray, np.ndarray, AttnKNNClassifier]:
    X, y = blobs(n)
    return X, y, AttnKNNClassifier(k, **FAST, **settings).fit(X, y)


def memory_of(X: np.ndarray, y: np.ndarray, weight: np.ndarray | float = 1.0) -> Memory:
    return Memory.build(np.ascontiguousarray(X, dtype=np.float32), y, np.broadcast_to(weight, len(y)), 3)


def changed(model: AttnKNNClassifier, memory: Memory) -> AttnKNNClassifier:
    """The same model with another memory."""
    other = copy.deepcopy(model)
    other.memory_ = memory
    memory.strength = model.memory_.strength
    return other


ONE_NEIGHBOUR = "a row of weight 2 is one neighbour, and one row of a fold"
WEIGHT_CHECKS = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]


@parametrize_with_checks(
    [
        AttnKNNClassifier(max_iter=3),
        AttnKNNClassifier(weights="distance", metric="cosine", calibration="vector"),
        AttnKNNClassifier(5, weights="uniform", calibration=None, prior=0.01),
    ],
    expected_failed_checks=lambda _: dict.fromkeys(WEIGHT_CHECKS, ONE_NEIGHBOUR),
)
def test_estimator_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_neighbours_are_those_of_scikit_learn(metric: str) -> None:
    X, y = load_wine(return_X_y=True) if metric == "l2" else blobs(178)
    model = AttnKNNClassifier(weights="uniform", metric=metric, **FAST).fit(X, y)
    peer = KNeighborsClassifier(9, metric=metric).fit(X, y)
    for queries in (X[:20] + 0.01, None):
        (distances, ids), (peer_distances, peer_ids) = (m.kneighbors(queries, 9) for m in (model, peer))
        np.testing.assert_array_equal(ids, peer_ids)
        expected = peer_distances if metric == "l2" else np.sqrt(2 * peer_distances)
        np.testing.assert_allclose(distances, expected, rtol=1e-3, atol=1e-3)
    assert model.kneighbors(X[:2], 3, return_distance=False).shape == (2, 3)
    if metric == "cosine":
        np.testing.assert_allclose(model.predict_proba(X * 7), model.predict_proba(X), atol=1e-6)
    for queries, largest in ((X, 178), (None, 177)):
        with pytest.raises(ValueError, match=f"n_neighbors: {largest + 1}; the memory allows 1 … {largest}"):
            model.kneighbors(queries, largest + 1)


def test_folds_are_stratified_and_their_statistics_ignore_held_out_labels() -> None:
    X, y = blobs(150)
    parts = fold_parts(y, seed=3)
    np.testing.assert_array_equal(sum(part != BANK for part in parts), 1)  # every row is held out once
    assert abs(sum(int((part == FIT).sum()) for part in parts) - 75) <= 5
    for c in range(3):
        counts = [int((part[y == c] != BANK).sum()) for part in parts]
        assert max(counts) - min(counts) <= 1
    odd = fold_parts(np.zeros(25, np.int64), seed=0)
    assert sum(int((part == FIT).sum()) - int((part == VAL).sum()) for part in odd) == 1
    many = np.zeros(50_000, dtype=np.int64)  # at most 10,000 held-out rows
    (part,) = fold_parts(many, seed=0)
    assert np.bincount(part)[[FIT, VAL]].tolist() == [5000, 5000]
    assert [int((part != BANK).sum()) for part in fold_parts(many, 0, queries=500)] == [500]
    for part in parts:
        space = held_out_space(memory_of(X, y), 10, part)
        assert (part[space.neighbours.ids] == BANK).all()
        relabelled = memory_of(X, np.where(part == BANK, y, (y + 1) % 3))
        expected = held_out_space(relabelled, 10, part).statistics
        np.testing.assert_array_equal(space.statistics.agreement, expected.agreement)
        np.testing.assert_array_equal(space.statistics.prototypes, expected.prototypes)


def test_identical_rows_are_held_out_together() -> None:
    X, y = blobs(150)
    first = np.r_[np.arange(450), np.tile(np.arange(50), 3)]
    y = np.where(np.arange(600) < 550, np.tile(y, 4), 0)  # the last copies have one label
    parts = fold_parts(y, seed=3, first=first)
    for part in parts:
        np.testing.assert_array_equal(part, part[first])
        assert set(part) == {BANK, FIT, VAL}
    np.testing.assert_array_equal(sum(part != BANK for part in parts), 1)
    (part,) = fold_parts(y, seed=3, queries=30, first=first)  # 30 of a fifth of the rows
    assert np.isin(part, (FIT, VAL)).sum() == 30
    assert not np.isin(first[part == BANK], first[part != BANK]).any()
    alone = fold_parts(y, seed=3, first=np.arange(600))
    np.testing.assert_array_equal(alone, fold_parts(y, seed=3))
    space = query_space(memory_of(X, y[:150]), 10, np.tile(X[:20], (2, 1)).astype(np.float32), np.tile(y[:20], 2), 0)
    np.testing.assert_array_equal(*np.split(space.embeddings.part[150:], 2))


def test_random_labels_get_no_confidence_from_copies() -> None:
    """With copies across the held-out split the mean confidence in new rows was .84."""
    rng = np.random.default_rng(0)
    X, y, new = rng.normal(size=(400, 5)), rng.integers(0, 2, 400), rng.normal(size=(500, 5))
    model = AttnKNNClassifier(20, **FAST).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert (model.n_duplicates_, model.n_conflicting_duplicates_) == (400, 0)
    assert model.predict_proba(new).max(1).mean() < 0.6
    assert model.fit(np.repeat(X, 2, axis=0), np.r_[1 - y[0], np.repeat(y, 2)[1:]]).n_conflicting_duplicates_ == 1


@pytest.mark.parametrize(
    ("columns", "values", "n", "weights"),
    [*((columns, values, 400, "attention") for columns, values in ((2, 2), (3, 2), (2, 4))), (2, 2, 30_000, "uniform")],
)
def test_few_distinct_rows_are_learned(columns: int, values: int, n: int, weights: Any) -> None:
    """With copies held out together the accuracy on the training rows was .45 to .63."""
    X = np.random.default_rng(0).integers(0, values, (n, columns))
    y = X.sum(1) % 2
    model = AttnKNNClassifier(weights=weights, max_iter=20, random_state=0).fit(X, y)
    assert model.score(X[:400], y[:400]) == 1
    assert model.n_duplicates_ == n - values**columns


def test_copies_among_held_out_rows_are_counted_and_measure_no_distances() -> None:
    X, y = blobs(300)
    new, expected = X[200:], cdist(X[200:], X[:200]).min(1)
    held_out = np.concatenate([X[:50], new]), np.r_[y[:50], y[200:]]
    with pytest.warns(UserWarning, match="held_out: 50 of 150 rows are identical to rows of X"):
        model = AttnKNNClassifier(12, **FAST).fit(X[:200], y[:200], held_out=held_out)
    np.testing.assert_allclose(model.usual_distances_, np.sort(expected), rtol=1e-5)
    with pytest.warns(UserWarning, match="held_out: 200 of 200 rows"):
        assert model.fit(X[:200], y[:200], held_out=(X[:200], y[:200])).usual_distances_.max() == 0
    X = np.round(X[:, :1])  # few distinct rows: new ones are copies too
    with warnings.catch_warnings(action="error"):
        model.fit(X[:200], y[:200], held_out=(X[200:], y[200:]))


def test_neighbours_in_a_fold_are_those_of_its_bank_rows() -> None:
    X, y = blobs(150)
    part = np.where(np.arange(150) % 15 < 7, BANK, np.where(np.arange(150) % 2 > 0, FIT, VAL)).astype(np.int8)
    bank = np.flatnonzero(part == BANK)
    space = held_out_space(memory_of(X, y, 1.0 + y), 10, part)
    squares = ((X[:, None] - X[bank]) ** 2).sum(2)
    squares[bank, np.arange(len(bank))] = np.inf  # not its own neighbour
    np.testing.assert_array_equal(space.neighbours.ids, bank[np.argsort(squares, axis=1)[:, :64]])
    np.testing.assert_allclose(space.neighbours.sims, -np.sort(squares, axis=1)[:, :64], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.exp(space.log_weight), 1 + y)


def test_separate_held_out_rows_are_halved_by_class() -> None:
    X, y = blobs(150)
    space = query_space(memory_of(X[:100], y[:100]), 10, X[100:].astype(np.float32), y[100:], seed=0)
    part = space.embeddings.part
    assert (part[:100] == BANK).all()
    for c in range(3):
        in_class = part[100:][y[100:] == c]
        assert abs(int((in_class == FIT).sum()) - int((in_class == VAL).sum())) <= 1
    assert (space.neighbours.ids < 100).all()


def test_confidence_is_bounded_by_the_number_of_held_out_rows() -> None:
    X, y = blobs(120, 2)
    X = X + 50 * y[:, None]  # separable
    model = AttnKNNClassifier(**FAST).fit(X, y)
    assert model.predict_proba(X).min() > 0.3 / 61
    assert log_loss(y, model.predict_proba(X)) < 0.02


def test_log_loss_is_below_that_of_kneighborsclassifier() -> None:
    X, y = load_digits(return_X_y=True)
    X, Xt, y, yt = train_test_split(X[:1000], y[:1000], test_size=0.3, random_state=0, stratify=y[:1000])
    model = make_pipeline(StandardScaler(), AttnKNNClassifier(random_state=0)).fit(X, y)
    plain = make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(X, y)
    assert log_loss(yt, model.predict_proba(Xt)) < 0.5 * log_loss(yt, plain.predict_proba(Xt))
    assert model.score(Xt, yt) >= plain.score(Xt, yt)


def test_calibration_is_skipped_if_it_does_not_lower_the_log_loss() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    probs = np.where(np.eye(2)[np.where(rng.random(4000) < 0.8, y, 1 - y)] == 1, 0.8, 0.2)
    sharp = probs**3 / (probs**3).sum(1, keepdims=True)
    scale, bias = fit_scaling("temperature", sharp[:2000], y[:2000], sharp[2000:], y[2000:])
    np.testing.assert_allclose(scale, 1 / 3, rtol=0.1)
    np.testing.assert_array_equal(bias, 0)
    unchanged = fit_scaling("vector", sharp[:3], y[:3], probs[2000:], y[2000:])
    np.testing.assert_allclose(apply_scaling(probs, *unchanged), probs, atol=0.02)
    assert fit_scaling("temperature", sharp[:3], 1 - y[:3], probs[2000:], y[2000:])[0].tolist() == [1, 1]
    assert fit_scaling(None, sharp, y, sharp, y)[0].tolist() == [1, 1]
    by_hand = apply_scaling(np.array([[0.8, 0.2]]), np.array([2, 2]), np.log([1, 4]))
    np.testing.assert_allclose(by_hand, [[0.64 / 0.8, 0.16 / 0.8]])  # 0.8² to 4·0.2²


@pytest.mark.parametrize("weights", ["attention", "distance", "uniform"])
def test_explanations_sum_to_the_predictions(weights: Any) -> None:
    X, y = blobs()
    model, queries = AttnKNNClassifier(12, weights=weights, **FAST).fit(X, np.array(["a", "b", "c"])[y]), X[:30] + 0.1
    e = model.explain(queries)
    np.testing.assert_allclose(e.weights.sum(1) + e.null.sum(1), 1, atol=1e-9)
    votes = np.stack([(e.weights * (e.labels == c)).sum(1) for c in model.classes_], 1)
    np.testing.assert_allclose(e.null + votes, e.votes, atol=1e-9)
    np.testing.assert_array_equal(e.predictions, model.predict(queries))
    np.testing.assert_allclose(e.probabilities, model.predict_proba(queries))
    for result, expected in zip(
        model.kneighbors(queries, return_weights=True), (e.distances, e.ids, e.weights), strict=True
    ):
        np.testing.assert_allclose(result, expected)
    np.testing.assert_allclose(model.kneighbors(queries, 3, return_weights=True)[2], e.weights[:, :3])
    assert (e.shares[e.labels != e.predictions[:, None]] == 0).all()
    top = np.searchsorted(model.classes_, e.predictions)[:, None]
    null, votes = (np.take_along_axis(values, top, 1)[:, 0] for values in (e.null, e.votes))
    np.testing.assert_allclose(e.shares.sum(1), 1 - null / votes, atol=1e-9)


@pytest.mark.parametrize("how", ["forget", "relabel"])
@pytest.mark.parametrize(
    ("settings", "least"),
    [({"null_scores": "means"}, 15), ({"null_scores": "linear"}, 10), ({"weights": "distance"}, 15)],
)
def test_counterfactuals_are_those_of_the_changed_model(settings: dict[str, Any], least: int, how: str) -> None:
    X, y = blobs(150)
    model = AttnKNNClassifier(12, **settings, **FAST).fit(X, y, sample_weight=1.0 + y)
    queries = X[:20] + 0.3
    before, turned = model.predict_proba(queries), 0
    predictions = before.argmax(1)

    def changed_model(ids: np.ndarray, label: int) -> AttnKNNClassifier:
        if how == "forget":
            return copy.deepcopy(model).forget(ids)
        labels = y.copy()
        labels[ids] = label
        return changed(model, memory_of(model.memory_.vectors(), labels, model.memory_.weight))

    for query, prediction, result in zip(queries, predictions, model.counterfactual(queries, how), strict=True):
        explanation = model.explain(query[None])
        supporting = np.where(explanation.labels[0] == prediction, explanation.weights[0], 0)
        assert result.ids[0] == explanation.ids[0, supporting.argmax()]
        assert result.label == model.classes_[np.argsort(-explanation.probabilities[0])[1]]
        assert len(set(result.ids)) == len(result.ids)
        assert result.turned == (result.prediction != prediction)
        turned += result.turned
        probabilities = changed_model(result.ids, result.label).predict_proba(query[None])[0]
        np.testing.assert_allclose(probabilities, result.probabilities, atol=1e-6)
        assert model.classes_[probabilities.argmax()] == result.prediction
        if result.turned and len(result.ids) > 1:  # minimal along the greedy path
            assert changed_model(result.ids[:-1], result.label).predict(query[None])[0] == prediction
    assert turned >= least
    np.testing.assert_array_equal(model.predict_proba(queries), before)
    assert not any(result.turned for result in model.counterfactual(X[:3], how, most=0))


def test_rows_of_the_memory_are_explained_leave_one_out() -> None:
    X, _, model = fitted(80, 8, index="hnsw", weights="distance")
    without = pickle.loads(pickle.dumps(model)).forget([7])
    for how in ("forget", "relabel"):
        (result,), (expected,) = model.counterfactual(ids=[7], how=how), without.counterfactual(X[7:8], how)
        np.testing.assert_array_equal(result.ids, expected.ids)
        np.testing.assert_allclose(result.probabilities, expected.probabilities, atol=1e-6)
    np.testing.assert_allclose(model.explain_rows([7]).probabilities, without.predict_proba(X[7:8]), atol=1e-6)


def test_counterfactuals_without_a_row_to_change() -> None:
    for weights in ("attention", "uniform"):
        X, _, model = fitted(60, weights=weights)
        model.forget(np.arange(58))
        assert model.explain_rows([58]).ids.tolist() == [[59]]
        for result in (*model.counterfactual(ids=[58]), *model.counterfactual(X[:1])):  # no more can be forgotten
            assert (len(result.ids), result.turned) == (0, False)
        np.testing.assert_allclose(model.predict_proba(X[:5]).sum(1), 1)
    X, y = np.repeat([[0.0, 0.0], [9.0, 9.0]], [6, 54], axis=0), np.repeat([0, 1], [6, 54])
    model = AttnKNNClassifier(3, weights="uniform", prior=0.9, calibration=None, **FAST).fit(X, y)
    assert model.predict(X[:1]) == [1]  # by its share of the rows, without a supporting neighbour
    for how in ("forget", "relabel"):
        (result,) = model.counterfactual(X[:1], how)
        assert (len(result.ids), result.turned) == (0, False)


def test_ids_are_not_positions() -> None:
    X, y, model = fitted(120, weights="distance")
    other = changed(model.forget(np.arange(20)), memory_of(model.memory_.vectors(), y[20:]))
    explanation, expected = model.explain(X[:9]), other.explain(X[:9])
    np.testing.assert_array_equal(explanation.ids, expected.ids + 20)
    np.testing.assert_array_equal(explanation.labels, y[explanation.ids])
    np.testing.assert_allclose(explanation.null, expected.null, atol=1e-9)
    for how in ("forget", "relabel"):
        for result, expected in zip(model.counterfactual(X[:9], how), other.counterfactual(X[:9], how), strict=True):
            np.testing.assert_array_equal(result.ids, expected.ids + 20)
            np.testing.assert_allclose(result.probabilities, expected.probabilities, atol=1e-6)


def test_batch_sizes_do_not_change_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, model = fitted(60)
    expected = model.explain(X + 0.1)
    for name, rows in (("_SEARCH_BATCH", 23), ("_HEAD_BATCH", 7)):
        monkeypatch.setattr(f"attnknn.classifier.predictor.{name}", rows)
    explanation = model.explain(X + 0.1)
    np.testing.assert_array_equal(explanation.ids, expected.ids)
    np.testing.assert_allclose(explanation.probabilities, expected.probabilities, atol=1e-9)


def test_held_out_rows_replace_folds_for_rows_that_an_encoder_was_trained_on() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 900)
    X = rng.normal(size=(900, 4))
    X[:500, 0] += 6 * y[:500]  # as of an encoder trained on these rows: the labels are in the vectors
    train, new, test = slice(0, 500), slice(500, 700), slice(700, 900)
    model = AttnKNNClassifier(20, **FAST).fit(X[train], y[train], held_out=(X[new], y[new]))
    naive = AttnKNNClassifier(20, **FAST).fit(X[train], y[train])
    assert len(model.memory_) == 500
    assert log_loss(y[test], model.predict_proba(X[test])) < 0.75
    assert log_loss(y[test], naive.predict_proba(X[test])) > 1
    assert len(model._held_out) == 100


def test_prediction_sets_are_calibrated_on_rows_that_did_not_fit_the_head() -> None:
    X, y = blobs(400)
    held = 300 + np.flatnonzero(y[300:] > 0)[:61]  # none of class 0
    model = AttnKNNClassifier(20, **FAST).fit(X[:300], y[:300], held_out=(X[held], y[held]))
    assert len(model._held_out) == len(held) // 2  # FIT has one more
    all_scores = true_class_scores(model.predict_proba(X[held]), y[held])
    assert np.abs(model._held_out[:, None] - all_scores).min(1).max() < 1e-4
    assert len(np.unique(model._held_out)) > 10


def test_adding_and_forgetting_equal_a_rebuilt_memory() -> None:
    X, y = blobs(300)
    model, new = AttnKNNClassifier(12, **FAST).fit(X[:200], y[:200]), X[200:]
    before = model.predict_proba(new)
    model.partial_fit(new, y[200:])
    assert (model.kneighbors(new, 1)[1][:, 0] == np.arange(200, 300)).all()
    added = model.predict_proba(new)
    assert np.abs(added - before).max() > 0.01
    rebuilt = changed(model, memory_of(model.memory_.vectors(), y))
    np.testing.assert_allclose(rebuilt.predict_proba(new), added, atol=1e-6)
    model.forget(np.arange(200, 300))
    np.testing.assert_allclose(model.predict_proba(new), before, atol=1e-6)
    assert len(model.forget([]).memory_) == 200
    assert AttnKNNClassifier(**FAST).partial_fit(X, y, classes=[0, 1, 2, 3]).classes_.tolist() == [0, 1, 2, 3]


def test_a_failed_or_interrupted_fit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, model = fitted(90)
    fresh, before = AttnKNNClassifier(**FAST), model.predict_proba(X)
    with pytest.raises(ValueError, match="held_out: unknown labels 9"):
        model.fit(X[:40], y[:40], held_out=(X, np.full(90, 9)))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    monkeypatch.setattr("attnknn.classifier.fitting.fit_head", Mock(side_effect=KeyboardInterrupt))
    for classifier in (model, fresh):
        with pytest.raises(KeyboardInterrupt):
            classifier.fit(X[:40, :3], y[:40])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_scale_and_translation_invariance(metric: str) -> None:
    X, y = blobs(90)
    model = AttnKNNClassifier(12, weights="distance", metric=metric, **FAST)
    expected = model.fit(X, y).predict_proba(X)
    for power in (-1000, -600, 600, 1000):  # squares of these overflow or underflow float64
        scaled_x = np.ldexp(X, power)
        np.testing.assert_array_equal(model.fit(scaled_x, y).predict_proba(scaled_x), expected)
    model.fit(np.zeros((80, 3)), np.arange(80) % 2)
    np.testing.assert_allclose(model.predict_proba(np.zeros((1, 3))), 0.5, atol=0.01)
    centred, shifted = (AttnKNNClassifier(weights="uniform", **FAST).fit(X + offset, y) for offset in (0, 1e6))
    np.testing.assert_array_equal(shifted.kneighbors(X + 1e6, 9)[1], centred.kneighbors(X, 9)[1])


def test_a_verbose_fit_shows_its_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = load_iris(return_X_y=True)
    for verbose in (False, True):
        AttnKNNClassifier(null_scores="shares", max_iter=2, random_state=0, verbose=verbose).fit(X, y)
        assert ("fit head, shares: 100%" in capsys.readouterr().err) == verbose


def test_parameters_prior_and_n_neighbors() -> None:
    X, y = blobs(120)
    for weights in ("distance", "uniform"):
        _, _, model = fitted(120, 5, weights=weights, prior=0.2)
        assert model.head_.k <= 5
        np.testing.assert_allclose(model.explain(X[:4]).null.sum(1), 0.2)
    for prior in (0.2, None):
        model = AttnKNNClassifier(prior=prior, **FAST).fit(X, y)
        head = model.head_
        assert head.null_bias.requires_grad == (prior is None)
        assert (torch.sigmoid(head.null_bias).item() == pytest.approx(0.2)) == (prior == 0.2)
    assert model.n_iter_ == 3
    for prototypes in (True, False):
        names = dict(fitted(80, 5, prototypes=prototypes)[2].head_.named_parameters())
        assert any("prototype" in name for name in names) == prototypes
    groups = np.repeat(10 * np.random.default_rng(0).normal(size=(40, 2)), 6, axis=0)
    groups += 1e-3 * np.random.default_rng(1).normal(size=groups.shape)
    assert AttnKNNClassifier(50, weights="uniform", **FAST).fit(groups, np.arange(240) // 6 % 2).head_.k <= 5


def test_random_state() -> None:
    X, y = blobs(90)
    model, state = AttnKNNClassifier(12, max_iter=3), torch.get_rng_state()
    first, same, other = (model.set_params(random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()
    assert torch.equal(torch.get_rng_state(), state)  # the global state is left alone


@pytest.mark.parametrize(("n_jobs", "expected"), [(1, 1), (-1, cpu_count()), (2**40, cpu_count())])
def test_number_of_threads(n_jobs: int, expected: int) -> None:
    with AttnKNNClassifier(n_jobs=n_jobs)._threads():
        assert torch.get_num_threads() == expected


def test_sample_weights_are_relative_to_their_mean_in_fit() -> None:
    X, y = blobs(90)
    settings = {"weights": "distance", **FAST}
    one = AttnKNNClassifier(12, **settings).fit(X[:80], y[:80]).partial_fit(X[80:], y[80:])
    five = AttnKNNClassifier(12, **settings).fit(X[:80], y[:80], np.full(80, 5))
    five.partial_fit(X[80:], y[80:], sample_weight=np.full(10, 5))
    np.testing.assert_array_equal(five.memory_.weight, 1)
    np.testing.assert_array_equal(five.predict_proba(X), one.predict_proba(X))
    assert len(five.partial_fit(X[:3], y[:3], sample_weight=[0, 5, 0]).memory_) == 91
    with warnings.catch_warnings(action="error"):
        light = AttnKNNClassifier(12, **settings).fit(X, y, np.r_[1e-300, np.ones(89)])  # 0 in float32
        explanation = light.explain(X[:1])
    assert explanation.ids[0, 0] == 0
    assert explanation.weights[0, 0] < 1e-30


def test_the_head_is_fitted_with_the_statistics_that_it_predicts_with() -> None:
    """Wrong labels of a low weight: agreement and class means of unweighted rows gave an accuracy of .10."""
    rng = np.random.default_rng(0)
    true, wrong = rng.integers(4, size=1200), rng.random(1200) < 0.35
    rows, labels = np.eye(4, 6)[true] * 2 + rng.normal(0, 0.7, (1200, 6)), np.where(wrong, (true + 1) % 4, true)
    model = AttnKNNClassifier(**FAST).fit(rows[:600], labels[:600], sample_weight=np.where(wrong[:600], 0.2, 1.0))
    assert model.score(rows[600:], true[600:]) > 0.85
    space = held_out_space(model.memory_, 20, np.full(600, BANK, dtype=np.int8))
    np.testing.assert_allclose(space.statistics.agreement, model.memory_.agreement, atol=1e-6)
    np.testing.assert_allclose(space.statistics.prototypes, model.memory_.classes()[1], atol=1e-6)


def test_sample_weight_equals_repeated_rows() -> None:
    X, y = blobs(90)
    settings = {"weights": "distance", "prior": 0.01, "calibration": None, **FAST}
    weight = np.ones(90)
    weight[:5] = 0
    expected = AttnKNNClassifier(90, **settings).fit(X[5:], y[5:]).predict_proba(X)
    probs = AttnKNNClassifier(90, **settings).fit(X, y, weight).predict_proba(X)
    np.testing.assert_allclose(probs, expected, atol=1e-6)
    weight[5:20] = 3
    weighted = AttnKNNClassifier(200, **settings).fit(X, y, weight)
    weighted.head_ = replace(weighted.head_, k=200)  # a smaller k would count fewer of the repeated rows
    z, labels = (np.repeat(rows, np.r_[[3] * 15, [1] * 70], axis=0) for rows in (weighted.memory_.vectors(), y[5:]))
    repeated = changed(weighted, memory_of(z, labels))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)


def test_coverage_of_prediction_sets_and_abstention() -> None:
    X, y = blobs(2400)
    model = AttnKNNClassifier(max_iter=5, random_state=0).fit(X[:1200], y[:1200])
    for alpha in (0.05, 0.2):
        sets = model.predict_set(X[1200:], alpha)
        coverage = sets[np.arange(1200), y[1200:]].mean()
        accuracy = model.score(X[1200:], y[1200:])  # the most probable class is always in
        assert 1 - alpha - 0.03 < coverage < max(1 - alpha, accuracy) + 0.03
        assert sets.any(1).all()
    assert model.abstains(X).sum() == 0
    confidence = model.predict_proba(X).max(1)
    model.set_params(abstain=float(np.median(confidence[:-1])))  # one of the values, which is not below itself
    np.testing.assert_array_equal(model.abstains(X), confidence < model.abstain)


@pytest.mark.parametrize("held_out", [False, True])
def test_distance_percentiles(held_out: bool) -> None:
    X, y = blobs(300)
    new, rest = (X[200:], y[200:]), (X[:200], y[:200])
    model = AttnKNNClassifier(12, **FAST).fit(*rest, held_out=new if held_out else None)
    if held_out:
        usual = cdist(new[0], rest[0]).min(1)
    else:
        folds = [fold_part != BANK for fold_part in fold_parts(rest[1], np.random.RandomState(0).randint(2**31 - 1))]
        usual = np.concatenate([cdist(rest[0][fold], rest[0][~fold]).min(1) for fold in folds])
    np.testing.assert_allclose(model.usual_distances_, np.sort(usual), rtol=1e-5)
    queries = np.concatenate([new[0] + 0.01, [1000 * np.ones(X.shape[1])]])
    probabilities, percentiles, novelty = model.predict_with_novelty(queries)
    nearest = cdist(queries, rest[0]).min(1)
    np.testing.assert_allclose(percentiles, [100 * (usual < d).mean() for d in nearest], atol=0.51)
    np.testing.assert_array_equal(probabilities, model.predict_proba(queries))
    np.testing.assert_array_equal(percentiles, model.distance_percentiles(queries))
    np.testing.assert_array_equal(percentiles, model.explain(queries).distance_percentiles)
    np.testing.assert_array_equal(novelty, model.novelty(queries))
    np.testing.assert_array_equal(novelty, model.explain(queries).novelty)
    far, sets, near_sets = percentiles >= FAR, model.predict_set(queries), model.sets_from_proba(probabilities)
    assert far[-1]
    assert not far.all()
    assert sets[far].all()
    np.testing.assert_array_equal(sets[~far], near_sets[~far])
    assert near_sets[-1].sum() == 1
    model.forget([0, 7]).partial_fit(queries[-1:], rest[1][:1])
    np.testing.assert_allclose(model.usual_distances_, np.sort(usual), rtol=1e-5)
    assert model.distance_percentiles(queries)[-1] == 0


@pytest.mark.parametrize("index", ["flat", "hnsw", "ivf", "ivfpq"])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_saved_and_pickled_models_predict_the_same(index: Any, metric: Any, tmp_path: Path) -> None:
    X, y = blobs(300)
    X, labels = pd.DataFrame(1e-8 * X, columns=list("abcd")), np.array(["x", "y", "z"])[y]
    model = AttnKNNClassifier(
        12, index=index, metric=metric, weights="attention" if index == "flat" else "distance", **FAST
    )
    model.fit(X[:200], labels[:200], np.linspace(1, 9, 200)).partial_fit(X[200:], labels[200:]).forget(range(0, 300, 3))
    model.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(other.predict_set(X, 0.1), model.predict_set(X, 0.1))
        np.testing.assert_array_equal(other.distance_percentiles(X), model.distance_percentiles(X))
        np.testing.assert_array_equal(other.novelty(X), model.novelty(X))
        assert other.get_params() == model.get_params()
        other.partial_fit(X[7:9], labels[7:9])
        assert other.kneighbors(X[7:9], 2)[1].max() == 301
    assert not any(path.suffix in (".pkl", ".pt") for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("settings", "X", "y", "message"),
    [
        *(
            ({name: value}, *blobs(), name)
            for name, value in (("n_neighbors", 0), ("weights", "cosine"), ("prior", 1.0))
        ),
        ({"device": "cuda:7"}, *blobs(), "device: cuda:7"),
        ({"device": "gpu"}, *blobs(), "device: 'gpu'; allowed are auto, cpu"),
        ({}, np.eye(4), np.zeros(4), "single class"),
        ({}, np.eye(4), ["a", "b", None, "a"], "y: None is no label"),
        ({}, np.eye(4)[:1], [0], "minimum of 2"),
        ({}, np.eye(4)[:2], [0, 1], "n_samples = 2: at least three"),
        ({}, 1e308 * np.sign(blobs()[0]), blobs()[1], "too large to be added up"),
    ],
)
def test_invalid_parameters_and_training_rows(settings: dict[str, Any], X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttnKNNClassifier(**settings).fit(X, y)


@pytest.mark.filterwarnings("error")
def test_invalid_arguments_of_methods() -> None:
    X, y, model = fitted(80, 8)
    for method, arguments, message in (
        *(("counterfactual", {"ids": ids}, "ids: of type") for ids in ([1.5], "a", [True])),
        ("counterfactual", {"ids": []}, "ids: empty"),
        ("counterfactual", {"ids": [80]}, "ids: 80 not in the memory"),
        ("counterfactual", {}, "X and ids: give one of them"),
        ("counterfactual", {"X": X[:1], "ids": [3]}, "X and ids: give one of them"),
        ("counterfactual", {"X": X[:1], "how": "drop"}, "how: drop; allowed are forget and relabel"),
        ("fit", {"X": X, "y": y, "held_out": (X, np.full(80, 7))}, "held_out: unknown labels 7"),
        ("fit", {"X": X, "y": y, "held_out": (X[:, :2], y)}, "features"),
        ("fit", {"X": X, "y": y, "held_out": (X[:1], y[:1])}, "minimum of 2"),
        ("fit", {"X": X, "y": y, "sample_weight": -np.ones(80)}, "[Nn]egative"),
        ("forget", {"ids": [200]}, "ids: 200 not in the memory"),
        ("forget", {"ids": ["a"]}, "ids: of type"),
        ("partial_fit", {"X": X[:1], "y": ["9"]}, "y: labels of type <U1; those of this model are of type int64"),
        (
            "partial_fit",
            {"X": X[:1], "y": y[:1], "sample_weight": [1e300]},
            r"sample_weight: .* over 1e\+15 times the mean",
        ),
        ("partial_fit", {"X": X[:, :3], "y": y}, "3 features"),
        *(("predict_set", {"X": X, "alpha": alpha}, f"alpha: {alpha}; give a share") for alpha in (0, 1)),
        ("predict", {"X": X[:, :3]}, "3 features"),
        ("predict", {"X": 1e300 * X}, "beyond ±1e"),
        ("predict", {"X": [[10**400] * 4]}, "int too large to convert to float; give numbers below"),
    ):
        with pytest.raises(ValueError, match=message):
            getattr(model, method)(**arguments)
    with pytest.raises(ValueError, match="y: labels 2 are not in classes"):
        AttnKNNClassifier(**FAST).partial_fit(X, y, classes=[0, 1])


def test_numpy_scalars_of_a_grid_search_are_saved_and_a_generator_is_not(tmp_path: Path) -> None:
    X, y = blobs(90)
    grid = {"n_neighbors": np.arange(5, 15, 5), "abstain": np.array([0.1], np.float32), "prototypes": [np.True_]}
    search = GridSearchCV(AttnKNNClassifier(max_iter=2, random_state=np.int64(3)), grid, cv=2).fit(X, y)
    search.best_estimator_.save(tmp_path / "m")
    assert AttnKNNClassifier.load(tmp_path / "m").random_state == 3
    model = AttnKNNClassifier(max_iter=3, random_state=np.random.RandomState(0)).fit(X, y.astype(np.int8))
    model.save(tmp_path / "generator")
    loaded = AttnKNNClassifier.load(tmp_path / "generator")
    assert loaded.random_state is None
    assert loaded.predict(X).dtype == np.int8
    assert model.n_features_in_ == loaded.n_features_in_ == 4


def test_a_pickle_does_not_contain_forgotten_rows() -> None:
    X, y = blobs(60)
    X[7] = 12345.678
    model = AttnKNNClassifier(weights="distance", **FAST).fit(X, y)
    vector = model.memory_.vectors()[7].tobytes()
    assert vector in pickle.dumps(model)
    model.partial_fit(X[:9] + 1, y[:9]).forget([7])
    assert vector not in pickle.dumps(model)
    loaded = pickle.loads(pickle.dumps(model))
    loaded.partial_fit(X[:1] + 2, y[:1])
    assert len(loaded.memory_) == 69


def test_a_value_that_dwarfs_all_other_rows_is_refused() -> None:
    X, y = blobs(60)
    for value in (9.97e36, -1e12):
        Z = X.copy()
        Z[5, 3] = value
        with pytest.raises(InputError, match=rf"^X row 5, column 3: {re.escape(f'{value:g}')}, over 1e\+09 times"):
            AttnKNNClassifier(**FAST).fit(Z, y)
        AttnKNNClassifier(metric="cosine", **FAST).fit(Z, y)


@pytest.fixture(scope="module")
def mislabelled() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three clusters, true labels, given labels of which 40 % are the next class, and the true T."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    wrong = rng.random(900) < 0.4
    return np.eye(3, 5)[y] + 0.2 * rng.normal(size=(900, 5)), y, np.where(wrong, (y + 1) % 3, y), wrong


def test_label_noise_is_estimated_and_seen_through(mislabelled, tmp_path: Path) -> None:
    X, y, noisy, _ = mislabelled
    settings: dict[str, Any] = {"max_iter": 8, "random_state": 0}
    plain = AttnKNNClassifier(**settings).fit(X[:600], noisy[:600])
    model = AttnKNNClassifier(label_noise="auto", **settings).fit(X[:600], noisy[:600])
    assert plain.transition_ is None
    np.testing.assert_array_equal(plain.memory_.y, noisy[:600])
    rows = np.arange(300)
    nll = [-np.log(m.predict_proba(X[600:])[rows, y[600:]]).mean() for m in (plain, model)]
    assert nll[1] < nll[0] - 0.3
    assert model.score(X[600:], y[600:]) > 0.97
    np.testing.assert_allclose(model.transition_, 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1), atol=0.1)
    assert (model.memory_.y == y[:600]).mean() > 0.9
    np.testing.assert_array_equal(model.memory_.given_y, noisy[:600])
    why = model.explain(X[600:610])
    np.testing.assert_array_equal(why.given_labels, noisy[why.ids])
    model.save(tmp_path / "m")
    loaded = AttnKNNClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    sets = model.predict_set(X[600:], 0.1)
    assert sets[rows, y[600:]].mean() > 0.85
    assert sets.sum(1).mean() < 1.2  # of given labels it would be 3
    for one in (model, loaded):  # the labels of added rows are not doubted
        one.partial_fit(-X[600:], y[600:]).forget([0, 650])
        np.testing.assert_array_equal(one.memory_.y[599:], np.delete(y[600:], 50))


def test_right_labels_are_taken_as_given(mislabelled) -> None:
    X, y, _, _ = mislabelled
    settings: dict[str, Any] = {"max_iter": 5, "null_scores": "shares", "random_state": 0}
    plain, auto = (AttnKNNClassifier(label_noise=how, **settings).fit(X, y) for how in (None, "auto"))
    assert auto.transition_ is None
    np.testing.assert_array_equal(auto.predict_proba(X), plain.predict_proba(X))


def test_overlapping_classes_are_not_taken_for_wrong_labels() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    X = np.eye(3, 5)[y] + rng.normal(size=(900, 5))
    assert AttnKNNClassifier(label_noise="auto", max_iter=20, random_state=0).fit(X, y).transition_ is None


def test_a_known_matrix_is_used(mislabelled) -> None:
    X, y, noisy, _ = mislabelled
    t = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1)
    model = AttnKNNClassifier(label_noise=t.tolist(), max_iter=10, random_state=0).fit(X, noisy)
    np.testing.assert_array_equal(model.transition_, t)
    assert model.score(X, y) > 0.97


def test_head_and_regression_are_fitted_through_the_matrix(mislabelled, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, noisy, _ = mislabelled
    t = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1)
    calls: list[tuple[list[EmbeddingSpace], Any]] = []

    def recorded(spaces: list[EmbeddingSpace], **settings: Any) -> Any:
        calls.append((spaces, settings["transition"]))
        return fit_head(spaces, **settings)

    monkeypatch.setattr(fitting, "fit_head", recorded)
    model = AttnKNNClassifier(label_noise=t, null_scores="linear", max_iter=5, random_state=0).fit(X, noisy)
    [(spaces, transition)] = calls
    np.testing.assert_array_equal(transition, t)
    for space in spaces:
        e = space.embeddings
        bank, held = e.rows(BANK), np.flatnonzero(e.part != BANK)
        assert (e.y[bank] == y[bank]).mean() > 0.9  # corrected
        np.testing.assert_array_equal(e.y[held], noisy[held])
        surest = softmax(e.logits, axis=1).max(1).mean()
        assert surest > 0.85  # of a regression on given labels .6
    assert model.predict_proba(X).min() > DOUBT / 4  # a third of it, less what the shares differ


def test_estimated_noise_is_dropped_where_it_raises_the_loss(mislabelled, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, noisy, _ = mislabelled
    monkeypatch.setattr(fitting, "significantly_above", lambda losses, others: True)
    settings: dict[str, Any] = {"max_iter": 5, "null_scores": "shares", "random_state": 0}
    plain, auto = (AttnKNNClassifier(label_noise=how, **settings).fit(X, noisy) for how in (None, "auto"))
    assert auto.transition_ is None
    np.testing.assert_array_equal(auto.predict_proba(X), plain.predict_proba(X))


def test_noise_is_counted_among_held_out_rows(mislabelled) -> None:
    """Labels of the memory are right, as those that an encoder has memorised seem to be."""
    X, y, noisy, _ = mislabelled
    model = AttnKNNClassifier(label_noise="auto", max_iter=5, random_state=0)
    model.fit(X[:450], y[:450], held_out=(X[450:], noisy[450:]))
    assert model.transition_ is not None
    np.testing.assert_allclose(np.diag(model.transition_), 0.6, atol=0.12)


def test_the_regression_of_a_memory_is_fitted_through_the_matrix(mislabelled, tmp_path: Path) -> None:
    X, y, noisy, _ = mislabelled
    t = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1)
    model = AttnKNNClassifier(label_noise=t, null_scores="linear", max_iter=5, random_state=0).fit(X[:600], noisy[:600])
    model.save(tmp_path / "m")
    for one in (model, AttnKNNClassifier.load(tmp_path / "m")):
        one.forget(np.arange(300))
        memory = one.memory_
        assert (memory.linear_classifier().logits(one._vectors(X[600:])).argmax(1) == y[600:]).mean() > 0.97
        one.partial_fit(X[600:], y[600:])
        one.save(tmp_path / "n")
        z, likelihood = one._vectors(X[300:]), np.concatenate([t[:, noisy[300:600]].T, np.eye(3)[y[600:]]])
        for fitted in (memory, AttnKNNClassifier.load(tmp_path / "n").memory_):  # labels of added rows are right
            expected = forward_regression(z, likelihood, np.ones(600), memory.strength or 0)
            np.testing.assert_allclose(fitted.linear_classifier().coef, expected[0], atol=1e-6)


def test_sparse_input_is_made_dense_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_digits(return_X_y=True)
    dense = AttnKNNClassifier(max_iter=3, random_state=0).fit(X[:300], y[:300])
    sparse = AttnKNNClassifier(max_iter=3, random_state=0).fit(csr_array(X[:300]), y[:300])
    np.testing.assert_array_equal(sparse.predict_proba(csr_array(X[300:400])), dense.predict_proba(X[300:400]))
    sparse.partial_fit(csr_array(X[300:302]), y[300:302])
    assert sparse.explain(csr_array(X[300:301])).ids[0, 0] == 300
    monkeypatch.setattr(scaling, "_MOST_VALUES", 64 * 300 - 1)
    with pytest.raises(ValueError, match=r"X: sparse, 300×64; at most 19,199 values .* TruncatedSVD"):
        sparse.fit(csr_array(X[:300]), y[:300])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"label_noise": "auto", "weights": "distance"}, "needs weights attention"),
        ({"label_noise": "auto", "calibration": "vector"}, "take temperature"),
        ({"label_noise": np.eye(2)}, r"give \(3, 3\)"),
        ({"label_noise": csr_array(np.eye(3))}, "no matrix of numbers"),
        ({"label_noise": np.ones((3, 3))}, "sum to 1"),
        ({"label_noise": "yes"}, "label_noise"),
    ],
)
def test_bad_label_noise_is_one_line(mislabelled, params: dict[str, Any], message: str) -> None:
    X, _, noisy, _ = mislabelled
    with pytest.raises(ValueError, match=message) as error:
        AttnKNNClassifier(**params).fit(X, noisy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("index", ["flat", "hnsw", "ivf"])
def test_files_of_a_saved_model_hold_nothing_of_forgotten_rows(index: Any, tmp_path: Path) -> None:
    X, y = blobs(200)
    model = AttnKNNClassifier(12, index=index, weights="distance", **FAST).fit(X, y)
    vectors = [row.tobytes() for row in model.memory_.vectors()[[7, 150]]]

    def holds(folder: str) -> list[bool]:
        model.save(tmp_path / folder)
        files = [path.read_bytes() for path in (tmp_path / folder).rglob("*") if path.is_file()]
        return [any(vector in data for data in files) for vector in vectors]

    assert holds("before") == [True, True]
    model.forget([7, 150])
    before = model.predict_proba(X)
    assert holds("after") == [False, False]
    pickled = pickle.dumps(model)
    assert not any(vector in pickled for vector in vectors)
    for other in (AttnKNNClassifier.load(tmp_path / "after"), pickle.loads(pickled)):
        assert len(other.memory_) == 198
        np.testing.assert_allclose(other.predict_proba(X), before, atol=1e-12)
        other.partial_fit(X[:2], y[:2]).forget([0, 201])


def test_forgetting_equals_a_memory_that_never_held_the_rows_to_the_bit() -> None:
    X, y = blobs(300)
    model = AttnKNNClassifier(12, null_scores="means", max_iter=3, random_state=0).fit(X, y)
    gone = np.random.default_rng(0).permutation(300)[:120]
    kept = np.setdiff1d(np.arange(300), gone)
    never = copy.deepcopy(model)
    never.memory_ = Memory.build(model._vectors(X[kept]), y[kept], np.ones(len(kept)), 3)
    model.forget(gone)
    for name in ("sums", "y", "weight", "agreement", "density"):
        np.testing.assert_array_equal(getattr(model.memory_, name), getattr(never.memory_, name), err_msg=name)
    np.testing.assert_array_equal(model.predict_proba(X), never.predict_proba(X))
    np.testing.assert_array_equal(model.novelty(X), never.novelty(X))
