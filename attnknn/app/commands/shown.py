"""How commands print: tables that end where their text does, and progress on standard error."""

from collections.abc import Iterable, Iterator
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from tqdm import tqdm


def show(table: Table) -> None:
    """Print a table, folded at a terminal's edge, a row a line in a pipe."""
    console = Console()
    if not console.is_terminal:
        # In a pipe there is no edge to wrap at.
        console = Console(width=10_000)
    with console.capture() as drawn:
        console.print(table)
    # Columns are padded with spaces to the console's edge; a line ends where its text does.
    typer.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def with_progress(batches: Iterable[Any], name: str, total: int | None = None) -> Iterator[Any]:
    """Batches of rows as they come, with a bar on standard error once they take two seconds."""
    with tqdm(desc=name, total=total, unit=" rows", delay=2, disable=None) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch.names))
