"""Atomic writes of files and folders; JSON, CSV and safetensors."""

import csv
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnknn.core.errors import InputError


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `folder` when the block succeeds, and is removed otherwise."""
    folder = Path(folder)
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        if folder.exists():
            old = folder.with_name(f".{folder.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
            draft.rename(folder)
            shutil.rmtree(old)
        else:
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it replaces `path` when the block succeeds, and is removed otherwise."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, keys in their order; NaN and infinity raise ValueError."""
    with atomic_file(path) as draft:
        draft.write_text(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n", "utf-8")


def write_csv(path: Path, rows: list[dict[str, Any]], columns: Sequence[str] = ()) -> None:
    """Write rows with equal keys as CSV; None and NaN become empty cells. `columns` is the header if there are none."""
    with atomic_file(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]) if rows else columns, lineterminator="\n")
        table.writeheader()
        table.writerows({k: "" if v != v else v for k, v in row.items()} for row in rows)


def read_json(path: Path) -> Any:
    """Read JSON; raise InputError if the file is missing or damaged."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro`") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no valid JSON ({error}); delete it and run `dvc repro`") from None


def save_weights(folder: Path, state: dict[str, Any], config: dict[str, Any]) -> None:
    """Write a module's tensors to `weights.safetensors` and `config` to `config.json` in `folder`, atomically."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with atomic_folder(folder) as draft:
        save_file(tensors, draft / "weights.safetensors")
        write_json(draft / "config.json", config)


def load_weights(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load (tensors, config) written by `save_weights`; raise InputError if a file is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = read_json(Path(folder) / "config.json")
    path = Path(folder) / "weights.safetensors"
    try:
        return load_file(path), config
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged or missing ({error}); delete {folder} and run `dvc repro`") from None
