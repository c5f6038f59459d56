"""`attnknn predict`."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnknn.app.commands.arguments import AS_JSON, INPUTS, MODEL, check_pipe, load
from attnknn.app.commands.shown import with_progress
from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_file

if TYPE_CHECKING:
    import numpy as np

    from attnknn.app.model.inputs import Batch
    from attnknn.app.model.model import Model

Row = dict[str, Any]
FORMATS = (".csv", ".jsonl", ".parquet")


def predict(
    model: Path = MODEL,
    inputs: list[str] = INPUTS,
    output: Path = typer.Option(None, "--output", "-o", help="A .csv, .jsonl or .parquet file; else standard output."),
    probabilities: bool = typer.Option(False, help="The probability of each class too."),
    alpha: float = typer.Option(None, help="Also the classes that hold the true one with probability 1 − alpha."),
    keep_going: bool = typer.Option(False, help="Leave out what cannot be read, say so, and exit with 1."),
    as_json: bool = AS_JSON,
) -> None:
    """Answer for each row or picture: its label and how sure that is, as CSV or as JSON lines, while they are read."""
    require(alpha is None or 0 < alpha < 1, f"--alpha: {alpha}; give a share of misses above 0 and below 1")
    kind = _kind(output, as_json)
    check_pipe(inputs)
    known = load(model)
    left_out = 0

    def told(error: InputError) -> None:
        nonlocal left_out
        left_out += 1
        typer.echo(f"left out: {error}", err=True)

    failed = told if keep_going else None
    with _written(output, kind) as write:
        for batch in with_progress(known.input.batches(inputs, failed=failed), "predict"):
            rows: list[Row] = []
            for some, probs in answered(known, batch, failed):
                rows += told_rows(known, some.names, probs, probabilities, alpha, kind)
            if rows:
                write(rows)
    if left_out:
        typer.echo(f"{left_out} left out", err=True)
        raise typer.Exit(1)


def answered(
    model: "Model", batch: "Batch", failed: Callable[[InputError], None] | None
) -> Iterator[tuple["Batch", "np.ndarray"]]:
    """Probabilities of a batch; of its parts where a row of it does not fit and somebody is to be told."""
    try:
        vectors = model.given(batch)
    except InputError as error:
        if failed is None:
            raise
        rows = len(batch.names)
        if rows == 1:
            failed(error)
            return
        for half in (range(rows // 2), range(rows // 2, rows)):
            yield from answered(model, batch.take(list(half)), failed)
        return
    yield batch, model.classifier.predict_proba(vectors)


def told_rows(
    model: "Model", names: list[str], probs: "np.ndarray", all_classes: bool, alpha: float | None, kind: str
) -> list[Row]:
    """A row for each answer; JSON lines hold lists and objects, the others columns."""
    classes, top = model.classifier.classes_.tolist(), probs.argmax(1)
    sets = None if alpha is None else model.classifier.sets_from_proba(probs, alpha)
    rows: list[Row] = []
    for i, name in enumerate(names):
        row: Row = {"input": name, "label": classes[top[i]], "confidence": round(float(probs[i, top[i]]), 6)}
        if model.classifier.abstain > 0:
            row["abstains"] = bool(probs[i, top[i]] < model.classifier.abstain)
        if sets is not None:
            within = [label for label, there in zip(classes, sets[i], strict=True) if there]
            row["set"] = within if kind == ".jsonl" else "|".join(map(str, within))
        if all_classes:
            chances = {str(label): round(float(p), 6) for label, p in zip(classes, probs[i], strict=True)}
            row |= {"probabilities": chances} if kind == ".jsonl" else {f"p({name})": p for name, p in chances.items()}
        rows.append(row)
    return rows


def _kind(output: Path | None, as_json: bool) -> str:
    if output is None:
        return ".jsonl" if as_json else ".csv"
    require(not output.is_dir(), f"--output: {output} is a folder; name a file")
    kind = output.suffix.lower()
    require(kind in FORMATS, f"--output: {output} ends with none of {', '.join(FORMATS)}; name it so")
    require(not as_json or kind == ".jsonl", f"--json writes JSON lines; name --output so, not {output}")
    lacks = kind == ".parquet" and importlib.util.find_spec("pyarrow") is None
    require(not lacks, "--output: .parquet needs pyarrow: pip install 'attnknn[tables]'")
    return kind


@contextmanager
def _written(output: Path | None, kind: str) -> Iterator[Callable[[list[Row]], None]]:
    """What writes rows, batch by batch; a file takes its name once it is whole."""
    writer = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}[kind]
    if output is None:
        require(sys.stdout is not None, "standard output is closed; name a file with --output")
        with writer(sys.stdout.buffer) as write:
            yield write
        return
    with atomic_file(output) as draft, draft.open("wb") as file, writer(file) as write:
        yield write


@contextmanager
def _csv(file: Any) -> Iterator[Callable[[list[Row]], None]]:
    import pandas as pd

    first = True

    def write(rows: list[Row]) -> None:
        nonlocal first
        file.write(pd.DataFrame(rows).to_csv(index=False, header=first, lineterminator="\n").encode())
        file.flush()
        first = False

    yield write


@contextmanager
def _jsonl(file: Any) -> Iterator[Callable[[list[Row]], None]]:
    def write(rows: list[Row]) -> None:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
        file.flush()

    yield write


@contextmanager
def _parquet(file: Any) -> Iterator[Callable[[list[Row]], None]]:
    import pyarrow as pa  # type: ignore[import-not-found]
    import pyarrow.parquet as pq  # type: ignore[import-not-found]

    with ExitStack() as stack:
        writers: list[Any] = []

        def write(rows: list[Row]) -> None:
            table = pa.Table.from_pylist(rows)
            if not writers:
                writers.append(stack.enter_context(pq.ParquetWriter(file, table.schema)))
            writers[0].write_table(table)

        yield write
