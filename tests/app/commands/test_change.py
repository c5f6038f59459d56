"""`attnknn add` and `attnknn forget`, also by concurrent processes."""

import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from synthetic_models import save_npy

from attnknn import AttnKNNClassifier
from attnknn.app.model.model import Model
from attnknn.classifier import persistence
from command_line import COMMAND, csv_rows, json_lines, refused, succeeded


def labels(model: Path, last: int) -> list[str]:
    classifier = Model.load(model).classifier
    return classifier.classes_[classifier.memory_.y[-last:]].tolist()


def test_add_and_forget_vectors(copied: Path) -> None:
    model = copied / "vectors"
    new = save_npy(copied / "new.npy", np.full((2, 3), 50.0))
    assert succeeded("add", model, new, "--label", "down") == f"{model}: added 2 rows, 72 … 73; 74 rows in memory\n"
    assert [row["label"] for row in csv_rows("predict", model, new)] == ["down", "down"]
    out = succeeded("forget", model, 73, "-", "--json", stdin="72\n")
    assert json.loads(out) == {"forgotten": [72, 73], "rows": 72, "test_cases": 0}
    assert [row["label"] for row in csv_rows("predict", model, new)] == ["up", "up"]
    rows = save_npy(copied / "y.npy", np.array(["up", "down"]))
    assert json.loads(succeeded("add", model, new, "--rows", rows, "--json"))["added"] == [74, 75]
    assert labels(model, 2) == ["up", "down"]


def test_add_rows_of_a_table_and_a_picture(copied: Path) -> None:
    frame = pd.read_csv(copied / "iris.csv").head(4)
    frame.to_csv(copied / "new.csv", index=False)
    frame.assign(target=["setosa", None, "setosa", "setosa"]).to_csv(copied / "hole.csv", index=False)
    line = refused("add", copied / "table", copied / "hole.csv", "--target", "target")
    assert "hole.csv line 3: no label in column 'target'" in line
    succeeded("add", copied / "table", copied / "new.csv", "--target", "target")
    assert labels(copied / "table", 4) == frame["target"].tolist()
    picture = next((copied / "images/left").iterdir())
    succeeded("add", copied / "pictures", picture, "--label", "right")
    example = Model.load(copied / "pictures").examples.image(-1)
    np.testing.assert_array_equal(example, np.asarray(Image.open(picture)))


