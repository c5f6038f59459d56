"""The classifier: scikit-learn's conventions, explanations, a changing memory, storage, and refused input."""

import copy
import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from attnknn import AttnKNNClassifier
from attnknn.classifier.held_out import fold_parts, held_out_spaces, query_space
from attnknn.classifier.memory import Memory
from attnknn.core.artifacts import BANK, FIT, VAL
from attnknn.evaluation.calibration import apply_scaling, fit_scaling

FAST = {"max_iter": 3, "random_state": 0}


def blobs(n: int = 200, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return 2 * np.eye(classes, 4)[y] + rng.normal(size=(n, 4)), y


def _known(estimator: AttnKNNClassifier) -> dict[str, str]:
    return {
        "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 is one neighbour, and one row of a fold"
    }


@parametrize_with_checks(
    [
        AttnKNNClassifier(max_iter=3),
        AttnKNNClassifier(weights="distance", metric="cosine", calibration="vector"),
        AttnKNNClassifier(5, weights="uniform", calibration=None, prior=0.01),
    ],
    expected_failed_checks=_known,
)
def test_scikit_learn_s_own_checks(estimator, check) -> None:
    check(estimator)


def test_grid_search_pipeline_and_cross_validation() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    grid = {"attnknnclassifier__n_neighbors": [5, 15], "attnknnclassifier__weights": ["distance", "attention"]}
    model = make_pipeline(StandardScaler(), AttnKNNClassifier(**FAST))
    search = GridSearchCV(model, grid, cv=3, scoring="neg_log_loss").fit(X, y)
    assert set(search.best_params_) == set(grid)
    assert search.best_score_ > -0.6
    assert cross_val_score(clone(model), X, y, cv=3).mean() > 0.9


def test_labels_may_be_anything_and_columns_may_have_names() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = AttnKNNClassifier(**FAST).fit(X, names)
    assert model.score(X, names) > 0.9
    assert list(model.feature_names_in_) == list(X.columns)
    numbers = AttnKNNClassifier(**FAST).fit(X, np.array([-3, 10, 700])[y])
    np.testing.assert_array_equal(numbers.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"sepal length (cm)": "length"}))


def test_neighbours_are_scikit_learn_s() -> None:
    X, y = load_wine(return_X_y=True)
    model = AttnKNNClassifier(weights="uniform", **FAST).fit(X, y)
    peer = KNeighborsClassifier(9).fit(X, y)
    for queries in (X[:20] + 0.01, None):
        (distances, ids), (expected, others) = (m.kneighbors(queries, 9) for m in (model, peer))
        np.testing.assert_array_equal(ids, others)
        np.testing.assert_allclose(distances, expected, rtol=1e-3, atol=1e-3)
    assert model.kneighbors(X[:2], 3, return_distance=False).shape == (2, 3)
    with pytest.raises(ValueError, match="n_neighbors: 179 asked for; the memory can give 1 … 178"):
        model.kneighbors(X, 179)
    with pytest.raises(ValueError, match="n_neighbors: 178 asked for; the memory can give 1 … 177"):
        model.kneighbors(None, 178)


def test_cosine_neighbours_do_not_know_lengths() -> None:
    X, y = blobs()
    model = AttnKNNClassifier(metric="cosine", weights="distance", **FAST).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X * 7), model.predict_proba(X), atol=1e-6)
    peer = KNeighborsClassifier(9, metric="cosine").fit(X, y)
    np.testing.assert_array_equal(model.kneighbors(X[:20] + 0.01, 9)[1], peer.kneighbors(X[:20] + 0.01, 9)[1])


def test_no_query_of_fit_is_in_the_memory_it_asks_and_no_evidence_knows_it() -> None:
    X, y = blobs(150)
    z = np.ascontiguousarray(X, dtype=np.float32)
    memory = Memory.build(z, y, np.ones(150), 3)
    parts = fold_parts(y, seed=3)
    held = np.stack([part != BANK for part in parts])
    np.testing.assert_array_equal(held.sum(0), 1)  # every row once
    assert abs(sum(int((part == FIT).sum()) for part in parts) - 75) <= 5
    for c in range(3):
        counts = [int((part[y == c] != BANK).sum()) for part in parts]
        assert max(counts) - min(counts) <= 1  # of each class
    odd = fold_parts(np.zeros(25, np.int64), seed=0)
    assert sum(int((part == FIT).sum()) - int((part == VAL).sum()) for part in odd) == 1
    for space, part in zip(held_out_spaces(memory, z, 3, 10, parts), parts, strict=True):
        assert (part[space.neighbours.ids] == BANK).all()
        queries = np.flatnonzero(part != BANK)
        flipped = y.copy()
        flipped[queries] = (y[queries] + 1) % 3
        other = Memory.build(z, flipped, np.ones(150), 3)
        (again,) = held_out_spaces(other, z, 3, 10, [part])
        np.testing.assert_array_equal(again.statistics.agreement, space.statistics.agreement)
        np.testing.assert_array_equal(again.statistics.prototypes, space.statistics.prototypes)


