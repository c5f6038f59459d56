"""Read rows with labels in blocks: from arrays, files or an iterator."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from attnknn.core.errors import require
from attnknn.core.files import load_array

_ROWS = 65_536


def labelled_blocks(X: Any, y: Any) -> Iterator[tuple[Any, Any]]:
    """Yield rows and labels in blocks.

    Args:
        X: (N, D), the path of a `.npy` file of it, which is memory-mapped, the address of a Parquet file or a Lance
            table, or an iterable of pairs of blocks (M, D) and their labels (M,).
        y: (N,), the path of a `.npy` file of it, the name of the column of labels in a table, or None for pairs.
    """
    X, y = (load_array(Path(v)) if isinstance(v, str | Path) and str(v).endswith(".npy") else v for v in (X, y))
    if isinstance(X, str | Path):
        require(isinstance(y, str), f"y: {type(y).__name__}; give the name of the column of labels in {X}")
        from attnknn.index.lance_table import read_table

        yield from read_table(str(X), y, _ROWS)
    elif y is None:
        pairs = "X: without y give an iterable of pairs of blocks (X, y)"
        require(isinstance(X, Iterable), pairs)
        for block in X:
            require(isinstance(block, tuple | list) and len(block) == 2, pairs)
            yield block[0], block[1]
    else:
        require(not isinstance(y, str), f"y: {y}, the name of a column; X is an array, so give an array of labels")
        n, labels = _num_samples(X), _num_samples(y)
        require(n == labels, f"y: {labels} labels for {n} rows")
        for start in range(0, n, _ROWS):
            rows = slice(start, start + _ROWS)
            yield _safe_indexing(X, rows), _safe_indexing(y, rows)
