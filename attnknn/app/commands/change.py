"""`attnknn add` and `attnknn forget`: rows come and go, nothing is learned anew."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnknn.app.commands.arguments import AS_JSON, INPUTS, MODEL, changed, check_pipe
from attnknn.app.commands.shown import with_progress
from attnknn.core.errors import InputError, require

if TYPE_CHECKING:
    import numpy as np

    from attnknn.app.model.inputs import Batch
    from attnknn.app.model.model import Model


def add(
    model: Path = MODEL,
    inputs: list[str] = INPUTS,
    label: str = typer.Option(None, help="Label of all that is added."),
    target: str = typer.Option(None, help="For CSV files: the column of the labels."),
    rows: Path = typer.Option(None, help="For .npy files: a file of the labels, a row each."),
    as_json: bool = AS_JSON,
) -> None:
    """Add rows or pictures to a model's memory; all of them, or none where one does not fit."""
    given = [name for name, value in (("--label", label), ("--target", target), ("--rows", rows)) if value is not None]
    wanted = given in (["--label"], ["--target"], ["--rows"], ["--target", "--rows"])
    require(
        wanted, f"labels: {' and '.join(given) or 'nothing'} given; say what they are with --label, --target or --rows"
    )
    check_pipe(inputs)
    with changed(model) as known:
        batches = list(with_progress(known.input.batches(inputs), "read"))
        labels = _labels(known, batches, label, target, rows)
        at, ids = 0, []
        for batch in batches:
            given = batch if target is None or rows is not None else batch.without(target)
            ids += known.add(given, labels[at : at + len(batch.names)])
            at += len(batch.names)
        left = len(known.classifier.memory_)
    if as_json:
        typer.echo(json.dumps({"added": ids, "rows": left}))
    else:
        typer.echo(f"{model}: added {_span(ids)}; {left:,} rows in memory")


def forget(
    model: Path = MODEL,
    ids: list[str] = typer.Argument(
        help="Ids of rows, as `explain` and `add` name them; - reads them from standard input."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Take rows out of a model's memory by their ids; all of them, or none where one is not there."""
    check_pipe(ids)
    texts = [text for given in ids for text in (sys.stdin.read().split() if given == "-" else [given])]
    wrong = [text for text in texts if not text.isdecimal()]
    require(not wrong, f"ids: {' '.join(wrong[:5])}; give whole numbers, as `attnknn explain` names them")
    require(bool(texts), "ids: none given")
    with changed(model) as known:
        known.forget([int(text) for text in texts])
        left = len(known.classifier.memory_)
    gone = sorted({int(text) for text in texts})
    if as_json:
        typer.echo(json.dumps({"forgotten": gone, "rows": left}))
    else:
        typer.echo(f"{model}: forgot {_span(gone)}; {left:,} rows in memory")


def _labels(
    model: "Model", batches: list["Batch"], label: str | None, target: str | None, rows: Path | None
) -> "np.ndarray":
    count = sum(len(batch.names) for batch in batches)
    if label is not None:
        return model.labels([label] * count)
    if rows is not None:
        from attnknn.app.model.fit import read_labels

        texts, _ = read_labels(rows, target, getattr(model.input, "layout", {}))
        require(len(texts) == count, f"{rows}: {len(texts)} labels for {count} rows")
        return model.labels(list(texts))
    found: list[Any] = []
    for batch in batches:
        frame = batch.values
        require(hasattr(frame, "columns"), "--target: these have no columns; give --label or --rows")
        require(target in frame.columns, f"{batch.names[0]}: no column {target!r}; correct --target")
        found += frame[target].tolist()
    for name, text in zip((name for batch in batches for name in batch.names), found, strict=True):
        if text != text:
            raise InputError(f"{name}: no label in column {target!r}; give it one")
    return model.labels(found)


def _span(ids: list[int]) -> str:
    """Row ids as a person would say them."""
    if len(ids) == 1:
        return f"row {ids[0]}"
    if ids == list(range(ids[0], ids[0] + len(ids))):
        return f"{len(ids):,} rows, {ids[0]} … {ids[-1]}"
    return f"{len(ids):,} rows"
