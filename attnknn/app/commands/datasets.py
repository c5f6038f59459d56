"""`attnknn datasets`."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.output import print_table
from attnknn.core.errors import InputError, needs_extra, require
from attnknn.core.files import parse_yaml

_HOW_TO_ADD = """\
To add one, describe it in {datasets}, like an existing one of the same kind:

  birds:
    source: {{kind: image_folder, path: /data/birds.zip}}
    prepare: {{}}
    train_embedder: {{}}
    build_index: {{}}
    train_attention: {{}}
    tta: {{}}
    train_field: {{}}

For a table, start from the settings of winequality_red, or of adult for tens of thousands of rows.
Then run it: dvc exp run -S 'datasets=[birds]'
"""


def _load(path: Path) -> dict[str, Any]:
    with needs_extra("pipeline", "datasets"):
        import_module("yaml")
    require(path.is_file(), f"{path}: no such file; run from the project's root, or give --params")
    content = parse_yaml(path.read_bytes(), path)
    return content if isinstance(content, dict) else {}


def _read(params: Path, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Source of each dataset of datasets.yaml, and the names in `datasets` of params.yaml."""
    in_use, sources = _load(params).get("datasets"), {}
    for name, entry in _load(path).items():
        sources[name] = source = entry.get("source") if isinstance(entry, dict) else None
        valid = isinstance(source, dict) and "kind" in source
        require(valid, f"{path}: {name}: expected an entry `source: {{kind: …}}`")
    if not isinstance(in_use, list):
        raise InputError(f"{params}: datasets: {in_use!r}; expected a list of names of {path.name}")
    unknown = [str(name) for name in in_use if name not in sources]
    require(not unknown, f"{params}: datasets: {', '.join(unknown)} has no entry in {path.name}; add one")
    return sources, in_use


def _origin(source: dict[str, Any]) -> str:
    if source["kind"] == "sklearn":
        return f"comes with scikit-learn ({source.get('loader')})"
    if source["kind"] == "torchvision":
        return f"official archive of {source.get('name')}"
    files = [
        *(source.get(key) for key in ("path", "x", "test_x")),
        *(source[part].get("path") for part in ("train", "test") if source.get(part)),
    ]
    return ", ".join(str(path) for path in files if path)


def _size(path: Path) -> int | None:
    """Bytes of a file or of all files in a folder; None if it does not exist."""
    files = [file for file in [path, *path.rglob("*")] if file.is_file()]
    return sum(file.stat().st_size for file in files) if path.exists() else None


def datasets(
    as_json: bool = typer.Option(False, "--json", help="Print JSON: name, kind, origin, in_use, bytes_on_disk."),
    params: Path = typer.Option(Path("params.yaml"), help="The project's settings; datasets.yaml is beside them."),
) -> None:
    """List the datasets of the project, what is on disk, and how to add one."""
    path = params.parent / "datasets.yaml"
    sources, in_use = _read(params, path)
    rows = [
        {
            "name": name,
            "kind": source["kind"],
            "origin": _origin(source),
            "in_use": name in in_use,
            "bytes_on_disk": _size(params.parent / "data" / "raw" / str(name)),
        }
        for name, source in sources.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "kind", "in use", "on disk", "from"):
        table.add_column(column, overflow="fold", no_wrap=column != "from")
    for row in rows:
        size = "no" if row["bytes_on_disk"] is None else decimal(row["bytes_on_disk"])
        cells = (row["name"], row["kind"], "yes" if row["in_use"] else "no", size, row["origin"])
        table.add_row(*map(escape, map(str, cells)), style="bold" if row["in_use"] else None)
    print_table(table)
    typer.echo("\n" + _HOW_TO_ADD.format(datasets=path), nl=False)
