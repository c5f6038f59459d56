"""`attnknn predict`."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnknn.app.commands.arguments import (
    AS_JSON,
    CLUSTER,
    FORCE,
    INPUTS,
    MODEL,
    SEPARATOR,
    check_output,
    check_stdin,
    layout_of,
)
from attnknn.app.commands.output import with_progress
from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_file

if TYPE_CHECKING:
    import numpy as np

    from attnknn.app.model.inputs import Batch
    from attnknn.app.model.model import Model

_FORMATS = (".csv", ".jsonl", ".parquet")


def predict(
    model: Path = MODEL,
    inputs: list[str] = INPUTS,
    output: str = typer.Option(
        None,
        "--output",
        "-o",
        help="A .csv, .jsonl or .parquet file; else standard output. A folder, with a / at the end, or an address as "
        "s3://…/ is for one table of vectors (.npy, .parquet, .lance): it gets a Parquet file for each block, and "
        "after an interruption the same command goes on.",
    ),
    probabilities: bool = typer.Option(False, help="Add the probability of each class."),
    alpha: float = typer.Option(None, help="Add prediction sets with coverage 1 − alpha of the true class."),
    novelty: bool = typer.Option(False, help="Add the p value of novelty: small for rows unlike those of the memory."),
    reject: float = typer.Option(
        None, help="Leave the label empty where novelty is at most this share; about so many usual rows are rejected."
    ),
    keep_going: bool = typer.Option(False, help="Skip what cannot be read, report it, and exit with 1."),
    cluster: str = CLUSTER,
    separator: str = SEPARATOR,
    force: bool = FORCE,
    as_json: bool = AS_JSON,
) -> None:
    """Predict the label of each row or picture, with its confidence, as CSV or JSON lines."""
    require(alpha is None or 0 < alpha < 1, f"--alpha: {alpha}; give a share of misses above 0 and below 1")
    if output is not None and output.endswith("/"):
        plain = alpha is None and reject is None and not (novelty or keep_going or force or as_json or separator)
        options = "--alpha, --novelty, --reject, --keep-going, --separator, --force, --json"
        require(plain and len(inputs) == 1, f"--output: {output} is a folder, for one table, without {options}")
        require((model / "model.json").is_file(), f"{model}: no saved model; give the folder that `save` wrote")
        from attnknn.app.parts import predict_table

        predict_table(model, inputs[0], output, probabilities, cluster)
        return
    require(cluster is None, "--cluster: writes to a folder; give --output with a / at the end")
    file = None if output is None else Path(output)
    suffix = _check_format(file, as_json)
    target = check_output(file, model, inputs, force)
    check_stdin(inputs)
    from attnknn.app.model.model import Model
    from attnknn.classifier.predict import FAR

    loaded = Model.load(model)
    loaded.read_with(layout_of(separator))
    if reject is not None or novelty:
        loaded.classifier.check_reject(0.5 if reject is None else reject)
    skipped = far = 0

    def skip(error: InputError) -> None:
        nonlocal skipped
        skipped += 1
        typer.echo(f"left out: {error}", err=True)

    failed = skip if keep_going else None
    with _open_writer(target, suffix) as write:
        for batch in with_progress(loaded.input.batches(inputs, failed=failed), "predict"):
            records: list[dict[str, Any]] = []
            for valid, probs, percentiles, p_values in _predict_valid(loaded, batch, failed):
                own = _records(loaded, valid, probs, percentiles, probabilities, alpha)
                if novelty or reject is not None:
                    own = _with_novelty(own, p_values, reject)
                records += own
                far += int((percentiles >= FAR).sum())
            if records:
                write(records)
    if far:
        rows = "1 row is" if far == 1 else f"{far:,} rows are"
        reason = f"far from the memory, at distance_percentile {FAR} or above: do not rely on them"
        typer.echo(f"warning: {rows} {reason}", err=True)
    if skipped:
        typer.echo(f"{skipped} left out", err=True)
        raise typer.Exit(1)


def _predict_valid(
    model: "Model", batch: "Batch", failed: Callable[[InputError], None] | None
) -> Iterator[tuple["Batch", "np.ndarray", "np.ndarray", "np.ndarray"]]:
    """Yield batches with `predict_with_novelty` of them; `failed` and skip rows found by bisection."""
    try:
        vectors = model.encode(batch)
    except InputError as error:
        if failed is None:
            raise
        n = len(batch.names)
        if n == 1:
            failed(error)
            return
        for half in (range(n // 2), range(n // 2, n)):
            yield from _predict_valid(model, batch.take(half), failed)
        return
    yield batch, *model.classifier.predict_with_novelty(vectors)


def _records(
    model: "Model", batch: "Batch", probs: "np.ndarray", percentiles: "np.ndarray", by_class: bool, alpha: float | None
) -> list[dict[str, Any]]:
    """One JSON record a prediction; `by_class` adds the probability of each class."""
    classes = model.classifier.classes_.tolist()
    sets = None if alpha is None else model.classifier.sets_from_proba(probs, alpha, percentiles)
    records = []
    for i, name in enumerate(batch.names):
        confidence = float(probs[i].max())
        record: dict[str, Any] = {"input": name, "label": classes[probs[i].argmax()]}
        record["confidence"] = round(confidence, 6)
        if percentiles[i] == percentiles[i]:  # NaN for models of earlier versions
            record["distance_percentile"] = round(float(percentiles[i]), 2)
        if model.classifier.abstain > 0:
            record["abstains"] = confidence < model.classifier.abstain
        if sets is not None:
            record["set"] = [label for label, member in zip(classes, sets[i], strict=True) if member]
        if by_class:
            named = zip(map(str, classes), probs[i].tolist(), strict=True)
            record["probabilities"] = {label: round(p, 6) for label, p in named}
        records.append(record)
    return records


def _with_novelty(records: list[dict[str, Any]], p_values: "np.ndarray", reject: float | None) -> list[dict[str, Any]]:
    """Records with the p value of novelty, and without a label where it is at most `reject`."""
    result = []
    for record, p in zip(records, p_values.tolist(), strict=True):
        label = None if reject is not None and p <= reject else record["label"]
        result.append({**record, "label": label, "novelty": round(p, 6)})
    return result


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record as cells of a table: one column for each class, and a set as one text."""
    cells = {name: value for name, value in record.items() if name != "probabilities"}
    if "set" in cells:
        cells["set"] = "|".join(map(str, cells["set"]))
    return cells | {f"p({label})": p for label, p in record.get("probabilities", {}).items()}


