"""What a bank is given, checked: vectors, row ids, and ids to leave out."""

import numpy as np
from numpy.typing import ArrayLike

from attnknn.errors import require

_SHOWN = 10  # row ids that an error names
LARGEST = 1e15  # of a value: squared and added up, larger ones would leave float32


def checked_vectors(name: str, value: np.ndarray) -> np.ndarray:
    """A float32 C-contiguous (N, D) copy or view; refuses NaN, infinity, and what has no square in float32."""
    fits = value.ndim == 2 and value.shape[1] > 0
    require(fits, f"{name}: shape {value.shape}; expected (rows, dimensions), of one dimension or more")
    require(value.dtype.kind in "fiub", f"{name}: values of type {value.dtype}; give real numbers")
    value = np.ascontiguousarray(value, dtype=np.float32)
    lowest, highest = value.min(initial=0), value.max(initial=0)  # NaN where there is one
    fits = bool(lowest >= -LARGEST and highest <= LARGEST)
    require(fits, f"{name}: NaN, infinite, or values beyond ±{LARGEST:g}; remove them, or scale them down")
    return value


def checked_ids(ids: ArrayLike, rows: int) -> np.ndarray:
    """Row ids as int32 where they fit, as int64 otherwise."""
    given = np.asarray(ids)
    require(given.dtype.kind in "iu" or not given.size, f"bank: row ids of type {given.dtype}; give integers")
    names = given.astype(np.int64)
    require(names.shape == (rows,), f"bank: {rows} vectors and ids of shape {names.shape}")
    require(names.min(initial=0) >= 0, "bank: row ids below 0")
    require(len(np.unique(names)) == rows, "bank: row ids repeat")
    return names.astype(np.int32) if names.max(initial=0) <= np.iinfo(np.int32).max else names


def checked_exclusions(exclude: ArrayLike | None, rows: int) -> np.ndarray:
    """Row ids (B, E) that the queries must not see."""
    given = np.empty((rows, 0), dtype=np.int64) if exclude is None else np.asarray(exclude)
    given = given[:, None] if given.ndim == 1 else given
    fits = given.ndim == 2 and len(given) == rows and (given.dtype.kind in "iu" or not given.size)
    require(
        fits, f"exclude: shape {given.shape} of {given.dtype}; give row ids, one or several for each of {rows} queries"
    )
    return given


def listed(ids: np.ndarray) -> str:
    return ", ".join(map(str, ids[:_SHOWN])) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")