def test_a_model_is_not_replaced_from_inside(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, model in (("vectors", "."), ("vectors/bank", "..")):
        monkeypatch.chdir(copied / folder)
        fit = ("fit", copied / "iris.csv", "--target", "target", "-o", model, "--force")
        for command in (("forget", model, 3), fit):
            assert f"error: {model}: is or holds the working directory" in refused(*command)
    monkeypatch.chdir(copied)
    succeeded("forget", "vectors", 3)


def test_add_vectors_of_a_csv_with_a_label_column(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnknn.app.model.inputs.BATCH", 7)
    way, z = ["up", "down", "down"] * 6 + ["up", "down"], np.random.default_rng(0).normal(size=(20, 3))
    pd.DataFrame(z, columns=list("abc")).assign(way=way).to_csv(copied / "new.csv", index=False)
    succeeded("add", copied / "vectors", copied / "new.csv", "--target", "way")
    rows = save_npy(copied / "way.npy", np.array(way))
    succeeded("add", copied / "vectors", save_npy(copied / "z20.npy", z), "--rows", rows)
    assert labels(copied / "vectors", 40) == way * 2
    vectors = Model.load(copied / "vectors").classifier.memory_.vectors()
    np.testing.assert_allclose(vectors[-40:-20], vectors[-20:], atol=1e-6)


def test_loading_during_a_save(copied: Path, monkeypatch) -> None:
    other, digest = Model.load(copied / "vectors"), persistence._digest
    other.forget([0])

    def slow(path: Path) -> str:
        monkeypatch.setattr(persistence, "_digest", digest)
        other.save(copied / "vectors")
        return digest(path)

    monkeypatch.setattr(persistence, "_digest", slow)
    assert len(Model.load(copied / "vectors").classifier.memory_) == 71


def test_concurrent_changes_are_all_kept(copied: Path) -> None:
    new = save_npy(copied / "new.npy", np.zeros((1, 3)))
    command = [*COMMAND, "add", str(copied / "vectors"), str(new), "--label", "up"]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    assert len(Model.load(copied / "vectors").classifier.memory_) == 75


def test_a_column_without_a_name_is_kept_by_every_command(copied: Path) -> None:
    frame = pd.read_csv(copied / "iris.csv").rename(columns={"kind": "", "petal width (cm)": "width"})
    frame.to_csv(copied / "unnamed.csv", index=False)
    model = copied / "unnamed"
    succeeded("fit", copied / "unnamed.csv", "--target", "target", "-o", model, "--weights", "distance")
    succeeded("add", model, copied / "unnamed.csv", "--target", "target")
    assert len(csv_rows("predict", model, copied / "unnamed.csv")) == 150
    for line in json_lines("explain", model, copied / "unnamed.csv", "--first", 2):
        assert {line["row"][""], *(neighbour["row"][""] for neighbour in line["neighbours"])} <= {"long", "short", None}
        assert line["row"][""] is not None


def test_added_test_cases_are_counted_and_no_longer_held_out(copied: Path) -> None:
    model = copied / "table"
    cases = Model.load(model).cases
    rows = cases.examples.table.head(4).assign(target=cases.labels[:4])
    rows.loc[4] = rows.loc[0]
    rows.loc[4, "sepal length (cm)"] = "99"
    rows.to_csv(copied / "new.csv", index=False)
    last = succeeded("add", model, copied / "new.csv", "--target", "target").splitlines()[-1]
    assert last == "test cases among them, which are no longer held out: 4"
    assert np.flatnonzero(Model.load(model).cases_in_memory()).tolist() == [0, 1, 2, 3]
    assert json.loads(succeeded("add", model, copied / "new.csv", "--target", "target", "--json"))["test_cases"] == 0
    picture = np.flatnonzero(Model.load(copied / "pictures").cases.labels == "left")[0]
    images = sorted((copied / "images/left").iterdir())
    added = json.loads(succeeded("add", copied / "pictures", *images, "--label", "left", "--json"))
    after = Model.load(copied / "pictures")
    assert after.cases_in_memory()[picture]
    assert added["test_cases"] == (after.cases.labels == "left").sum()


def test_a_new_class_is_added_and_forgotten(copied: Path) -> None:
    model, z = copied / "vectors", copied / "new.npy"
    own = Model.load(model)
    np.save(z, own.cases.vectors[:3])
    assert "not a class of this model" in refused("add", model, z, "--label", "sideways")
    assert "--new-classes adds others" in refused("add", model, z, "--label", "sideways")
    out = succeeded("add", model, z, "--label", "sideways", "--new-classes")
    assert "new classes: sideways" in out
    grown = Model.load(model)
    assert grown.classifier.classes_.tolist() == ["down", "sideways", "up"]
    np.testing.assert_array_equal(grown.cases.labels, own.cases.labels)
    added = json.loads(succeeded("add", model, z, "--label", "left", "--new-classes", "--balanced", "--json"))
    assert Model.load(model).memory.weight[-1] > 1
    assert added["new_classes"] == ["left"]
    up = grown.memory.ids[grown.memory.y == 2].tolist()
    succeeded("forget", model, *up)
    left = Model.load(model)
    assert left.classifier.classes_.tolist() == ["down", "left", "sideways"]
    np.testing.assert_array_equal(left.cases.labels, own.cases.labels[own.cases.labels == "down"])


def test_forget_a_class_or_the_rows_of_a_person_with_a_receipt(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "kind": ["x", "y", "z"] * 20})
    frame["person"] = np.arange(60) % 7
    frame.to_csv(tmp_path / "rows.csv", index=False)
    np.save(tmp_path / "z.npy", frame[["a", "b"]])
    source = ("fit", tmp_path / "z.npy", "--rows", tmp_path / "rows.csv", "--target", "kind")
    model, receipt = tmp_path / "m", tmp_path / "receipt.json"
    succeeded(*source, "-o", model, "--weights", "uniform", "--test", 0)
    before = hashlib.sha256((model / "model.json").read_bytes()).hexdigest()
    assert "9 rows" in succeeded("forget", model, "--where", "person=3", "--receipt", receipt)
    written = json.loads(receipt.read_text())
    after = hashlib.sha256((model / "model.json").read_bytes()).hexdigest()
    assert written["forgotten"] == np.flatnonzero(frame["person"] == 3).tolist()
    assert (written["before"], written["after"], written["rows"]) == (before, after, 51)
    loaded = Model.load(model)
    assert "3" not in set(loaded.examples.table["person"].astype(str))
    assert "no row of person=3" in refused("forget", model, "--where", "person=3")
    assert "no stored column 'age'" in refused("forget", model, "--where", "age=3")
    assert "--where: person; give column=value" in refused("forget", model, "--where", "person")
    assert "ids and --label given" in refused("forget", model, 4, "--label", "x")
    assert "nothing given" in refused("forget", model)
    assert "not a class of this model" in refused("forget", model, "--label", "w")
    assert "exists; name another file" in (line := refused("forget", model, 4, "--receipt", receipt))
    assert "--force" not in line
    (tmp_path / "file").touch()
    assert "Not a directory" in refused("forget", model, 4, "--receipt", tmp_path / "file/receipt.json")
    assert after == hashlib.sha256((model / "model.json").read_bytes()).hexdigest()
    succeeded("forget", model, "--label", "z")
    assert Model.load(model).classifier.classes_.tolist() == ["x", "y"]


def test_test_cases_of_a_person_are_forgotten_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "kind": ["x", "y", "z"] * 30})
    frame["person"] = [f"person {i % 7}" for i in range(90)]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model, weights = tmp_path / "m", ("--weights", "uniform", "--test", 0.3)
    succeeded("fit", tmp_path / "rows.csv", "--target", "kind", "--store", "person", "-o", model, *weights)
    assert Model.load(model).input.columns == ("a", "b")
    added = frame.head(9).assign(person="late")
    added.to_csv(tmp_path / "added.csv", index=False)
    ids = json.loads(succeeded("add", model, tmp_path / "added.csv", "--target", "kind", "--json"))["added"]
    assert set(map(dict.__getitem__, Model.load(model).rows_of(ids), ["person"] * 9)) == {"late"}
    cases = Model.load(model).cases.examples.table["person"]
    out = json.loads(succeeded("forget", model, "--where", "person=person 3", "--json"))
    assert out["test_cases"] == (cases == "person 3").sum() > 0
    assert len(out["forgotten"]) + out["test_cases"] == (frame["person"] == "person 3").sum()
    assert not any(b"person 3" in path.read_bytes() for path in model.rglob("*") if path.is_file())
    left = Model.load(model)
    row = left.cases.take(np.flatnonzero(~left.cases_in_memory())[:1])
    row.examples.table.assign(kind=row.labels).to_csv(tmp_path / "case.csv", index=False)
    ids = json.loads(succeeded("add", model, tmp_path / "case.csv", "--target", "kind", "--json"))["added"]
    assert json.loads(succeeded("forget", model, *ids, "--json"))["test_cases"] == 1
    vector = row.vectors[0].tobytes()
    assert not any(vector in path.read_bytes() for path in model.rglob("*") if path.is_file())
    assert "no column age to store" in refused(
        "fit", tmp_path / "rows.csv", "--target", "kind", "--store", "age", "-o", tmp_path / "n"
    )


