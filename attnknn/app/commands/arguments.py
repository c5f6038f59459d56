"""Arguments shared by several commands; load, lock and change saved models."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnknn.core.errors import require

if TYPE_CHECKING:
    from attnknn.app.model.model import Model

MODEL: Any = typer.Argument(help="Folder of a model, written by `attnknn fit` or `AttnKNNClassifier.save`.")
INPUTS: Any = typer.Argument(
    help="Pictures, folders of pictures, CSV or .npy files, as the model reads; - is standard input."
)
FORCE: Any = typer.Option(False, help="Replace an existing file.")
AS_JSON: Any = typer.Option(False, "--json", help="Print JSON.")
SEPARATOR: Any = typer.Option(",", help="Separator of CSV files: one character, or tab.")
MISSING: Any = typer.Option([], help="A value of CSV files that means missing; may be repeated.")


def csv_layout(separator: str, missing: list[str]) -> dict[str, Any]:
    """Keyword arguments of `read_csv.row_chunks` that differ from its defaults."""
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    require(len(separator) == 1, f"--separator: {separator!r}; one character is needed, such as ;")
    layout: dict[str, Any] = {} if separator == "," else {"separator": separator}
    return layout | ({"missing": list(missing)} if missing else {})


def load(folder: Path) -> "Model":
    """Load a model."""
    from attnknn.app.model.model import Model

    return Model.load(folder)


@contextmanager
def changing(folder: Path) -> Iterator["Model"]:
    """Yield a model under its lock, and save it if the block ends without an error."""
    require((folder / "model.json").is_file(), f"{folder}: no saved model; give the folder that `attnknn fit` wrote")
    from attnknn.classifier.persistence import model_lock

    with model_lock(folder):
        model = load(folder)
        yield model
        model.save(folder)


def check_output(output: Path | None, sources: list[str], force: bool) -> None:
    """Refuse to replace a source, a file in a folder of sources, or without `force` any file."""
    if output is None or not os.path.lexists(output):
        return
    require(not output.is_dir(), f"--output: {output} is a folder; name a file")
    for source in sources:
        path = "/dev/stdin" if source == "-" else source
        if os.path.exists(path):
            same = any(place.exists() and place.samefile(path) for place in (output, *output.resolve().parents))
            require(not same, f"--output: {output} would replace {source} or a file in it; name another file")
    require(force, f"--output: {output} exists; name another file, or add --force")


def check_stdin(inputs: list[str]) -> None:
    """Refuse `-` if standard input is closed or a terminal; read it as UTF-8, whatever the locale."""
    if "-" in inputs:
        hint = "pipe the input in, or name files"
        require(sys.stdin is not None, f"-: standard input is closed; {hint}")
        require(not sys.stdin.isatty(), f"-: standard input is a terminal; {hint}")
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="strict")
