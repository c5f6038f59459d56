"""Read the files named on a command line: arrays, and images in folders."""

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.core.errors import InputError, require
from attnknn.core.files import display_name, load_array

BATCH = 1024  # rows per chunk
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
STDIN = "-"


def open_vectors(path: Path) -> np.ndarray:
    """Memory-map the vectors (N, D) of a .npy file; raise InputError if it holds no numbers with N > 0 and D > 0."""
    array = load_array(path)
    numeric = array.ndim == 2 and array.shape[1] > 0 and array.dtype.kind in "fiu" and array.dtype.itemsize <= 8
    require(numeric, f"{path}: {array.dtype} of shape {array.shape}; expected numbers (rows, dimensions)")
    require(len(array) > 0, f"{path}: no rows; give a file with rows")
    return array


def has_vectors(source: Path) -> bool:
    """Whether a source is a Parquet file, or a folder of such, with a column `vector`.

    Raises:
        InputError: it has vectors in a column of another name.
    """
    if not (source.suffix.lower() == ".parquet" and source.exists()) and not any(source.glob("*.parquet")):
        return False
    from attnknn.core.tables import holds_lists, parquet_files

    schema = parquet_files(str(source)).schema
    if "vector" not in schema.names:
        lists = [column.name for column in schema if holds_lists(column.type)]
        require(not lists, f"{source}: column {', '.join(map(repr, lists))} holds vectors; rename it to 'vector'")
    return "vector" in schema.names


def parquet_vectors(source: str, size: int = BATCH) -> Iterator[tuple[np.ndarray, pd.DataFrame]]:
    """Vectors (B, D) of `has_vectors` in batches, and the other columns as strings or None, index `<file> row <n>`."""
    from attnknn.core.tables import parquet_files, to_vectors

    dataset, start, name = parquet_files(source), 0, display_name(Path(source).name)
    others = [column for column in dataset.schema.names if column != "vector"]
    for batch in dataset.to_batches(batch_size=size):
        if len(batch):
            frame = batch.select(others).to_pandas()
            frame.index = pd.Index([f"{name} row {row}" for row in range(start, start + len(batch))])
            yield to_vectors(batch, ["vector"], source, start), frame.map(str).where(frame.notna())
            start += len(batch)
    require(start > 0, f"{source}: no rows; give a file with rows")


def image_files(sources: Sequence[str], failed: Callable[[InputError], None] | None = None) -> Iterator[Path]:
    """Paths of images: files, images below folders sorted by name, and paths read from standard input.

    Args:
        failed: called with the error of a missing path, which is skipped; None raises.

    Raises:
        InputError: a path does not exist, or a folder has no image.
    """
    lines = (line.removeprefix(BOM_UTF8).rstrip(b"\r\n") for line in sys.stdin.buffer) if STDIN in sources else iter(())
    piped = (Path(os.fsdecode(line)) for line in lines if line.strip())
    for source in sources:
        if source == STDIN:
            first = next(piped, None)
            if first is None:
                raise InputError("-: no path on standard input; pipe in the paths of pictures, one a line")
            yield first
            yield from piped
            continue
        path = Path(source)
        if path.is_dir():
            images = [file for file in sorted(path.rglob("*")) if _is_image(file, path)]
            require(len(images) > 0, f"{path}: no image in it ({', '.join(SUFFIXES)})")
            yield from images
        elif path.exists():
            yield path
        else:
            error = InputError(f"{path}: no such file or folder; correct the path")
            if failed is None:
                raise error
            failed(error)


def _is_image(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() in SUFFIXES and not hidden and path.is_file()