def test_persons_beside_rows_without_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "kind": ["x", "y", "z"] * 30})
    frame["person"] = [None if i % 5 == 0 else f"P{i // 2:02d}" for i in range(90)]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model, weights = tmp_path / "m", ("--weights", "uniform", "--test", 0.3)
    succeeded("fit", tmp_path / "rows.csv", "--target", "kind", "--store", "person", "-o", model, *weights)
    for value in ("P", "n", "nan", ""):
        assert f"no row of person={value}" in refused("forget", model, "--where", f"person={value}")
    loaded = Model.load(model)
    alone = sorted(set(loaded.cases.examples.table["person"].dropna()) - set(loaded.examples.table["person"].dropna()))
    both = sorted(set(loaded.cases.examples.table["person"].dropna()) & set(loaded.examples.table["person"].dropna()))
    for person in (alone[0], both[0]):
        out = json.loads(succeeded("forget", model, "--where", f"person={person}", "--json"))
        assert out["test_cases"] == (loaded.cases.examples.table["person"] == person).sum() > 0
        assert len(out["forgotten"]) == (loaded.examples.table["person"] == person).sum()
        assert not any(person.encode() in path.read_bytes() for path in model.rglob("*.csv"))


def test_labels_that_only_look_like_others_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = save_npy(tmp_path / "z.npy", rng.normal(size=(60, 2)))
    for dtype, texts in ((int, ["02", "1_0", " 9"]), (float, ["nan", "inf", "1.5", "2"])):
        model = AttnKNNClassifier(weights="uniform", n_neighbors=3).fit(np.load(z), np.arange(60).astype(dtype) % 3)
        model.save(tmp_path / dtype.__name__)
        for text in texts:
            refused("add", tmp_path / dtype.__name__, z, "--label", text, "--new-classes")
        assert len(Model.load(tmp_path / dtype.__name__).memory) == 60
    save_npy(tmp_path / "y.npy", np.arange(60) % 3)
    succeeded("fit", z, "--rows", tmp_path / "y.npy", "-o", tmp_path / "texts", "--weights", "uniform", "--test", 0)
    for text in ("02", "1.0", " 1"):
        assert "write" in refused("add", tmp_path / "texts", z, "--label", text, "--new-classes")
    succeeded("add", tmp_path / "texts", z, "--label", "3", "--new-classes")


