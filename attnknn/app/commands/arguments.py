"""Arguments shared by several commands; load, lock and change saved models."""

import os
import sys
from collections.abc import Iterator, Sequence
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
CLUSTER: Any = typer.Option(
    None, help="Address of a Ray cluster to work on, such as auto or 10.0.0.1:6379; else this process."
)
SEPARATOR: Any = typer.Option(
    None, help="Separator of CSV files: one character, or tab; else that of , ; tab | which fits the first lines."
)
THREADS: Any = typer.Option(None, min=1, help="CPU threads; also before any command: attnknn --threads 1 predict …")
AS_JSON: Any = typer.Option(False, "--json", help="Print JSON.")


def layout_of(separator: str | None, missing: Sequence[str] = ()) -> dict[str, Any]:
    """Arguments of `read_csv.row_chunks`; InputError if the separator is none."""
    separator = {"tab": "\t", "\\t": "\t"}.get(str(separator), separator)
    require(separator is None or len(separator) == 1, f"--separator: {separator!r}; one character is needed, such as ;")
    return ({"separator": separator} if separator else {}) | ({"missing": list(missing)} if missing else {})


def set_threads_at_start(threads: int | None) -> None:
    """Use so many CPU threads; only before torch, faiss and BLAS are loaded, which read the environment."""
    if threads is not None:
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


@contextmanager
def changing(folder: Path) -> Iterator["Model"]:
    """Yield a model under its lock, and save it if the block ends without an error."""
    require((folder / "model.json").is_file(), f"{folder}: no saved model; give the folder that `attnknn fit` wrote")
    from attnknn.app.model.model import Model
    from attnknn.classifier.locking import model_lock
    from attnknn.classifier.persistence import check_destination

    with model_lock(folder):
        check_destination(folder)
        model = Model.load(folder)
        yield model
        model.save(folder)


def check_output(
    output: Path | None, model: Path, inputs: list[str], force: bool, option: str = "--output"
) -> Path | None:
    """The file to write, with links resolved.

    Raises:
        InputError: it is in the model's folder, or would replace an input, a file in a folder of inputs, what is no
            regular file, or without `force` any file.
    """
    if output is None:
        return None
    require(not output.is_dir(), f"{option}: {output} is a folder; name a file")
    target, exists = Path(os.path.realpath(output)), os.path.lexists(output)
    require(target.is_file() or not target.exists(), f"{option}: {output} is no regular file; name another file")
    for source in [str(model), *inputs] if exists else [str(model)]:
        path = "/dev/stdin" if source == "-" else source
        if os.path.exists(path):
            same = any(place.exists() and place.samefile(path) for place in (target, *target.parents))
            name = "the file on standard input" if source == "-" else f"{source} or be in it"
            require(not same, f"{option}: {output} would replace {name}; name another file")
    remedy = "name another file" if option == "--receipt" else "name another file, or add --force"
    require(force or not exists, f"{option}: {output} exists; {remedy}")
    return target


def check_stdin(inputs: list[str]) -> None:
    """Refuse `-` if standard input is closed or a terminal; read it as UTF-8, whatever the locale."""
    if "-" in inputs:
        hint = "pipe the input in, or name files"
        require(sys.stdin is not None, f"-: standard input is closed; {hint}")
        require(not sys.stdin.isatty(), f"-: standard input is a terminal; {hint}")
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="strict")
