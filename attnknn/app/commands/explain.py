"""`attnknn explain`."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.arguments import (
    AS_JSON,
    FORCE,
    INPUTS,
    MODEL,
    SEPARATOR,
    check_output,
    check_stdin,
    layout_of,
)
from attnknn.app.commands.output import print_table
from attnknn.app.model.sentences import (
    describe_answer,
    describe_counterfactual,
    describe_decision,
    describe_nearest,
    describe_novelty,
    describe_rest,
    percent,
)
from attnknn.core.errors import InputError, needs_extra, require
from attnknn.core.files import atomic_file

if TYPE_CHECKING:
    from attnknn.app.model.examples import Examples
    from attnknn.app.model.model import Model

_COLUMNS = 24  # columns of a table that are printed; JSON has all


def explain(
    model: Path = MODEL,
    inputs: list[str] = INPUTS,
    output: Path = typer.Option(None, "--output", "-o", help="Draw the explanations to this .png file."),
    shown: int = typer.Option(8, help="Number of neighbours to show, largest weight first."),
    first: int = typer.Option(5, help="Number of rows to explain, from the first."),
    separator: str = SEPARATOR,
    force: bool = FORCE,
    as_json: bool = AS_JSON,
) -> None:
    """Show the neighbours behind each prediction, their weights, and what would change the prediction."""
    require(output is None or output.suffix.lower() == ".png", f"--output: {output}; give a .png file")
    target = check_output(output, model, inputs, force)
    require(shown > 0 and first > 0, "--shown and --first: give 1 or more")
    if output is not None:
        with needs_extra("plot", "--output"):
            import_module("matplotlib")  # fail before the slow search
    check_stdin(inputs)
    from attnknn.app.model.model import Model

    loaded = Model.load(model)
    loaded.read_with(layout_of(separator))
    names, queries, vectors = _read_first(loaded, inputs, first)
    answers = loaded.answers(loaded.classifier.explain(vectors), shown)
    with Console(stderr=True).status("searching for counterfactuals …"):
        changes = loaded.counterfactuals(vectors)
    if target is not None:
        from attnknn.app.model.explain_plot import plot_explanations

        png = plot_explanations(loaded, names, queries, answers, changes)
        with atomic_file(target) as draft:
            draft.write_bytes(png)
    for i, (name, answer, change) in enumerate(zip(names, answers, changes, strict=True)):
        query, neighbours = queries.columns(i), answer["neighbours"]
        rows = loaded.rows_of([neighbour["id"] for neighbour in neighbours])
        if as_json:
            for neighbour, row in zip(neighbours, rows, strict=True):
                neighbour |= {"row": row} if row else {}
            line = {"input": name, **answer, "change": change, **({} if queries.table is None else {"row": query})}
            typer.echo(json.dumps(line, ensure_ascii=False))
            continue
        if i:
            typer.echo()
        typer.echo(f"{name}: {describe_answer(answer)}")
        print_table(_by_neighbour(rows, answer) if queries.table is None else _by_column(rows, query, answer))
        distances = describe_nearest(answer), describe_novelty(answer)
        lines = describe_decision(answer), *distances, describe_counterfactual(answer, change)
        typer.echo("\n".join(filter(None, lines)))
    if output is not None and not as_json:
        typer.echo(f"drawn to {output}")


def _read_first(model: "Model", inputs: list[str], count: int) -> tuple[list[str], "Examples", Any]:
    """Names, examples and vectors of the first `count` rows of all inputs."""
    import numpy as np

    names: list[str] = []
    vectors: list[np.ndarray] = []
    examples: Examples | None = None
    for batch in model.input.batches(inputs):
        batch = batch.take(range(min(count - len(names), len(batch.names))))
        names += batch.names
        vectors.append(np.asarray(model.encode(batch)))
        more = model.input.examples(batch)
        examples = more if examples is None else examples.append(more, len(batch.names))
        if len(names) >= count:
            break
    if examples is None:
        raise InputError(f"{', '.join(inputs)}: nothing to explain")
    return names, examples, model.with_names(np.concatenate(vectors))


def _by_neighbour(rows: list[dict[str, str | None]], answer: dict[str, Any]) -> Table:
    """One line a neighbour, with the columns stored beside its vector."""
    columns = list(rows[0])[:_COLUMNS] if rows else []
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("neighbour", "label", "weight", "distance", *columns):
        table.add_column(escape(column), justify="right" if column in ("weight", "distance") else "left")
    for n, row in zip(answer["neighbours"], rows, strict=True):
        corrected = f" (given {n['given_label']})" if n["given_label"] != n["label"] else ""
        added = ", added" if n["added"] else ""
        cells = f"#{n['id']}{added}", f"{n['label']}{corrected}", percent(n["weight"]), f"{n['distance']:.3g}"
        table.add_row(*map(escape, cells), *(escape(row[column] or "") for column in columns))
    rest, null = answer["rest"], answer["null"]
    table.add_row(f"{rest['count']} more", "", percent(rest["weight"]), "")
    table.add_row(null["of"], "", percent(null["weight"]), "")
    return table


def _by_column(rows: list[dict[str, str | None]], query: dict[str, str | None], answer: dict[str, Any]) -> Table:
    """The query and its neighbours side by side; values that differ from the query's are bold."""
    neighbours = answer["neighbours"]
    table = Table("", "query", *(f"#{n['id']}" for n in neighbours), box=None, pad_edge=False, header_style="bold")
    table.add_row("label", "", *(escape(str(n["label"])) for n in neighbours), style="bold")
    table.add_row("weight", "", *(percent(n["weight"]) for n in neighbours))
    table.add_row("distance", "", *(f"{n['distance']:.3g}" for n in neighbours))
    for column, value in list(query.items())[:_COLUMNS]:
        texts = [row[column] for row in rows]
        cells = [escape(text or "") if text == value else f"[bold]{escape(text or '–')}[/bold]" for text in texts]
        table.add_row(escape(column), escape(value or ""), *cells)
    if len(query) > _COLUMNS:
        table.add_row(f"and {len(query) - _COLUMNS} more columns; --json has all")
    table.caption = describe_rest(answer)
    table.caption_justify = "left"
    return table
