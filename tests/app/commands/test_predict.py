"""`attnknn predict`."""

import csv
import importlib.util
import io
import os
import shlex
import shutil
import subprocess
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
    model = Model.load(folder / "vectors")
    z = np.load(folder / "z.npy")
    probs = model.classifier.predict_proba(z)
    command = ("predict", folder / "vectors", folder / "z.npy", "--probabilities", "--alpha", 0.2)
    rows, lines = csv_rows(*command), json_lines(*command)
    sets = model.classifier.predict_set(z, 0.2)
    for i, (row, line) in enumerate(zip(rows, lines, strict=True)):
        assert row["input"] == line["input"] == f"z.npy row {i}"
        assert row["label"] == line["label"] == ["down", "up"][probs[i].argmax()]
        assert float(row["confidence"]) == line["confidence"] == pytest.approx(probs[i].max(), abs=1e-6)
        assert float(row["p(up)"]) == line["probabilities"]["up"] == pytest.approx(probs[i, 1], abs=1e-6)
        percentile = model.classifier.distance_percentiles(z[i : i + 1])[0]
        assert float(row["distance_percentile"]) == line["distance_percentile"] == pytest.approx(percentile, abs=0.01)
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
    assert "0.jpg: no readable image" in refused("predict", folder / "pictures", tmp_path / "images")
    done = attnknn("predict", folder / "pictures", tmp_path / "images", "--keep-going")
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 25
    assert "1.bmp: 1×1 pixels" in done.stderr
    assert done.stderr.endswith("2 left out\n")
    wide_rows(folder, tmp_path, [17, 90])
    done = attnknn("predict", folder / "table", tmp_path / "iris.csv", "--keep-going")
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 149)
    assert "iris.csv line 19: column 'sepal width (cm)' is 'wide'" in done.stderr
    whole = succeeded("predict", folder / "table", folder / "iris.csv").splitlines()
    assert done.stdout.splitlines() == [line for i, line in enumerate(whole) if i not in (18, 91)]
    far = save_npy(tmp_path / "far.npy", np.outer([0, 1e20, 0], np.ones(3)))
    picture = folder / "images/left/0.png"
    for model, sources, answered, message in (
        ("vectors", [far], ["far.npy row 0", "far.npy row 2"], "left out: far.npy row 1: values beyond ±1e+15"),
        ("pictures", [tmp_path / "gone.png", picture], [str(picture)], "gone.png: no such file"),
    ):
        done = attnknn("predict", folder / model, *sources, "--keep-going")
        assert (done.exit_code, message in done.stderr) == (1, True)
        assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["input", *answered]


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
    rows, images, memory = copied / "iris.csv", copied / "images", copied / "table/input/memory.csv"
    (copied / "link.csv").symlink_to(rows)
    (copied / "linked").symlink_to(images)
    (images / "old.csv").write_text("")
    (copied / "answers.csv").write_text("")
    before = {path: path.read_bytes() for path in copied.rglob("*.*") if path.is_file()}
    image = images / "left/0.png"
    for command, output, line in (
        (("predict", copied / "table", rows), rows, f"would replace {rows}"),
        (("predict", copied / "table", copied / "link.csv"), rows, "would replace"),
        (("predict", copied / "table", rows), copied / "link.csv", "would replace"),
        (("predict", copied / "table", rows), memory, f"would replace {copied / 'table'} or be in it"),
        (("predict", copied / "pictures", images), images / "old.csv", f"would replace {images} or be in it"),
        (("explain", copied / "pictures", copied / "linked"), image, "would replace"),
        (("explain", copied / "pictures", image), image, f"would replace {image}"),
    ):
        for force in ((), ("--force",)):
            assert line in refused(*command, "-o", output, *force)
    command = ("predict", copied / "table", rows, "-o", copied / "answers.csv")
    assert "answers.csv exists; name another file, or add --force" in refused(*command)
    assert before == {path: path.read_bytes() for path in before}
    succeeded(*command, "--force")
    assert len((copied / "answers.csv").read_text().splitlines()) == 151
    succeeded("predict", copied / "pictures", images, "-o", images / "new.csv")


