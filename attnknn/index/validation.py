"""Validation of vectors, row ids and exclusions."""

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.errors import require

LARGEST = 1e15  # magnitude of a value; sums of squares of larger ones could overflow float32


def check_vectors(name: str, value: np.ndarray) -> np.ndarray:
    """Convert to a C-contiguous float32 (N, D) copy or view; InputError if values are not finite or above `LARGEST`."""
    valid = value.ndim == 2 and value.shape[1] > 0
    require(valid, f"{name}: shape {value.shape}; expected (rows, dimensions), with at least one dimension")
    require(value.dtype.kind in "fiub", f"{name}: values of type {value.dtype}; give real numbers")
    value = np.ascontiguousarray(value, dtype=np.float32)
    lowest, highest = value.min(initial=0), value.max(initial=0)  # NaN where the array holds one
    in_range = bool(lowest >= -LARGEST and highest <= LARGEST)
    require(in_range, f"{name}: NaN, infinite, or values beyond ±{LARGEST:g}; remove them, or scale them down")
    return value


def check_ids(ids: ArrayLike, rows: int) -> np.ndarray:
    """Convert row ids to int32 where they fit, else int64; InputError unless there is a unique one ≥ 0 per row."""
    ids = np.asarray(ids)
    require(ids.dtype.kind in "iu" or not ids.size, f"bank: row ids of type {ids.dtype}; give integers")
    ids = ids.astype(np.int64)
    require(ids.shape == (rows,), f"bank: {rows} vectors and ids of shape {ids.shape}")
    require(ids.min(initial=0) >= 0, "bank: row ids below 0")
    require(len(np.unique(ids)) == rows, "bank: row ids repeat")
    return ids.astype(np.int32) if ids.max(initial=0) <= np.iinfo(np.int32).max else ids


def check_exclusions(exclude: ArrayLike | None, rows: int) -> np.ndarray:
    """Convert row ids hidden from each query to (B, E); InputError unless they are integers, equally many per query."""
    ids = np.empty((rows, 0), dtype=np.int64) if exclude is None else np.asarray(exclude)
    ids = ids[:, None] if ids.ndim == 1 else ids
    valid = ids.ndim == 2 and len(ids) == rows and (ids.dtype.kind in "iu" or not ids.size)
    expected = f"give row ids, one or several for each of {rows} queries"
    require(valid, f"exclude: shape {ids.shape} of {ids.dtype}; {expected}")
    return ids


def format_ids(ids: np.ndarray) -> str:
    """Format row ids for an error message, at most ten of them."""
    return ", ".join(map(str, ids[:10])) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