def test_neighbours_without_the_rows_held_out_are_those_of_a_memory_without_them() -> None:
    X, y = blobs(150)
    z = np.ascontiguousarray(X, dtype=np.float32)
    weight = 1.0 + y
    memory = Memory.build(z, y, weight, 3)
    part = np.where(np.arange(150) % 15 < 7, BANK, np.where(np.arange(150) % 2 > 0, FIT, VAL)).astype(np.int8)
    left = np.flatnonzero(part == BANK)
    (space,) = held_out_spaces(memory, z, 3, 10, [part])
    squares = ((X[:, None] - X[left]) ** 2).sum(2)
    squares[left, np.arange(len(left))] = np.inf  # none is its own
    np.testing.assert_array_equal(space.neighbours.ids, left[np.argsort(squares, axis=1)[:, :64]])
    np.testing.assert_allclose(space.neighbours.sims, -np.sort(squares, axis=1)[:, :64], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.exp(space.log_weight), weight)


def test_rows_to_learn_on_are_halved_by_class() -> None:
    X, y = blobs(150)
    z = np.ascontiguousarray(X, dtype=np.float32)
    memory = Memory.build(z[:100], y[:100], np.ones(100), 3)
    space = query_space(memory, z[:100], 3, 10, z[100:], y[100:], seed=0)
    part = space.embeddings.part
    assert (part[:100] == BANK).all()
    for c in range(3):
        assert abs(int((part[100:][y[100:] == c] == FIT).sum()) - int((part[100:][y[100:] == c] == VAL).sum())) <= 1
    assert (space.neighbours.ids < 100).all()


def test_many_rows_are_held_out_no_further_than_they_teach() -> None:
    y = np.zeros(50_000, dtype=np.int64)
    parts = fold_parts(y, seed=0)
    assert [int((part != BANK).sum()) for part in parts] == [10_000]
    assert int((parts[0] == VAL).sum()) == 5000
    assert [int((part != BANK).sum()) for part in fold_parts(y, 0, queries=500)] == [500]


def test_a_probability_is_no_surer_than_the_rows_that_vouch_for_it() -> None:
    X, y = blobs(120, 2)
    X = X + 50 * y[:, None]  # no row is ever wrong
    model = AttnKNNClassifier(**FAST).fit(X, y)
    assert model.predict_proba(X).min() > 0.3 / 61
    assert log_loss(y, model.predict_proba(X)) < 0.02


def test_probabilities_beat_plain_nearest_neighbours() -> None:
    X, y = load_digits(return_X_y=True)
    X, Xt, y, yt = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    model = make_pipeline(StandardScaler(), AttnKNNClassifier(random_state=0)).fit(X, y)
    plain = make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(X, y)
    assert log_loss(yt, model.predict_proba(Xt)) < 0.5 * log_loss(yt, plain.predict_proba(Xt))
    assert model.score(Xt, yt) >= plain.score(Xt, yt)


def test_calibration_is_left_out_where_it_does_not_help() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    honest = np.where(rng.random(4000) < 0.8, y, 1 - y)
    probs = np.where(np.eye(2)[honest] == 1, 0.8, 0.2)
    sharp = probs**3 / (probs**3).sum(1, keepdims=True)
    scale, bias = fit_scaling("temperature", sharp[:2000], y[:2000], sharp[2000:], y[2000:])
    np.testing.assert_allclose(scale, 1 / 3, rtol=0.1)
    np.testing.assert_array_equal(bias, 0)
    np.testing.assert_allclose(apply_scaling(sharp, scale, bias), probs, atol=0.03)
    unchanged = fit_scaling("vector", sharp[:3], y[:3], probs[2000:], y[2000:])
    np.testing.assert_allclose(apply_scaling(probs, *unchanged), probs, atol=0.02)
    assert fit_scaling("temperature", sharp[:3], 1 - y[:3], probs[2000:], y[2000:])[0].tolist() == [1, 1]
    assert fit_scaling(None, sharp, y, sharp, y)[0].tolist() == [1, 1]
    by_hand = apply_scaling(np.array([[0.8, 0.2]]), np.array([2, 2]), np.log([1, 4]))
    np.testing.assert_allclose(by_hand, [[0.64 / 0.8, 0.16 / 0.8]])  # 0.8² to 4·0.2²


