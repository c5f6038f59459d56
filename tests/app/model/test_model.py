"""Models are saved, changed and explained with the examples of their rows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from synthetic_models import FAST, save_npy

from attnknn import AttnKNNClassifier
from attnknn.app.model.examples import Examples
from attnknn.app.model.fit import fit_model
from attnknn.app.model.inputs import Batch, Vectors
from attnknn.app.model.model import Model
from attnknn.core.errors import InputError


@pytest.mark.parametrize("kind", ["table", "pictures"])
def test_what_is_read_again_answers_and_looks_alike(kind: str, request: pytest.FixtureRequest) -> None:
    folder, model, _ = request.getfixturevalue(kind)
    again = Model.load(folder / "model")
    assert again.input.kind == model.input.kind
    assert again.cases is not None
    np.testing.assert_array_equal(again.cases.labels, model.cases.labels)
    np.testing.assert_array_equal(
        again.classifier.predict_proba(again.cases.vectors), model.classifier.predict_proba(model.cases.vectors)
    )
    for row in range(3):
        assert again.examples.columns(row) == model.examples.columns(row)
        np.testing.assert_array_equal(again.examples.image(row), model.examples.image(row))
    # The classifier of it can be read alone.
    alone = AttnKNNClassifier.load(folder / "model")
    np.testing.assert_array_equal(alone.predict(model.cases.vectors), model.classifier.predict(model.cases.vectors))


def test_cases_may_lack_a_class(tmp_path: Path) -> None:
    z = np.random.default_rng(0).normal(size=(43, 3))
    y = save_npy(tmp_path / "y.npy", np.array(["b"] * 20 + ["c"] * 20 + ["a"] * 3))
    model, about = fit_model(save_npy(tmp_path / "z.npy", z), rows=y, test=0.2, **FAST)
    assert (about["classes"], about["test"]) == (3, 8)  # too few of a
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m").cases.labels.tolist() == model.cases.labels.tolist() == ["b"] * 4 + ["c"] * 4


def test_rows_that_come_and_go_take_their_looks_along(table: tuple[Path, Model, dict]) -> None:
    folder, _, _ = table
    model = Model.load(folder / "model")
    before = model.examples.table.copy()
    (batch,) = model.input.batches([str(folder / "iris.csv")])
    new = batch.take([0, 1])
    ids = model.add(new, model.parse_labels(["setosa", "virginica"]))
    assert ids == [120, 121]
    model.forget([0, 120, 7, 7])
    assert model.rows_of([121])[0]["kind"] == new.values["kind"].iloc[1]
    assert model.rows_of([1])[0] == {k: None if v != v else v for k, v in before.iloc[1].items()}
    assert len(model.examples.table) == len(model.classifier.memory_) == 119
    with pytest.raises(InputError, match="id 0, 7: not in the memory"):
        model.rows_of([0, 7, 8])
    with pytest.raises(InputError, match="not in the memory"):
        model.forget([120])
    model.save(folder / "changed")
    again = Model.load(folder / "changed")
    assert again.rows_of([121]) == model.rows_of([121])
    assert again.add(new.take([0]), again.parse_labels(["setosa"])) == [122]


def test_looks_are_read_as_they_were_written(tmp_path: Path) -> None:
    looks = Examples(
        table=pd.DataFrame({"a": ["None", "1.0", np.nan], "b, c": ['"', "NULL", "two\nlines"]}, dtype=object)
    )
    looks.save(tmp_path, "memory")
    again = Examples.load(tmp_path, "memory", 3)
    assert [again.columns(row) for row in range(3)] == [looks.columns(row) for row in range(3)]
    with pytest.raises(InputError, match=r"memory\.csv: 3 rows, the model has 4"):
        Examples.load(tmp_path, "memory", 4)
    more = looks.append(Examples(table=pd.DataFrame({"d": ["x"], "a": ["y"]})), 1)
    assert more.columns(3) == {"a": "y", "b, c": None}
    assert looks.take(np.array([2, 0])).append(looks, 3).columns(1) == looks.columns(0)


def test_a_classifier_that_was_saved_alone_is_a_model_of_vectors(tmp_path: Path) -> None:
    frame = load_breast_cancer(as_frame=True)
    X = frame.data.iloc[:, :4]
    AttnKNNClassifier(weights="distance", random_state=0).fit(X, frame.target).save(tmp_path / "m")
    model = Model.load(tmp_path / "m")
    assert model.input == Vectors(4, tuple(X.columns))
    shuffled = X[list(X.columns[::-1])].head(5).astype(str)
    shuffled.index = [f"line {i}" for i in range(5)]
    vectors = model.encode(Batch(list(shuffled.index), shuffled))
    np.testing.assert_allclose(model.classifier.predict_proba(vectors), model.classifier.predict_proba(X.head(5)))
    assert model.parse_labels(["1", "0"]).tolist() == [1, 0]
    with pytest.raises(InputError, match="label 2: no class of this model, which knows 0, 1"):
        model.parse_labels(["2"])


def test_an_answer_says_what_explain_says(table: tuple[Path, Model, dict]) -> None:
    _, model, _ = table
    cases = model.cases.vectors[:4]
    explanation = model.classifier.explain(cases)
    for i, answer in enumerate(model.answers(explanation, shown=3)):
        json.dumps(answer)
        assert answer["prediction"] == explanation.predictions[i]
        assert answer["confidence"] == pytest.approx(explanation.probabilities[i].max())
        assert answer["probabilities"][0]["label"] == answer["prediction"]
        weights = [neighbour["weight"] for neighbour in answer["neighbours"]]
        assert sum(weights) + answer["rest"]["weight"] + answer["null"]["weight"] == pytest.approx(1)
        assert answer["rest"]["count"] == 4
        assert weights == sorted(explanation.weights[i], reverse=True)[:3]
        sets = model.classifier.predict_set(cases, 0.1)[i]
        assert answer["set"] == model.classifier.classes_[sets].tolist()


def test_a_row_of_the_memory_is_asked_for_as_if_it_were_not_in_it(table: tuple[Path, Model, dict]) -> None:
    folder, model, _ = table
    (answer,) = model.answers(model.classifier.explain_rows([4]))
    assert 4 not in [neighbour["id"] for neighbour in answer["neighbours"]]
    left = Model.load(folder / "model")
    vector = left.classifier.memory_.vectors()[4:5] * left.classifier._unit + left.classifier._origin
    left.forget([4])
    np.testing.assert_allclose(left.classifier.predict_proba(vector)[0].max(), answer["confidence"], atol=1e-5)


def test_what_no_neighbour_says_is_named_for_what_says_it() -> None:
    X, y = load_iris(return_X_y=True)
    for settings, expected in (
        ({"weights": "distance"}, "class shares"),
        ({"prototypes": False}, "class shares"),
        ({}, "class means"),
    ):
        classifier = AttnKNNClassifier(7, max_iter=1, random_state=0, abstain=0.99, **settings).fit(X, y)
        answers = Model(classifier, Vectors(4), Examples()).answers(classifier.explain(X[60:90]))
        assert {answer["null"]["of"] for answer in answers} == {expected}
        assert [answer["abstains"] for answer in answers] == classifier.abstains(X[60:90]).tolist()


def test_what_changes_is_a_few_to_forget_or_else_labels(table: tuple[Path, Model, dict]) -> None:
    _, model, _ = table
    vectors = model.cases.vectors
    changes = model.counterfactuals(vectors)
    assert {change["how"] for change in changes} == {"forget", "relabel"}
    for vector, change in zip(vectors, changes, strict=True):
        (expected,) = model.classifier.counterfactual(vector[None], how=change["how"], most=50)
        assert change["ids"] == expected.ids.tolist()
        assert change["confidence"] == pytest.approx(expected.probabilities.max())
        assert change["turned"] == (change["prediction"] != model.classifier.predict(vector[None])[0])
        assert len(change["ids"]) <= 10 or change["how"] == "relabel"
    assert all(change["turned"] for change in changes)
    assert 3 not in model.counterfactuals(ids=[3])[0]["ids"]


@pytest.mark.parametrize("file", ["input/input.json", "input/memory.csv", "input/case_vectors.npy"])
def test_a_damaged_model_is_refused(table: tuple[Path, Model, dict], tmp_path: Path, file: str) -> None:
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(table[0] / "model", copy)
    (copy / file).write_bytes((copy / file).read_bytes()[:-9])
    with pytest.raises(InputError, match="damaged"):
        Model.load(copy)
    (copy / file).unlink()
    with pytest.raises(InputError, match="missing"):
        Model.load(copy)
