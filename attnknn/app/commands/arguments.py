"""Arguments that several commands take, and models read and written by them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnknn.core.errors import InputError, require

if TYPE_CHECKING:
    from attnknn.app.model.model import Model

MODEL: Any = typer.Argument(help="Folder of a model: what `attnknn fit` or `AttnKNNClassifier.save` wrote.")
INPUTS: Any = typer.Argument(
    help="Pictures, folders of pictures, CSV or .npy files, as the model reads; - is standard input."
)
AS_JSON: Any = typer.Option(False, "--json", help="Print JSON.")
SEPARATOR: Any = typer.Option(",", help="Of CSV files: one character, or tab.")
MISSING: Any = typer.Option([], help="What stands for a missing value in CSV files; may be given again.")


def layout_of(separator: str, missing: list[str]) -> dict[str, Any]:
    """Keyword arguments of `tables.row_chunks` that differ from its own."""
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    require(len(separator) == 1, f"--separator: {separator!r}; one character is needed, such as ;")
    layout: dict[str, Any] = {} if separator == "," else {"separator": separator}
    return layout | ({"missing": list(missing)} if missing else {})


def load(folder: Path) -> "Model":
    """A model, read from its folder."""
    from attnknn.app.model.model import Model

    return Model.load(folder)


@contextmanager
def changed(folder: Path) -> Iterator["Model"]:
    """A model to be changed: written again when the block ends well, while no other process changes it."""
    require((folder / "model.json").is_file(), f"{folder}: no saved model; give the folder that `attnknn fit` wrote")
    with alone(folder):
        model = load(folder)
        yield model
        model.save(folder)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While no other process writes to a model's folder."""
    from filelock import Timeout

    from attnknn.app.model.model import lock_of

    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with lock_of(folder, wait=60):
            yield
    except Timeout:
        raise InputError(f"{folder}: another process has been changing it for a minute; try again") from None


def check_pipe(inputs: list[str]) -> None:
    """Refuse to wait for what nobody will type."""
    if "-" in inputs and (sys.stdin is None or sys.stdin.isatty()):
        what = "closed" if sys.stdin is None else "a terminal"
        raise InputError(f"-: standard input is {what}; put something into the pipe, or name files")
