"""Read the files named on a command line: arrays, images in folders, and CSV in chunks."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.errors import InputError, require

BATCH = 1024  # rows per chunk
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
STDIN = "-"


def open_vectors(path: Path) -> np.ndarray:
    """Open the vectors (N, D) of a .npy file, memory-mapped.

    Raises:
        InputError: the file is missing, or does not hold a numeric (N, D) array with N > 0.
    """
    array = open_array(path)
    numeric = array.ndim == 2 and array.shape[1] > 0 and array.dtype.kind in "fiu"
    require(numeric, f"{path}: {array.dtype} of shape {array.shape}; expected numbers (rows, dimensions)")
    require(len(array) > 0, f"{path}: no rows; give a file with rows")
    return array


def open_array(path: Path) -> np.ndarray:
    """Open the array of a .npy file, memory-mapped.

    Raises:
        InputError: the file is missing, or not a .npy file.
    """
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; correct the path") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not a readable .npy file ({error}); write it with numpy.save") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: several arrays; give a .npy file with one")
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
            yield from (Path(line.rstrip("\r\n")) for line in sys.stdin if line.strip())
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
