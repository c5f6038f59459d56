"""Lance tables: opened and written. The only module that imports lance."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd

from attnknn.core.errors import ChangedError, InputError, require
from attnknn.index.validation import check_ids, check_vectors

try:
    for name, value in ("LOG", "error"), ("INCLUDE_VECTOR_CENTROIDS", "false"):  # its warnings are for its developers
        os.environ.setdefault(f"LANCE_{name}", value)
    import lance
    import pyarrow as pa
    from lance.dataset import VectorIndexReader
    from pyarrow.fs import FileSelector, LocalFileSystem
except ImportError:
    raise InputError("lance: not installed; run `pip install attnknn[lance]`") from None

from attnknn.core.tables import absolute, file_system, is_lance, parquet_files, to_array, to_arrow, to_vectors

_CONFLICT = re.compile("Incompatible transaction|commit conflict")

Method = TypeVar("Method", bound=Callable[..., Any])


class Block(NamedTuple):
    """Rows to be written."""

    z: np.ndarray  # (M, D)
    ids: np.ndarray  # (M,)
    columns: Mapping[str, np.ndarray] = {}  # further ones (M,) or (M, W)


def open_table(uri: str | Path, version: int | None = None, **options: Any) -> Any:
    """Open a Lance table; InputError if there is none, or no such version."""
    try:
        return lance.dataset(absolute(uri), version=version, **options)
    except (ValueError, OSError) as error:
        at_version = "" if version is None else f" of version {version}"
        raise InputError(f"{uri}: no Lance table{at_version} ({reason_of(error)})") from None


def refuse_other_files(uri: str) -> None:
    """Raise InputError if the address is that of a file, of a folder with files but no table, or cannot be written."""
    system, root = file_system(uri)
    if isinstance(system, LocalFileSystem):
        folder = next(path for path in (Path(root), *Path(root).parents) if path.exists())
        writable = folder.is_dir() and os.access(folder, os.W_OK)
        require(writable, f"{root}: {folder} is no folder that can be written; give another address")
        require(root != os.getcwd(), f"{root}: the working directory; give a folder in it")
    names = {info.base_name for info in system.get_file_info(FileSelector(root, allow_not_found=True))}
    require(
        not names or "_versions" in names,
        f"{root}: holds other files, or those of a killed fit; give another address, or remove it",
    )


def write_table(uri: str, batches: Iterator[Any], schema: Any, mode: str) -> Any:
    """Write record batches; `create` a table, or a version of it that shall `overwrite` or `append` to the latest."""
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return lance.write_dataset(reader, absolute(uri), mode=mode, enable_stable_row_ids=True)


def create_lists(table: Any, index: str, lists_of: Callable[[np.ndarray], np.ndarray], **settings: Any) -> None:
    """Create an inverted file over the vectors.

    Args:
        lists_of: function (vectors (M, D)) → the list (M,) of each. Lance's own choice is slower, and beyond some
            thousands of lists wrong for a quarter of the rows.
        settings: of `create_index`, with `ivf_centroids`.
    """
    schema = pa.schema({"row_id": pa.uint64(), "partition": pa.uint32()})

    def batches() -> Iterator[Any]:
        for batch in table.to_batches(columns=["vector"], batch_size=65_536, with_row_id=True):
            lists = lists_of(to_array(batch["vector"])).astype(np.uint32)
            yield pa.RecordBatch.from_arrays([batch["_rowid"], pa.array(lists)], schema=schema)

    with tempfile.TemporaryDirectory() as folder:
        reader, lists = pa.RecordBatchReader.from_batches(schema, batches()), f"{folder}/lists"
        lance.write_dataset(reader, lists, max_rows_per_file=table.count_rows())  # one file
        table.create_index("vector", name=index, replace=True, precomputed_partition_dataset=lists, **settings)


def drop_table(uri: str) -> None:
    """Delete a table with all its versions."""
    lance.LanceDataset.drop(absolute(uri))


def list_reader(table: Any, index: str) -> Any:
    """Reader of the lists of an inverted file."""
    return VectorIndexReader(table, index)


def read_table(address: str, label: str, rows: int) -> Iterator[tuple[np.ndarray | pd.DataFrame, np.ndarray]]:
    """Yield vectors (M, D) and labels (M,) of a Parquet file, or folder of such, or of a Lance table.

    Vectors are the column `vector`, or all columns but that of the labels, as numbers, with their names.
    """
    table = open_table(address) if is_lance(address) else parquet_files(address)
    names = table.schema.names
    require(label in names, f"{address}: no column {label}; it has {', '.join(names[:20])}")
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])  # of the data frame that was written
    columns = ["vector"] if "vector" in names else [name for name in names if name != label and name not in index]
    for batch in table.to_batches(columns=[*columns, label], batch_size=rows):
        if len(batch):
            z = to_vectors(batch, columns, address)
            yield z if columns == ["vector"] else pd.DataFrame(z, columns=columns), to_array(batch[label])


def add_columns(table: Any, columns: Mapping[str, np.ndarray]) -> None:
    """Add columns (N, …), in the order of the rows."""
    table.add_columns(_arrow_table(columns).to_reader())


def replace_columns(table: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """Table with other values (N, …) in columns, in the order of the rows; by one commit."""
    values, start, fragments, fields = _arrow_table(columns), 0, [], []
    for fragment in table.get_fragments():
        row_ids = fragment.to_table(columns=[], with_row_id=True)["_rowid"]
        part = values.slice(start, len(row_ids)).append_column("_rowid", row_ids)
        fragment, fields = fragment.update_columns(part, left_on="_rowid", right_on="_rowid")
        fragments.append(fragment)
        start += len(row_ids)
    update = lance.LanceOperation.Update(updated_fragments=fragments, fields_modified=fields)
    return lance.LanceDataset.commit(table, update, read_version=table.version)


def refuse_earlier_changes(table: Any) -> Any:
    """Table of a version without a change, with which every change of rows that began before is in conflict.

    The commit is refused if another changed rows meanwhile.
    """
    fragments = [fragment.metadata for fragment in table.get_fragments()]
    same = lance.LanceOperation.Merge(fragments, table.lance_schema)
    return lance.LanceDataset.commit(table, same, read_version=table.version)


def files_of(table: Any) -> list[str]:
    """Files in the folder of a table, without the empty objects that mark folders of object storage."""
    files = table.all_files().read_all()
    return [path for path, size in zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True) if size]


def delete_files(table: Any, files: Sequence[str]) -> None:
    """Delete files that no version of a table has."""
    system, root = file_system(table.uri)
    tracked = table.tracked_files().read_all()["path"].to_pylist()
    for file in set(files).intersection(files_of(table)).difference(tracked):
        system.delete_file(f"{root}/{file}")


def _arrow_table(columns: Mapping[str, np.ndarray]) -> Any:
    return pa.table({name: to_arrow(values) for name, values in columns.items()})


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
            if any(kind(own) and kind(field.type) for kind in (pa.types.is_integer, _is_text)):
                try:
                    arrays[field.name] = arrays[field.name].cast(field.type)
                except pa.ArrowInvalid as error:
                    raise InputError(f"bank: column {field.name} is {field.type}: {error}") from None
            else:
                require(own == field.type, f"bank: column {field.name} is {own}; it has {field.type}")
    return pa.RecordBatch.from_pydict(arrays, schema=schema)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@contextmanager
def one_line(table: Any) -> Iterator[None]:
    """Raise InputError in place of lance's errors."""
    try:
        yield
    except BaseException as error:
        panics = type(error).__name__ == "PanicException"  # of lance, where a file is gone
        if isinstance(error, InputError) or not (panics or isinstance(error, ValueError | OSError | RuntimeError)):
            raise
        require(not is_conflict(error), f"{table.uri}: another process changed it meanwhile; run again")
        message = f"{table.uri}: version {table.version} ({reason_of(error)})"
        if not panics and "not found" not in str(error).lower():
            raise InputError(message) from error
        remedy = "rows were forgotten since, or the table was moved: load the model again"
        raise ChangedError(f"{message}; {remedy}") from error


def one_line_errors(method: Method) -> Method:
    """Function of a `LanceBank` that raises as `one_line`."""

    @wraps(method)
    def call(bank: Any, *args: Any, **kwargs: Any) -> Any:
        with one_line(bank.table):
            return method(bank, *args, **kwargs)

    return cast(Method, call)


def is_conflict(error: BaseException) -> bool:
    return type(error).__name__ == "CommitConflictError" or bool(_CONFLICT.search(str(error)))


def reason_of(error: BaseException) -> str:
    """First line of an error of lance, without places in its source."""
    return (str(error) or type(error).__name__).partition(", /")[0].splitlines()[0][:200]