@pytest.mark.parametrize("weights", ["attention", "distance", "uniform"])
def test_what_explains_an_answer_adds_up_to_it(weights: str) -> None:
    X, y = blobs()
    model = AttnKNNClassifier(12, weights=weights, **FAST).fit(X, np.array(["a", "b", "c"])[y])
    explanation = model.explain(X[:30] + 0.1)
    np.testing.assert_allclose(explanation.weights.sum(1) + explanation.null.sum(1), 1, atol=1e-9)
    votes = explanation.null + np.stack(
        [(explanation.weights * (explanation.labels == c)).sum(1) for c in model.classes_], 1
    )
    np.testing.assert_allclose(votes, explanation.votes, atol=1e-9)
    np.testing.assert_array_equal(explanation.predictions, model.predict(X[:30] + 0.1))
    np.testing.assert_allclose(explanation.probabilities, model.predict_proba(X[:30] + 0.1))
    distances, ids, shown = model.kneighbors(X[:30] + 0.1, return_weights=True)
    np.testing.assert_array_equal(ids, explanation.ids)
    np.testing.assert_allclose(distances, explanation.distances)
    np.testing.assert_allclose(shown, explanation.weights)
    np.testing.assert_allclose(model.kneighbors(X[:30] + 0.1, 3, return_weights=True)[2], explanation.weights[:, :3])
    assert (explanation.shares[explanation.labels != explanation.predictions[:, None]] == 0).all()
    top = np.searchsorted(model.classes_, explanation.predictions)[:, None]
    null, votes = (np.take_along_axis(values, top, 1)[:, 0] for values in (explanation.null, explanation.votes))
    np.testing.assert_allclose(explanation.shares.sum(1), 1 - null / votes, atol=1e-9)


@pytest.mark.parametrize("how", ["forget", "relabel"])
@pytest.mark.parametrize("weights", ["attention", "distance"])
def test_a_counterfactual_is_what_doing_it_brings(weights: str, how: str) -> None:
    X, y = blobs(150)
    weight = 1.0 + y
    model = AttnKNNClassifier(12, weights=weights, **FAST).fit(X, y, sample_weight=weight)
    queries = X[:20] + 0.3
    before, turned = model.predict_proba(queries), 0
    answers = before.argmax(1)

    def changed_model(ids: np.ndarray, label: int) -> AttnKNNClassifier:
        real = copy.deepcopy(model)
        if how == "forget":
            return real.forget(ids)
        changed = y.copy()
        changed[ids] = label
        old = real.memory_
        real.memory_ = Memory.build(old.vectors(), changed, old.weight, 3)
        return real

    for query, answer, result in zip(queries, answers, model.counterfactual(queries, how), strict=True):
        heaviest = model.explain(query[None])
        mine = np.where(heaviest.labels[0] == answer, heaviest.weights[0], 0)
        assert result.ids[0] == heaviest.ids[0, mine.argmax()]
        assert result.label == model.classes_[np.argsort(-heaviest.probabilities[0])[1]]
        assert len(set(result.ids)) == len(result.ids)
        assert result.turned == (result.prediction != answer)
        turned += result.turned
        probabilities = changed_model(result.ids, result.label).predict_proba(query[None])[0]
        np.testing.assert_allclose(probabilities, result.probabilities, atol=1e-6)
        assert model.classes_[probabilities.argmax()] == result.prediction
        if result.turned and len(result.ids) > 1:  # one row fewer would not have been enough
            assert changed_model(result.ids[:-1], result.label).predict(query[None])[0] == answer
    assert turned >= 15
    np.testing.assert_array_equal(model.predict_proba(queries), before)
    assert not any(result.turned for result in model.counterfactual(X[:3], how, most=0))


