"""Read the files named on a command line: arrays, images in folders, and CSV in chunks."""

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.errors import InputError, require
from attnknn.core.files import load_array

BATCH = 1024  # rows per chunk
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
STDIN = "-"


def open_vectors(path: Path) -> np.ndarray:
    """Open the vectors (N, D) of a .npy file, memory-mapped.

    Raises:
        InputError: the file is missing, or does not hold a numeric (N, D) array with N > 0.
    """
    array = load_array(path)
    numeric = array.ndim == 2 and array.shape[1] > 0 and array.dtype.kind in "fiu" and array.dtype.itemsize <= 8
    require(numeric, f"{path}: {array.dtype} of shape {array.shape}; expected numbers (rows, dimensions)")
    require(len(array) > 0, f"{path}: no rows; give a file with rows")
    return array


def image_files(sources: Sequence[str], failed: Callable[[InputError], None] | None = None) -> Iterator[Path]:
    """Paths of images: files, images below folders sorted by name, and paths read from standard input.

    Args:
        failed: called with the error of a missing path, which is skipped; None raises.

    Raises:
        InputError: a path does not exist, or a folder has no image.
    """
    for source in sources:
        if source == STDIN:
            lines = (line.removeprefix(BOM_UTF8).rstrip(b"\r\n") for line in sys.stdin.buffer)
            yield from (Path(os.fsdecode(line)) for line in lines if line.strip())
            continue
        path = Path(source)
        if not path.exists():
            error = InputError(f"{path}: no such file or folder; correct the path")
            if failed is None:
                raise error
            failed(error)
        elif path.is_dir():
            images = [file for file in sorted(path.rglob("*")) if _is_image(file, path)]
            require(len(images) > 0, f"{path}: no image in it ({', '.join(SUFFIXES)})")
            yield from images
        else:
            yield path


def _is_image(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() in SUFFIXES and not hidden and path.is_file()


def csv_chunks(source: str, layout: dict[str, Any]) -> Iterator[Any]:
    """Data frames of `BATCH` rows of a CSV file or of standard input; see `read_csv.row_chunks`."""
    from attnknn.data.read_csv import row_chunks

    require(source == STDIN or Path(source).is_file(), f"{source}: no such file; correct the path")
    yield from row_chunks(sys.stdin if source == STDIN else Path(source), **layout, size=BATCH)
