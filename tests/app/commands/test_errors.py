"""Errors are one line on standard error and exit code 2, and change nothing."""

import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from file_limit import file_limit
from PIL import Image
from synthetic_models import save_npy

from attnknn.app.commands.arguments import check_stdin
from attnknn.core.errors import InputError
from command_line import COMMAND, refused


def test_standard_input_that_is_a_terminal_or_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin, message in ((None, "is closed"), (types.SimpleNamespace(isatty=lambda: True), "is a terminal")):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(InputError, match=f"standard input {message}"):
            check_stdin(["-"])
        check_stdin(["a.csv"])


def bad_calls(f: Path) -> list[tuple[tuple[object, ...], str]]:
    nan = np.outer([0, np.nan, 0], np.ones(3))
    for name, array in {"nan": nan, "wide": np.zeros((3, 4)), "none": np.zeros((0, 3))}.items():
        save_npy(f / f"{name}.npy", array)
    texts = {"other.csv": "a,b\n1,2\n", "words.csv": "a,b,c\n1,2,three\n", "cut.csv": "a,b,c\n1,2\n"}
    for name, text in {**texts, "text.jpg": "no image", "empty.png": "", "empty.csv": ""}.items():
        (f / name).write_text(text)
    Image.new("L", (1, 1)).save(f / "dot.png")
    Image.new("1", (20_000, 10_000)).save(f / "huge.png")
    for name in ("nothing", "folder.csv", "folder.png"):
        (f / name).mkdir()
    with (f / "several.npy").open("wb") as file:
        np.savez(file, np.zeros(80))
    (f / "floats.csv").write_text("a,b\n" + "1,0.5\n2,1\n3,1e-3\n4,0.25\n" * 4)
    v, t, p = f / "vectors", f / "table", f / "pictures"
    return [
        *(((command, f / "none", f / "z.npy"), "no saved model") for command in ("predict", "explain")),
        (("add", f / "none", f / "z.npy", "--label", "up"), "no saved model"),
        (("predict", f / "images", f / "z.npy"), "no saved model"),
        (("predict", v, f / "no.npy"), "no.npy: no such file"),
        (("predict", v, f / "nan.npy"), "nan.npy row 1: NaN"),
        (("predict", v, f / "wide.npy"), "4 dimensions; this model was fitted on 3"),
        (("predict", v, f / "none.npy"), "no rows"),
        (("predict", v, f / "other.csv"), "2 dimensions; this model was fitted on 3"),
        (("predict", v, f / "words.csv"), "words.csv line 2: column 'c' is 'three', not a number"),
        (("predict", v, f / "cut.csv"), "cut.csv line 2: 2 values for 3 columns"),
        (("predict", v, f / "empty.csv"), "empty.csv: empty"),
        (("predict", v, f / "dot.png"), "no valid CSV"),
        (("predict", v, f / "z.npy", "-o", f / "a.xls"), "must end with one of .csv, .jsonl, .parquet"),
        (("predict", v, f / "z.npy", "-o", f / "a.csv", "--json"), "--json writes JSON lines"),
        (("predict", v, f / "z.npy", "--alpha", 1.5), "--alpha: 1.5"),
        (("predict", v, f / "z.npy", "-o", f / "folder.csv"), "folder.csv is a folder; name a file"),
        (("explain", v, f / "z.npy", "-o", f / "folder.png"), "folder.png is a folder; name a file"),
        (("predict", v, f / "several.npy"), "several arrays"),
        (("fit", f / "z.npy", "--rows", f / "several.npy", "-o", f / "m"), "several arrays"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--seed", -1), "seed: -1"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--test", 0.99), "3 distinct values in 3 rows"),
        (("fit", f / "floats.csv", "-o", f / "m", "--target", "b"), "floats.csv, column 'b': continuous numbers (0.5,"),
        (("fit", f / "z.npy", "--rows", f / "floats.csv", "-o", f / "m", "--target", "b"), "column 'b': continuous"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--rows", f / "rows.csv"), "--rows"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--encoder", f / "encoder"), "--encoder"),
        *(((*call, t, f / "other.csv"), "no column") for call in (["predict"], ["explain"], ["explain", "--json"])),
        (("predict", t, f / "z.npy"), "this model reads a CSV file"),
        (("predict", t, f / "empty.csv"), "empty"),
        (("predict", t, f / "dot.png"), "no valid CSV"),
        *((("predict", p, f / name), f"{name}: no readable image") for name in ("text.jpg", "empty.png", "z.npy")),
        (("predict", p, f / "dot.png"), "1×1 pixels"),
        (("predict", p, f / "huge.png"), "refused as too large"),
        (("predict", p, f / "nothing"), "no image in it"),
        *((("predict", p, f / name), "gone.png: no such file") for name in ("gone.png", "images/../gone.png")),
        (("explain", p, f / "text.jpg"), "no readable image"),
        (("explain", v, f / "wide.npy"), "4 dimensions"),
        (("explain", v, f / "z.npy", "-o", f / "why.pdf"), "give a .png file"),
        (("explain", v, f / "z.npy", "--shown", 0), "give 1 or more"),
        (("add", v, f / "z.npy"), "give --label, --target or --rows"),
        (("add", v, f / "z.npy", "--label", "sideways"), "not a class of this model; its classes are down, up"),
        (("add", v, f / "nan.npy", "--label", "up"), "NaN"),
        (("add", v, f / "z.npy", f / "nan.npy", "--label", "up"), "nan.npy row 1: NaN"),
        (("add", v, f / "z.npy", "--rows", save_npy(f / "y2.npy", np.array(["up", "down"]))), "2 labels for 80 rows"),
        (("add", v, f / "z.npy", "--rows", save_npy(f / "y99.npy", np.array(["up"] * 99))), "99 labels for 80 rows"),
        (("add", v, f / "z.npy", "--label", "up", "--target", "way"), "--label and --target given"),
        (("add", v, f / "z.npy", "--rows", f / "words.csv"), "name the label column with --target"),
        (("add", v, f / "z.npy", "--target", "way"), "the input has no columns"),
        (("add", t, f / "iris.csv", "--target", "species"), "no column 'species'"),
        (("add", p, f / "dot.png", "--label", "left"), "1×1 pixels"),
        *((("forget", v, 3, row), f"id {row}: not in the memory") for row in (72, 999, 10**30)),
        (("forget", v, "9" * 5000), "9999; give whole numbers"),
        (("forget", v, "-"), "ids: empty"),
        *((("forget", v, text), f"ids: {text}; give whole numbers") for text in ("²", "٣٣٣", "all", "../x")),
        (("forget", v, *range(72)), "fewer than two rows would be left"),
        (("fit", f / "iris.csv", "-o", f / "m"), "name it with --target"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "-k", 0), "neighbours"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--weights", "best"), "weights"),
        (("fit", f / "iris.csv", "-o", f / "m", "--target", "target", "--separator", ";;"), "one character"),
        (("fit", f / "images", "-o", f / "m"), "needs --encoder"),
        (("fit", f / "iris.csv", "-o", "/proc/none/m", "--target", "target", "--weights", "uniform"), "/proc/none"),
        (("serve", f / "none"), "no saved model"),
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
def test_a_full_standard_output_is_named(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "predict", folder / "vectors", folder / "z.npy"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    line = "error: standard output: No space left on device; free space there, or write elsewhere\n"
    assert (done.returncode, done.stderr) == (2, line)
