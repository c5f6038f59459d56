"""Labels of the rows that a model reads: a column, a file beside them, or the folders of pictures."""

from pathlib import Path
from typing import TYPE_CHECKING

from attnknn.core.errors import InputError, require

if TYPE_CHECKING:
    import pandas as pd

    from attnknn.app.model.inputs import Batch
    from attnknn.app.model.model import Model


def batch_labels(
    model: "Model", batches: list["Batch"], target: str | None, rows: Path | None
) -> tuple[list[str], "pd.DataFrame | None"]:
    """The label of each row, as text, and the other columns of `rows`, if any.

    Args:
        target: column of the labels in the batches, or in `rows`.
        rows: file of labels; see `read_labels`.

    Raises:
        InputError: a label or the column is missing, or their number is not that of the rows.
    """
    names = [name for batch in batches for name in batch.names]
    if rows is not None:
        from attnknn.app.model.labelled_rows import read_labels

        file_labels, columns = read_labels(rows, target, getattr(model.input, "layout", {}))
        require(len(file_labels) == len(names), f"{rows}: {len(file_labels)} labels for {len(names)} rows")
        return list(file_labels), columns
    labels: list[str] = []
    for batch in batches:
        columns = batch.columns
        if columns is None:
            raise InputError("--target: the input has no columns; give --label or --rows")
        require(target in columns, f"{batch.names[0]}: no column {target!r}; correct --target")
        column = columns[target]
        require(not column.isna().any(), f"{column.isna().idxmax()}: no label in column {target!r}; add one")
        labels += column.tolist()
    return labels, None


def folder_labels(names: list[str]) -> list[str]:
    """Names of the folders that hold these files."""
    return [Path(name).parent.name for name in names]
