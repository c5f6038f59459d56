"""Stage scripts. A Python without their packages hands over to .venv's: `.venv/bin/dvc repro` needs no activation."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

if missing := [name for name in ("pydantic", "torch", "typer") if find_spec(name) is None]:
    python = Path(".venv/bin/python")
    if python.is_file() and Path(sys.prefix).resolve() != Path(".venv").resolve():
        os.execv(python, [str(python), *sys.orig_argv[1:]])
    activate = "activate the environment that has them, e.g. source .venv/bin/activate"
    print(f"error: {sys.executable} has no {', '.join(missing)}; {activate}", file=sys.stderr)
    sys.exit(2)