def _check_format(output: Path | None, as_json: bool) -> str:
    """Suffix of the output's format."""
    if output is None:
        return ".jsonl" if as_json else ".csv"
    suffix = output.suffix.lower()
    require(suffix in _FORMATS, f"--output: {output}; the name must end with one of {', '.join(_FORMATS)}")
    require(not as_json or suffix == ".jsonl", f"--output: {output}; --json writes JSON lines, to a .jsonl file")
    missing = suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None
    require(not missing, "--output: .parquet needs pyarrow: pip install 'attnknn[tables]'")
    return suffix


@contextmanager
def _open_writer(output: Path | None, suffix: str) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """Yield a function that writes records: text batch by batch, parquet at the end; a file is written atomically."""
    import pandas as pd

    with ExitStack() as stack:
        if output is None:
            require(sys.stdout is not None, "standard output is closed; name a file with --output")
            file: Any = sys.stdout.buffer
        else:
            file = stack.enter_context(stack.enter_context(atomic_file(output)).open("wb"))
        frames: list[pd.DataFrame] = []
        header = True

        def write(records: list[dict[str, Any]]) -> None:
            nonlocal header
            if suffix == ".jsonl":
                text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            else:
                frame = pd.DataFrame(map(_flat, records))
                frame["label"] = pd.Series([record["label"] for record in records], dtype=object)  # 1, not 1.0, by None
                if suffix == ".parquet":
                    frames.append(frame)
                    return
                text = frame.to_csv(index=False, header=header, lineterminator="\n")
                header = False
            file.write(text.encode(errors="backslashreplace"))
            file.flush()

        yield write
        if frames:
            pd.concat(frames).to_parquet(file, index=False)
