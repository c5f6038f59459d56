"""`attnknn datasets`."""

import json
from pathlib import Path
from typing import Any

import typer
import yaml
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.output import print_table
from attnknn.core.errors import InputError

_HOW_TO_ADD = """\
To add one, describe it under `sources` in {params}, after the example of one of the same kind, and
set what differs for it under `overrides`:

  sources:
    birds: {{kind: image_folder, path: /data/birds.zip}}
    mine: {{kind: csv, train: {{path: /data/mine.csv}}, target: label}}
  overrides:
    birds: {{prepare: {{}}, train_embedder: {{}}, build_index: {{}}, crossfit: {{}}, train_attention: {{}}, tta: {{}}, \
train_field: {{}}}}
    mine: a copy of winequality_red's, or of adult's for tens of thousands of rows

Then run it: dvc exp run -S 'datasets=[birds]'
"""


def _read(params: Path) -> tuple[dict[str, Any], list[str]]:
    """The blocks `sources` and `datasets` of a params file."""
    try:
        content = yaml.safe_load(params.read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{params}: no such file; run from the project's root, or give --params") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{params}: no valid YAML: {' '.join(str(error).split())}; correct that line") from None
    blocks = content if isinstance(content, dict) else {}
    sources, datasets = blocks.get("sources"), blocks.get("datasets")
    if not isinstance(sources, dict) or not all(isinstance(s, dict) and "kind" in s for s in sources.values()):
        raise InputError(f"{params}: sources: a block with an entry `name: {{kind: …}}` per dataset is needed")
    if not isinstance(datasets, list):
        raise InputError(f"{params}: datasets: {datasets!r} given; a list of names from sources is needed")
    unknown = [str(name) for name in datasets if name not in sources]
    if unknown:
        raise InputError(f"{params}: datasets: {', '.join(unknown)} has no entry in sources; add one")
    return sources, datasets


def _origin(source: dict[str, Any]) -> str:
    if source["kind"] == "sklearn":
        return f"comes with scikit-learn ({source.get('loader')})"
    if source["kind"] == "torchvision":
        return f"official archive of {source.get('name')}"
    files = [source.get("path"), *(source[part].get("path") for part in ("train", "test") if source.get(part))]
    return ", ".join(str(path) for path in files if path)


def _size(path: Path) -> int | None:
    """Bytes of a file, or of all files in a folder; None if it does not exist."""
    if not path.exists():
        return None
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def datasets(
    as_json: bool = typer.Option(False, "--json", help="Print JSON: name, kind, origin, in_use, bytes_on_disk."),
    params: Path = typer.Option(Path("params.yaml"), help="The project's settings."),
) -> None:
    """List the datasets of the project, what is on disk, and how to add one."""
    sources, in_use = _read(params)
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
    typer.echo("\n" + _HOW_TO_ADD.format(params=params), nl=False)
