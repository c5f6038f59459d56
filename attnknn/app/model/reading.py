"""Files that people name, as they are read: arrays, pictures under folders, and CSV by chunks."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.errors import InputError, require

BATCH = 1024  # rows at once
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
STDIN = "-"


def open_vectors(path: Path) -> np.ndarray:
    """Vectors (N, D) of a .npy file, memory-mapped.

    Raises:
        InputError: it is missing, no such array, or empty.
    """
    array = open_array(path)
    fits = array.ndim == 2 and array.shape[1] > 0 and array.dtype.kind in "fiu"
    require(fits, f"{path}: {array.dtype} of shape {array.shape}; numbers (rows, dimensions) are needed")
    require(len(array) > 0, f"{path}: no rows; give a file with rows")
    return array


def open_array(path: Path) -> np.ndarray:
    """The array of a .npy file, memory-mapped.

    Raises:
        InputError: it is missing, or no such file.
    """
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; correct the path") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: no array that numpy can read ({error}); write it with numpy.save") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: several arrays; give a .npy file with one")
    return array


def picture_files(sources: Sequence[str], failed: Callable[[InputError], None] | None = None) -> Iterator[Path]:
    """Files as named, the pictures under folders in the order of their names, and paths told on standard input.

    Args:
        failed: told of paths that are not there; None raises.

    Raises:
        InputError: a path is not there, or a folder has no picture.
    """
    for source in sources:
        if source == STDIN:
            yield from (Path(line.rstrip("\r\n")) for line in sys.stdin if line.strip())
            continue
        path = Path(source)
        if not path.exists():
            error = InputError(f"{path}: no such file or folder; correct the path")
            if failed is None:
                raise error
            failed(error)
            continue
        if not path.is_dir():
            yield path
            continue
        empty = True
        for found in sorted(path.rglob("*")):
            hidden = any(part.startswith(".") for part in found.relative_to(path).parts)
            if found.suffix.lower() in SUFFIXES and not hidden and found.is_file():
                empty = False
                yield found
        require(not empty, f"{path}: no picture in it ({', '.join(SUFFIXES)})")


def csv_chunks(source: str, layout: dict[str, Any]) -> Iterator[Any]:
    """Data frames of a CSV file, or of standard input, some rows at a time; see `tables.row_chunks`."""
    from attnknn.data.read_csv import row_chunks

    if source == STDIN:
        yield from row_chunks(sys.stdin, **layout, size=BATCH)
        return
    require(Path(source).is_file(), f"{source}: no such file; correct the path")
    yield from row_chunks(Path(source), **layout, size=BATCH)
