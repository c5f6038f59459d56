"""Errors are one line on standard error and exit code 2, and change nothing."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from file_limit import file_limit
from PIL import Image
from synthetic_models import picture_folders, save_npy, split_of_images

from attnknn.app.commands.arguments import check_stdin
from attnknn.core.errors import InputError
from attnknn.encoder.encoder import Encoder
from command_line import COMMAND, refused


def test_standard_input_that_is_a_terminal_or_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin, message in ((None, "is closed"), (types.SimpleNamespace(isatty=lambda: True), "is a terminal")):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(InputError, match=f"standard input {message}"):
            check_stdin(["-"])
        check_stdin(["a.csv"])


def bad_calls(f: Path) -> list[tuple[tuple[object, ...], str]]:
    arrays = {
        "nan": np.outer([0, np.nan, 0], np.ones(3)), "wide": np.zeros((3, 4)), "none": np.zeros((0, 3)),
        "flat": np.zeros(3), "complex": np.zeros((3, 3), np.complex64), "y2": np.array(["up", "down"]),
        "y3": np.array(["up", "down", "up"]), "y99": np.array(["up"] * 99),
    }  # fmt: skip
    for name, array in arrays.items():
        save_npy(f / f"{name}.npy", array)
    texts = {"other.csv": "a,b\n1,2\n", "words.csv": "a,b,c\n1,2,three\n"}
    for name in ("nothing", "folder.csv", "single/a"):
        (f / name).mkdir(parents=True)
    picture_folders(f / "broken")
    texts |= {
        "four.csv": "a,b\n1,x\n2,x\n3,y\n4,y\n",
        "text.npy": "no array",
        "broken/left/x.jpg": "no image",
    }
    for name, text in {**texts, "empty.png": ""}.items():
        (f / name).write_text(text)
    Image.new("L", (1, 1)).save(f / "dot.png")
    with (f / "several.npy").open("wb") as file:
        np.savez(file, np.zeros(80))
    split_of_images().save(f / "split")
    Encoder("mlp", (3,), 0, [4], embed_dim=2).save(f / "mlp")
    v, t, p, z = f / "vectors", f / "table", f / "pictures", f / "z.npy"

    def fit(source: Path, *options: object) -> tuple[object, ...]:
        return "fit", source, "-o", f / "m", *options

    iris = fit(f / "iris.csv", "--target", "target")
    return [
        *(((command, f / "none", z), "no saved model") for command in ("predict", "explain")),
        (("add", f / "none", z, "--label", "up"), "no saved model"),
        (("serve", f / "none"), "no saved model"),
        (("predict", v, f / "no.npy"), "no.npy: no such file"),
        (("predict", v, f / "nan.npy"), "nan.npy row 1: NaN"),
        (("predict", v, f / "wide.npy"), "4 dimensions; this model was fitted on 3"),
        (("predict", v, f / "none.npy"), "no rows"),
        (("predict", v, f / "other.csv"), "2 dimensions; this model was fitted on 3"),
        (("predict", v, f / "words.csv"), "words.csv line 2: column 'c' is 'three', not a number"),
        (("predict", v, f / "dot.png"), "no valid CSV"),
        (("predict", v, f / "several.npy"), "several arrays"),
        (("predict", v, z, "-o", f / "a.xls"), "must end with one of .csv, .jsonl, .parquet"),
        (("predict", v, z, "-o", f / "a.csv", "--json"), "--json writes JSON lines"),
        (("predict", v, z, "--alpha", 1.5), "--alpha: 1.5"),
        (("predict", v, z, "-o", f / "folder.csv"), "folder.csv is a folder; name a file"),
        *(((*call, t, f / "other.csv"), "no column") for call in (["predict"], ["explain"], ["explain", "--json"])),
        (("predict", t, z), "this model reads a CSV file"),
        *((("predict", p, f / name), f"{name}: no readable image") for name in ("empty.png", "z.npy")),
        (("predict", p, f / "nothing"), "no image in it"),
        *((("predict", p, f / name), "gone.png: no such file") for name in ("gone.png", "images/../gone.png")),
        (("explain", v, z, "-o", f / "why.pdf"), "give a .png file"),
        (("explain", v, z, "--shown", 0), "give 1 or more"),
        (("add", v, z), "give --label, --target or --rows"),
        (("add", v, z, "--label", "sideways"), "not a class of this model; its classes are down, up"),
        (("add", v, z, f / "nan.npy", "--label", "up"), "nan.npy row 1: NaN"),
        *((("add", v, z, "--rows", f / f"y{n}.npy"), f"{n} labels for 80 rows") for n in (2, 99)),
        (("add", v, z, "--label", "up", "--target", "way"), "--label and --target given"),
        (("add", v, z, "--rows", f / "words.csv"), "name the label column with --target"),
        (("add", v, z, "--target", "way"), "the input has no columns"),
        (("add", t, f / "iris.csv", "--target", "species"), "no column 'species'"),
        *((("forget", v, 3, row), f"id {row}: not in the memory") for row in (72, 999, 10**30)),
        (("forget", v, "9" * 5000), "9999; give whole numbers"),
        (("forget", v, "-"), "ids: empty"),
        *(((name, p, "-", *more), "-: no path on") for name, more in (("predict", ()), ("add", ("--label", "left")))),
        (fit(f / "four.csv", "--target", "b", "--test", 0.5), "memory: 2 rows, too few to hold some out; give more or"),
        *((("forget", v, text), f"ids: {text}; give whole numbers") for text in ("²", "٣٣٣", "all", "../x")),
        (("forget", v, *range(72)), "fewer than two rows would be left"),
        *(((*iris, "--seed", seed), f"seed: {seed}") for seed in (-1, 2**32)),
        ((*iris, "--test", 1.0), "test: 1.0"),
        ((*iris, "--test", 0.99), "3 distinct values in 3 rows are not classes; give a column of classes or a smaller"),
        ((*iris, "--rows", f / "rows.csv"), "--rows"),
        ((*iris, "--encoder", f / "encoder"), "--encoder"),
        ((*iris, "-k", 0), "neighbours"),
        ((*iris, "--separator", ";;"), "one character"),
        ((*iris, "-o", "/proc/none/m", "--weights", "uniform"), "/proc/none"),
        (fit(f / "iris.csv"), "name it with --target"),
        (fit(f / "none.csv", "--target", "y"), "none.csv: no such file"),
        (fit(f / "dot.png"), "neither a .csv nor a .npy file"),
        (fit(z), "no labels"),
        (fit(z, "--rows", f / "y2.npy"), "2 rows below a header line for 80 vectors"),
        (fit(f / "flat.npy", "--rows", f / "y3.npy"), "of shape (3,); expected numbers (rows, dimensions)"),
        (fit(f / "complex.npy", "--rows", f / "y3.npy"), "complex64 of shape"),
        (fit(f / "text.npy", "--rows", f / "y3.npy"), "not a readable .npy file"),
        (fit(f / "images"), "needs --encoder"),
        (fit(f / "single", "--encoder", f / "encoder"), "1 class folders"),
        (fit(f / "broken", "--encoder", f / "encoder"), "x.jpg: no readable image"),
        (fit(f / "images", "--encoder", f / "mlp"), "an encoder of tables"),
        (fit(f / "split", "--encoder", f / "mlp"), "reads rows of shape (3,)"),
        (fit(f / "split", "--encoder", f / "none"), "not an encoder"),
    ]  # fmt: skip


def test_errors_are_one_line_and_change_nothing(copied: Path) -> None:
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


@pytest.mark.parametrize("command", ["fit", "predict", "add", "forget"])
def test_a_full_disk_is_one_line_and_changes_nothing(command: str, copied: Path) -> None:
    out, model = copied / "new", copied / "vectors"
    arguments: dict[str, tuple[object, ...]] = {
        "fit": (copied / "iris.csv", "--target", "target", "-o", out),
        "predict": (model, copied / "z.npy", "-o", out.with_suffix(".csv")),
        "add": (model, copied / "z.npy", "--label", "up"),
        "forget": (model, 3),
    }
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with file_limit(500):
        line = refused(command, *arguments[command])
    assert re.fullmatch(rf"error: {copied}/(new|new.csv|vectors): .*; free space there, or write elsewhere", line)
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file() and path.suffix != ".lock"}
    assert after == {path: content for path, content in before.items() if path.suffix != ".lock"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="of Linux")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output_is_named(folder: Path, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "predict", folder / "vectors", folder / "z.npy"]
        env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
    line = "error: standard output: No space left on device; free space there, or write elsewhere\n"
    assert (done.returncode, done.stderr) == (2, line)
