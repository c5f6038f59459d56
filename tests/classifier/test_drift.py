"""Rows that fade as others are added, and memories of limited size."""

import copy
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.classifier.memory import Memory
from attnknn.classifier.reduction import representative_rows, rows_by_class
from attnknn.core.errors import InputError

X, Y = load_digits(return_X_y=True)
X = X / 16
FIT, LATE, TEST = slice(0, 500), slice(500, 620), slice(620, None)
NULL_SCORES = ["shares", "means", "linear"]


@pytest.fixture(scope="module", params=NULL_SCORES)
def fitted(request: pytest.FixtureRequest) -> AttnKNNClassifier:
    model = AttnKNNClassifier(null_scores=request.param, max_iter=5, random_state=0, decay=60)
    return model.fit(X[FIT], Y[FIT])


@pytest.fixture(scope="module")
def plain() -> AttnKNNClassifier:
    return AttnKNNClassifier(null_scores="shares", max_iter=5, random_state=0).fit(X[FIT], Y[FIT])


def memory(model: AttnKNNClassifier) -> Memory:
    assert isinstance(model.memory_, Memory)
    return model.memory_


def test_weights_by_hand(fitted: AttnKNNClassifier) -> None:
    own = copy.deepcopy(fitted).partial_fit(X[LATE], Y[LATE])
    expected = np.exp2(-np.concatenate([np.full(500, 120), np.arange(120)[::-1]]) / 60)
    np.testing.assert_allclose(memory(own).weight, expected, rtol=1e-6)
    assert memory(own).weight[0] == 0.25


def test_rows_one_by_one_are_rows_at_once(fitted: AttnKNNClassifier) -> None:
    at_once, singly = copy.deepcopy(fitted).partial_fit(X[LATE], Y[LATE]), copy.deepcopy(fitted)
    for row in range(LATE.start, LATE.stop):
        singly.partial_fit(X[row : row + 1], Y[row : row + 1])
    np.testing.assert_allclose(memory(singly).agreement, memory(at_once).agreement, atol=1e-5)
    tolerance = 0.05 if fitted.null_scores_ == "linear" else 1e-4  # of the solver, from weights that differ by rounding
    np.testing.assert_allclose(singly.predict_proba(X[TEST]), at_once.predict_proba(X[TEST]), atol=tolerance)


def test_fading_is_that_of_sample_weights(plain: AttnKNNClassifier) -> None:
    own = copy.deepcopy(plain).set_params(decay=60).partial_fit(X[LATE], Y[LATE])
    weight = 4 * np.exp2(-np.arange(120)[::-1] / 60)
    weighted = copy.deepcopy(plain).partial_fit(X[LATE], Y[LATE], sample_weight=weight)
    np.testing.assert_allclose(weighted.predict_proba(X[TEST]), own.predict_proba(X[TEST]), atol=1e-4)


def test_the_last_label_of_a_row_outvotes_earlier_ones() -> None:
    rows, labels = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    noise, late = np.random.default_rng(0).normal(scale=0.01, size=rows.shape), np.arange(60).reshape(3, 20).T.ravel()
    moved = labels ^ (labels < 2)  # 0 and 1 change places
    answers = {}
    for decay in (None, 5):
        model = AttnKNNClassifier(n_neighbors=30, weights="uniform", random_state=0, decay=decay)
        model.fit(rows + noise, labels).partial_fit(rows[late] - noise[late], moved[late])
        answers[decay] = model.predict(np.eye(3)).tolist()
    assert answers[5] == [1, 0, 2]
    assert answers[None] != answers[5]


def test_rows_vanish_without_harm(fitted: AttnKNNClassifier) -> None:
    own = copy.deepcopy(fitted).set_params(decay=0.1)
    others = np.flatnonzero(Y[LATE] != 3) + LATE.start
    own.partial_fit(X[others], Y[others])
    probs = own.predict_proba(X[TEST])
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(1), 1)


def test_relabelled_rows_keep_their_weights(fitted: AttnKNNClassifier) -> None:
    own = copy.deepcopy(fitted).partial_fit(X[LATE], Y[LATE])
    before = memory(own).weight
    own.relabel([0, 1], [5, 6])
    np.testing.assert_array_equal(memory(own).weight, np.concatenate([before[2:], before[:2]]))


