"""Models are saved, changed and explained together with the examples of their rows."""

import json
import shutil
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.datasets import load_breast_cancer, load_iris
from synthetic_models import FAST, save_npy, sign

from attnknn import AttnKNNClassifier
from attnknn.app.model.examples import Examples
from attnknn.app.model.fit import fit_model
from attnknn.app.model.inputs import Batch, Vectors
from attnknn.app.model.model import Model
from attnknn.core.errors import InputError


@pytest.mark.parametrize("kind", ["table", "pictures"])
def test_loaded_models_equal_the_saved(kind: str, request: pytest.FixtureRequest) -> None:
    folder, model, _ = request.getfixturevalue(kind)
    loaded = Model.load(folder / "model")
    assert loaded.input.kind == model.input.kind
    np.testing.assert_array_equal(loaded.cases.labels, model.cases.labels)
    expected = model.classifier.predict_proba(model.cases.vectors)
    for classifier in (loaded.classifier, AttnKNNClassifier.load(folder / "model")):
        np.testing.assert_array_equal(classifier.predict_proba(loaded.cases.vectors), expected)
    for row in range(3):
        assert loaded.examples.columns(row) == model.examples.columns(row)
        np.testing.assert_array_equal(loaded.examples.image(row), model.examples.image(row))


def test_test_cases_without_a_rare_class(tmp_path: Path) -> None:
    z = save_npy(tmp_path / "z.npy", np.random.default_rng(0).normal(size=(43, 3)))
    y = save_npy(tmp_path / "y.npy", np.repeat(["b", "c", "a"], [20, 20, 3]))
    model, summary = fit_model(z, rows=y, test=0.2, **FAST)
    assert (summary["classes"], summary["test"]) == (3, 8)
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m").cases.labels.tolist() == model.cases.labels.tolist() == ["b"] * 4 + ["c"] * 4


def test_examples_follow_added_and_forgotten_rows(table: tuple[Path, Model, dict]) -> None:
    folder, _, _ = table
    model = Model.load(folder / "model")
    before = model.examples.table.copy()
    (batch,) = model.input.batches([str(folder / "iris.csv")])
    new = batch.take([0, 1])
    ids, _ = model.add([new], model.parse_labels(["setosa", "virginica"]))
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
    loaded = Model.load(folder / "changed")
    assert loaded.rows_of([121]) == model.rows_of([121])
    assert loaded.add([new.take([0])], loaded.parse_labels(["setosa"])) == ([122], 0), "it was forgotten"
    assert loaded.add([new.take([1])], loaded.parse_labels(["setosa"])) == ([123], 1)


def test_examples_are_saved_loaded_and_appended(tmp_path: Path) -> None:
    table = {"a": ["None", "1\r0", np.nan], "b, c": ['"', "NULL", "two\nlines"]}
    examples = Examples(table=pd.DataFrame(table, dtype=object))
    examples.save(tmp_path, "memory")
    loaded = Examples.load(tmp_path, "memory", 3)
    assert [loaded.columns(row) for row in range(3)] == [examples.columns(row) for row in range(3)]
    with pytest.raises(InputError, match=r"memory\.csv: 3 rows, the model has 4"):
        Examples.load(tmp_path, "memory", 4)
    longer = examples.append(Examples(table=pd.DataFrame({"d": ["x"], "a": ["y"]})), 1)
    assert longer.columns(3) == {"a": "y", "b, c": None}
    assert examples.take(np.array([2, 0])).append(examples, 3).columns(1) == examples.columns(0)


def test_a_saved_classifier_loads_as_a_model_of_vectors(tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match="label 2: not a class of this model; its classes are 0, 1"):
        model.parse_labels(["2"])
    assert model.parse_labels(["2", "1"], new_classes=True).tolist() == [2, 1]
    with pytest.raises(InputError, match="label two: of another type than the classes of this model, 0, 1"):
        model.parse_labels(["two"], new_classes=True)


def test_answers_are_those_of_explain(table: tuple[Path, Model, dict]) -> None:
    _, model, _ = table
    vectors = model.cases.vectors[:4]
    explanation, sets = model.classifier.explain(vectors), model.classifier.predict_set(vectors, 0.1)
    for i, answer in enumerate(model.answers(explanation, shown=3)):
        json.dumps(answer)
        assert answer["prediction"] == explanation.predictions[i]
        assert answer["confidence"] == pytest.approx(explanation.probabilities[i].max())
        assert answer["probabilities"][0]["label"] == answer["prediction"]
        weights = [neighbour["weight"] for neighbour in answer["neighbours"]]
        assert sum(weights) + answer["rest"]["weight"] + answer["null"]["weight"] == pytest.approx(1)
        assert answer["rest"]["count"] == 4
        assert weights == sorted(explanation.weights[i], reverse=True)[:3]
        assert answer["set"] == model.classifier.classes_[sets[i]].tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"weights": "distance"}, "class shares"),
        ({"prototypes": False}, "class shares"),
        ({"prototypes": True}, "class means"),
        ({"null_scores": "linear"}, "linear classifier"),
    ],
)
def test_names_of_null_neighbours_and_abstention(settings: dict, expected: str) -> None:
    X, y = load_iris(return_X_y=True)
    classifier = AttnKNNClassifier(7, max_iter=1, random_state=0, abstain=0.99, **settings).fit(X, y)
    answers = Model(classifier, Vectors(4), Examples()).answers(classifier.explain(X[60:90]))
    assert {answer["null"]["of"] for answer in answers} == {expected}
    for answer in answers:
        decided = sum(n["share"] for n in answer["neighbours"])
        assert decided + answer["null"]["share"] == pytest.approx(1)
    assert [answer["abstains"] for answer in answers] == classifier.abstains(X[60:90]).tolist()