def test_without_prototypes_neighbours_alone_decide() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = np.c_[6 * y, np.zeros(300)] + rng.normal(size=(300, 2)) * [0.3, 6]  # means tell more than neighbours do
    null = {}
    for prototypes in (True, False):
        model = AttnKNNClassifier(5, prototypes=prototypes, max_iter=60, random_state=0).fit(X, y)
        explanation = model.explain(X[:50] + 0.01)
        null[prototypes] = explanation.null.sum(1).mean()
        assert any("prototype" in name for name, _ in model.head_.named_parameters()) == prototypes
    assert null[False] < null[True]


def test_a_counterfactual_for_a_row_of_the_memory_is_without_it() -> None:
    X, y = blobs(80)
    model = AttnKNNClassifier(8, index="hnsw", weights="distance", **FAST).fit(X, y)
    real = pickle.loads(pickle.dumps(model)).forget([7])
    for how in ("forget", "relabel"):
        (own,), (other,) = model.counterfactual(ids=[7], how=how), real.counterfactual(X[7:8], how)
        np.testing.assert_array_equal(own.ids, other.ids)
        np.testing.assert_allclose(own.probabilities, other.probabilities, atol=1e-6)
    np.testing.assert_allclose(model.explain_rows([7]).probabilities, real.predict_proba(X[7:8]), atol=1e-6)
    with pytest.raises(ValueError, match="ids: 80 not in the memory"):
        model.counterfactual(ids=[80])
    for ids, message in (([], "none given"), ([1.5], "of type float64"), ("a", "of type"), ([True], "of type bool")):
        with pytest.raises(ValueError, match=f"ids: {message}"):
            model.explain_rows(ids)
    for arguments in ({}, {"X": X[:1], "ids": [3]}):
        with pytest.raises(ValueError, match="X and ids: give one of them"):
            model.counterfactual(**arguments)
    with pytest.raises(ValueError, match="how: drop; allowed are forget and relabel"):
        model.counterfactual(X[:1], "drop")


def test_of_two_rows_that_are_left_one_explains_the_other() -> None:
    X, y = blobs(60)
    for weights in ("attention", "uniform"):
        model = AttnKNNClassifier(12, weights=weights, **FAST).fit(X, y).forget(np.arange(58))
        assert model.explain_rows([58]).ids.tolist() == [[59]]
        for result in (*model.counterfactual(ids=[58]), *model.counterfactual(X[:1])):  # no more can be forgotten
            assert len(result.ids) == 0
            assert not result.turned
        np.testing.assert_allclose(model.predict_proba(X[:5]).sum(1), 1)


def test_where_no_neighbour_speaks_for_an_answer_none_is_named() -> None:
    X = np.r_[np.zeros((6, 2)), np.full((54, 2), 9.0)]
    y = np.repeat([0, 1], [6, 54])
    model = AttnKNNClassifier(3, weights="uniform", prior=0.9, calibration=None, **FAST).fit(X, y)
    assert model.predict(X[:1]) == [1]  # by its share of the rows
    for how in ("forget", "relabel"):
        (result,) = model.counterfactual(X[:1], how)
        assert len(result.ids) == 0
        assert not result.turned


def test_ids_are_not_positions() -> None:
    X, y = blobs(120)
    model = AttnKNNClassifier(12, weights="distance", **FAST).fit(X, y).forget(np.arange(20))
    other = copy.deepcopy(model)
    other.memory_ = Memory.build(model.memory_.vectors(), y[20:], np.ones(100), 3)
    explanation, expected = model.explain(X[:9]), other.explain(X[:9])
    np.testing.assert_array_equal(explanation.ids, expected.ids + 20)
    np.testing.assert_array_equal(explanation.labels, y[explanation.ids])
    np.testing.assert_allclose(explanation.null, expected.null, atol=1e-9)
    for how in ("forget", "relabel"):
        for mine, theirs in zip(model.counterfactual(X[:9], how), other.counterfactual(X[:9], how), strict=True):
            np.testing.assert_array_equal(mine.ids, theirs.ids + 20)
            np.testing.assert_allclose(mine.probabilities, theirs.probabilities, atol=1e-6)


def test_rows_are_answered_alike_in_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(60)
    model = AttnKNNClassifier(12, **FAST).fit(X, y)
    together = model.explain(X + 0.1)
    monkeypatch.setattr("attnknn.classifier.predictor._SEARCHED", 23)
    monkeypatch.setattr("attnknn.classifier.predictor._BATCH", 7)
    apart = model.explain(X + 0.1)
    np.testing.assert_array_equal(apart.ids, together.ids)
    np.testing.assert_allclose(apart.probabilities, together.probabilities, atol=1e-9)


