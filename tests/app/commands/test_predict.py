"""`attnknn predict`."""

import csv
import importlib.util
import io
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from synthetic_models import picture_folders, save_npy

from attnknn.app.model.model import Model
from command_line import COMMAND, attnknn, csv_rows, json_lines, refused, succeeded


def test_formats(folder: Path, tmp_path: Path) -> None:
    classifier, z = Model.load(folder / "vectors").classifier, np.load(folder / "z.npy")
    command = ("predict", folder / "vectors", folder / "z.npy", "--probabilities", "--alpha", 0.2)
    rows, lines = csv_rows(*command), json_lines(*command)
    probs, percentiles, _ = classifier.predict_with_novelty(z)
    sets = classifier.predict_set(z, 0.2)
    for i, (row, line) in enumerate(zip(rows, lines, strict=True)):
        assert row["input"] == line["input"] == f"z.npy row {i}"
        assert row["label"] == line["label"] == ["down", "up"][probs[i].argmax()]
        assert float(row["confidence"]) == line["confidence"] == pytest.approx(probs[i].max(), abs=1e-6)
        assert float(row["p(up)"]) == line["probabilities"]["up"] == pytest.approx(probs[i, 1], abs=1e-6)
        percentile = float(row["distance_percentile"])
        assert percentile == line["distance_percentile"] == pytest.approx(percentiles[i], abs=0.01)
        assert row["set"].split("|") == (line["set"] or [""])
        assert line["set"] == [name for name, member in zip(("down", "up"), sets[i], strict=True) if member]
    expected = pd.DataFrame(rows)
    files: dict[str, Callable[[Path], pd.DataFrame]] = {"csv": pd.read_csv, "jsonl": partial(pd.read_json, lines=True)}
    if importlib.util.find_spec("pyarrow"):
        files["parquet"] = pd.read_parquet
    else:
        assert "pip install 'attnknn[tables]'" in refused(*command, "-o", tmp_path / "a.parquet")
    for suffix, read in files.items():
        assert succeeded(*command, "-o", tmp_path / f"a.{suffix}") == ""
        assert read(tmp_path / f"a.{suffix}")["label"].tolist() == expected["label"].tolist()
    if "parquet" in files:
        assert pd.read_parquet(tmp_path / "a.parquet")["p(up)"].tolist() == expected["p(up)"].astype(float).tolist()


def test_many_batches(folder: Path, tmp_path: Path) -> None:
    z = np.tile(np.load(folder / "z.npy"), (40, 1))
    rows = csv_rows("predict", folder / "vectors", save_npy(tmp_path / "long.npy", z))
    labels = [row["label"] for row in rows]
    assert labels[:80] * 40 == labels
    assert [row["input"] for row in rows] == [f"long.npy row {i}" for i in range(3200)]
    text = pd.DataFrame(z, columns=list("abc")).to_csv(index=False)
    assert [row["label"] for row in csv_rows("predict", folder / "vectors", "-", stdin=text)] == labels


def test_pictures_by_file_folder_and_pipe(folder: Path) -> None:
    images = folder / "images/left"
    files = sorted(images.iterdir())
    rows = csv_rows("predict", folder / "pictures", images)
    assert [row["input"] for row in rows] == [str(path) for path in files]
    assert csv_rows("predict", folder / "pictures", *files) == rows
    assert csv_rows("predict", folder / "pictures", "-", stdin="\n".join(map(str, files)) + "\n") == rows


def wide_rows(folder: Path, tmp_path: Path, rows: list[int]) -> None:
    """The iris table with a word instead of a number in these rows."""
    frame = pd.read_csv(folder / "iris.csv", dtype=str)
    frame.loc[rows, "sepal width (cm)"] = "wide"
    frame.to_csv(tmp_path / "iris.csv", index=False)


