"""Terminal output of the commands: tables, and progress on standard error."""

from collections.abc import Iterable, Iterator
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from tqdm import tqdm


def print_table(table: Table) -> None:
    """Print a table without trailing spaces: wrapped in a terminal, one line a row in a pipe."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)
    with console.capture() as capture:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def with_progress(batches: Iterable[Any], name: str) -> Iterator[Any]:
    """Yield batches of rows, with a bar on standard error after two seconds."""
    with tqdm(desc=name, unit=" rows", delay=2, disable=None) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch.names))
