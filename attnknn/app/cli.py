"""The `attnknn` command line. Errors that the user can correct are one line on standard error and exit code 2."""

import os
import re
import sys
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from attnknn import __version__
from attnknn.app.commands.arguments import set_threads_at_start
from attnknn.app.commands.audit import audit
from attnknn.app.commands.change import add, forget
from attnknn.app.commands.datasets import datasets
from attnknn.app.commands.doctor import doctor
from attnknn.app.commands.embed import embed
from attnknn.app.commands.evaluate import evaluate
from attnknn.app.commands.explain import explain
from attnknn.app.commands.fit import fit
from attnknn.app.commands.predict import predict
from attnknn.app.commands.serve import serve
from attnknn.core.errors import is_disk_full, one_line

_SETTINGS = "`(drop|numeric|categories|missing|separator|target)`"  # in errors that the pipeline has too


def _option(setting: re.Match[str]) -> str:
    return f"--{setting[1]}"


class _OneLineErrors(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if sys.stdout and isinstance(error, OSError) and error.filename is None and is_disk_full(error):
                error.filename = "standard output"  # files are named where they are written
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at exit
            reason = one_line(error)
            if reason is None:
                raise
        typer.echo(f"error: {re.sub(_SETTINGS, _option, reason)}", err=True)
        raise typer.Exit(2)


app = typer.Typer(cls=_OneLineErrors, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"attnknn {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    threads: int = typer.Option(None, min=1, help="CPU threads, of any command."),
) -> None:
    """Attention-weighted k-nearest-neighbour classification.

    Exit codes: 0 done; 1 done with something left out or missing; 2 not done, and one line says why.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be Unicode
    set_threads_at_start(threads)


for command, example in (
    (fit, "attnknn fit wine.csv --target quality -o wine-model"),
    (predict, "attnknn predict digits-model scans/ -o answers.csv"),
    (evaluate, "attnknn evaluate wine-model labelled.csv --target quality --plot scores.png"),
    (embed, "attnknn embed encoder/ pictures/ -o embeddings/"),
    (explain, "attnknn explain digits-model scan.png -o why.png"),
    (audit, "attnknn audit wine.csv --target quality -o issues.csv"),
    (add, "attnknn add digits-model scan.png --label 7"),
    (forget, "attnknn forget digits-model 12 90"),
    (serve, "attnknn serve digits-model"),
    (datasets, "attnknn datasets --json | python -m json.tool"),
    (doctor, "attnknn doctor"),
):
    app.command(epilog=f"Example: {example}")(command)