def test_decay_is_saved_and_refused(fitted: AttnKNNClassifier, tmp_path: Path) -> None:
    own = copy.deepcopy(fitted).partial_fit(X[LATE], Y[LATE])
    own.save(tmp_path / "m")
    loaded = AttnKNNClassifier.load(tmp_path / "m")
    assert loaded.decay == 60
    np.testing.assert_allclose(loaded.predict_proba(X[TEST]), own.predict_proba(X[TEST]), atol=1e-12)
    with pytest.raises(InputError, match="storage: takes no sample_weight, label_noise or decay"):
        AttnKNNClassifier(storage=tmp_path / "t.lance", decay=5).fit(X[FIT], Y[FIT])
    before = memory(own).weight
    for value in (0, -1, np.nan, [3]):
        with pytest.raises(ValueError, match="decay"):
            own.set_params(decay=value).partial_fit(X[:3], Y[:3])
    np.testing.assert_array_equal(memory(own).weight, before)
    with pytest.raises(InputError, match="give numbers to the first call"):
        AttnKNNClassifier().partial_fit(X[FIT], Y[FIT], sample_weight="balanced")
    for value in (0, -1, "x"):
        with pytest.raises(ValueError, match="decay"):
            AttnKNNClassifier(decay=value).fit(X[FIT], Y[FIT])  # type: ignore[arg-type]


def test_rows_of_classes_by_hand() -> None:
    assert rows_by_class(np.array([5, 0, 90, 3]), 10).tolist() == [1, 0, 8, 1]
    assert rows_by_class(np.array([5, 0, 90, 3]), 98).tolist() == [5, 0, 90, 3]
    assert rows_by_class(np.array([5, 0, 90, 3]), 2).tolist() == [1, 0, 1, 0]
    assert rows_by_class(np.array([1, 1, 1]), 3).tolist() == [1, 1, 1]


def test_rows_represent_their_groups() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0], [0, 10], [10, 0], [10, 10]])
    z, y = np.repeat(centres, 25, axis=0) + rng.normal(scale=0.1, size=(100, 2)), np.repeat([0, 0, 1, 1], 25)
    rows = representative_rows(z, y, np.ones(100), 20, 0)
    assert len(np.unique(rows)) == 20
    assert np.bincount(rows // 25).tolist() == pytest.approx([5, 5, 5, 5], abs=2)
    same = representative_rows(np.zeros((100, 2)), y, np.ones(100), 20, 0)
    assert len(np.unique(same)) == 20
    assert np.bincount(y[same]).tolist() == [10, 10]


def test_heavy_rows_pull_the_centre_of_their_group() -> None:
    z, y = np.array([[0.0], [4], [5]]), np.zeros(3, int)
    assert representative_rows(z, y, np.ones(3), 1, 0).tolist() == [1]  # mean 3
    assert representative_rows(z, y, np.array([1.0, 1, 18]), 1, 0).tolist() == [2]  # mean 4.7


def test_a_small_memory_answers_as_one_of_these_rows(plain: AttnKNNClassifier) -> None:
    own = copy.deepcopy(plain).partial_fit(X[LATE], Y[LATE]).keep(100)
    kept = memory(own).ids
    assert len(kept) == 100
    assert np.bincount(memory(own).y).min() >= 8
    other = copy.deepcopy(plain).partial_fit(X[LATE], Y[LATE]).forget(np.setdiff1d(np.arange(620), kept))
    np.testing.assert_array_equal(own.predict_proba(X[TEST]), other.predict_proba(X[TEST]))
    drawn = [np.random.default_rng(seed).permutation(620)[100:] for seed in range(5)]
    random = [copy.deepcopy(plain).partial_fit(X[LATE], Y[LATE]).forget(rows).score(X[TEST], Y[TEST]) for rows in drawn]
    assert own.score(X[TEST], Y[TEST]) > np.mean(random) + 0.02


def test_the_newest_rows_are_kept(plain: AttnKNNClassifier) -> None:
    grown = copy.deepcopy(plain).partial_fit(X[LATE], Y[LATE])
    assert memory(copy.deepcopy(grown).keep(100, by="newest")).ids.tolist() == list(range(520, 620))
    more = memory(copy.deepcopy(grown).keep(150, by="newest"))
    assert more.ids[-120:].tolist() == list(range(500, 620))
    assert np.bincount(more.y[:30], minlength=10).min() >= 2, "rows of `fit` are chosen by class"
    few = memory(copy.deepcopy(grown).keep(123, by="newest"))
    assert len(few.ids) == 123
    late = np.flatnonzero(Y[LATE] != 3) + LATE.start
    without = copy.deepcopy(plain).partial_fit(X[late], Y[late]).keep(50, by="newest")
    assert without.classes_.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_keep_refuses(plain: AttnKNNClassifier) -> None:
    own = copy.deepcopy(plain)
    for n in (9, 0, 50.0, "all"):
        with pytest.raises(InputError, match="give a whole number, at least 10"):
            own.keep(n)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="by: 'oldest'; give 'kmeans' or 'newest'"):
        own.keep(100, by="oldest")  # type: ignore[arg-type]
    assert len(memory(own.keep(5000))) == 500
