"""Classes that come with added rows and go with the last forgotten one, without a fit."""

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.classifier.classes import all_classes, by_class, sources
from attnknn.classifier.memory import Memory
from attnknn.core.errors import InputError

DIGITS, Y = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(Y))
X, Y = DIGITS[ORDER] / 16, Y[ORDER]
NAMES = np.array(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"])
NEW = (0, 7)
OLD = np.flatnonzero(~np.isin(Y[:1200], NEW))
TEST = np.arange(1200, len(Y))
NULL_SCORES = ["shares", "means", "linear"]


def rows_of(number: int, n: int) -> np.ndarray:
    return np.flatnonzero(Y[:1200] == number)[:n]


@pytest.fixture(scope="module", params=NULL_SCORES)
def fitted(request: pytest.FixtureRequest) -> AttnKNNClassifier:
    model = AttnKNNClassifier(null_scores=request.param, max_iter=5, random_state=0)
    return model.fit(X[OLD], NAMES[Y[OLD]])


def grown(fitted: AttnKNNClassifier, n: int = 20) -> AttnKNNClassifier:
    rows = np.concatenate([rows_of(number, n) for number in NEW])
    return copy.deepcopy(fitted).partial_fit(X[rows], NAMES[Y[rows]])


def test_numbers_of_classes_by_hand() -> None:
    earlier, classes = np.array(["b", "d"]), np.array(["a", "b", "c", "d"])
    source = sources(earlier, classes)
    assert source.tolist() == [-1, 0, -1, 1]
    assert by_class(np.array([1.0, 5.0]), source).tolist() == [3, 1, 3, 5]
    assert by_class(np.array([1, 5]), source, 0).tolist() == [0, 1, 0, 5]
    assert sources(classes, earlier).tolist() == [1, 3]


def test_it_equals_a_rebuilt_memory_and_a_head_whose_new_classes_have_the_mean_bias(fitted: AttnKNNClassifier) -> None:
    model, rows = grown(fitted), np.concatenate([OLD, *(rows_of(number, 20) for number in NEW)])
    assert model.classes_.tolist() == sorted(NAMES)
    assert set(model.new_classes_) == set(NAMES[list(NEW)])
    y = np.searchsorted(model.classes_, NAMES[Y[rows]])
    rebuilt = copy.deepcopy(model)
    rebuilt.memory_ = Memory.build(model._vectors(X[rows]), y, np.ones(len(rows)), 10)
    rebuilt.memory_.strength = model.memory_.strength
    np.testing.assert_allclose(model.predict_proba(X[TEST]), rebuilt.predict_proba(X[TEST]), atol=1e-9)
    known = ~np.isin(model.classes_, model.new_classes_)
    for name, array in fitted.head_.state_dict().items():
        own = model.head_.state_dict()[name].numpy()
        if name in ("prototype_bias", "linear_bias"):
            np.testing.assert_array_equal(own[known], array)
            np.testing.assert_allclose(own[~known], array.mean())
        else:
            np.testing.assert_array_equal(own, array)


def test_old_classes_are_better_and_new_ones_are_found(fitted: AttnKNNClassifier) -> None:
    """With 20 rows a new class beside 120 of the others."""
    model, y = grown(fitted), NAMES[Y[TEST]]
    new = np.isin(Y[TEST], NEW)
    rows = np.concatenate([OLD, *(rows_of(number, 20) for number in NEW)])
    centres = np.stack([X[rows][NAMES[Y[rows]] == name].mean(0) for name in model.classes_])
    means = model.classes_[cdist(X[TEST], centres).argmin(1)] == y
    right = model.predict(X[TEST]) == y
    assert right[new].mean() > (0.8 if fitted.null_scores_ == "shares" else means[new].mean() - 0.02)
    assert right[~new].mean() > means[~new].mean() + 0.05
    assert right[~new].mean() > (fitted.predict(X[TEST]) == y)[~new].mean() - 0.02


def test_classes_that_are_declared_first_change_nothing(fitted: AttnKNNClassifier) -> None:
    declared = AttnKNNClassifier(**{**fitted.get_params(), "max_iter": 5})
    declared.partial_fit(X[OLD], NAMES[Y[OLD]], classes=NAMES)
    assert declared.classes_.tolist() == sorted(NAMES)
    empty = np.isin(declared.classes_, NAMES[list(NEW)])
    probs = declared.predict_proba(X[TEST])
    assert probs[:, empty].max() < 0.01
    np.testing.assert_allclose(probs[:, ~empty], fitted.predict_proba(X[TEST]), atol=0.01)
    assert declared.predict_set(X[TEST])[:, empty].all(), "nothing calibrates them"
    rows = np.concatenate([rows_of(number, 20) for number in NEW])
    declared.partial_fit(X[rows], NAMES[Y[rows]])
    np.testing.assert_array_equal(declared.predict_proba(X[TEST]), grown(fitted).predict_proba(X[TEST]))


def test_prediction_sets_hold_new_classes(fitted: AttnKNNClassifier) -> None:
    model = grown(fitted, 60)
    for number in NEW:
        own, column = TEST[Y[TEST] == number], np.searchsorted(model.classes_, NAMES[number])
        assert model.predict_set(X[own], alpha=0.2)[:, column].mean() > 0.7
        assert model.predict_set(X[own], alpha=0.01)[:, column].all(), "60 rows calibrate no set of 99 %"
        others = TEST[Y[TEST] != number]
        assert model.predict_set(X[others], alpha=0.2)[:, column].mean() < 0.2
    few = grown(fitted, 3)
    assert few.predict_set(X[TEST], alpha=0.1)[:, np.isin(few.classes_, few.new_classes_)].all()


def test_prediction_sets_of_classes_that_a_new_one_overlaps(fitted: AttnKNNClassifier) -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0], [8, 0], [0, 8], [0, 0]])  # the last is drawn as the first
    x, y = np.concatenate([c + rng.normal(size=(400, 2)) for c in centres]), np.repeat(np.arange(4), 400)
    known, half = y < 3, np.arange(1600) % 2 == 0
    model = AttnKNNClassifier(20, max_iter=3, random_state=0).fit(x[known & half], y[known & half])
    model.partial_fit(x[~known & half], y[~known & half])
    sets = model.predict_set(x[known & ~half], alpha=0.1)
    covered = sets[np.arange(len(sets)), y[known & ~half]]
    assert covered.mean() > 0.88  # 0.76 by the held-out rows of `fit` alone
    assert model.predict_set(x[~known & ~half], alpha=0.1)[:, 3].mean() > 0.85