def test_held_out_rows_teach_in_the_place_of_folds_that_an_encoder_has_seen() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 900)
    X = rng.normal(size=(900, 4))
    X[:500, 0] += 6 * y[:500]  # rows that an encoder was trained on: their labels are in their vectors
    seen, new, test = slice(0, 500), slice(500, 700), slice(700, 900)
    kept = AttnKNNClassifier(20, **FAST).fit(X[seen], y[seen], held_out=(X[new], y[new]))
    naive = AttnKNNClassifier(20, **FAST).fit(X[seen], y[seen])
    assert len(kept.memory_) == 500
    assert log_loss(y[test], kept.predict_proba(X[test])) < 0.75
    assert log_loss(y[test], naive.predict_proba(X[test])) > 1
    assert len(kept._held_out[1]) == 100
    with pytest.raises(ValueError, match="held_out: 7 are new classes"):
        kept.fit(X[seen], y[seen], held_out=(X[new], np.full(200, 7)))
    with pytest.raises(ValueError, match="features"):
        kept.fit(X[seen], y[seen], held_out=(X[new, :2], y[new]))
    with pytest.raises(ValueError, match="minimum of 2"):
        kept.fit(X[seen], y[seen], held_out=(X[:1], y[:1]))


def test_sets_are_calibrated_by_answers_to_rows_that_did_not_fit_the_head() -> None:
    X, y = blobs(400)
    held = 300 + np.flatnonzero(y[300:] > 0)  # none of class 0
    held = held[: len(held) - 1 + len(held) % 2]  # an odd number
    model = AttnKNNClassifier(20, **FAST).fit(X[:300], y[:300], held_out=(X[held], y[held]))
    probs, labels = model._held_out
    assert len(probs) == len(held) // 2  # the head got one more
    answers = model.predict_proba(X[held])
    rows = np.abs(answers[:, None] - probs[None]).max(2).argmin(0)
    np.testing.assert_allclose(answers[rows], probs, atol=1e-6)
    np.testing.assert_array_equal(y[held][rows], labels)


def test_rows_added_and_forgotten_change_answers_as_a_memory_built_anew_does() -> None:
    X, y = blobs(300)
    model = AttnKNNClassifier(12, **FAST).fit(X[:200], y[:200])
    before = model.predict_proba(X[200:])
    model.partial_fit(X[200:], y[200:])
    assert len(model.memory_) == 300
    assert (model.kneighbors(X[200:], 1)[1][:, 0] == np.arange(200, 300)).all()
    added = model.predict_proba(X[200:])
    assert np.abs(added - before).max() > 0.01
    anew = Memory.build(model.memory_.vectors(), y, np.ones(300), 3)
    other = AttnKNNClassifier(12, **FAST).fit(X[:200], y[:200])
    other.memory_ = anew
    np.testing.assert_allclose(other.predict_proba(X[200:]), added, atol=1e-6)
    model.forget(np.arange(200, 300))
    np.testing.assert_allclose(model.predict_proba(X[200:]), before, atol=1e-6)
    with pytest.raises(ValueError, match="y: 9 are new classes; this model knows 0, 1, 2"):
        model.partial_fit(X[:1], [9])
    with pytest.raises(ValueError, match="ids: 200 not in the memory"):
        model.forget([200])
    assert len(model.forget([]).memory_) == 200
    assert AttnKNNClassifier(**FAST).partial_fit(X, y, classes=[0, 1, 2, 3]).classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="classes: 2 in y, but not among them"):
        AttnKNNClassifier(**FAST).partial_fit(X, y, classes=[0, 1])


def test_a_fit_that_is_refused_or_interrupted_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(90)
    model, fresh = AttnKNNClassifier(**FAST).fit(X, y), AttnKNNClassifier(**FAST)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="held_out: 9 are new classes"):
        model.fit(X[:40], y[:40], held_out=(X, np.full(90, 9)))
    np.testing.assert_array_equal(model.predict_proba(X), before)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnknn.classifier.fitting.fit_head", interrupted)
    for classifier in (model, fresh):
        with pytest.raises(KeyboardInterrupt):
            classifier.fit(X[:40, :3], y[:40])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_answers_do_not_depend_on_the_unit_of_the_columns(metric: str) -> None:
    X, y = blobs(90)
    settings = {"weights": "distance", "metric": metric, **FAST}
    answers = AttnKNNClassifier(12, **settings).fit(X, y).predict_proba(X)
    for power in (-1000, -600, 600, 1000):  # squares of these leave float64
        scaled_x = np.ldexp(X, power)
        np.testing.assert_array_equal(
            AttnKNNClassifier(12, **settings).fit(scaled_x, y).predict_proba(scaled_x), answers
        )
    same = AttnKNNClassifier(5, **settings).fit(np.zeros((80, 3)), np.arange(80) % 2)
    np.testing.assert_allclose(same.predict_proba(np.zeros((1, 3))), 0.5, atol=0.01)


