"""The command line as a whole: version, help, completion and lazy imports."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from attnknn import __version__
from attnknn.app.cli import app
from command_line import succeeded


def test_version_and_help() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"attnknn {__version__}\n"
    assert "Example: attnknn datasets" in CliRunner().invoke(app, ["datasets", "--help"]).stdout


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_every_command_has_help_with_an_example(command: str) -> None:
    out = succeeded(command, "--help")
    assert f"Example: attnknn {command}" in out
    assert out.count("\n") < 70


def output(code: str, **environment: str) -> str:
    """Standard output of a new Python process."""
    whole = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=whole, timeout=60).stdout


def test_shell_completion() -> None:
    environment = {"_ATTNKNN_COMPLETE": "complete_bash", "COMP_WORDS": "attnknn pre", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'attnknn'; from attnknn.app.cli import app; app(prog_name='attnknn')"
    assert output(code, **environment).split() == ["predict"]


def test_lazy_imports() -> None:
    code = "import sys, attnknn.app.cli; print(*{'torch', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules))"
    assert output(code).strip() == ""