def test_a_refitted_model_forgets_the_calibration_of_new_classes() -> None:
    own = AttnKNNClassifier(weights="uniform", n_neighbors=5, random_state=0)
    for shift in (0, 1):
        labels, rows = (Y + shift) % 10, np.concatenate([OLD, TEST])
        old, new = rows[labels[rows] < 8][:600], rows[labels[rows] >= 8][:60]
        own.fit(X[old], labels[old]).partial_fit(X[new], labels[new])
        fresh = AttnKNNClassifier(weights="uniform", n_neighbors=5, random_state=0)
        fresh.fit(X[old], labels[old]).partial_fit(X[new], labels[new])
        np.testing.assert_array_equal(own.predict_set(X[TEST]), fresh.predict_set(X[TEST]))


def test_sets_and_classes_are_of_one_moment(fitted: AttnKNNClassifier) -> None:
    model, rows = copy.deepcopy(fitted), rows_of(0, 5)

    def change() -> None:
        for _ in range(5):
            first = model.memory_.next_id
            model.partial_fit(X[rows], ["other"] * 5)
            model.forget(np.arange(first, first + 5))

    with ThreadPoolExecutor(3) as pool:
        changing = pool.submit(change)
        while not changing.done():
            assert model.predict_set(X[TEST[:20]]).shape[1] in (8, 9)
        changing.result()


def test_rows_of_a_new_class_calibrate_it_without_themselves(fitted: AttnKNNClassifier) -> None:
    model = grown(fitted, 6)
    for number, scores in model._own_scores()[0].items():
        ids = model.memory_.ids[model.memory_.y == number]
        expected = np.log1p(-model.explain_rows(ids).probabilities[:, number])
        np.testing.assert_allclose(np.sort(scores), np.sort(expected), rtol=1e-4)


def test_the_last_row_takes_its_class_along(fitted: AttnKNNClassifier) -> None:
    model = grown(fitted)
    added = np.flatnonzero(np.isin(model.memory_.y, np.searchsorted(model.classes_, NAMES[list(NEW)])))
    model.forget(model.memory_.ids[added[1:]])
    assert set(model.new_classes_) == {NAMES[NEW[0]]}
    model.forget(model.memory_.ids[-1:])
    np.testing.assert_array_equal(model.classes_, fitted.classes_)
    assert not len(model.new_classes_)
    np.testing.assert_allclose(model.predict_proba(X[TEST]), fitted.predict_proba(X[TEST]), atol=1e-9)
    old = np.flatnonzero(model.memory_.y == 0)
    model.forget(model.memory_.ids[old])
    assert model.classes_.tolist() == fitted.classes_[1:].tolist()
    model.partial_fit(X[OLD][old], NAMES[Y[OLD][old]])
    assert model.new_classes_.tolist() == fitted.classes_[:1].tolist()


