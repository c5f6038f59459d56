"""Centre and scale columns to float32 vectors; the same factor for all columns, so that distances keep their order."""

import math
from collections.abc import Sequence

import numpy as np

from attnknn.core.errors import InputError, require

_DWARFS = 1e9  # ratio from which a row dwarfs the others: after scaling they are nearly the same point


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
    """Raise InputError if the largest value of X (N, D) dwarfs those of the other rows, whose distances it would erase.

    A row's largest absolute value is compared with the median of those of all rows that are not zero.

    Args:
        rows, columns: names for the error; empty for numbers.
    """
    largest = np.maximum(X.max(1), -X.min(1))
    row = int(largest.argmax())
    with np.errstate(over="ignore"):
        usual = float(np.median(largest[largest > 0])) if largest[row] > 0 else 0.0
    if largest[row] / _DWARFS > usual:
        column = int(np.abs(X[row]).argmax())
        where = f"{rows[row] if rows else f'X row {row}'}, column {columns[column] if columns else column}"
        usually = f"over {_DWARFS:g} times the largest value of a usual row ({usual:.3g})"
        raise InputError(f"{where}: {X[row, column]:g}, {usually}; correct it, or leave the row out")


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
