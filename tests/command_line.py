"""Run `attnknn` commands in this process."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from attnknn.app.cli import app

COMMAND = [sys.executable, "-c", "from attnknn.app.cli import app; app()"]


def attnknn(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def succeeded(*arguments: object, stdin: str | None = None) -> str:
    done = attnknn(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def json_lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in succeeded(*arguments, "--json").splitlines()]


def csv_rows(*arguments: object, stdin: str | None = None) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(succeeded(*arguments, stdin=stdin))))


def refused(*arguments: object, stdin: str | None = None) -> str:
    """The line on standard error."""
    done = attnknn(*arguments, stdin=stdin)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


def embed(folder: Path, images: Path) -> tuple[object, ...]:
    """Arguments of `attnknn embed` with the encoder in `folder`."""
    return "embed", images, "--encoder", folder / "encoder"