def test_a_single_class_keeps_the_other(fitted: AttnKNNClassifier) -> None:
    model = copy.deepcopy(fitted)
    model.forget(np.flatnonzero(model.memory_.y > 0))
    assert model.classes_.tolist() == fitted.classes_[:2].tolist()
    assert set(model.predict(X[TEST][NAMES[Y[TEST]] == model.classes_[0]])) == {model.classes_[0]}


def test_saved_and_loaded(fitted: AttnKNNClassifier, tmp_path: Path) -> None:
    model = grown(fitted)
    model.save(tmp_path / "m")
    loaded = AttnKNNClassifier.load(tmp_path / "m")
    for name in ("classes_", "new_classes_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    np.testing.assert_allclose(loaded.predict_proba(X[TEST]), model.predict_proba(X[TEST]), atol=1e-12)
    np.testing.assert_array_equal(loaded.predict_set(X[TEST]), model.predict_set(X[TEST]))
    why = loaded.explain(X[TEST])
    np.testing.assert_array_equal(why.predictions, model.predict(X[TEST]))


@pytest.mark.parametrize("options", [{"calibration": "vector"}, {"label_noise": np.eye(8)}, {"weights": "uniform"}])
def test_calibration_noise_and_baselines(options: dict[str, Any], tmp_path: Path) -> None:
    model = AttnKNNClassifier(max_iter=2, random_state=0, null_scores="means", **options).fit(X[OLD], Y[OLD])
    before = model.calibration_[1]
    rows = np.concatenate([rows_of(number, 20) for number in NEW])
    model.partial_fit(X[rows], Y[rows])
    np.testing.assert_allclose(model.calibration_[1][0], before.mean())
    if model.transition_ is not None:
        np.testing.assert_array_equal(model.transition_, np.eye(10))
    model.save(tmp_path / "m")
    loaded = AttnKNNClassifier.load(tmp_path / "m")
    np.testing.assert_allclose(loaded.predict_proba(X[TEST]), model.predict_proba(X[TEST]), atol=1e-12)
    assert (model.predict(X[TEST]) == Y[TEST]).mean() > 0.85


def test_rows_are_relabelled_to_a_new_class(fitted: AttnKNNClassifier) -> None:
    model = copy.deepcopy(fitted)
    rows = np.flatnonzero(model.memory_.y == 0)
    expected = [*model.classes_[1:].tolist(), "thirteen"]
    model.relabel(rows, ["thirteen"] * len(rows))
    assert model.classes_.tolist() == sorted(expected)
    assert model.new_classes_.tolist() == ["thirteen"]
    assert len(model.memory_) == len(OLD)


def test_rows_of_a_table(tmp_path: Path) -> None:
    own = AttnKNNClassifier(storage=tmp_path / "rows.lance", max_iter=2, random_state=0).fit(X[OLD], NAMES[Y[OLD]])
    rows = np.concatenate([rows_of(number, 20) for number in NEW])
    own.partial_fit(X[rows], NAMES[Y[rows]])
    assert (own.predict(X[TEST]) == NAMES[Y[TEST]]).mean() > 0.9
    own.save(tmp_path / "m")
    loaded = AttnKNNClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X[TEST]), own.predict_proba(X[TEST]))
    loaded.forget(np.arange(len(OLD), len(OLD) + 40))
    assert loaded.classes_.tolist() == sorted(NAMES[number] for number in range(10) if number not in NEW)


@pytest.mark.parametrize(("labels", "message"), [([1], "of type int64; those"), ([1.5], "of type float64; those")])
def test_labels_of_another_type_change_nothing(fitted: AttnKNNClassifier, labels: list[Any], message: str) -> None:
    model = copy.deepcopy(fitted)
    with pytest.raises(InputError, match=message):
        model.partial_fit(X[:1], labels)
    with pytest.raises(InputError, match=message):
        model.relabel([0], labels)
    assert (len(model.classes_), len(model.memory_)) == (8, len(OLD))


