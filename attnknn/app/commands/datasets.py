"""`attnknn datasets`."""

import json
from pathlib import Path
from typing import Any

import typer
import yaml
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.shown import show
from attnknn.core.errors import InputError

_HOW_TO_ADD = """\
To add one, describe it under `sources` in {params}, after the example of one of the same kind, and
say what differs for it under `overrides`:

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
        read = yaml.safe_load(params.read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{params}: no such file; run from the project's root, or give --params") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{params}: no valid YAML: {' '.join(str(error).split())}; mend that line") from None
    found = read if isinstance(read, dict) else {}
    sources, datasets = found.get("sources"), found.get("datasets")
    if not isinstance(sources, dict) or not all(isinstance(s, dict) and "kind" in s for s in sources.values()):
        raise InputError(f"{params}: sources: a block with an entry `name: {{kind: …}}` per dataset is needed")
    if not isinstance(datasets, list):
        raise InputError(f"{params}: datasets: {datasets!r} given; a list of names from sources is needed")
    unknown = [str(name) for name in datasets if name not in sources]
    if unknown:
        raise InputError(f"{params}: datasets: {', '.join(unknown)} has no entry in sources; add one")
    return sources, datasets


def _origin(source: dict[str, Any]) -> str:
    """Where a source's data comes from, as a person would say it."""
    if source["kind"] == "sklearn":
        return f"comes with scikit-learn ({source.get('loader')})"
    if source["kind"] == "torchvision":
        return f"official archive of {source.get('name')}"
    files = [source.get("path"), *(source[part].get("path") for part in ("train", "test") if source.get(part))]
    return ", ".join(str(path) for path in files if path)


def _size(folder: Path) -> int | None:
    """Bytes of all files in a folder; None where there is no folder."""
    if not folder.exists():
        return None
    return sum(path.stat().st_size for path in [folder, *folder.rglob("*")] if path.is_file())


def _readable(size: int | None) -> str:
    if size is None:
        return "no"
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def datasets(
    as_json: bool = typer.Option(False, "--json", help="Print JSON: name, kind, origin, in_use, bytes_on_disk."),
    params: Path = typer.Option(Path("params.yaml"), help="The project's settings."),
) -> None:
    """List the datasets that the project knows, what is on disk, and how to add one."""
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
        used = "yes" if row["in_use"] else "no"
        cells = (row["name"], row["kind"], used, _readable(row["bytes_on_disk"]), row["origin"])
        table.add_row(*map(escape, map(str, cells)), style="bold" if row["in_use"] else None)
    show(table)
    typer.echo("\n" + _HOW_TO_ADD.format(params=params), nl=False)
