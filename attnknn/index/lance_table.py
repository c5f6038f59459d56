"""Lance tables: opened, written, and read as arrays. The only module that imports lance."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnknn.core.errors import InputError, require
from attnknn.index.validation import check_ids, check_vectors

try:
    # Its warnings are for its developers. A graph over many centroids would put a quarter of the rows in wrong lists.
    _SETTINGS = ("LOG", "error"), ("INCLUDE_VECTOR_CENTROIDS", "false"), ("USE_HNSW_SPEEDUP_INDEXING", "disabled")
    for name, value in _SETTINGS:
        os.environ.setdefault(f"LANCE_{name}", value)
    import lance
    import pyarrow as pa
    from lance.dataset import VectorIndexReader
    from pyarrow.dataset import dataset
    from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem
except ImportError:
    raise InputError("lance: not installed; run `pip install attnknn[lance]`") from None


_CHUNK = 2**26  # bytes of a file that are searched at once


class Block(NamedTuple):
    """Rows to be written."""

    z: np.ndarray  # (M, D)
    ids: np.ndarray  # (M,)
    columns: Mapping[str, np.ndarray] = {}  # further ones (M,) or (M, W)


def open_table(uri: str | Path, version: int | None = None, **options: Any) -> Any:
    """Open a Lance table; InputError if there is none, or no such version."""
    try:
        return lance.dataset(str(uri), version=version, **options)
    except (ValueError, OSError) as error:
        at_version = "" if version is None else f" of version {version}"
        raise InputError(f"{uri}: no Lance table{at_version} ({reason_of(error)})") from None


def refuse_other_files(uri: str) -> None:
    """Raise InputError if the address is that of a file, or of a folder with files but no table."""
    system, root = _file_system(uri)
    other = system.get_file_info(root).type == FileType.File
    if not other:
        names = {info.base_name for info in system.get_file_info(FileSelector(root, allow_not_found=True))}
        other = bool(names) and "_versions" not in names
    require(not other, f"{uri}: holds other files; give another address")


def _file_system(uri: str) -> tuple[Any, str]:
    return FileSystem.from_uri(uri.rstrip("/")) if "://" in uri else (LocalFileSystem(), uri)


def write_table(uri: str, batches: Iterator[Any], schema: Any, mode: str) -> Any:
    """Write record batches; `create` a table, or a version of it that shall `overwrite` or `append` to the latest."""
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return lance.write_dataset(reader, uri, mode=mode, enable_stable_row_ids=True)


def drop_table(uri: str) -> None:
    """Delete a table with all its versions."""
    lance.LanceDataset.drop(uri)


def list_reader(table: Any, index: str) -> Any:
    """Reader of the lists of an inverted file."""
    return VectorIndexReader(table, index)


def files_with(table: Any, patterns: Sequence[bytes]) -> list[str]:
    """Files of a table, of all its versions, that hold one of the patterns."""
    if not patterns:
        return []
    overlap = max(map(len, patterns))
    system, root = _file_system(table.uri)
    files = []
    for path in table.all_files().read_all()["path"].to_pylist():
        with system.open_input_file(f"{root}/{path}") as file:
            data = b""
            while block := file.read(_CHUNK):
                data = data[-overlap:] + block
                if any(pattern in data for pattern in patterns):
                    files.append(path)
                    break
    return files


def read_table(uri: str, label: str, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield vectors (M, D) and labels (M,) of a Parquet file, or folder of such, or of a Lance table.

    Vectors are the column `vector`, or all columns but that of the labels, as numbers.
    """
    try:
        parquet = any(path.suffix == ".parquet" for path in (Path(uri), *Path(uri).glob("*")))
        table = dataset(uri, format="parquet") if parquet else lance.dataset(uri)
    except (ValueError, OSError) as error:
        raise InputError(f"{uri}: no Parquet file or Lance table ({reason_of(error)})") from None
    names = table.schema.names
    require(label in names, f"{uri}: no column {label}; it has {', '.join(names[:20])}")
    columns = ["vector"] if "vector" in names else [name for name in names if name != label]
    for batch in table.to_batches(columns=[*columns, label], batch_size=rows):
        try:
            arrays = [to_array(batch[name]) for name in columns]
            z = np.stack(list(arrays[0])) if columns == ["vector"] else np.column_stack(arrays)
        except (ValueError, TypeError, pa.ArrowInvalid) as error:
            raise InputError(f"{uri}: columns {', '.join(columns[:20])} are not numbers ({error})") from None
        if len(batch):
            yield z, to_array(batch[label])


def columns_reader(columns: Mapping[str, np.ndarray]) -> Any:
    """Arrow's reader of columns (N, …)."""
    return pa.table({name: to_arrow(values) for name, values in columns.items()}).to_reader()


def record_batch(block: Block, schema: Any = None) -> Any:
    """Record batch of rows; InputError unless they fit the schema."""
    z = check_vectors("bank", block.z)
    arrays = {"id": to_arrow(check_ids(block.ids, len(z)).astype(np.int64)), "vector": to_arrow(z)}
    arrays |= {name: to_arrow(np.asarray(values)) for name, values in block.columns.items()}
    if schema is not None:
        own, expected = (", ".join(names) or "none" for names in (block.columns, schema.names[2:]))
        require(set(arrays) == set(schema.names), f"bank: columns {own}; it has {expected}")
        for field in schema:
            own = arrays[field.name].type
            require(own == field.type, f"bank: column {field.name} is {own}; it has {field.type}")
    return pa.RecordBatch.from_pydict(arrays, schema=schema)


def to_arrow(values: np.ndarray) -> Any:
    """Arrow array of (M,) or of fixed-size lists of (M, W)."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])


def to_array(column: Any) -> np.ndarray:
    """NumPy array (M,), or (M, W) of fixed-size lists."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return column.to_numpy(zero_copy_only=False)


def reason_of(error: Exception) -> str:
    """First line of an error of lance, without places in its source."""
    return str(error).partition(", /")[0].splitlines()[0][:200]