def test_counterfactuals_forget_up_to_ten_rows_or_else_relabel(table: tuple[Path, Model, dict]) -> None:
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


CHANGED_INPUTS: list[tuple[list[Any], Any]] = [  # keys in input.json, and another value there
    *(([], value) for value in (None, [], {"kind": "table"}, {"kind": "images", "bf16": False}, {"kind": "later"})),
    ([], {"kind": "vectors", "dim": 3, "names": []}),
    ([], {"kind": "vectors", "dim": "7", "names": []}),
    ([], {"kind": "vectors", "dim": 7, "names": ["a"]}),
    *((["layout"], value) for value in ({"size": 1}, {"missing": 5}, {"columns": ["a", 5]}, {"separator": "::"}, None)),
    (["schema", "numeric", 0, "scale"], 0.0),
    (["schema", "numeric", 0, "mean"], "1"),
    (["schema", "numeric"], []),
    (["schema", "categories", 0, "values"], ["long"]),
    (["schema", "categories"], None),
]
CHANGED_CASES = [
    *(("case_vectors", array) for array in (np.full((30, 7), np.nan), np.zeros((30, 6)), np.zeros((29, 7)))),
    *(("case_numbers", array) for array in (np.full(30, 3), np.full(30, -1), np.zeros(30))),
]


def refuses(folder: Path, message: str) -> None:
    """Loading a changed model, whose checksums are those of its files, ends in one line."""
    sign(folder)
    with pytest.raises(InputError, match=message) as error:
        Model.load(folder)
    assert "dvc" not in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_do_not_fit_their_model(table: tuple[Path, Model, dict], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(table[0] / "model", tmp_path / "model"))
    path = folder / "input/input.json"
    content = path.read_text()
    for keys, value in CHANGED_INPUTS:
        whole = {"": json.loads(content)}
        *outer, last = ["", *keys]
        reduce(getitem, outer, whole)[last] = value
        path.write_text(json.dumps(whole[""]))
        refuses(folder, r"input\.json|incomplete model")
    path.write_text(content)
    for name, array in CHANGED_CASES:
        file = folder / f"input/{name}.npy"
        before = file.read_bytes()
        np.save(file, array)
        refuses(folder, r"case_|test cases of other")
        file.write_bytes(before)
    sign(folder)
    Model.load(folder)
    (folder / "input/memory.csv").unlink()
    with pytest.raises(InputError, match="missing; copy the whole folder"):
        Model.load(folder)


def test_pictures_and_encoders_that_do_not_fit_their_model(pictures: tuple[Path, Model, dict], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pictures[0] / "model", tmp_path / "model"))
    images, path = np.load(folder / "input/memory.npy"), folder / "input/encoder/weights.safetensors"
    np.save(folder / "input/memory.npy", images[0])
    refuses(folder, "memory damaged")
    np.save(folder / "input/memory.npy", images)
    weights = load_file(path)
    name = next(name for name, tensor in weights.items() if tensor.dtype.kind == "f")
    save_file(weights | {name: weights[name] * np.nan}, path)
    refuses(folder, "NaN")


@pytest.mark.parametrize("factor", [1e-20, 1e20, 1e200])
def test_vectors_of_any_scale_that_fit_takes_are_predicted(factor: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    z = save_npy(tmp_path / "z.npy", factor * (rng.normal(size=(60, 3)) + 3 * labels[:, None]))
    model, _ = fit_model(z, rows=save_npy(tmp_path / "y.npy", labels), **FAST)
    (batch,) = model.input.batches([str(z)])
    assert (model.classifier.predict(model.encode(batch)) == labels.astype(str)).mean() > 0.9
    far = replace(batch, values=batch.values * 1e20)
    with pytest.raises(InputError, match=r"z\.npy row 0: values beyond ±1e\+15 times those of the memory"):
        model.encode(far)


def test_a_classifier_saved_alone_does_not_replace_a_model_with_input(
    table: tuple[Path, Model, dict], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(table[0] / "model", tmp_path / "model"))
    classifier = AttnKNNClassifier.load(folder)
    with pytest.raises(InputError, match=r"model of the command line, whose input/ would be lost; save to another"):
        classifier.save(folder)
    Model.load(folder).save(folder)
    classifier.save(tmp_path / "alone")
    classifier.save(tmp_path / "alone")
    assert Model.load(folder).input.kind == "table"
