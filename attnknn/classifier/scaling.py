"""Centre and scale columns to float32 vectors; the same factor for all columns, so that distances keep their order."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse

from attnknn.core.errors import InputError, require
from attnknn.data.outliers import DWARFS, dwarfing_value

_ROWS = 65_536
_MOST_VALUES = 2**27  # of a sparse matrix made dense: 1 GiB


def fit_scaling(X: np.ndarray, metric: str) -> tuple[np.ndarray, float]:
    """Origin (D,) and unit for `to_vectors`: the mean and the RMS distance from it; 0 and 1 for cosine."""
    if metric == "cosine":
        return np.zeros(X.shape[1]), 1.0
    refuse_dwarfing(X)
    with np.errstate(over="ignore", invalid="ignore"):
        origin = X.mean(0, dtype=np.float64)
        largest = max(float(np.abs(block - origin).max()) for block in _blocks(X))
    require(math.isfinite(largest), "X: values too large to be added up; scale them down")
    power = float(_power_of_two(np.array(largest)))
    squares = np.concatenate([(((block - origin) / power) ** 2).sum(1) for block in _blocks(X)])
    unit = power * math.sqrt(float(squares.mean()))
    return origin, unit if unit > 0 else 1.0


def as_dense(X: Any) -> Any:
    """Convert a sparse matrix to an array of at most `_MOST_VALUES` values; return anything else as it is."""
    if not issparse(X):
        return X
    size = "×".join(map(str, X.shape))
    limit = f"at most {_MOST_VALUES:,} values are made dense; reduce its columns first, as by TruncatedSVD"
    require(math.prod(X.shape) <= _MOST_VALUES, f"X: sparse, {size}; {limit}")
    return X.toarray()


def refuse_dwarfing(X: np.ndarray, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> None:
    """Raise InputError if a value of X (N, D) dwarfs the others; see `dwarfing_value`.

    Args:
        rows, columns: names for the error; empty for numbers.
    """
    if (cell := dwarfing_value(X)) is not None:
        row, column = cell
        where = f"{rows[row] if rows else f'X row {row}'}, column {columns[column] if columns else column}"
        reason = f"over {DWARFS:g} times as far from the column's median as rows usually are"
        raise InputError(f"{where}: {X[cell]:g}, {reason}; correct it, or leave the row out")


def to_vectors(X: np.ndarray, origin: np.ndarray, unit: float, metric: str) -> np.ndarray:
    """Vectors float32 (B, D): (X − origin) / unit, at unit length for cosine."""
    vectors = np.empty(X.shape, dtype=np.float32)
    with np.errstate(over="ignore"):  # the bank refuses what overflows float32
        for block, out in zip(_blocks(X), _blocks(vectors), strict=True):
            z = (block - origin) / unit
            if metric == "cosine":
                z = z / _power_of_two(np.abs(z).max(1, keepdims=True))
                z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), np.finfo(np.float64).tiny)
            out[:] = z
    return vectors


def _blocks(X: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of rows, which float64 copies are made of one by one."""
    return (X[start : start + _ROWS] for start in range(0, len(X), _ROWS))


def _power_of_two(largest: np.ndarray) -> np.ndarray:
    """Powers of two to divide by, exactly, before squares that could overflow float64."""
    return np.ldexp(1.0, np.frexp(largest)[1] - 1)