def test_an_output_is_not_in_the_model_follows_links_and_is_a_regular_file(copied: Path) -> None:
    command = ("predict", copied / "table", copied / "iris.csv", "-o")
    for place in ("table/answers.csv", "table/input/answers.csv", "table/new/answers.csv"):
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
    lines = succeeded("predict", tmp_path / "m", tmp_path / "t.csv").splitlines()
    expected = [line.partition(",")[2] for line in lines]
    locale = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def piped(*arguments: object, data: bytes) -> subprocess.CompletedProcess[bytes]:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(command, input=data, capture_output=True, env=locale, timeout=120, check=False)

    for mark in (b"", b"\xef\xbb\xbf"):
        done = piped("predict", tmp_path / "m", "-", data=mark + (tmp_path / "t.csv").read_bytes())
        assert [line.partition(",")[2] for line in done.stdout.decode().splitlines()] == expected
    done = piped("predict", tmp_path / "m", "-", data="x,colour\n1,grün\n".encode("latin-1"))
    assert (done.returncode, b"no valid CSV in UTF-8" in done.stderr) == (2, True)
    assert piped("forget", tmp_path / "m", "-", data=b"\xef\xbb\xbf1 2").returncode == 0
    done = piped("forget", tmp_path / "m", "-", data=b"1\xff")
    assert (done.returncode, rb"1\xff; give whole numbers" in done.stderr) == (2, True)


def test_names_that_are_not_unicode(folder: Path, tmp_path: Path) -> None:
    names = {
        name: tmp_path / os.fsdecode(b"\xff" + name.encode()) for name in ("r.csv", "z.npy", "p.png", "m", "a.csv")
    }
    shutil.copy(folder / "iris.csv", names["r.csv"])
    shutil.copy(folder / "z.npy", names["z.npy"])
    shutil.copy(folder / "images/left/0.png", names["p.png"])
    for model, source in (("table", "r.csv"), ("vectors", "z.npy"), ("pictures", "p.png")):
        shutil.copytree(folder / model, names["m"], dirs_exist_ok=True)
        assert csv_rows("predict", names["m"], names[source])[0]["input"].partition("\\xff")[2].startswith(source)
        assert f"\\xff{source}" in json_lines("explain", names["m"], names[source])[0]["input"]
        assert f"\\xff{source}" in succeeded("explain", names["m"], names[source], "--first", 1)
        shutil.rmtree(names["m"])
    succeeded("predict", folder / "vectors", names["z.npy"], "-o", names["a.csv"])
    assert "a.csv exists" in refused("predict", folder / "vectors", names["z.npy"], "-o", names["a.csv"])
    fit = ("fit", names["r.csv"], "--target", "target", "-o", names["m"], "--weights", "uniform", "-k", 3)
    assert "m: 135 rows" in succeeded(*fit)
    assert "holds a model already" in refused(*fit)
    assert "forgotten row 1" in succeeded("forget", names["m"], 1)


def test_far_rows_are_named_and_get_every_class(folder: Path, tmp_path: Path) -> None:
    z = np.load(folder / "z.npy")[:40]
    far = save_npy(tmp_path / "far.npy", np.concatenate([z, 1000 * np.ones((2, 3))]))
    done = attnknn("predict", folder / "vectors", far, "--alpha", 0.4)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    is_far = [float(row["distance_percentile"]) >= 99.9 for row in rows]
    assert is_far[40:] == [True, True]
    assert {row["set"] for row, beyond in zip(rows, is_far, strict=True) if beyond} == {"down|up"}
    assert {row["set"] for row, beyond in zip(rows, is_far, strict=True) if not beyond} >= {"down", "up"}
    warning = f"{sum(is_far)} rows are far from the memory, at distance_percentile 99.9 or above: do not rely on them"
    assert (done.exit_code, done.stderr) == (0, f"warning: {warning}\n")
    last = succeeded("explain", folder / "vectors", far, "--first", 42).splitlines()[-2]
    assert last.startswith("Far from the memory: nearest neighbour at 1,")


def test_an_output_replaces_no_picture_that_standard_input_names(copied: Path) -> None:
    picture = copied / "images/left/0.png"
    names = {command: copied / name for command, name in (("predict", "q.csv"), ("explain", "q.png"))}
    for command, name in names.items():
        shutil.copy(picture, name)
        for inputs, stdin in ((["-"], f"{name}\n"), ([picture, "-"], f"{picture}\n" * 300 + f"{name}\n")):
            call = (command, copied / "pictures", *inputs, "-o", name, "--force")
            line = refused(*call, stdin=stdin)
            assert f"--output: {name} would replace {name}, which standard input names" in line
            assert name.read_bytes() == picture.read_bytes()
    succeeded("predict", copied / "pictures", "-", "-o", names["predict"], "--force", stdin=f"{picture}\n")
