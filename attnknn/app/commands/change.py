"""`attnknn add` and `attnknn forget`: change a model's memory without refitting."""

import hashlib
import json
import re
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnknn.app.commands.arguments import (
    AS_JSON,
    INPUTS,
    MODEL,
    SEPARATOR,
    changing,
    check_output,
    check_stdin,
    layout_of,
)
from attnknn.app.commands.labels import batch_labels
from attnknn.app.commands.output import with_progress
from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_file, write_json

if TYPE_CHECKING:
    import numpy as np

    from attnknn.app.model.model import Model


def add(
    model: Path = MODEL,
    inputs: list[str] = INPUTS,
    label: str = typer.Option(None, help="Label of all added rows."),
    target: str = typer.Option(None, help="For CSV files: the column of the labels."),
    rows: Path = typer.Option(None, help="A CSV or .npy file with a label for each row, needed for .npy inputs."),
    new_classes: bool = typer.Option(False, help="Labels that the model does not know become classes of it."),
    balanced: bool = typer.Option(False, help="Weight each class of the rows as much as the mean of the others."),
    keep: int = typer.Option(None, help="Then forget all but so many rows of the memory."),
    keep_by: str = typer.Option(
        None, help="Which --keep keeps: kmeans, those that represent it, the default, or newest."
    ),
    separator: str = SEPARATOR,
    as_json: bool = AS_JSON,
) -> None:
    """Add rows or pictures to a model's memory: all of them, or none if one is invalid."""
    values = {"--label": label, "--target": target, "--rows": rows}
    options = " and ".join(name for name, value in values.items() if value is not None)
    valid = options in ("--label", "--target", "--rows", "--target and --rows")
    require(valid, f"labels: {options or 'none'} given; give --label, --target or --rows")
    require(keep_by is None or keep is not None, f"--keep-by {keep_by}: without effect; add --keep, or leave it out")
    check_stdin(inputs)
    with changing(model) as loaded:
        import numpy as np
        import pandas as pd

        from attnknn.app.model.inputs import Vectors

        fitted = loaded.input
        loaded.read_with(layout_of(separator))
        batches = list(with_progress(loaded.input.batches(inputs), "read"))
        if label is not None:
            texts, columns = [label] * sum(len(batch.names) for batch in batches), None
        else:
            texts, columns = batch_labels(loaded, batches, target, rows)
        unknown = sorted(set(texts) - set(map(str, loaded.classifier.classes_)))
        try:
            labels = loaded.parse_labels(texts, new_classes)
        except InputError as error:
            raise InputError(f"{error}" if new_classes else f"{error}; --new-classes adds others") from None
        held_out = ~loaded.cases_in_memory()
        if target is not None and rows is None:
            batches = [batch.without(target) for batch in batches]
        beside = None
        if isinstance(loaded.input, Vectors):
            places = rows or Path(inputs[0])
            if columns is None and all(batch.beside is not None for batch in batches):
                columns = pd.concat([batch.beside for batch in batches])
            if columns is not None:
                beside = loaded.input.beside(columns, places if places.is_dir() else places.parent)
        ids, known = loaded.add(batches, labels, balanced, beside)
        loaded.input = fitted
        outside = ~loaded.cases_in_memory()
        accuracy: list[float] = []
        lost: list[str] = []
        if keep is not None:
            cases = loaded.cases.take(np.flatnonzero(outside)) if loaded.cases is not None and outside.any() else None
            accuracy = [] if cases is None else [loaded.accuracy(cases)]
            before = loaded.classifier.classes_
            try:
                loaded.keep(keep, keep_by or "kmeans")
            except InputError as error:
                raise InputError(str(error).replace("n_rows: ", "--keep: ").replace("by: ", "--keep-by: ")) from None
            lost = sorted(set(map(str, before)) - set(map(str, loaded.classifier.classes_)))
            accuracy += [] if cases is None else [loaded.accuracy(cases)]
        size = len(loaded.classifier.memory_)
        moved = int((held_out & ~outside).sum())
    more: dict[str, object] = {"test_cases": moved, "new_classes": unknown, "known": known}
    more.update({"lost_classes": lost} if lost else {})
    more.update({"accuracy": accuracy} if accuracy else {})
    _report(model, "added", ids, size, as_json, more)
    if accuracy and not as_json:
        typer.echo(f"accuracy on test cases: {accuracy[0]:.3f} with all rows, {accuracy[1]:.3f} with those kept")
    if lost and not as_json:
        typer.echo(f"classes of which no row was kept: {', '.join(lost[:20])}")
    if unknown and not as_json:
        typer.echo(f"new classes: {', '.join(unknown[:20])}")
    if known and not as_json:
        counted = f"{known:,} (forget a row to replace it)"
        typer.echo(f"rows among them that were in the memory already, and now count twice: {counted}")
    if moved and not as_json:
        typer.echo(f"test cases among them, which are no longer held out: {moved:,}")


