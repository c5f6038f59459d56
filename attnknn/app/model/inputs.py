"""What people have, as vectors: pictures, rows of a table, or vectors themselves."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.app.model.examples import Examples
from attnknn.app.model.reading import BATCH, csv_chunks, open_vectors, picture_files
from attnknn.core.errors import InputError, require
from attnknn.core.files import read_json, write_json

_LEAST = 16  # one in so many pixels of what the encoder reads is the least that a picture must have
_SIDE = 96  # of the pictures that are kept to be looked at
_FILE = "input.json"


@dataclass(frozen=True)
class Batch:
    """Rows that were read.

    Attributes:
        names: where each comes from.
        values: a data frame of strings, float (B, D), or uint8 (B, C, H, W).
    """

    names: list[str]
    values: Any

    def take(self, rows: Sequence[int]) -> "Batch":
        """Some of them."""
        values = self.values.iloc[rows] if hasattr(self.values, "iloc") else self.values[rows]
        return Batch([self.names[row] for row in rows], values)

    def without(self, column: str) -> "Batch":
        """All of them, a column of their data frame left out."""
        return Batch(self.names, self.values.drop(columns=column))


@dataclass(frozen=True)
class Vectors:
    """Embeddings, or columns on one scale.

    Attributes:
        dim: D.
        names: of the columns of a CSV file that are read, in their order; empty where there are D columns alone.
    """

    dim: int
    names: tuple[str, ...] = ()
    kind = "vectors"
    takes = "a .npy file of shape (rows, dimensions), or a CSV file with a column a dimension"

    def batches(self, sources: Sequence[str], **_: Any) -> Iterator[Batch]:
        """Rows of .npy and CSV files, a batch at a time."""
        for source in sources:
            if not source.lower().endswith(".npy"):
                yield from (Batch(list(frame.index), frame) for frame in csv_chunks(source, {}))
                continue
            array = open_vectors(Path(source))
            given = f"{source}: {array.shape[1]} dimensions; this model was taught {self.dim}"
            require(array.shape[1] == self.dim, given)
            for s in range(0, len(array), BATCH):
                part = np.asarray(array[s : s + BATCH], dtype=np.float64)
                yield Batch([f"{Path(source).name} row {s + i}" for i in range(len(part))], part)

    def vectors(self, batch: Batch) -> np.ndarray:
        """float64 (B, D).

        Raises:
            InputError: a column is not there, or a value is no finite number.
        """
        values = batch.values if isinstance(batch.values, np.ndarray) else self._of_frame(batch.values)
        given = f"{batch.names[0]}: {values.shape[1]} dimensions; this model was taught {self.dim}"
        require(values.shape[1] == self.dim, given)
        broken = np.flatnonzero(~np.isfinite(values).all(1))
        if len(broken):
            raise InputError(f"{batch.names[broken[0]]}: NaN or infinite values; leave the row out, or mend it")
        return values

    def _of_frame(self, frame: Any) -> np.ndarray:
        from attnknn.data.schema import as_floats

        names = self.names or tuple(frame.columns)
        missing = [name for name in names if name not in frame.columns]
        lacks = f"{frame.index[0]}: no column {', '.join(missing[:5])}; the model reads {len(names)} columns"
        require(not missing, lacks)
        values = np.column_stack([as_floats(frame[name]).to_numpy() for name in names])
        broken = np.argwhere(np.isnan(values))
        if len(broken):
            row, column = broken[0]
            shown = frame.iloc[row][names[column]]
            raise InputError(f"{frame.index[row]}: column {names[column]!r} is {shown!r}, no number; correct it")
        return values

    def examples(self, batch: Batch) -> Examples:
        """There is nothing to look at."""
        return Examples()

    def plain(self) -> dict[str, Any]:
        """What JSON keeps."""
        return {"dim": self.dim, "names": list(self.names)}


@dataclass(frozen=True)
class Rows:
    """Rows of a table, encoded by a schema, and by an encoder where there is one.

    Attributes:
        schema: `table_schema.Schema`.
        layout: of the CSV files: keyword arguments of `tables.row_chunks`.
        encoder: an `Encoder`, or None where the encoded columns are compared.
    """

    schema: Any
    layout: dict[str, Any]
    encoder: Any = None
    kind = "table"
    takes = "a CSV file with the columns that the model was taught"

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are read."""
        return tuple(column.name for column in (*self.schema.numeric, *self.schema.categories))

    def batches(self, sources: Sequence[str], **_: Any) -> Iterator[Batch]:
        """Rows of CSV files, a batch at a time."""
        for source in sources:
            require(Path(source).suffix.lower() != ".npy", f"{source}: this model reads {self.takes}")
            for frame in csv_chunks(source, self.layout):
                yield Batch(list(frame.index), frame)

    def vectors(self, batch: Batch) -> np.ndarray:
        """Of data frames of strings: (B, D)."""
        x = self.schema.encode(batch.values)
        return x if self.encoder is None else embedded(self.encoder, x, False)

    def examples(self, batch: Batch) -> Examples:
        """The columns that are read."""
        return Examples(table=batch.values[list(self.columns)].reset_index(drop=True))

    def plain(self) -> dict[str, Any]:
        """What JSON keeps."""
        return {"schema": self.schema.to_dict(), "layout": self.layout}