def test_add_within_a_budget(copied: Path) -> None:
    model = copied / "vectors"
    new = save_npy(copied / "new.npy", np.random.default_rng(0).normal(size=(8, 3)))
    out = json.loads(succeeded("add", model, new, "--label", "down", "--keep", 40, "--json"))
    assert out["rows"] == 40
    assert len(out["accuracy"]) == 2
    loaded = Model.load(model)
    assert loaded.memory.ids.max() <= 79
    before = loaded.memory.ids
    text = succeeded("add", model, new, "--label", "up", "--keep", 20, "--keep-by", "newest")
    assert "added 8 rows, 80 … 87; 20 rows in memory\naccuracy on test cases: " in text
    ids = Model.load(model).memory.ids
    assert ids[-8:].tolist() == list(range(80, 88))
    assert set(ids[:-8]) <= set(before)
    for options, line in (
        (("--keep", 1), "--keep: 1; give a whole number, at least 2"),
        (("--keep", 30, "--keep-by", "oldest"), "--keep-by: 'oldest'; give 'kmeans' or 'newest'"),
    ):
        assert line in refused("add", model, new, "--label", "up", *options)
    assert Model.load(model).memory.ids.tolist() == ids.tolist()


def test_rows_of_a_table_go_with_those_kept(copied: Path) -> None:
    model = copied / "table"
    pd.read_csv(copied / "iris.csv").head(4).to_csv(copied / "new.csv", index=False)
    before = Model.load(model)
    earlier = dict(zip(before.memory.ids.tolist(), before.rows_of(before.memory.ids.tolist()), strict=True))
    succeeded("add", model, copied / "new.csv", "--target", "target", "--keep", 30)
    after = Model.load(model)
    own = dict(zip(after.memory.ids.tolist(), after.rows_of(after.memory.ids.tolist()), strict=True))
    assert len(own) == 30
    assert all(earlier[row_id] == columns for row_id, columns in own.items() if row_id in earlier)


def test_a_budget_may_cost_a_class(copied: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 2)), columns=["p", "q"])
    frame = (frame + np.repeat([[0, 0], [9, 0], [0, 9]], 40, axis=0)).assign(kind=np.repeat(["a", "b", "c"], 40))
    frame.to_csv(copied / "d.csv", index=False)
    frame.iloc[:20].assign(kind="d", p=40).to_csv(copied / "new.csv", index=False)
    succeeded("fit", copied / "d.csv", "--target", "kind", "-o", copied / "m")
    add = ("add", copied / "m", copied / "new.csv", "--target", "kind", "--new-classes")
    assert "--keep-by newest: without effect" in refused(*add, "--keep-by", "newest")
    out = json.loads(succeeded(*add, "--keep", 20, "--keep-by", "newest", "--json"))
    assert out["accuracy"] == [1.0, 0.0], "of the same test cases, all of lost classes"
    assert len(Model.load(copied / "m").memory) == 20


def test_a_class_lives_on_by_rows_that_are_relabelled_into_it(copied: Path) -> None:
    model = Model.load(copied / "vectors")
    c, memory = model.classifier, model.memory
    lost, others = (memory.ids[memory.y == number].tolist() for number in (0, 1))
    decisions = [(i, "forget", "") for i in lost] + [(i, "relabel", str(c.classes_[0])) for i in others[:3]]
    model.apply_decisions(decisions)
    assert len(c.new_classes_) == 0
    assert (model.memory.y == 0).sum() == 3