def test_columns_may_be_far_from_zero() -> None:
    X, y = blobs(90)
    centred, shifted = (AttnKNNClassifier(weights="uniform", **FAST).fit(X + offset, y) for offset in (0, 1e6))
    np.testing.assert_array_equal(shifted.kneighbors(X + 1e6, 9)[1], centred.kneighbors(X, 9)[1])


def test_settings_mean_what_they_say() -> None:
    X, y = blobs(120)
    for weights in ("distance", "uniform"):
        model = AttnKNNClassifier(5, weights=weights, prior=0.2, **FAST).fit(X, y)
        assert model.head_.k <= 5
        np.testing.assert_allclose(model.explain(X[:4]).null.sum(1), 0.2)
    for prior in (0.2, None):
        head = AttnKNNClassifier(prior=prior, **FAST).fit(X, y).head_
        assert head.null_bias.requires_grad == (prior is None)
        assert (torch.sigmoid(head.null_bias).item() == pytest.approx(0.2)) == (prior == 0.2)
    assert AttnKNNClassifier(**FAST).fit(X, y).n_iter_ == 3
    groups = np.repeat(10 * np.random.default_rng(0).normal(size=(40, 2)), 6, axis=0)
    assert AttnKNNClassifier(50, weights="uniform", **FAST).fit(groups, np.arange(240) // 6 % 2).head_.k <= 5


def test_random_state_draws_the_rows_that_are_held_out() -> None:
    X, y = blobs(90)
    first, again, other = (
        AttnKNNClassifier(12, weights="distance", random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_threads_are_as_before_once_it_is_done() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="torn"), AttnKNNClassifier(n_jobs=before + 1)._threads():
        assert torch.get_num_threads() == before + 1
        raise RuntimeError("torn")
    assert torch.get_num_threads() == before


def test_weights_are_relative_to_those_of_fit() -> None:
    X, y = blobs(90)
    settings = {"weights": "distance", **FAST}
    one = AttnKNNClassifier(12, **settings).fit(X[:80], y[:80]).partial_fit(X[80:], y[80:])
    five = AttnKNNClassifier(12, **settings).fit(X[:80], y[:80], np.full(80, 5))
    five.partial_fit(X[80:], y[80:], sample_weight=np.full(10, 5))
    np.testing.assert_array_equal(five.memory_.weight, 1)
    np.testing.assert_array_equal(five.predict_proba(X), one.predict_proba(X))
    assert len(five.partial_fit(X[:3], y[:3], sample_weight=[0, 5, 0]).memory_) == 91
    with pytest.raises(ValueError, match=r"sample_weight: one is over 1e\+15 times the mean"):
        five.partial_fit(X[:1], y[:1], sample_weight=[1e300])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        light = AttnKNNClassifier(12, **settings).fit(X, y, np.r_[1e-300, np.ones(89)])  # nothing in float32
        explanation = light.explain(X[:1])
    assert explanation.ids[0, 0] == 0
    assert explanation.weights[0, 0] < 1e-30


def test_a_weight_counts_as_so_many_rows_at_the_place() -> None:
    X, y = blobs(90)
    settings = {"weights": "distance", "prior": 0.01, "calibration": None, **FAST}
    weight = np.ones(90)
    weight[:5] = 0
    rest = AttnKNNClassifier(90, **settings).fit(X[5:], y[5:])
    np.testing.assert_allclose(
        AttnKNNClassifier(90, **settings).fit(X, y, weight).predict_proba(X), rest.predict_proba(X), atol=1e-6
    )
    weight[5:20] = 3
    heavy = AttnKNNClassifier(200, **settings).fit(X, y, weight)
    often = AttnKNNClassifier(200, **settings).fit(X, y, weight)
    often.memory_ = Memory.build(
        np.repeat(heavy.memory_.vectors(), np.r_[[3] * 15, [1] * 70], axis=0),
        np.repeat(y[5:], np.r_[[3] * 15, [1] * 70]),
        np.ones(115),
        3,
    )
    for model in (heavy, often):
        model.head_ = replace(model.head_, k=200)  # a choice of fewer would be of fewer rows
    np.testing.assert_allclose(heavy.predict_proba(X), often.predict_proba(X), atol=1e-5)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        AttnKNNClassifier(**FAST).fit(X, y, -weight)


def test_sets_hold_the_true_class_as_often_as_asked() -> None:
    X, y = blobs(2400)
    model = AttnKNNClassifier(max_iter=20, random_state=0).fit(X[:1200], y[:1200])
    for alpha in (0.05, 0.2):
        sets = model.predict_set(X[1200:], alpha)
        held = sets[np.arange(1200), y[1200:]].mean()
        alone = model.score(X[1200:], y[1200:])  # the likeliest class is always in
        assert 1 - alpha - 0.03 < held < max(1 - alpha, alone) + 0.03
        assert sets.any(1).all()
    for alpha in (0, 1):
        with pytest.raises(ValueError, match=f"alpha: {alpha}; give a share"):
            model.predict_set(X, alpha)
    assert model.abstains(X).sum() == 0
    confidence = model.predict_proba(X).max(1)
    model.set_params(abstain=float(np.median(confidence[:-1])))  # one of them, which is not below itself
    np.testing.assert_array_equal(model.abstains(X), confidence < model.abstain)


@pytest.mark.parametrize("settings", [{}, {"weights": "distance", "index": "hnsw"}, {"metric": "cosine"}])
def test_saved_and_pickled_models_answer_as_they_did(settings: dict, tmp_path) -> None:
    X, y = blobs()
    X = pd.DataFrame(X, columns=list("abcd"))
    model = AttnKNNClassifier(12, **settings, **FAST).fit(X, np.array(["x", "y", "z"])[y])
    model.partial_fit(X[:7], np.array(["x", "y", "z"])[y[:7]]).forget([3, 4, 206])
    model.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(other.predict_set(X, 0.1), model.predict_set(X, 0.1))
        assert other.get_params() == model.get_params()
        other.partial_fit(X[7:9], np.array(["x", "y", "z"])[y[7:9]])
        assert other.kneighbors(X[7:9], 2)[1].max() == 208
    assert not any(path.suffix in (".pkl", ".pt") for path in tmp_path.rglob("*"))
    drawn = AttnKNNClassifier(**{**FAST, "random_state": np.random.RandomState(0)}).fit(X, y.astype(np.int8))
    drawn.save(tmp_path / "drawn")
    again = AttnKNNClassifier.load(tmp_path / "drawn")
    assert again.random_state is None  # its state is no plain value
    assert again.predict(X).dtype == np.int8
    assert model.n_features_in_ == loaded.n_features_in_ == 4


def test_what_is_no_model_is_refused_in_one_line(tmp_path) -> None:
    X, y = blobs()
    AttnKNNClassifier(**FAST).fit(X, y).save(tmp_path / "m")
    arrays = tmp_path / "m" / "arrays.safetensors"
    whole = arrays.read_bytes()
    for damage, message in ((whole[:-9], "damaged"), (whole[:200] + b"x" + whole[201:], "damaged")):
        arrays.write_bytes(damage)
        with pytest.raises(ValueError, match=f"arrays.safetensors: {message}"):
            AttnKNNClassifier.load(tmp_path / "m")
    arrays.unlink()
    with pytest.raises(ValueError, match="missing; copy the whole folder"):
        AttnKNNClassifier.load(tmp_path / "m")
    about = tmp_path / "m" / "model.json"
    for text, message in (
        (about.read_text().replace('"format": 1', '"format": 9'), "format 9, written by attnknn"),
        ("{}", "no model of Attn-KNN"),
        ("{", "damaged"),
    ):
        about.write_text(text)
        with pytest.raises(ValueError, match=message):
            AttnKNNClassifier.load(tmp_path / "m")
    with pytest.raises(ValueError, match="no saved model"):
        AttnKNNClassifier.load(tmp_path / "nowhere")
    with pytest.raises(NotFittedError):
        AttnKNNClassifier().save(tmp_path / "x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"weights": "cosine"}, "weights"),
        ({"prior": 1.0}, "prior"),
        ({"device": "cuda:7"}, "device: cuda:7 asked for"),
    ],
)
def test_parameters_that_are_not_allowed_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttnKNNClassifier(**settings).fit(*blobs())


def test_input_that_cannot_be_is_named() -> None:
    X, y = blobs()
    for rows, labels, message in (
        (np.where(X > 3, np.nan, X), y, "NaN"),
        (X, np.zeros(200), "single class"),
        (X[:1], y[:1], "minimum of 2"),
        (X[:2], [0, 1], "n_samples = 2: three are needed"),
        (1e308 * np.sign(X), y, "too large to be added up"),
        (X, y[:5], "inconsistent"),
        (X, y + 0.5, "continuous"),
    ):
        with pytest.raises(ValueError, match=message):
            AttnKNNClassifier(**FAST).fit(rows, labels)
    model = AttnKNNClassifier(**FAST).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="beyond ±1e"):
            model.predict(1e300 * X)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="3 features"):
        model.partial_fit(X[:, :3], y)
    with pytest.raises(ValueError, match="ids: of type"):
        model.forget(["a"])