def test_keep_going(folder: Path, tmp_path: Path) -> None:
    picture_folders(tmp_path / "images")
    (tmp_path / "images/left/0.jpg").write_text("not an image")
    Image.new("L", (1, 1)).save(tmp_path / "images/left/1.bmp")
    wide_rows(folder, tmp_path, [17, 90])
    far = save_npy(tmp_path / "far.npy", np.outer([0, 1e20, 0], np.ones(3)))
    picture, table = folder / "images/left/0.png", [f"iris.csv line {i + 2}" for i in range(150) if i not in (17, 90)]
    images = [str(path) for path in sorted((tmp_path / "images").rglob("*.png"))]
    for model, sources, answered, messages in (
        ("pictures", [tmp_path / "images"], images, ("0.jpg: no readable image", "1.bmp: 1×1 pixels", "2 left out\n")),
        ("pictures", [tmp_path / "gone.png", picture], [str(picture)], ("gone.png: no such file",)),
        ("table", [tmp_path / "iris.csv"], table, ("iris.csv line 19: column 'sepal width (cm)' is 'wide'",)),
        ("vectors", [far], ["far.npy row 0", "far.npy row 2"], ("far.npy row 1: values beyond ±1e+15",)),
    ):
        assert messages[0] in refused("predict", folder / model, *sources)
        done = attnknn("predict", folder / model, *sources, "--keep-going")
        assert (done.exit_code, done.stderr.startswith("left out: ")) == (1, True)
        assert all(message in done.stderr for message in messages)
        assert [row["input"] for row in csv.DictReader(io.StringIO(done.stdout))] == answered
    kept = attnknn("predict", folder / "table", tmp_path / "iris.csv", "--keep-going").stdout.splitlines()
    whole = succeeded("predict", folder / "table", folder / "iris.csv").splitlines()
    assert kept == [line for i, line in enumerate(whole) if i not in (18, 91)]


def test_an_incomplete_output_is_not_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("earlier")
    wide_rows(folder, tmp_path, [149])
    line = refused("predict", folder / "table", tmp_path / "iris.csv", "-o", tmp_path / "answers.csv", "--force")
    assert "line 151" in line
    assert (tmp_path / "answers.csv").read_text() == "earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "iris.csv"]


def test_abstention(folder: Path, tmp_path: Path) -> None:
    classifier = Model.load(folder / "vectors").classifier
    classifier.set_params(abstain=0.9).save(tmp_path / "m")
    abstains = [row["abstains"] for row in csv_rows("predict", tmp_path / "m", folder / "z.npy")]
    assert abstains == list(map(str, classifier.abstains(np.load(folder / "z.npy"))))
    assert set(abstains) == {"True", "False"}


def test_unusual_file_names(folder: Path, tmp_path: Path) -> None:
    picture = (folder / "images/left/0.png").read_bytes()
    names = [" lead and trail .png", 'comma, "quote".PNG', os.fsdecode(b"\xff.png")]
    for name in (*names, ".hidden.png", "notes.txt"):
        (tmp_path / name).write_bytes(picture)
    rows = csv_rows("predict", folder / "pictures", tmp_path)
    assert {Path(row["input"]).name for row in rows} == {*names[:2], "\\xff.png"}
    paths = [str(tmp_path / name) for name in (names[0], names[1], "ends in a blank.png ")]
    Path(paths[2]).write_bytes(picture)
    piped = csv_rows("predict", folder / "pictures", "-", stdin="\r\n\n".join(paths) + "\n")
    assert [row["input"] for row in piped] == paths


def test_out_of_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "load", Mock(side_effect=MemoryError))
    assert "out of memory" in refused("predict", folder / "vectors", folder / "z.npy")


def test_a_pipe_that_closes_early(folder: Path, tmp_path: Path) -> None:
    long = save_npy(tmp_path / "long.npy", np.tile(np.load(folder / "z.npy"), (300, 1)))
    command = shlex.join([*COMMAND, "predict", str(folder / "vectors"), str(long)])
    done = subprocess.run(["bash", "-c", f"{command} | head -n 2"], capture_output=True, text=True, timeout=120)
    assert (done.stdout.splitlines()[0], done.stderr) == ("input,label,confidence,distance_percentile", "")


