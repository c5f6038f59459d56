"""Addresses of tables in files or object storage, and their columns as arrays. Needs pyarrow."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.errors import InputError, require

try:
    import pyarrow as pa
    import pyarrow.dataset
    from pyarrow.fs import FileSystem, FileType, LocalFileSystem
except ImportError:
    raise InputError("pyarrow: not installed; run `pip install attnknn[tables]`") from None


def absolute(address: str | Path) -> str:
    """Address that means the same in other folders and processes; InputError if there can be nothing at it."""
    address = os.path.expanduser(address)
    if "://" in address:
        require(re.fullmatch(r"\w+:/+", address) is None, f"{address}: no bucket; give s3://bucket/folder")
        return address.rstrip("/")
    try:
        os.lstat(address)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # ValueError: a character that no name has
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{address[:100]!r}: {reason}; give another path") from None
    return os.path.abspath(address)


def file_system(address: str | Path) -> tuple[Any, str]:
    """Arrow's file system of an address, and the path in it."""
    address = absolute(address)
    try:
        return FileSystem.from_uri(address) if "://" in address else (LocalFileSystem(), address)
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).partition(":")[0].splitlines()[0][:100]
        raise InputError(f"{address}: {reason}; give a path, or an address such as s3://bucket/folder") from None


def is_lance(address: str) -> bool:
    """Whether there is a Lance table at an address."""
    system, path = file_system(address)
    return bool(system.get_file_info(f"{path}/_versions").type == FileType.Directory)


def parquet_files(address: str, root: str = "") -> Any:
    """Arrow's dataset of a Parquet file, or of a folder of such, with folders `key=value` in the root as columns."""
    system, path = file_system(address)
    options = {"filesystem": system, "partitioning": "hive", "partition_base_dir": file_system(root or address)[1]}
    try:
        return pyarrow.dataset.dataset(path, format="parquet", **options)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{address}: no Parquet file or Lance table ({str(error).splitlines()[0]:.200})") from None


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


def holds_lists(kind: Any) -> bool:
    """Whether an Arrow type is one of lists, such as vectors."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def to_vectors(rows: Any, names: Sequence[str], address: str, start: int = 0) -> np.ndarray:
    """Vectors (M, D) of a column of lists, or of several columns of numbers; `start` is the first row's, for errors."""
    missing = rows["vector"].null_count if list(names) == ["vector"] else 0
    require(not missing, f"{address}: column vector: {missing} rows have none; remove these rows")
    try:
        arrays = [to_array(rows[name]) for name in names]
        if list(names) == ["vector"]:
            lengths = np.array([len(vector) for vector in arrays[0]])
            for row in np.flatnonzero(lengths != lengths[0])[:1]:
                others = f"column vector: {lengths[row]} numbers in row {start + row}, {lengths[0]} in row {start}"
                raise InputError(f"{address}: {others}; give vectors of one length")
            return np.stack(list(arrays[0]))
        names = [name for name, array in zip(names, arrays, strict=True) if array.dtype.kind not in "biuf"] or names
        require(all(array.dtype.kind in "biuf" for array in arrays), f"{address}: {', '.join(names[:20])}: not numbers")
        return np.column_stack(arrays)
    except InputError:
        raise
    except (ValueError, TypeError, pa.ArrowInvalid) as error:
        raise InputError(f"{address}: columns {', '.join(names[:20])} are not numbers ({error})") from None
