"""`attnknn doctor`."""

import json

import typer
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.arguments import AS_JSON
from attnknn.app.commands.shown import show


def doctor(as_json: bool = AS_JSON) -> None:
    """Look at versions, devices, threads and compiled parts; exit with 1 where something that is needed is missing."""
    from attnknn.app.doctor import examine

    findings = examine()
    wanting = [of for of in findings if of.state == "missing"]
    if as_json:
        typer.echo(json.dumps([of._asdict() for of in findings], indent=2, ensure_ascii=False))
        raise typer.Exit(1 if wanting else 0)
    table = Table(box=None, pad_edge=False, show_header=False)
    colours = {"ok": "green", "note": "yellow", "missing": "bold red"}
    for of in findings:
        table.add_row(f"[{colours[of.state]}]{of.state}[/]", escape(of.what), escape(of.found))
    show(table)
    for of in findings:
        if of.mend:
            typer.echo(f"{of.what}: {of.mend}")
    raise typer.Exit(1 if wanting else 0)