def test_an_output_replaces_no_input_and_other_files_by_force_alone(copied: Path) -> None:
    rows, images = copied / "iris.csv", copied / "images"
    (copied / "link.csv").symlink_to(rows)
    (copied / "linked").symlink_to(images)
    (images / "old.csv").write_text("")
    (copied / "answers.csv").write_text("")
    before = {path: path.read_bytes() for path in copied.rglob("*.*") if path.is_file()}
    image = images / "left/0.png"
    for command, output, line in (
        (("predict", copied / "table", rows), rows, f"would replace {rows}"),
        (("predict", copied / "table", rows), copied / "link.csv", "would replace"),
        (("predict", copied / "pictures", images), images / "old.csv", f"would replace {images} or be in it"),
        (("explain", copied / "pictures", copied / "linked"), image, "would replace"),
        (("explain", copied / "pictures", image), image, f"would replace {image}"),
    ):
        for force in ((), ("--force",)):
            assert line in refused(*command, "-o", output, *force)
    with rows.open() as file:
        redirected = [*COMMAND, "predict", str(copied / "table"), "-", "-o", str(rows), "--force"]
        done = subprocess.run(redirected, stdin=file, capture_output=True, text=True, timeout=120)
    assert f"--output: {rows} would replace the file on standard input; name another file" in done.stderr
    command = ("predict", copied / "table", rows, "-o", copied / "answers.csv")
    assert "answers.csv exists; name another file, or add --force" in refused(*command)
    assert before == {path: path.read_bytes() for path in before}
    succeeded(*command, "--force")
    assert len((copied / "answers.csv").read_text().splitlines()) == 151
    succeeded("predict", copied / "pictures", images, "-o", images / "new.csv")


def test_an_output_is_not_in_the_model_follows_links_and_is_a_regular_file(copied: Path) -> None:
    command = ("predict", copied / "table", copied / "iris.csv", "-o")
    for place in ("table/answers.csv", "table/input/memory.csv", "table/new/answers.csv"):
        assert f"would replace {copied / 'table'} or be in it" in refused(*command, copied / place)
    target, link = copied / "answers.csv", copied / "link.csv"
    target.write_text("")
    target.chmod(0o600)
    link.symlink_to(target)
    assert "link.csv exists" in refused(*command, link)
    succeeded(*command, link, "--force")
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) == 151
    assert target.stat().st_mode & 0o777 == 0o600
    os.mkfifo(copied / "fifo.csv")
    assert "fifo.csv is no regular file" in refused(*command, copied / "fifo.csv", "--force")


