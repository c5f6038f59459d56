"""The commands that people type: what they print and write, their exit codes, and one line for what cannot be done."""

import csv
import importlib.util
import io
import json
import os
import shlex
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from synthetic_models import iris_csv, picture_encoder, picture_folders, save_npy
from typer.testing import CliRunner, Result

from attnknn.app.cli import app
from attnknn.app.commands.arguments import check_stdin
from attnknn.app.doctor import check_all
from attnknn.app.model.model import Model
from attnknn.core.errors import InputError

COMMAND = [sys.executable, "-c", "from attnknn.app.cli import app; app()"]


def attnknn(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def succeeded(*arguments: object, stdin: str | None = None) -> str:
    done = attnknn(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def json_lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in succeeded(*arguments, "--json").splitlines()]


def refused(*arguments: object, stdin: str | None = None) -> str:
    """The one line that says why."""
    done = attnknn(*arguments, stdin=stdin)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and a model of each kind."""
    folder = tmp_path_factory.mktemp("commands")
    iris_csv(folder / "iris.csv")
    rng = np.random.default_rng(0)
    y = np.repeat(["up", "down"], 40)
    save_npy(folder / "z.npy", rng.normal(size=(80, 3)) + 2 * (y == "up")[:, None])
    pd.DataFrame({"way": y, "title": [f"t{i}" for i in range(80)]}).to_csv(folder / "rows.csv", index=False)
    picture_folders(folder / "images")
    picture_encoder().save(folder / "encoder")
    flags = ("--weights", "distance", "-k", 7)
    succeeded("fit", folder / "iris.csv", "--target", "target", "-o", folder / "table", *flags)
    succeeded(
        "fit", folder / "z.npy", "--rows", folder / "rows.csv", "--target", "way", "-o", folder / "vectors", *flags
    )
    succeeded("fit", folder / "images", "--encoder", folder / "encoder", "-o", folder / "pictures", *flags)
    return folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    import shutil

    shutil.copytree(folder, tmp_path / "made")
    return tmp_path / "made"


def test_fit_tells_what_was_measured_on_rows_kept_out(folder: Path, tmp_path: Path) -> None:
    flags = ("--target", "target", "--weights", "distance", "--test", 0.2)
    summary = json.loads(succeeded("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags, "--json"))
    assert (summary["memory"], summary["test"]) == (120, 30)
    cases = Model.load(tmp_path / "m").cases
    answers = Model.load(tmp_path / "m").classifier.predict(cases.vectors)
    assert summary["accuracy"] == (answers == cases.labels).mean()
    out = succeeded("fit", folder / "iris.csv", "-o", tmp_path / "n", *flags)
    assert f"on 30 rows held out: accuracy {summary['accuracy']:.3f}, NLL {summary['nll']:.3f}" in out
    out = succeeded("fit", folder / "iris.csv", "-o", tmp_path / "all", "--target", "target", "--test", 0)
    assert out == f"{tmp_path / 'all'}: 150 rows of 3 classes in memory\n"


def test_fit_replaces_nothing_unasked_and_never_anything_else(folder: Path, tmp_path: Path) -> None:
    flags = ("--target", "target", "--weights", "distance")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years")
    for force in ((), ("--force",)):
        assert "there already, and no model" in refused(
            "fit", folder / "iris.csv", "-o", tmp_path / "mine", *flags, *force
        )
    assert (tmp_path / "mine/thesis.tex").read_text() == "years"
    succeeded("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags)
    assert "a model is there already" in refused("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags)
    succeeded("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags, "--force", "--drop", "kind")
    assert "kind" not in Model.load(tmp_path / "m").input.columns


def test_predictions_are_the_classifier_s_in_every_format(folder: Path, tmp_path: Path) -> None:
    model = Model.load(folder / "vectors")
    z = np.load(folder / "z.npy")
    probs = model.classifier.predict_proba(z)
    command = ("predict", folder / "vectors", folder / "z.npy", "--probabilities", "--alpha", 0.2)
    rows = list(csv.DictReader(io.StringIO(succeeded(*command))))
    lines = [json.loads(line) for line in succeeded(*command, "--json").splitlines()]
    sets = model.classifier.predict_set(z, 0.2)
    for i, (row, line) in enumerate(zip(rows, lines, strict=True)):
        assert row["input"] == line["input"] == f"z.npy row {i}"
        assert row["label"] == line["label"] == ["down", "up"][probs[i].argmax()]
        assert float(row["confidence"]) == line["confidence"] == pytest.approx(probs[i].max(), abs=1e-6)
        assert float(row["p(up)"]) == line["probabilities"]["up"] == pytest.approx(probs[i, 1], abs=1e-6)
        assert row["set"].split("|") == (line["set"] or [""])
        assert line["set"] == [name for name, member in zip(("down", "up"), sets[i], strict=True) if member]
    for suffix, read in ((".csv", pd.read_csv), (".jsonl", lambda p: pd.read_json(p, lines=True))):
        assert succeeded(*command, "-o", tmp_path / f"a{suffix}") == ""
        assert read(tmp_path / f"a{suffix}")["label"].tolist() == [row["label"] for row in rows]
    if importlib.util.find_spec("pyarrow"):
        succeeded(*command, "-o", tmp_path / "a.parquet")
        assert pd.read_parquet(tmp_path / "a.parquet")["p(up)"].tolist() == [float(row["p(up)"]) for row in rows]
    else:
        assert "pip install 'attnknn[tables]'" in refused(*command, "-o", tmp_path / "a.parquet")


def test_many_batches_are_one_answer(folder: Path, tmp_path: Path) -> None:
    z = np.tile(np.load(folder / "z.npy"), (40, 1))
    out = succeeded("predict", folder / "vectors", save_npy(tmp_path / "long.npy", z))
    read = pd.read_csv(io.StringIO(out))
    assert len(read) == 3200
    assert read["label"].tolist()[:80] * 40 == read["label"].tolist()
    assert read["input"].tolist() == [f"long.npy row {i}" for i in range(3200)]
    lines = ["a,b,c", *(f"{row[0]},{row[1]},{row[2]}" for row in z)]
    again = succeeded("predict", folder / "vectors", "-", stdin="\n".join(lines))
    assert pd.read_csv(io.StringIO(again))["label"].tolist() == read["label"].tolist()


def test_pictures_by_file_folder_and_pipe_are_answered_alike(folder: Path) -> None:
    images = folder / "images/left"
    by_folder = succeeded("predict", folder / "pictures", images)
    files = sorted(images.iterdir())
    assert succeeded("predict", folder / "pictures", *files) == by_folder
    assert succeeded("predict", folder / "pictures", "-", stdin="\n".join(map(str, files)) + "\n") == by_folder
    assert [row["input"] for row in csv.DictReader(io.StringIO(by_folder))] == [str(path) for path in files]


def test_keep_going_leaves_out_says_so_and_exits_with_1(folder: Path, tmp_path: Path) -> None:
    picture_folders(tmp_path / "images")
    (tmp_path / "images/left/0.jpg").write_text("not an image")
    Image.new("L", (1, 1)).save(tmp_path / "images/left/1.bmp")
    assert "0.jpg: no readable image" in refused("predict", folder / "pictures", tmp_path / "images")
    done = attnknn("predict", folder / "pictures", tmp_path / "images", "--keep-going")
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 25
    assert "1.bmp: 1×1 pixels" in done.stderr
    assert done.stderr.endswith("2 left out\n")
    frame = pd.read_csv(folder / "iris.csv", dtype=str)
    frame.loc[[17, 90], "sepal width (cm)"] = "wide"
    frame.to_csv(tmp_path / "iris.csv", index=False)
    done = attnknn("predict", folder / "table", tmp_path / "iris.csv", "--keep-going")
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 149)
    assert "iris.csv line 19: column 'sepal width (cm)' is 'wide'" in done.stderr
    whole = succeeded("predict", folder / "table", folder / "iris.csv").splitlines()
    assert done.stdout.splitlines() == [line for i, line in enumerate(whole) if i not in (18, 91)]


def test_nothing_is_left_of_a_file_that_could_not_be_finished(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("earlier")
    frame = pd.read_csv(folder / "iris.csv", dtype=str)
    frame.loc[149, "sepal width (cm)"] = "wide"
    frame.to_csv(tmp_path / "iris.csv", index=False)
    line = refused("predict", folder / "table", tmp_path / "iris.csv", "-o", tmp_path / "answers.csv")
    assert "line 151" in line
    assert (tmp_path / "answers.csv").read_text() == "earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "iris.csv"]


def test_explain_names_who_decided(folder: Path, tmp_path: Path) -> None:
    model = Model.load(folder / "table")
    explanations = json_lines("explain", folder / "table", folder / "iris.csv")
    assert len(explanations) == 5
    (batch,) = model.input.batches([str(folder / "iris.csv")])
    expected = model.classifier.explain(model.input.vectors(batch)[:5])
    for i, explanation in enumerate(explanations):
        heaviest = expected.ids[i, expected.weights[i].argmax()]
        assert explanation["neighbours"][0]["id"] == heaviest
        assert explanation["neighbours"][0]["row"] == model.rows_of([heaviest])[0]
        assert explanation["row"]["petal width (cm)"] == batch.values["petal width (cm)"].iloc[i]
    out = succeeded(
        "explain", folder / "table", folder / "iris.csv", "--first", 1, "--shown", 2, "-o", tmp_path / "why.png"
    )
    lines = out.splitlines()
    assert lines[0].startswith("iris.csv line 2: ")
    assert lines[1].split() == ["query", *(f"#{n['id']}" for n in explanations[0]["neighbours"][:2])]
    assert any(line.startswith("petal width (cm)") for line in lines)
    assert "it would be" in lines[-2]
    assert Image.open(tmp_path / "why.png").width > 500
    assert "t" in succeeded("explain", folder / "vectors", folder / "z.npy", "--first", 1)


def test_hostile_texts_are_printed_as_they_are(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(40) % 9, "[red]c[/red]": ["[bold]", "=cmd"] * 20, "y": ["[/]", "b"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeeded("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m", "--weights", "uniform", "-k", 3)
    out = succeeded("explain", tmp_path / "m", tmp_path / "t.csv", "--first", 1)
    assert "[red]c[/red]" in out
    assert "[bold]" in out
    assert "[/]" in out


def test_rows_that_are_added_are_found_and_can_be_forgotten(copied: Path) -> None:
    model = copied / "vectors"
    new = save_npy(copied / "new.npy", np.full((2, 3), 50.0))
    assert succeeded("add", model, new, "--label", "down") == f"{model}: added 2 rows, 72 … 73; 74 rows in memory\n"
    rows = list(csv.DictReader(io.StringIO(succeeded("predict", model, new))))
    assert [row["label"] for row in rows] == ["down", "down"]
    assert json.loads(succeeded("forget", model, 73, "-", "--json", stdin="72\n")) == {
        "forgotten": [72, 73],
        "rows": 72,
    }
    again = list(csv.DictReader(io.StringIO(succeeded("predict", model, new))))
    assert [row["label"] for row in again] == ["up", "up"]
    save_npy(copied / "y.npy", np.array(["up", "down"]))
    assert json.loads(succeeded("add", model, new, "--rows", copied / "y.npy", "--json"))["added"] == [74, 75]
    memory = Model.load(model).classifier.memory_
    assert memory.y[-2:].tolist() == [1, 0]


def test_rows_of_a_table_are_added_by_their_column(copied: Path) -> None:
    frame = pd.read_csv(copied / "iris.csv").head(4)
    frame.to_csv(copied / "new.csv", index=False)
    hole = frame.assign(target=["setosa", None, "setosa", "setosa"])
    hole.to_csv(copied / "hole.csv", index=False)
    assert "hole.csv line 3: no label in column 'target'" in refused(
        "add", copied / "table", copied / "hole.csv", "--target", "target"
    )
    succeeded("add", copied / "table", copied / "new.csv", "--target", "target")
    model = Model.load(copied / "table")
    assert model.classifier.classes_[model.classifier.memory_.y[-4:]].tolist() == frame["target"].tolist()
    picture = next((copied / "images/left").iterdir())
    succeeded("add", copied / "pictures", picture, "--label", "right")
    shown = Model.load(copied / "pictures").examples.image(-1)
    np.testing.assert_array_equal(shown, np.asarray(Image.open(picture)))


def test_vectors_of_a_csv_are_added_by_a_column_beside_them(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnknn.app.model.read_files.BATCH", 7)
    way = ["up", "down", "down"] * 6 + ["up", "down"]
    z = np.random.default_rng(0).normal(size=(20, 3))
    pd.DataFrame(z, columns=list("abc")).assign(way=way).to_csv(copied / "new.csv", index=False)
    succeeded("add", copied / "vectors", copied / "new.csv", "--target", "way")
    save_npy(copied / "z20.npy", z)
    save_npy(copied / "way.npy", np.array(way))
    succeeded("add", copied / "vectors", copied / "z20.npy", "--rows", copied / "way.npy")
    classifier = Model.load(copied / "vectors").classifier
    assert classifier.classes_[classifier.memory_.y[-40:]].tolist() == way * 2
    np.testing.assert_allclose(classifier.memory_.vectors()[-40:-20], classifier.memory_.vectors()[-20:], atol=1e-6)


def test_fit_hands_its_options_on(folder: Path, tmp_path: Path) -> None:
    text = (folder / "iris.csv").read_text().replace(",", ";").replace("short", "?")
    (tmp_path / "t.csv").write_text(text)
    layout = ("--separator", ";", "--missing", "?", "--drop", "sepal width (cm)")
    flags = ("-k", 4, "--weights", "uniform", "--metric", "cosine", "--no-prototypes", "--seed", 3)
    succeeded("fit", tmp_path / "t.csv", "-o", tmp_path / "m", "--target", "target", *layout, *flags)
    model = Model.load(tmp_path / "m")
    expected = {"n_neighbors": 4, "weights": "uniform", "metric": "cosine", "prototypes": False, "random_state": 3}
    assert {name: model.classifier.get_params()[name] for name in expected} == expected
    assert "sepal width (cm)" not in model.input.columns
    assert model.examples.table["kind"].dropna().unique().tolist() == ["long"]
    piped = succeeded("predict", tmp_path / "m", "-", stdin=text)  # it knows the separator
    labels = pd.read_csv(io.StringIO(piped))["label"].tolist()
    assert (
        labels == pd.read_csv(io.StringIO(succeeded("predict", tmp_path / "m", tmp_path / "t.csv")))["label"].tolist()
    )


def test_of_two_who_fit_at_once_the_slower_replaces_nothing(folder: Path, tmp_path: Path, monkeypatch) -> None:
    import shutil

    from attnknn.app.model import fit

    def slow(*args: Any, **settings: Any) -> Any:
        shutil.copytree(folder / "vectors", tmp_path / "m")
        return fit_it(*args, **settings)

    fit_it = fit.fit_model
    monkeypatch.setattr(fit, "fit_model", slow)
    command = ("fit", folder / "iris.csv", "--target", "target", "--weights", "uniform", "-o", tmp_path / "m")
    assert "a model is there already" in refused(*command)
    assert Model.load(tmp_path / "m").input.kind == "vectors"


def test_a_model_is_read_whole_while_another_is_saved_in_its_place(copied: Path, monkeypatch) -> None:
    from attnknn.classifier import persistence

    other, digest = Model.load(copied / "vectors"), persistence._digest
    other.forget([0])

    def slow(path: Path) -> str:
        monkeypatch.setattr(persistence, "_digest", digest)
        other.save(copied / "vectors")
        return digest(path)

    monkeypatch.setattr(persistence, "_digest", slow)
    assert len(Model.load(copied / "vectors").classifier.memory_) == 71


def test_what_is_interrupted_while_it_saves_has_changed_nothing(copied: Path, monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnknn.app.model.examples.Examples.save", interrupted)
    flags = ("--target", "target", "--weights", "uniform", "--force")
    for command in (
        ("forget", copied / "vectors", 3),
        ("add", copied / "vectors", copied / "z.npy", "--label", "up"),
        ("fit", copied / "iris.csv", "-o", copied / "vectors", *flags),
    ):
        assert attnknn(*command).exit_code == 130
    assert Model.load(copied / "vectors").rows_of([3])[0]["title"]
    assert len(Model.load(copied / "vectors").classifier.memory_) == 72
    assert not [path for path in copied.iterdir() if path.name.endswith((".draft", ".old"))]


def test_an_answer_says_that_it_abstains(folder: Path, tmp_path: Path) -> None:
    classifier = Model.load(folder / "vectors").classifier
    classifier.set_params(abstain=0.9).save(tmp_path / "m")
    rows = list(csv.DictReader(io.StringIO(succeeded("predict", tmp_path / "m", folder / "z.npy"))))
    assert [row["abstains"] for row in rows] == [
        str(abstains) for abstains in classifier.abstains(np.load(folder / "z.npy"))
    ]
    assert {row["abstains"] for row in rows} == {"True", "False"}


def test_explain_goes_on_to_the_next_file(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "iris.csv", dtype=str)
    for i, columns in enumerate((list(frame), list(frame)[::-1])):  # in any order
        frame.iloc[i : i + 1][columns].to_csv(tmp_path / f"{i}.csv", index=False)
    files = (tmp_path / "0.csv", tmp_path / "1.csv")
    split = [json.loads(line) for line in succeeded("explain", folder / "table", *files, "--json").splitlines()]
    whole = [
        json.loads(line) for line in succeeded("explain", folder / "table", folder / "iris.csv", "--json").splitlines()
    ]
    assert [line["input"] for line in split] == ["0.csv line 2", "1.csv line 2"]
    assert [line["confidence"] for line in split] == pytest.approx([line["confidence"] for line in whole[:2]])
    assert [line["row"] for line in split] == [line["row"] for line in whole[:2]]


def test_keep_going_leaves_out_rows_far_away_and_pictures_that_are_not_there(folder: Path, tmp_path: Path) -> None:
    far = np.zeros((3, 3))
    far[1] = 1e20
    done = attnknn("predict", folder / "vectors", save_npy(tmp_path / "far.npy", far), "--keep-going")
    assert done.exit_code == 1
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["input", "far.npy row 0", "far.npy row 2"]
    assert "left out: far.npy row 1: values beyond ±1e+15" in done.stderr
    picture = folder / "images/left/0.png"
    done = attnknn("predict", folder / "pictures", tmp_path / "gone.png", picture, "--keep-going")
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 2)
    assert "gone.png: no such file" in done.stderr


def test_odd_names_of_pictures(folder: Path, tmp_path: Path) -> None:
    picture = (folder / "images/left/0.png").read_bytes()
    names = [" lead and trail .png", 'comma, "quote".PNG', os.fsdecode(b"\xff.png")]
    for name in (*names, ".hidden.png", "notes.txt"):
        (tmp_path / name).write_bytes(picture)
    rows = list(csv.DictReader(io.StringIO(succeeded("predict", folder / "pictures", tmp_path))))
    assert {Path(row["input"]).name for row in rows} == {*names[:2], "\\xff.png"}
    paths = [str(tmp_path / name) for name in (names[0], names[1], "ends in a blank.png ")]
    Path(paths[2]).write_bytes(picture)
    piped = succeeded("predict", folder / "pictures", "-", stdin="\r\n\n".join(paths) + "\n")
    assert [row["input"] for row in csv.DictReader(io.StringIO(piped))] == paths


def test_nobody_is_waited_for_at_a_terminal_or_a_closed_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin, message in ((None, "is closed"), (types.SimpleNamespace(isatty=lambda: True), "is a terminal")):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(InputError, match=f"standard input {message}"):
            check_stdin(["-"])
        check_stdin(["a.csv"])


def test_what_a_machine_cannot_hold_is_said_in_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("attnknn.app.commands.predict.load", full)
    assert "out of memory" in refused("predict", folder / "vectors", folder / "z.npy")


def test_two_who_change_a_model_at_once_lose_nothing(copied: Path) -> None:
    new = save_npy(copied / "new.npy", np.zeros((1, 3)))
    command = [*COMMAND, "add", str(copied / "vectors"), str(new), "--label", "up"]
    done: list[int] = []

    def run() -> None:
        done.append(subprocess.run(command, capture_output=True, timeout=120).returncode)

    workers = [threading.Thread(target=run) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert done == [0, 0, 0]
    assert len(Model.load(copied / "vectors").classifier.memory_) == 75


def bad_calls(f: Path) -> list[tuple[tuple[object, ...], str]]:
    nan = np.zeros((3, 3))
    nan[1] = np.nan
    save_npy(f / "nan.npy", nan)
    save_npy(f / "wide.npy", np.zeros((3, 4)))
    save_npy(f / "none.npy", np.zeros((0, 3)))
    (f / "empty.csv").write_text("")
    (f / "other.csv").write_text("a,b\n1,2\n")
    (f / "words.csv").write_text("a,b,c\n1,2,three\n")
    (f / "cut.csv").write_text("a,b,c\n1,2\n")
    (f / "text.jpg").write_text("no image")
    (f / "empty.png").write_bytes(b"")
    Image.new("L", (1, 1)).save(f / "dot.png")
    Image.new("1", (20_000, 10_000)).save(f / "huge.png")
    (f / "nothing").mkdir(exist_ok=True)
    (f / "folder.csv").mkdir(exist_ok=True)
    (f / "folder.png").mkdir(exist_ok=True)
    np.savez(f / "several.npz", np.zeros(80))
    (f / "several.npz").rename(f / "several.npy")
    v, t, p = f / "vectors", f / "table", f / "pictures"
    return [
        (("predict", f / "none", f / "z.npy"), "no saved model"),
        (("predict", f / "images", f / "z.npy"), "no saved model"),
        (("predict", v, f / "no.npy"), "no.npy: no such file"),
        (("predict", v, f / "nan.npy"), "nan.npy row 1: NaN"),
        (("predict", v, f / "wide.npy"), "4 dimensions; this model was fitted on 3"),
        (("predict", v, f / "none.npy"), "no rows"),
        (("predict", v, f / "other.csv"), "2 dimensions; this model was fitted on 3"),
        (("predict", v, f / "words.csv"), "words.csv line 2: column 'c' is 'three', no number"),
        (("predict", v, f / "cut.csv"), "cut.csv line 2: 2 values for 3 columns"),
        (("predict", v, f / "empty.csv"), "empty.csv: empty"),
        (("predict", v, f / "dot.png"), "no valid CSV"),
        (("predict", v, f / "z.npy", "-o", f / "a.xls"), "ends with none of .csv, .jsonl, .parquet"),
        (("predict", v, f / "z.npy", "-o", f / "a.csv", "--json"), "--json writes JSON lines"),
        (("predict", v, f / "z.npy", "--alpha", 1.5), "--alpha: 1.5"),
        (("predict", v, f / "z.npy", "-o", f / "folder.csv"), "folder.csv is a folder; name a file"),
        (("explain", v, f / "z.npy", "-o", f / "folder.png"), "folder.png is a folder; name a file"),
        (("predict", v, f / "several.npy"), "several arrays"),
        (("fit", f / "z.npy", "--rows", f / "several.npy", "-o", f / "m"), "several arrays"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--seed", -1), "seed: -1"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--test", 0.99), "3 different ones in 3 rows"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--rows", f / "rows.csv"), "--rows"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--encoder", f / "encoder"), "--encoder"),
        (("predict", t, f / "other.csv"), "no column"),
        (("predict", t, f / "z.npy"), "this model reads a CSV file"),
        (("predict", t, f / "empty.csv"), "empty"),
        (("predict", t, f / "dot.png"), "no valid CSV"),
        (("predict", p, f / "text.jpg"), "text.jpg: no readable image"),
        (("predict", p, f / "empty.png"), "empty.png: no readable image"),
        (("predict", p, f / "dot.png"), "1×1 pixels"),
        (("predict", p, f / "huge.png"), "refused as too large"),
        (("predict", p, f / "nothing"), "no picture in it"),
        (("predict", p, f / "gone.png"), "gone.png: no such file"),
        (("predict", p, f / "images/../gone.png"), "no such file"),
        (("predict", p, f / "z.npy"), "no readable image"),
        (("explain", p, f / "text.jpg"), "no readable image"),
        (("explain", v, f / "wide.npy"), "4 dimensions"),
        (("explain", t, f / "other.csv"), "no column"),
        (("explain", t, f / "other.csv", "--json"), "no column"),
        (("explain", v, f / "z.npy", "-o", f / "why.pdf"), "a picture is a .png file"),
        (("explain", v, f / "z.npy", "--shown", 0), "give 1 or more"),
        (("add", v, f / "z.npy"), "say what they are with --label, --target or --rows"),
        (("add", v, f / "z.npy", "--label", "sideways"), "no class of this model, which knows down, up"),
        (("add", v, f / "nan.npy", "--label", "up"), "NaN"),
        (("add", v, f / "z.npy", f / "nan.npy", "--label", "up"), "nan.npy row 1: NaN"),
        (("add", v, f / "z.npy", "--rows", save_npy(f / "y2.npy", np.array(["up", "down"]))), "2 labels for 80 rows"),
        (("add", v, f / "z.npy", "--rows", save_npy(f / "y99.npy", np.array(["up"] * 99))), "99 labels for 80 rows"),
        (("add", v, f / "z.npy", "--label", "up", "--target", "way"), "--label and --target given"),
        (("add", v, f / "z.npy", "--rows", f / "words.csv"), "name that of the labels with --target"),
        (("add", v, f / "z.npy", "--target", "way"), "these have no columns"),
        (("add", t, f / "iris.csv", "--target", "species"), "no column 'species'"),
        (("add", p, f / "dot.png", "--label", "left"), "1×1 pixels"),
        (("add", f / "none", f / "z.npy", "--label", "up"), "no saved model"),
        (("forget", v, 999), "id 999: not in the memory"),
        (("forget", v, 10**30), f"id {10**30}: not in the memory"),
        (("forget", v, 3, 72), "id 72: not in the memory"),
        (("forget", v, "-"), "ids: none given"),
        (("forget", v, "²"), "ids: ²; give whole numbers"),
        (("forget", v, "all"), "ids: all; give whole numbers"),
        (("forget", v, "../x"), "give whole numbers"),
        (("forget", v, *range(72)), "fewer than two rows would be left"),
        (("fit", f / "iris.csv", "-o", f / "m"), "name it with --target"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "-k", 0), "neighbours"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--weights", "best"), "weights"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--separator", ";;"), "one character"),
        (("fit", f / "images", "-o", f / "m"), "needs --encoder"),
        (("serve", f / "none"), "no saved model"),
    ]  # fmt: skip


def test_what_cannot_be_done_is_one_line_and_changes_nothing(copied: Path) -> None:
    calls = bad_calls(copied)

    def files() -> dict[Path, bytes]:
        paths = (path for path in copied.rglob("*") if path.is_file() and path.suffix != ".lock")
        return {path: path.read_bytes() for path in paths}

    before = files()
    for call, message in calls:
        line = refused(*call)
        assert message in line, f"{call}: {line}"
        assert "Traceback" not in line
    assert files() == before


def test_a_folder_that_cannot_be_written_to_is_named(folder: Path) -> None:
    command = ("fit", folder / "iris.csv", "--target", "target", "--weights", "uniform", "-o", "/proc/none/m")
    assert "/proc/none" in refused(*command)


def test_in_a_pipe_that_closes_early_nothing_is_said(folder: Path, tmp_path: Path) -> None:
    z = np.tile(np.load(folder / "z.npy"), (300, 1))
    save_npy(tmp_path / "long.npy", z)
    command = shlex.join([*COMMAND, "predict", str(folder / "vectors"), str(tmp_path / "long.npy")])
    done = subprocess.run(["bash", "-c", f"{command} | head -n 2"], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[0] == "input,label,confidence"
    assert done.stderr == ""


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_every_command_has_help_with_an_example(command: str) -> None:
    out = succeeded(command, "--help")
    assert f"Example: attnknn {command}" in out
    assert out.count("\n") < 70


def test_help_needs_no_torch() -> None:
    heavy = "[m for m in ('torch', 'pandas', 'sklearn') if m in sys.modules]"
    code = f"import sys; from attnknn.app.cli import app; print({heavy})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_shells_are_offered_completion() -> None:
    environment = {**os.environ, "_ATTNKNN_COMPLETE": "complete_bash", "COMP_WORDS": "attnknn pre", "COMP_CWORD": "1"}
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'attnknn'; from attnknn.app.cli import app; app(prog_name='attnknn')",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.split() == ["predict"]


def test_the_doctor_finds_this_machine_well() -> None:
    checks = {check.name: check for check in check_all()}
    assert {"Python", "packages", "torch threads", "torchvision", "faiss", "git", "dvc"} <= set(checks)
    assert [check for check in checks.values() if check.state == "missing"] == []
    assert all(check.fix for check in checks.values() if check.state == "note")
    import faiss
    import torch

    assert f"torch {torch.__version__}".partition("+")[0] in checks["packages"].value
    assert faiss.__version__ in checks["faiss"].value
    out = succeeded("doctor")
    assert "faiss" in out
    assert {check["what"] for check in json.loads(succeeded("doctor", "--json"))} == set(checks)


def test_the_doctor_names_what_is_missing_and_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    import attnknn.app.doctor as doctor

    real = doctor.version

    def version(name: str) -> str:
        if name == "crepes":
            raise doctor.PackageNotFoundError(name)
        return "0.1" if name == "scipy" else real(name)

    monkeypatch.setattr(doctor, "version", version)
    done = attnknn("doctor")
    assert done.exit_code == 1
    assert "crepes: pip install 'crepes>=0.9'" in done.stdout
    assert "scipy: pip install 'scipy>=1.11'" in done.stdout


def test_columns_that_are_left_out_are_told_and_can_be_taken_in(tmp_path: Path) -> None:
    frame = pd.DataFrame({"second": np.arange(60), "x": np.arange(60) % 7, "y": np.repeat(["a", "b"], 30)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    flags = ("fit", tmp_path / "t.csv", "--target", "y", "--weights", "uniform", "-k", 3, "-o")
    assert "left out as ids: second (--categories or --numeric takes one in)" in succeeded(*flags, tmp_path / "m")
    summary = json.loads(succeeded(*flags, tmp_path / "n", "--numeric", "second", "--json"))
    assert summary["left_out"] == []
    assert summary["accuracy"] > 0.9
    assert Model.load(tmp_path / "n").input.columns == ("second", "x")
