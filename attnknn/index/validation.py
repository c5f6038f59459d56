"""Checks of vectors, row ids and exclusions."""

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.errors import require

LARGEST = 1e15  # magnitude of a value: squared and added up, larger ones would overflow float32
_LISTED = 10  # row ids that an error names


def check_vectors(name: str, value: np.ndarray) -> np.ndarray:
    """A float32 C-contiguous (N, D) copy or view.

    Raises:
        InputError: another shape or type, NaN, infinity, or values whose squares overflow float32.
    """
    valid = value.ndim == 2 and value.shape[1] > 0
    require(valid, f"{name}: shape {value.shape}; expected (rows, dimensions), of one dimension or more")
    require(value.dtype.kind in "fiub", f"{name}: values of type {value.dtype}; give real numbers")
    value = np.ascontiguousarray(value, dtype=np.float32)
    lowest, highest = value.min(initial=0), value.max(initial=0)  # NaN where the array holds one
    in_range = bool(lowest >= -LARGEST and highest <= LARGEST)
    require(in_range, f"{name}: NaN, infinite, or values beyond ±{LARGEST:g}; remove them, or scale them down")
    return value


def check_ids(ids: ArrayLike, rows: int) -> np.ndarray:
    """Row ids as int32 where they fit, as int64 otherwise.

    Raises:
        InputError: not integers, another number of them, negative or repeated ids.
    """
    ids = np.asarray(ids)
    require(ids.dtype.kind in "iu" or not ids.size, f"bank: row ids of type {ids.dtype}; give integers")
    ids = ids.astype(np.int64)
    require(ids.shape == (rows,), f"bank: {rows} vectors and ids of shape {ids.shape}")
    require(ids.min(initial=0) >= 0, "bank: row ids below 0")
    require(len(np.unique(ids)) == rows, "bank: row ids repeat")
    return ids.astype(np.int32) if ids.max(initial=0) <= np.iinfo(np.int32).max else ids


def check_exclusions(exclude: ArrayLike | None, rows: int) -> np.ndarray:
    """Row ids (B, E) hidden from each query.

    Raises:
        InputError: not integers, or not one or several for each query.
    """
    ids = np.empty((rows, 0), dtype=np.int64) if exclude is None else np.asarray(exclude)
    ids = ids[:, None] if ids.ndim == 1 else ids
    valid = ids.ndim == 2 and len(ids) == rows and (ids.dtype.kind in "iu" or not ids.size)
    expected = f"give row ids, one or several for each of {rows} queries"
    require(valid, f"exclude: shape {ids.shape} of {ids.dtype}; {expected}")
    return ids


def format_ids(ids: np.ndarray) -> str:
    """Row ids for an error message, shortened."""
    rest = len(ids) - _LISTED
    return ", ".join(map(str, ids[:_LISTED])) + (f" and {rest} more" if rest > 0 else "")
