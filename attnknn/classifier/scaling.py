"""Centre and scale columns to float32 vectors; the same factor for all columns, so that distances keep their order."""

import math
from collections.abc import Sequence

import numpy as np

from attnknn.core.errors import InputError, require
from attnknn.data.outliers import DWARFS, dwarfing_value


def fit_scaling(X: np.ndarray, metric: str) -> tuple[np.ndarray, float]:
    """Origin (D,) and unit for `to_vectors`: the mean and the RMS distance from it; 0 and 1 for cosine."""
    if metric == "cosine":
        return np.zeros(X.shape[1]), 1.0
    refuse_dwarfing(X)
    with np.errstate(over="ignore", invalid="ignore"):
        origin = X.mean(0)
        centred = X - origin
        largest = float(np.abs(centred).max())
    require(math.isfinite(largest), "X: values too large to be added up; scale them down")
    power = float(_power_of_two(np.array(largest)))
    unit = power * math.sqrt(float(((centred / power) ** 2).sum(1).mean()))
    return origin, unit if unit > 0 else 1.0


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
    with np.errstate(over="ignore"):  # the bank refuses what overflows float32
        z = (X - origin) / unit
        if metric == "cosine":
            z = z / _power_of_two(np.abs(z).max(1, keepdims=True))
            z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return np.ascontiguousarray(z, dtype=np.float32)


def _power_of_two(largest: np.ndarray) -> np.ndarray:
    """Powers of two to divide by, exactly, before squares that could overflow float64."""
    return np.ldexp(1.0, np.frexp(largest)[1] - 1)