@dataclass(frozen=True)
class Pictures:
    """Images, resized to what an encoder reads.

    Attributes:
        encoder: an `Encoder` of images.
        bf16: whether it embeds in bfloat16.
    """

    encoder: Any
    bf16: bool = False
    kind = "images"
    takes = "pictures, or folders of pictures"

    @property
    def shape(self) -> tuple[int, int, int]:
        """C, H, W."""
        return tuple(self.encoder.config["shape"])

    def batches(
        self, sources: Sequence[str], failed: Callable[[InputError], None] | None = None, size: int = 256
    ) -> Iterator[Batch]:
        """Decoded images of files and folders, or of paths on standard input, a batch at a time.

        Args:
            failed: told of what cannot be read, which is left out; None raises.
        """
        names: list[str] = []
        images: list[np.ndarray] = []
        for path in picture_files(sources, failed):
            try:
                images.append(self.read(path))
                names.append(os.fsencode(path).decode("utf-8", "backslashreplace"))
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
        """A file as uint8 (C, H, W)."""
        try:
            data = path.read_bytes()
        except ValueError:
            raise InputError("a path holds a NUL; correct it") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); correct the path") from None
        return self.decode(data, str(path))

    def decode(self, data: bytes, where: str, most: int = 0) -> np.ndarray:
        """A file's bytes as uint8 (C, H, W); see `image_folder.decode`."""
        from attnknn.data.image_folder import decode

        channels, *size = self.shape
        least = max(2, size[0] * size[1] // _LEAST)
        pixels = decode(data, where, (size[0], size[1]), most, least, grey=channels == 1)
        return pixels if len(pixels) == channels else np.repeat(pixels, channels, axis=0)

    def vectors(self, batch: Batch) -> np.ndarray:
        """Of images: (B, D)."""
        return embedded(self.encoder, batch.values, self.bf16)

    def examples(self, batch: Batch) -> Examples:
        """The images, every second or third pixel of them where they are large."""
        step = -(-max(batch.values.shape[2:]) // _SIDE)
        return Examples(images=np.ascontiguousarray(batch.values[:, :, ::step, ::step]))

    def plain(self) -> dict[str, Any]:
        """What JSON keeps."""
        return {"bf16": self.bf16}


Input = Vectors | Rows | Pictures


def save_input(given: Input, folder: Path) -> None:
    """Write to a folder that is there: `input.json`, and the encoder beside it."""
    write_json(folder / _FILE, {"kind": given.kind, **given.plain()})
    if not isinstance(given, Vectors) and given.encoder is not None:
        given.encoder.save(folder / "encoder")


def load_input(folder: Path) -> Input:
    """What `save_input` wrote.

    Raises:
        InputError: it is damaged.
    """
    about = read_json(folder / _FILE)
    encoder = None
    if (folder / "encoder").is_dir():
        from attnknn.encoder.encoder import Encoder

        encoder = Encoder.load(folder / "encoder")[0]
    try:
        if about["kind"] == Vectors.kind:
            return Vectors(about["dim"], tuple(about["names"]))
        if about["kind"] == Rows.kind:
            from attnknn.data.schema import Schema

            return Rows(Schema.from_dict(about["schema"]), about["layout"], encoder)
        require(about["kind"] == Pictures.kind and encoder is not None, f"{folder}: no input that this version knows")
        return Pictures(encoder, about["bf16"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / _FILE}: damaged ({error}); copy the model again, or fit it anew") from None


def embedded(encoder: Any, x: np.ndarray, bf16: bool) -> np.ndarray:
    """Embeddings float32 (N, D) of rows x, with a bar once it takes two seconds."""
    from tqdm import tqdm

    from attnknn.encoder.encoder import embed

    z = np.empty((len(x), encoder.dim), dtype=np.float32)
    with tqdm(desc="embed", total=len(x), unit=" rows", delay=2, disable=None) as bar:
        for s in range(0, len(x), BATCH):
            z[s : s + BATCH] = embed(encoder, x[s : s + BATCH], bf16=bf16)[0]
            bar.update(len(x[s : s + BATCH]))
    return z
