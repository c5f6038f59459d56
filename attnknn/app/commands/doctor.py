"""`attnknn doctor`."""

import json

import typer
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.arguments import AS_JSON
from attnknn.app.commands.output import print_table


def doctor(as_json: bool = AS_JSON) -> None:
    """Check versions, devices, threads and compiled parts; exit with 1 if something required is missing."""
    from attnknn.app.doctor import check_all

    checks = check_all()
    if as_json:
        rows = [{"what": c.name, "found": c.value, "state": c.state, "mend": c.fix} for c in checks]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        colours = {"ok": "green", "note": "yellow", "missing": "bold red"}
        for check in checks:
            table.add_row(f"[{colours[check.state]}]{check.state}[/]", escape(check.name), escape(check.value))
        print_table(table)
        for check in checks:
            if check.fix:
                typer.echo(f"{check.name}: {check.fix}")
    raise typer.Exit(1 if any(check.state == "missing" for check in checks) else 0)
