"""Model inputs: files of images, table rows or vectors, read in batches and encoded as vectors."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from PIL import Image, ImageOps
from tqdm import tqdm

from attnknn.app.model.examples import Examples
from attnknn.app.model.read_files import BATCH, STDIN, has_vectors, image_files, open_vectors, parquet_vectors
from attnknn.core.errors import InputError, require
from attnknn.core.files import display_name
from attnknn.data.image_folder import decode, open_picture
from attnknn.data.read_csv import row_chunks
from attnknn.data.schema import Schema, as_floats
from attnknn.encoder.encoder import Encoder, embed

_MIN_PIXELS = 16  # an image needs at least 1/16 of the pixels of the encoder's input
_MAX_SIDE = 96  # pixels, of images stored as examples
_THUMBNAIL = 64  # pixels a side, of pictures beside vectors


@dataclass(frozen=True)
class Batch:
    """Rows read from a file."""

    names: list[str]  # file and line or row of each, for messages
    values: Any  # a data frame of strings, float (B, D), or uint8 (B, C, H, W)
    beside: pd.DataFrame | None = None  # other columns of a Parquet file of vectors, as strings

    def take(self, rows: Sequence[int]) -> "Batch":
        """The rows at these positions."""
        values = self.values.iloc[rows] if hasattr(self.values, "iloc") else self.values[rows]
        beside = None if self.beside is None else self.beside.iloc[list(rows)]
        return Batch([self.names[row] for row in rows], values, beside)

    @property
    def columns(self) -> pd.DataFrame | None:
        """Columns of a table or beside vectors."""
        return self.values if isinstance(self.values, pd.DataFrame) else self.beside

    def without(self, column: str) -> "Batch":
        """The batch without a column."""
        if self.beside is None:
            return Batch(self.names, self.values.drop(columns=column))
        return Batch(self.names, self.values, self.beside.drop(columns=column))


def _csv_batches(source: str, layout: dict[str, Any]) -> Iterator[Batch]:
    """Batches of a CSV file or of standard input; see `read_csv.row_chunks`."""
    require(not Path(source).is_dir(), f"{source}: a folder; this model reads tables")
    require(source == STDIN or Path(source).is_file(), f"{source}: no such file; correct the path")
    for frame in row_chunks(sys.stdin if source == STDIN else Path(source), **layout, size=BATCH):
        yield Batch(list(frame.index), frame)


@dataclass(frozen=True)
class Vectors:
    """Embeddings, or numeric columns on one scale."""

    dim: int
    names: tuple[str, ...] = ()  # columns of a CSV file to read, in order; empty for all
    layout: dict[str, Any] = field(default_factory=dict)  # keyword arguments of `read_csv.row_chunks`
    pictures: str = ""  # the column beside the vectors that names files of pictures to show; empty for none
    kind = "vectors"

    def batches(self, sources: Sequence[str], **_: Any) -> Iterator[Batch]:
        """Rows of .npy and CSV files, and of Parquet files with a column `vector`, in batches."""
        for source in sources:
            if has_vectors(Path(source)):
                for vectors, beside in parquet_vectors(source):
                    self._check_dim(source, vectors)
                    yield Batch(list(beside.index), vectors.astype(np.float64), beside)
                continue
            pictures = f"{source}: a folder; this model reads vectors: run `attnknn embed {source} -o z.npy` first"
            require(not Path(source).is_dir(), pictures)
            if not source.lower().endswith(".npy"):
                yield from _csv_batches(source, self.layout)
                continue
            array, name = open_vectors(Path(source)), display_name(Path(source).name)
            self._check_dim(source, array)
            for start in range(0, len(array), BATCH):
                values = np.asarray(array[start : start + BATCH], dtype=np.float64)
                yield Batch([f"{name} row {start + i}" for i in range(len(values))], values)

    def vectors(self, batch: Batch) -> np.ndarray:
        """float64 (B, D); raise InputError if a column is missing, or a value is not a finite number."""
        values = batch.values if isinstance(batch.values, np.ndarray) else self._parse(batch.values)
        self._check_dim(batch.names[0], values)
        for row in np.flatnonzero(~np.isfinite(values).all(1)):
            raise InputError(f"{batch.names[row]}: NaN or infinite values; leave the row out, or correct it")
        return values

    def _check_dim(self, name: str, values: np.ndarray) -> None:
        dim = values.shape[1]
        require(dim == self.dim, f"{name}: {dim} dimensions; this model was fitted on {self.dim}")

    def _parse(self, frame: Any) -> np.ndarray:
        names = self.names or tuple(frame.columns)
        missing = [name for name in names if name not in frame.columns]
        columns = f"no column {', '.join(missing[:5])}; the model reads {len(names)} columns"
        require(not missing, f"{frame.index[0]}: {columns}")
        values = np.column_stack([as_floats(frame[name]).to_numpy() for name in names])
        for row, column in np.argwhere(np.isnan(values)):
            text = frame.iloc[row][names[column]]
            raise InputError(f"{frame.index[row]}: column {names[column]!r} is {text!r}, not a number; correct it")
        return values

    def examples(self, batch: Batch) -> Examples:
        """None: vectors have no readable form but what is beside them."""
        return Examples()

    def beside(self, columns: pd.DataFrame | None, folder: Path) -> Examples:
        """The columns beside vectors, with thumbnails of their pictures, whose paths are relative to `folder`."""
        if columns is None or self.pictures not in columns:
            missing = f"--rows: no column {self.pictures!r}, which names the pictures of this model; add it"
            require(not self.pictures, missing)
            return Examples(columns)
        paths = columns[self.pictures]
        require(not paths.isna().any(), f"{paths.isna().idxmax()}: no picture in column {self.pictures!r}; add one")
        bar = tqdm(paths, desc="read", unit=" pictures", delay=2, disable=None)
        return Examples(columns.reset_index(drop=True), np.stack([thumbnail(folder / path) for path in bar]))


@dataclass(frozen=True)
class Rows:
    """Rows of a table, encoded by a schema and optionally by an encoder."""

    schema: Schema
    layout: dict[str, Any]  # keyword arguments of `read_csv.row_chunks`
    encoder: Encoder | None = None  # None to take the encoded columns as vectors
    stored: tuple[str, ...] = ()  # other columns, which are stored beside the rows of the memory
    kind = "table"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        return tuple(column.name for column in (*self.schema.numeric, *self.schema.categories))

    def batches(self, sources: Sequence[str], **_: Any) -> Iterator[Batch]:
        """Rows of CSV files in batches."""
        for source in sources:
            is_array = Path(source).suffix.lower() == ".npy" or has_vectors(Path(source))
            require(not is_array, f"{source}: this model reads a CSV file with the columns that it was fitted on")
            yield from _csv_batches(source, self.layout)

    def vectors(self, batch: Batch) -> np.ndarray:
        """Encode a data frame of strings: (B, D)."""
        x = self.schema.encode(batch.values)
        return x if self.encoder is None else embed_rows(self.encoder, x, False)

    def examples(self, batch: Batch) -> Examples:
        """The columns of `columns`, and those of `stored` that are there."""
        names = [*self.columns, *(name for name in self.stored if name in batch.values)]
        return Examples(table=batch.values[names].reset_index(drop=True))


@dataclass(frozen=True)
class Pictures:
    """Images, resized for an encoder of images."""

    encoder: Encoder
    bf16: bool = False  # whether it embeds in bfloat16
    kind = "images"

    @property
    def shape(self) -> tuple[int, int, int]:
        """C, H, W."""
        return tuple(self.encoder.config["shape"])

    def batches(
        self,
        sources: Sequence[str],
        failed: Callable[[InputError], None] | None = None,
        size: int = 256,
    ) -> Iterator[Batch]:
        """Decoded images of files, folders and paths on standard input, in batches.

        Args:
            failed: called with the error of an unreadable image, which is skipped; None raises.
            size: images per batch.
        """
        names: list[str] = []
        images: list[np.ndarray] = []
        for path in image_files(sources, failed):
            try:
                images.append(self.read(path))
                names.append(display_name(path))
            except InputError as error:
                if failed is None:
                    raise
                failed(error)
            if len(names) == size:
                yield Batch(names, np.stack(images))
                names, images = [], []
        if names:
            yield Batch(names, np.stack(images))

    def read(self, path: Path) -> np.ndarray:
        """Decode a file as uint8 (C, H, W)."""
        with open_picture(path) as file:
            return self.decode(file, str(path))

    def decode(self, file: bytes | IO[bytes], name: str, max_pixels: int = 0) -> np.ndarray:
        """Decode a file as uint8 (C, H, W); see `image_folder.decode`."""
        channels, height, width = self.shape
        min_pixels = max(2, height * width // _MIN_PIXELS)
        image = decode(file, name, (height, width), max_pixels, min_pixels, grey=channels == 1)
        return image if len(image) == channels else np.repeat(image, channels, axis=0)

    def vectors(self, batch: Batch) -> np.ndarray:
        """Embed images: (B, D)."""
        return embed_rows(self.encoder, batch.values, self.bf16)

    def examples(self, batch: Batch) -> Examples:
        """Images, subsampled to at most `_MAX_SIDE` pixels a side."""
        step = -(-max(batch.values.shape[2:]) // _MAX_SIDE)
        return Examples(images=np.ascontiguousarray(batch.values[:, :, ::step, ::step]))


Input = Vectors | Rows | Pictures


def thumbnail(path: Path) -> np.ndarray:
    """A picture within a square on grey: uint8 (3, `_THUMBNAIL`, `_THUMBNAIL`)."""
    with open_picture(path) as file:
        pixels = decode(file, str(path))
    image = Image.fromarray(np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0))
    return np.asarray(ImageOps.pad(image, (_THUMBNAIL, _THUMBNAIL), color=(127, 127, 127))).transpose(2, 0, 1)


def embed_rows(encoder: Encoder, x: np.ndarray, bf16: bool) -> np.ndarray:
    """Embeddings float32 (N, D) of rows x, with a progress bar after two seconds."""
    z = np.empty((len(x), encoder.dim), dtype=np.float32)
    with tqdm(desc="embed", total=len(x), unit=" rows", delay=2, disable=None) as bar:
        for start in range(0, len(x), BATCH):
            batch = x[start : start + BATCH]
            z[start : start + BATCH] = embed(encoder, batch, bf16=bf16)[0]
            bar.update(len(batch))
    return z
