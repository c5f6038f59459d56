"""Identical rows, which belong on the same side of a split, unless most rows are duplicates."""

import numpy as np


def first_identical(x: np.ndarray) -> np.ndarray:
    """Position of the first row of (N, …) that is identical to each row: (N,), its own without duplicates."""
    x = np.ascontiguousarray(x + 0 if x.dtype.kind == "f" else x).reshape(len(x), -1)  # −0.0 + 0 is 0.0
    rows = x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first[inverse]


def mostly_duplicates(first: np.ndarray) -> bool:
    """Whether fewer than half of the rows (or three) are distinct, as in tables of a few categories.

    Then new rows will be copies too, so that rows are split as if all differed. `first` is that of `first_identical`.
    """
    return int((first == np.arange(len(first))).sum()) < max(3, len(first) / 2)


def split_groups(first: np.ndarray) -> np.ndarray:
    """Group (N,) of each row in splits: `first`, or the row itself if `mostly_duplicates`."""
    return np.arange(len(first)) if mostly_duplicates(first) else first


def duplicate_counts(first: np.ndarray, y: np.ndarray, test: np.ndarray) -> dict[str, int]:
    """Count rows identical to an earlier one, those with another label than it, and test rows with a training copy."""
    return {
        "duplicates": int((first != np.arange(len(first))).sum()),
        "conflicting_duplicates": int((y != y[first]).sum()),
        "test_duplicates": int(np.isin(first[test], first[~test]).sum()),
    }
