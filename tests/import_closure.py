"""The modules of the project that a script imports, found by reading the code."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Read, check and hand over; see their docstrings. `attnknn/__init__.py` imports of ours only what is asked for by name.
EXEMPT = {Path("attnknn/__init__.py")}


def _file_of(module: str) -> Path | None:
    """The project's file of a dotted module name, relative to the root; None if it is not the project's."""
    parts = Path(*module.split("."))
    for base in (Path(), Path("tools")):
        for candidate in (base / parts.with_suffix(".py"), base / parts / "__init__.py"):
            if (ROOT / candidate).is_file():
                return candidate
    return None


@cache
def imports_of(path: Path) -> frozenset[Path]:
    """The project's modules that one module imports itself, lazily or not."""
    files: set[Path] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            names = [str(node.module)] + [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            # Importing a.b.c runs a and a.b too.
            files |= {f for i in range(len(parts)) if (f := _file_of(".".join(parts[: i + 1])))}
    return frozenset(files - {path})


@cache
def closure(script: Path) -> frozenset[Path]:
    """The script and every module of the project that it imports, directly or not, less the exempt ones."""
    seen: set[Path] = set()
    todo = [script]
    while todo:
        path = todo.pop()
        if path not in seen and path not in EXEMPT:
            seen.add(path)
            todo += imports_of(path)
    return frozenset(seen)