def forget(
    model: Path = MODEL,
    ids: list[str] = typer.Argument(
        None, help="Row ids, as `explain` and `add` print them; - reads them from standard input."
    ),
    label: str = typer.Option(None, help="Instead of ids: all rows of this label."),
    where: str = typer.Option(None, help="Instead of ids: all rows with this value in a stored column, as person=7."),
    receipt: Path = typer.Option(None, help="Write ids and SHA-256 of model.json before and after to this .json file."),
    as_json: bool = AS_JSON,
) -> None:
    """Remove rows from a model's memory: all that are named, or none if one is missing."""
    ids = ids or []
    ways = [name for name, value in (("ids", ids), ("--label", label), ("--where", where)) if value]
    require(len(ways) == 1, f"{' and '.join(ways) or 'nothing'} given; name rows by ids, by --label or by --where")
    if receipt is not None:
        require(receipt.suffix == ".json", f"--receipt: {receipt}; give a .json file")
    file = check_output(receipt, model, [], False, "--receipt")
    with atomic_file(file) if file is not None else nullcontext() as draft:
        with changing(model) as loaded:
            receipt_of: dict[str, Any] = {"model": str(model), "before": _digest(model)}
            removed, cases = _named_rows(loaded, ids, label, where)
            n_cases = loaded.erase(removed, cases)
            size = len(loaded.classifier.memory_)
            receipt_of |= {"forgotten": removed, "test_cases": n_cases, "rows": size}
            if draft is not None:  # before the model is saved, so that a full or read-only disk changes nothing
                draft.write_text(json.dumps(receipt_of) + " " * 200)
        receipt_of |= {"after": _digest(model), "time": datetime.now(UTC).isoformat(timespec="seconds")}
        if draft is not None:
            write_json(draft, receipt_of)
    _report(model, "forgotten", removed, size, as_json, {"test_cases": n_cases})
    if n_cases and not as_json:
        typer.echo(f"test cases forgotten with them: {n_cases:,}")


def _digest(model: Path) -> str:
    """SHA-256 of model.json, which holds those of the other files."""
    return hashlib.sha256((model / "model.json").read_bytes()).hexdigest()


def _named_rows(
    model: "Model", ids: list[str], label: str | None, where: str | None
) -> tuple[list[int], "np.ndarray | None"]:
    """Ids of rows, ascending, and which test cases have the value of `where`: bool (M,), or None."""
    if not ids:
        import numpy as np

        rows = model.memory
        if label is not None:
            chosen = rows.given_y == np.searchsorted(model.classifier.classes_, model.parse_labels([label])[0])
            cases = None if model.cases is None else model.cases.labels == model.parse_labels([label])[0]
        else:
            column, equals, value = str(where).partition("=")
            require(bool(equals), f"--where: {where}; give column=value")
            tables = [model.examples.table, None if model.cases is None else model.cases.examples.table]
            names = [] if tables[0] is None else list(map(str, tables[0]))
            require(column in names, f"--where: no stored column {column!r} (there are {', '.join(names) or 'none'})")
            chosen, cases = (None if table is None else (table[column] == value).to_numpy(bool) for table in tables)
            assert chosen is not None, "the memory has this column"
        named = bool(chosen.any()) or (cases is not None and bool(cases.any()))
        require(named, f"{'--where' if label is None else '--label'}: no row of {where or label}")
        return rows.ids[chosen].tolist(), cases
    check_stdin(ids)
    piped = sys.stdin.buffer.read().decode("utf-8-sig", "backslashreplace").split() if "-" in ids else []
    texts = [text for argument in ids for text in (piped if argument == "-" else [argument])]
    invalid = [text[:40] for text in texts if not re.fullmatch("[0-9]{1,40}", text)]
    require(not invalid, f"ids: {' '.join(invalid[:5])}; give whole numbers, as `attnknn explain` prints them")
    require(bool(texts), "ids: empty; give one or more")
    return sorted({int(text) for text in texts}), None


def _report(model: Path, action: str, ids: list[int], size: int, as_json: bool, more: dict[str, object]) -> None:
    if as_json:
        typer.echo(json.dumps({action: ids, "rows": size, **more}))
        return
    rows = f"row {ids[0]}" if len(ids) == 1 else f"{len(ids):,} rows"
    if len(ids) > 1 and ids == list(range(ids[0], ids[0] + len(ids))):
        rows += f", {ids[0]} … {ids[-1]}"
    typer.echo(f"{model}: {action} {rows}; {size:,} rows in memory")