def test_standard_input_is_utf8_in_any_locale(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(60) % 9, "colour": ["grün", "rot", "blau"] * 20, "y": ["a", "b", "b"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeeded("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m", "--weights", "uniform", "-k", 3)
    expected = [row["confidence"] for row in csv_rows("predict", tmp_path / "m", tmp_path / "t.csv")]
    locale = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    mark = b"\xef\xbb\xbf"
    for command, data, code, message in (
        ("predict", mark + (tmp_path / "t.csv").read_bytes(), 0, ""),
        ("predict", "x,colour\n1,grün\n".encode("latin-1"), 2, "no valid CSV in UTF-8"),
        ("forget", mark + b"1 2", 0, ""),
        ("forget", b"1\xff", 2, r"1\xff; give whole numbers"),
    ):
        full = [*COMMAND, command, str(tmp_path / "m"), "-"]
        done = subprocess.run(full, input=data, capture_output=True, env=locale, timeout=120, check=False)
        assert (done.returncode, message in done.stderr.decode()) == (code, True)
        if command == "predict" and code == 0:
            rows = csv.DictReader(io.StringIO(done.stdout.decode()))
            assert [row["confidence"] for row in rows] == expected


def test_names_that_are_not_unicode(folder: Path, tmp_path: Path) -> None:
    sources = {"table": "iris.csv", "vectors": "z.npy", "pictures": "images/left/0.png"}
    model, output = (tmp_path / os.fsdecode(b"\xff" + name) for name in (b"m", b"a.csv"))
    for kind, name in sources.items():
        source = tmp_path / os.fsdecode(b"\xff" + Path(name).name.encode())
        shutil.copy(folder / name, source)
        shutil.copytree(folder / kind, model)
        shown = f"\\xff{Path(name).name}"
        assert shown in csv_rows("predict", model, source)[0]["input"]
        assert shown in json_lines("explain", model, source)[0]["input"]
        assert shown in succeeded("explain", model, source, "--first", 1)
        shutil.rmtree(model)
    command = ("predict", folder / "vectors", folder / "z.npy", "-o", output)
    succeeded(*command)
    assert "a.csv exists" in refused(*command)
    fit = ("fit", folder / "iris.csv", "--target", "target", "-o", model, "--weights", "uniform", "-k", 3)
    assert "m: 135 rows" in succeeded(*fit)
    assert "holds a model already" in refused(*fit)
    assert "forgotten row 1" in succeeded("forget", model, 1)


def test_novelty_and_rejected_rows(folder: Path, tmp_path: Path) -> None:
    classifier, z = Model.load(folder / "vectors").classifier, np.load(folder / "z.npy")
    odd = save_npy(tmp_path / "odd.npy", np.concatenate([z, 1000 * np.ones((2, 3))]))
    command = ("predict", folder / "vectors", odd)
    novelty = classifier.novelty(np.load(odd))
    with_p, rejected = json_lines(*command, "--novelty"), json_lines(*command, "--reject", 0.2)
    assert [row["novelty"] for row in with_p] == pytest.approx(novelty, abs=1e-6)
    assert [row["label"] is None for row in rejected] == (novelty <= 0.2).tolist()
    assert rejected[-1]["label"] is None
    assert {row["label"] for row in with_p} == {"up", "down"}
    assert [row["label"] for row in csv_rows(*command, "--reject", 0.2)][-1] == ""
    assert "reject: 1.5; give a share above 0 and below 1" in refused(*command, "--reject", 1.5)
    assert "held-out rows allow" in refused(*command, "--reject", 1e-6)
    assert "--novelty" in refused(*command, "-o", f"{tmp_path}/parts/", "--novelty")


def test_numbers_as_labels_stay_whole_beside_rejected_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(1, 3, 120)
    X = rng.normal(size=(120, 2)) + 6 * y[:, None]
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(label=y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    succeeded("fit", tmp_path / "rows.csv", "--target", "label", "-o", tmp_path / "m", "-k", 10)
    frame.iloc[0, :2] = 1e4
    frame.drop(columns="label").to_csv(tmp_path / "new.csv", index=False)
    labels = [row["label"] for row in csv_rows("predict", tmp_path / "m", tmp_path / "new.csv", "--reject", 0.1)]
    assert labels[0] == ""
    assert set(labels) == {"", "1", "2"}


def test_far_rows_are_named_and_get_every_class(folder: Path, tmp_path: Path) -> None:
    z = np.load(folder / "z.npy")[:40]
    far = save_npy(tmp_path / "far.npy", np.concatenate([z, 1000 * np.ones((2, 3))]))
    done = attnknn("predict", folder / "vectors", far, "--alpha", 0.4)
    rows = pd.read_csv(io.StringIO(done.stdout))
    is_far = rows["distance_percentile"] >= 99.9
    assert is_far[40:].all()
    assert set(rows["set"][is_far]) == {"down|up"}
    assert set(rows["set"][~is_far]) >= {"down", "up"}
    warning = f"{is_far.sum()} rows are far from the memory, at distance_percentile 99.9 or above: do not rely on them"
    assert (done.exit_code, done.stderr) == (0, f"warning: {warning}\n")
    last = succeeded("explain", folder / "vectors", far, "--first", 42).splitlines()[-2]
    assert last.startswith("Far from the memory: nearest neighbour at 1,")
