"""Atomic writes of files and folders; JSON, CSV and safetensors."""

import csv
import ctypes
import errno
import glob
import json
import math
import os
import re
import secrets
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnknn.core.errors import InputError, is_disk_full, require

if TYPE_CHECKING:
    import numpy as np

_LEFTOVER = r"[0-9a-f]{8}\.(draft|old)"
_RENAME_EXCHANGE = 2  # of Linux and of macOS


@contextmanager
def atomic_folder(folder: Path, sync: bool = False) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `folder` when the block succeeds, and is removed otherwise.

    Other processes see the old folder or the new one, whole; it and its contents have the modes of what they replace.
    What a killed process leaves is removed by `recover`.

    Args:
        sync: flush everything to the disk first, so that a power failure leaves the old or the new folder too.
    """
    folder = Path(folder)
    draft = _draft(folder)
    sync = sync and os.name == "posix"  # Windows cannot open folders
    try:
        make_folder(folder.parent)
        draft.mkdir(0o700 if folder.exists() else 0o777)
        yield draft
        for path in [*draft.rglob("*"), draft]:
            _copy_mode(folder / path.relative_to(draft), path)
        if sync:
            for path in [*draft.rglob("*"), draft]:
                _sync(path)
        if not folder.exists():
            draft.rename(folder)
        elif not _exchange(draft, folder):
            old = folder.rename(draft.with_suffix(".old"))
            draft.rename(folder)
            shutil.rmtree(old)
        if sync:
            _sync(folder.parent)
    except Exception as error:
        name_if_full(error, folder)
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it replaces `path`, with its mode, if the block succeeds, and is removed otherwise."""
    path = Path(path)
    draft = _draft(path)
    try:
        make_folder(path.parent)
        if path.exists():
            draft.touch(0o600)
        yield draft
        _copy_mode(path, draft)
        os.replace(draft, path)
    except Exception as error:
        name_if_full(error, path)
        raise
    finally:
        with suppress(OSError):
            draft.unlink()


def make_folder(path: Path) -> None:
    """Make a folder and those it is in; NotADirectoryError if it is, or is in, a file."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


def name_if_full(error: Exception, path: Path) -> None:
    """Raise an error of a full disk, of whatever type, as an OSError with the path that is written."""
    if is_disk_full(error):
        code = getattr(error, "errno", None) or errno.ENOSPC
        raise OSError(code, os.strerror(code), str(path)) from None


def leftovers(path: Path) -> list[Path]:
    """Drafts and replaced folders of `path`: of writers at work, or of killed ones."""
    start = f".{path.name}."
    hidden = path.parent.glob(f"{glob.escape(start)}*")
    return [p for p in hidden if re.fullmatch(_LEFTOVER, p.name.removeprefix(start))]


def recover(path: Path) -> None:
    """Restore `path` if a killed writer had moved it away, and remove what killed writers left.

    Only for its one writer: drafts of writers at work would be removed too.
    """
    for leftover in leftovers(path):
        if leftover.suffix == ".old" and not path.exists():
            leftover.rename(path)
        elif leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def usual_mode(path: Path) -> Iterator[None]:
    """Give the file that the block writes the mode that the umask gives; safetensors makes files of mode 600."""
    path.touch()
    mode = path.stat().st_mode
    yield
    path.chmod(mode)


def _copy_mode(path: Path, draft: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):  # nothing to replace
        if path.is_dir() == draft.is_dir():
            shutil.copymode(path, draft)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; False where the system or the file system cannot."""
    if sys.platform == "win32":
        return False
    libc, paths = ctypes.CDLL(None), (os.fsencode(first.absolute()), os.fsencode(second.absolute()))
    if hasattr(libc, "renameat2"):  # Linux; the folder arguments are ignored for absolute paths
        return libc.renameat2(-1, paths[0], -1, paths[1], _RENAME_EXCHANGE) == 0
    return hasattr(libc, "renamex_np") and libc.renamex_np(*paths, _RENAME_EXCHANGE) == 0  # macOS


def display_name(path: str | Path) -> str:
    """A path as valid Unicode: bytes that are not UTF-8 as `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def read_json(path: Path, remedy: str = "delete it and run `dvc repro`") -> dict[str, Any]:
    """Read a JSON object; raise InputError if the file is missing or damaged, or holds NaN or infinity."""
    try:
        value = json.loads(Path(path).read_text("utf-8"), parse_float=_finite, parse_constant=_finite)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {remedy.removeprefix('delete it and ')}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no valid JSON ({error}); {remedy}") from None
    require(isinstance(value, dict), f"{path}: damaged (no JSON object); {remedy}")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def parse_yaml(content: bytes, path: Path) -> Any:
    """Parse YAML in UTF-8, in plain types; raise InputError if it is invalid."""
    import yaml

    try:  # the parser in C is ten times as fast, in every stage
        return yaml.load(content.decode("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except Exception as error:  # constructors of dates and of tagged values raise anything
        raise InputError(f"{path}: not valid YAML in UTF-8 ({error}); correct it") from None


def load_array(path: Path, mmap: bool = True, remedy: str = "write it with numpy.save") -> "np.ndarray":
    """Load the array of a .npy file, memory-mapped unless `mmap` is False; InputError if there is no such array."""
    import numpy as np

    try:
        with warnings.catch_warnings(action="ignore"):  # of headers that Python 2 wrote
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)  # mapped, since a header may claim any size
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; correct the path") from None
    except Exception as error:  # damaged headers raise anything
        raise InputError(f"{path}: not a readable .npy file ({error}); {remedy}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: several arrays; give a .npy file with one")
    return array if mmap else np.array(array)


def save_weights(folder: Path, state: dict[str, Any], config: dict[str, Any]) -> None:
    """Write a module's tensors to `weights.safetensors` and `config` to `config.json` in `folder`, atomically."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with atomic_folder(folder) as draft:
        with usual_mode(draft / "weights.safetensors"):
            save_file(tensors, draft / "weights.safetensors")
        write_json(draft / "config.json", config)


def load_weights(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load (tensors, config) written by `save_weights`; raise InputError if a file is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    config = read_json(Path(folder) / "config.json")
    path = Path(folder) / "weights.safetensors"
    try:
        tensors = load(path.read_bytes())  # load_file takes no path that is not UTF-8
        damaged = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
        require(not damaged, f"NaN or infinite values in {', '.join(damaged[:3])}")
        return tensors, config
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: damaged or missing ({error}); delete {folder} and run `dvc repro`") from None