@pytest.mark.parametrize(("label", "message"), [(1.5, "continuous"), (np.nan, "NaN"), (np.inf, "infinity")])
def test_a_number_that_is_no_label_is_refused(label: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        all_classes(np.array([0.0, 1.0]), np.array([label]))


def test_classes_of_later_calls_are_those_of_the_first(fitted: AttnKNNClassifier) -> None:
    model = copy.deepcopy(fitted).partial_fit(X[:1], NAMES[Y[:1]] if Y[0] not in NEW else ["a"])
    model.partial_fit(X[:1], model.classes_[:1], classes=model.classes_[::-1])
    with pytest.raises(InputError, match="others than classes_"):
        model.partial_fit(X[:1], model.classes_[:1], classes=model.classes_[:2])
    with pytest.raises(InputError, match="give one label for each"):
        model.partial_fit(X[:1], model.classes_[:1], classes=[["a"]])


def test_texts_may_be_objects(fitted: AttnKNNClassifier) -> None:
    model = copy.deepcopy(fitted).partial_fit(X[:1], np.array([NAMES[1]], dtype=object))
    assert model.classes_.dtype.kind == "U"
    assert model.relabel([], []) is model


def test_two_threads_add_a_class_each(fitted: AttnKNNClassifier) -> None:
    model = copy.deepcopy(fitted)
    calls = [(rows_of(number, 5), [name] * 5) for number, name in ((0, "left"), (7, "right"))]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda call: model.partial_fit(X[call[0]], call[1]), calls))
    assert model.new_classes_.tolist() == ["left", "right"]
    assert np.bincount(model.memory_.y)[np.searchsorted(model.classes_, ["left", "right"])].tolist() == [5, 5]


def test_objects_that_cannot_be_sorted() -> None:
    with pytest.raises(InputError, match="cannot be sorted"):
        all_classes(np.array(["a"], object), np.array([1], object))


def test_a_change_that_fails_changes_nothing(fitted: AttnKNNClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(fitted)
    monkeypatch.setattr(Memory, "_insert_neighbours", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        grown(model)
    with pytest.raises(ZeroDivisionError):
        model.partial_fit(X[:3], ["a", "b", "c"])
    assert len(model.classes_) == len(model.memory_.sums) == 8
    np.testing.assert_array_equal(model.predict_proba(X[TEST]), fitted.predict_proba(X[TEST]))


def test_balanced_classes_weigh_as_the_others_do(fitted: AttnKNNClassifier) -> None:
    own, added = copy.deepcopy(fitted), [rows_of(number, 20) for number in NEW]
    own.partial_fit(X[added[0][:5]], NAMES[Y[added[0][:5]]], sample_weight="balanced")
    rows = np.concatenate([added[0][5:], added[1]])
    own.partial_fit(X[rows], NAMES[Y[rows]], sample_weight="balanced")
    memory = own.memory_
    assert isinstance(memory, Memory)
    totals = np.bincount(memory.y, memory.weight)
    new = np.isin(own.classes_, NAMES[list(NEW)])
    np.testing.assert_allclose(totals[new], len(OLD) / 8, rtol=1e-5)
    np.testing.assert_array_equal(memory.weight[: len(OLD)], 1)
    np.testing.assert_allclose(memory.weight[-20:], len(OLD) / 8 / 20, rtol=1e-5)
    at_once, rows = copy.deepcopy(fitted), np.concatenate(added)
    weight = np.full(len(rows), len(OLD) / 8 / 20)
    at_once.partial_fit(X[rows], NAMES[Y[rows]], sample_weight=weight)
    tolerance = 0.02 if fitted.null_scores_ == "linear" else 1e-4  # of the solver
    np.testing.assert_allclose(own.predict_proba(X[TEST]), at_once.predict_proba(X[TEST]), atol=tolerance)


def test_balanced_weights_are_refused_without_other_classes(fitted: AttnKNNClassifier) -> None:
    own, rows = copy.deepcopy(fitted), OLD[:300]
    before = own.predict_proba(X[TEST])
    with pytest.raises(InputError, match="balanced, but rows of all classes are added"):
        own.partial_fit(X[rows], NAMES[Y[rows]], sample_weight="balanced")
    with pytest.raises(InputError, match="balanced does not go with decay"):
        copy.deepcopy(own).set_params(decay=5).partial_fit(X[:2], NAMES[Y[:2]], sample_weight="balanced")
    with pytest.raises(InputError, match="sample_weight: 'even'; give 'balanced' or numbers"):
        own.partial_fit(X[rows], NAMES[Y[rows]], sample_weight="even")
    np.testing.assert_array_equal(own.predict_proba(X[TEST]), before)
