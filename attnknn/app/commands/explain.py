"""`attnknn explain`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.arguments import AS_JSON, INPUTS, MODEL, check_pipe, load
from attnknn.app.commands.shown import show
from attnknn.app.model.sentences import beside, percent, sentence, what_changes
from attnknn.core.errors import require
from attnknn.core.files import atomic_file

if TYPE_CHECKING:
    from attnknn.app.model.examples import Examples
    from attnknn.app.model.model import Model

_COLUMNS = 24  # of a table that are shown; JSON has all


def explain(
    model: Path = MODEL,
    inputs: list[str] = INPUTS,
    output: Path = typer.Option(None, "--output", "-o", help="Draw it: a .png file."),
    shown: int = typer.Option(8, help="Neighbours to show, those that weigh most."),
    first: int = typer.Option(5, help="Rows to explain, the first ones."),
    as_json: bool = AS_JSON,
) -> None:
    """Say which examples decided, with what weight, and what would change the decision."""
    require(output is None or output.suffix.lower() == ".png", f"--output: {output}; a picture is a .png file")
    require(output is None or not output.is_dir(), f"--output: {output} is a folder; name a file")
    require(shown > 0 and first > 0, "--shown and --first: give 1 or more")
    check_pipe(inputs)
    known = load(model)
    names, asked, vectors = _first(known, inputs, first)
    c = known.classifier
    answers = known.answers(c.explain(vectors), shown)
    with Console(stderr=True).status("looking for what would change it …"):
        changes = known.changes(vectors)
    if output is not None:
        from attnknn.app.model.explain_plot import explained

        png = explained(known, names, asked, answers, changes)
        with atomic_file(output) as draft:
            draft.write_bytes(png)
    if as_json:
        for i, (name, answer, change) in enumerate(zip(names, answers, changes, strict=True)):
            rows = known.rows_of([of["id"] for of in answer["neighbours"]])
            beside = [
                {**of, **({"row": row} if row else {})} for of, row in zip(answer["neighbours"], rows, strict=True)
            ]
            typer.echo(
                json.dumps(
                    {"input": name, **answer, "neighbours": beside, "change": change, **_own(asked, i)},
                    ensure_ascii=False,
                )
            )
        return
    for i, (name, answer, change) in enumerate(zip(names, answers, changes, strict=True)):
        if i:
            typer.echo()
        typer.echo(f"{name}: {sentence(answer)}")
        show(_side_by_side(known, asked.row(i), answer) if asked.table is not None else _listed(known, answer))
        typer.echo(what_changes(answer, change))
    if output is not None:
        typer.echo(f"drawn in {output}")


def _first(model: "Model", inputs: list[str], most: int) -> tuple[list[str], "Examples", Any]:
    """Names, looks and vectors of the first rows."""
    import numpy as np
    import pandas as pd

    names: list[str] = []
    examples: list[Examples] = []
    vectors: list[Any] = []
    for batch in model.input.batches(inputs):
        some = batch.take(range(min(most - len(names), len(batch.names))))
        names += some.names
        vectors.append(model.given(some))  # checks them
        examples.append(model.input.examples(some))
        if len(names) >= most:
            break
    require(bool(names), f"{', '.join(inputs)}: nothing to explain")
    looks = examples[0]
    for more, rows in zip(examples[1:], vectors[1:], strict=True):
        looks = looks.joined(more, len(rows))
    return names, looks, np.concatenate(vectors) if isinstance(vectors[0], np.ndarray) else pd.concat(vectors)


def _own(asked: "Examples", i: int) -> dict[str, Any]:
    return {"row": asked.row(i)} if asked.table is not None else {}


def _listed(model: "Model", answer: dict[str, Any]) -> Table:
    """A neighbour a line, with what is known of it."""
    rows = model.rows_of([of["id"] for of in answer["neighbours"]])
    columns = list(rows[0])[:_COLUMNS] if rows else []
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("neighbour", "label", "weight", "distance", *columns):
        table.add_column(escape(column), justify="right" if column in ("weight", "distance") else "left")
    for of, row in zip(answer["neighbours"], rows, strict=True):
        cells = (
            f"#{of['id']}",
            of["label"],
            percent(of["weight"]),
            f"{of['distance']:.3g}",
            *(row[c] or "" for c in columns),
        )
        table.add_row(*(escape(str(cell)) for cell in cells))
    rest = answer["rest"]
    table.add_row(f"{rest['count']} more", "", percent(rest["weight"]), "")
    table.add_row(answer["null"]["of"], "", percent(answer["null"]["weight"]), "")
    return table


def _side_by_side(model: "Model", asked: dict[str, str | None], answer: dict[str, Any]) -> Table:
    """The row that is asked for, and its neighbours, a column each; what differs is bold."""
    neighbours = answer["neighbours"]
    rows = model.rows_of([of["id"] for of in neighbours])
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("asked")
    for of in neighbours:
        table.add_column(f"#{of['id']}")
    table.add_row("label", "", *(escape(str(of["label"])) for of in neighbours), style="bold")
    table.add_row("weight", "", *(percent(of["weight"]) for of in neighbours))
    table.add_row("distance", "", *(f"{of['distance']:.3g}" for of in neighbours))
    for column in list(asked)[:_COLUMNS]:
        others = [row[column] for row in rows]
        cells = [
            escape(text or "") if text == asked[column] else f"[bold]{escape(text or '–')}[/bold]" for text in others
        ]
        table.add_row(escape(column), escape(asked[column] or ""), *cells)
    if len(asked) > _COLUMNS:
        table.add_row(f"and {len(asked) - _COLUMNS} more columns; --json has all")
    table.caption = beside(answer)
    table.caption_justify = "left"
    return table
