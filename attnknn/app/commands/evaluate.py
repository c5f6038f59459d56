"""`attnknn evaluate`."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnknn.app.commands.arguments import AS_JSON, FORCE, MODEL, SEPARATOR, check_output, check_stdin, layout_of
from attnknn.app.commands.labels import batch_labels, folder_labels
from attnknn.app.commands.output import with_progress
from attnknn.app.model.sentences import percent
from attnknn.core.errors import needs_extra, require
from attnknn.core.files import atomic_file

if TYPE_CHECKING:
    import numpy as np

    from attnknn.app.model.model import Model

_FEW = 30  # rows below which bootstrap intervals are too narrow
_COVERAGES = (1.0, 0.8, 0.6, 0.4)  # points of `risk_coverage`


def evaluate(
    model: Path = MODEL,
    inputs: list[str] = typer.Argument(
        None, help="Labelled rows as the model reads them, or folders of pictures; none for the stored test cases."
    ),
    target: str = typer.Option(None, help="Column of the labels, in the inputs or in --rows."),
    rows: Path = typer.Option(None, help="A CSV or .npy file with a label for each row, needed for .npy inputs."),
    plot: Path = typer.Option(
        None, help="Draw reliability, confusion matrix and risk–coverage curve to this .png file."
    ),
    separator: str = SEPARATOR,
    force: bool = FORCE,
    as_json: bool = AS_JSON,
) -> None:
    """Score a model on labelled rows, with 95 % intervals.

    Labels of pictures are the names of the folders that hold them, unless --rows is given.
    """
    inputs = inputs or []
    unused = [
        name
        for name, value in {"--target": target, "--rows": rows, "--separator": separator}.items()
        if value is not None
    ]
    require(bool(inputs) or not unused, f"{', '.join(unused)}: of labelled rows; name their file, or leave it out")
    require(plot is None or plot.suffix.lower() == ".png", f"--plot: {plot}; give a .png file")
    picture = check_output(plot, model, [*inputs, *([str(rows)] if rows else [])], force, "--plot")
    if plot is not None:
        with needs_extra("plot", "--plot"):
            import_module("matplotlib")
    check_stdin(inputs)
    from attnknn.app.model.evaluation import evaluate_model, most_confused
    from attnknn.app.model.model import Model

    loaded = Model.load(model)
    loaded.read_with(layout_of(separator))
    vectors, labels, copies = _read(loaded, inputs, target, rows) if inputs else _test_cases(loaded, model)
    result = evaluate_model(loaded.classifier, loaded.with_names(vectors), labels) | {"in_memory": copies}
    if picture is not None:
        from attnknn.app.model.evaluation_plot import plot_evaluation

        with atomic_file(picture) as draft:
            draft.write_bytes(plot_evaluation(result))
    if as_json:
        typer.echo(json.dumps({"model": str(model), **result}, ensure_ascii=False))
        return
    _report(result, most_confused(result, 5))
    if plot is not None:
        typer.echo(f"drawn to {plot}")


def _read(
    model: "Model", inputs: list[str], target: str | None, rows: Path | None
) -> tuple["np.ndarray", "np.ndarray", int | None]:
    """Vectors and labels of the inputs, and how many of the rows are in the memory; None of a table."""
    import numpy as np

    from attnknn.app.model.inputs import Pictures
    from attnknn.classifier.memory import Memory

    pictures = isinstance(model.input, Pictures)
    require(
        pictures or target is not None or rows is not None,
        "labels: none given; name their column with --target, or their file with --rows",
    )
    require(not pictures or target is None or rows is not None, "--target: pictures have no columns; leave it out")
    vectors, batches = [], []
    for batch in with_progress(model.input.batches(inputs), "encode"):
        vectors.append(np.asarray(model.encode(batch)))
        batches.append(batch if not pictures else type(batch)(batch.names, None))
    if pictures and rows is None:
        texts = folder_labels([name for batch in batches for name in batch.names])
    else:
        texts, _ = batch_labels(model, batches, target, rows)
    x = np.concatenate(vectors)
    in_memory = isinstance(model.classifier.memory_, Memory)
    return x, model.parse_labels(texts), int(model.in_memory(x).sum()) if in_memory else None


def _test_cases(model: "Model", folder: Path) -> tuple["np.ndarray", "np.ndarray", int]:
    """Vectors and labels of the test cases that are not in the memory."""
    if model.cases is not None:
        held_out = ~model.cases_in_memory()
        if held_out.any():
            return model.cases.vectors[held_out], model.cases.labels[held_out], 0
    require(False, f"{folder}: no test cases stored; give a file of labelled rows")
    raise AssertionError


def _report(result: dict[str, Any], confused: list[dict[str, Any]]) -> None:
    from attnknn.app.model.evaluation import METRICS

    few = ", too narrow for so few rows" if result["rows"] < _FEW else ""
    typer.echo(f"{result['rows']:,} row{'s' if result['rows'] > 1 else ''}; in brackets 95 % intervals{few}")
    for name, title in METRICS.items():
        typer.echo(f"{title:<18} {_with_interval(result['metrics'][name], 'value')}")
    sets, points = result["sets"], result["risk_coverage"]
    typer.echo(f"90 % sets: {_with_interval(sets, 'coverage')} hold the true class; {sets['size']:.2f} classes each")
    chosen = [min(points, key=lambda point, c=c: abs(point["coverage"] - c)) for c in _COVERAGES]
    shown = {percent(p["coverage"]): f"{1 - p['risk']:.3f}" for p in chosen}
    typer.echo(
        f"accuracy of the most confident rows: {', '.join(f'{value} of {share}' for share, value in shown.items())}"
    )
    if confused:
        pairs = [f"{pair['actual']} → {pair['predicted']} ({pair['count']:,})" for pair in confused]
        typer.echo(f"most frequent errors, actual → predicted: {', '.join(pairs)}")
    if result["in_memory"]:
        typer.echo(f"rows that are in the memory, and their own neighbours: {result['in_memory']:,}")
    if result["far"]:
        typer.echo(f"rows far from the memory: {result['far']:,}")


def _with_interval(values: dict[str, float], name: str) -> str:
    return f"{values[name]:.3f} ({values['low']:.3f} … {values['high']:.3f})"
