"""Identical rows, which belong on the same side of a split, unless rows are duplicates because values are few."""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

_FEW_VALUES = 20  # of a column of categories


def first_identical(x: np.ndarray) -> np.ndarray:
    """Position of the first row of (N, …) that is identical to each row: (N,), its own without duplicates."""
    x = np.ascontiguousarray(x + 0 if x.dtype.kind == "f" else x).reshape(len(x), -1)  # −0.0 + 0 is 0.0
    rows = x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first[inverse]


def mostly_duplicates(first: np.ndarray, x: np.ndarray) -> bool:
    """Whether fewer than half of the rows (or three) are distinct, in a table of a few categories.

    Then new rows will be copies too, so that rows are split as if all differed. Where a column has more than
    `_FEW_VALUES` values, and more than half as many as there are distinct rows, or the two columns of most values have
    over four times as many pairs as there are distinct rows, the rows are copies of some.

    Args:
        first: (N,) of `first_identical(x)`.
        x: (N, …).
    """
    distinct = np.flatnonzero(first == np.arange(len(first)))
    if len(distinct) >= max(3, len(first) / 2):
        return False
    columns = np.sort(x[distinct].reshape(len(distinct), -1), axis=0)
    *_, second, most = np.sort(np.r_[1, 1 + (columns[1:] != columns[:-1]).sum(0)])
    return bool(most <= max(_FEW_VALUES, len(distinct) / max(2, second / 4)))


def split_groups(first: np.ndarray, x: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """Row (N,) that each row is on one side of a split with: `first`, or the row itself if `mostly_duplicates`.

    Args:
        groups: (N,) named groups; the result is then the first row linked by identical rows and equal groups.
    """
    rows = np.arange(len(first))
    first = rows if mostly_duplicates(first, x) else first
    if groups is None:
        return first
    nodes = len(rows) + np.unique(groups, return_inverse=True)[1]
    edges = np.tile(rows, 2), np.concatenate([first, nodes])
    links = coo_array((np.ones(2 * len(rows), np.int8), edges), shape=(nodes.max() + 1,) * 2)
    return first_identical(connected_components(links, directed=False)[1][rows])


def duplicate_counts(
    first: np.ndarray, y: np.ndarray, test: np.ndarray, groups: np.ndarray | None = None
) -> dict[str, int]:
    """Count rows identical to an earlier one, those with another label than it, and test rows with a training copy.

    With named groups, count them too, and the test rows whose group is in training, as in official parts.
    """
    counts = {
        "duplicates": int((first != np.arange(len(first))).sum()),
        "conflicting_duplicates": int((y != y[first]).sum()),
        "test_duplicates": int(np.isin(first[test], first[~test]).sum()),
    }
    if groups is not None:
        counts["groups"] = len(np.unique(groups))
        counts["test_rows_of_training_groups"] = int(np.isin(groups[test], groups[~test]).sum())
    return counts