def test_models_are_written_over_nothing_else(tmp_path: Path) -> None:
    X, y = blobs(60)
    model = AttnKNNClassifier(weights="distance", **FAST).fit(X, y)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years")
    (tmp_path / "file").write_text("a file")
    for name in ("mine", "file"):
        with pytest.raises(ValueError, match="there already, and no model"):
            model.save(tmp_path / name)
    assert (tmp_path / "mine/thesis.txt").read_text() == "years"
    assert (tmp_path / "file").read_text() == "a file"
    (tmp_path / "mine/model.json").write_text("{}")  # somebody else's
    with pytest.raises(ValueError, match="there already, and no model"):
        model.save(tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for _ in range(2):  # an empty folder, then a model, both by a link that stays one
        model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "empty/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds notes\.txt beside a model"):
        model.save(tmp_path / "empty")
    assert (tmp_path / "empty/notes.txt").read_text() == "mine"
    assert AttnKNNClassifier.load(tmp_path / "empty").predict(X[:1]) == model.predict(X[:1])


def test_what_a_search_over_parameters_gives_can_be_saved(tmp_path: Path) -> None:
    X, y = blobs(90)
    grid = {"n_neighbors": np.arange(5, 15, 5), "abstain": np.array([0.1], np.float32), "prototypes": [np.True_]}
    search = GridSearchCV(AttnKNNClassifier(max_iter=2, random_state=np.int64(3)), grid, cv=2).fit(X, y)
    search.best_estimator_.save(tmp_path / "m")
    assert AttnKNNClassifier.load(tmp_path / "m").random_state == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("about", {"classes": ["barplo"]}),
        ("sha256", []),
        ("sha256", {}),
        ("sha256", {"../secret": "0"}),
        ("format", 0),
        ("format", True),
        ("own_sha256", None),
    ],
)
def test_notes_that_were_changed_are_refused(tmp_path: Path, key: str, value: object) -> None:
    X, y = blobs(60)
    AttnKNNClassifier(weights="distance", **FAST).fit(X, y).save(tmp_path / "m")
    notes = tmp_path / "m/model.json"
    notes.write_text(json.dumps({**json.loads(notes.read_text()), key: value}))
    with pytest.raises(ValueError, match=r"damaged|no model of Attn-KNN"):
        AttnKNNClassifier.load(tmp_path / "m")
    notes.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="damaged"):
        AttnKNNClassifier.load(tmp_path / "m")


def test_fit_leaves_torch_s_random_numbers_alone() -> None:
    X, y = blobs(60)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    AttnKNNClassifier(**FAST).fit(X, y)
    torch.testing.assert_close(torch.rand(3), expected)


def test_a_pickle_holds_nothing_of_rows_that_were_forgotten() -> None:
    X, y = blobs(60)
    X[7] = 12345.678
    model = AttnKNNClassifier(weights="distance", **FAST).fit(X, y)
    vector = model.memory_.vectors()[7].tobytes()
    assert vector in pickle.dumps(model)
    model.partial_fit(X[:9] + 1, y[:9]).forget([7])
    assert vector not in pickle.dumps(model)
    again = pickle.loads(pickle.dumps(model))
    again.partial_fit(X[:1] + 2, y[:1])
    assert len(again.memory_) == 69
