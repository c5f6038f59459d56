"""CSV files → columns of strings, and class numbers."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from attnknn.errors import InputError
from attnknn.table_schema import as_floats

MISSING = ("", "NA", "N/A", "n/a", "na", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")


def read_csv(
    path: Path, target: str, *, target_strip: str = "", drop: Sequence[str] = (), **layout: Any
) -> tuple[pd.DataFrame, pd.Series]:
    """Features and raw labels of a CSV file, as `read_rows` gives them.

    Args:
        path: the file.
        target: the column of the labels.
        target_strip: characters to strip from both ends of a label.
        drop: columns to leave out.
        layout: of `read_rows`.

    Raises:
        InputError: the file is missing or malformed, or a column or label is.
    """
    frame = read_rows(path, **layout, strip={target: target_strip})
    _check_columns(path.name, list(frame.columns), target, drop)
    labels = frame.pop(target)
    if labels.isna().any():
        where = labels.index[labels.isna()][0]
        raise InputError(f"{where}: no label in column {target!r}; give it one, or remove the line")
    return frame.drop(columns=list(drop)), labels


def read_rows(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    separator: str = ",",
    comment: str = "",
    missing: Sequence[str] = (),
    strip: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """A data frame of a CSV file: trimmed strings, NaN where missing, indexed `<file> line <n>`.

    Args:
        path: the file, UTF-8.
        columns: names of all columns, where the file has no header line.
        separator: one character.
        comment: lines that start with it are skipped; empty for none.
        missing: what stands for a missing value, besides `MISSING`.
        strip: characters to strip from both ends of a column's values.

    Raises:
        InputError: the file is missing or malformed.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            # Skipped lines stay in as empty ones, so that the reader's line numbers are the file's.
            lines = ("\n" if comment and line.startswith(comment) else line for line in file)
            reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{path}: no such file; correct the path, or run `dvc repro` to download it") from None
    except (csv.Error, UnicodeDecodeError, TypeError) as error:
        raise InputError(f"{path.name}: no valid CSV in UTF-8 ({error}); correct the file or the separator") from None
    if columns is None:
        if not rows:
            raise InputError(f"{path.name}: empty; give a file with a header line and rows")
        columns, rows = [name.strip() for name in rows[0][1]], rows[1:]
    for name in columns:
        if list(columns).count(name) > 1:
            raise InputError(f"{path.name}: column {name!r} appears twice; rename one")
    for line, row in rows:
        if len(row) != len(columns):
            raise InputError(
                f"{path.name} line {line}: {len(row)} values for {len(columns)} columns; "
                f"correct the line, `columns` or the separator {separator!r}"
            )
    if not rows:
        raise InputError(f"{path.name}: no rows; give a file with rows")
    index = [f"{path.name} line {line}" for line, _ in rows]
    frame: Any = pd.DataFrame([row for _, row in rows], index=index, columns=list(columns), dtype=object)
    frame = frame.apply(lambda column: column.str.strip())
    for name in strip:
        if name in frame.columns:
            frame[name] = frame[name].str.strip(strip[name] + " ")
    return frame.mask(frame.isin([*MISSING, *missing]))


def _check_columns(file: str, columns: Sequence[str], target: str, drop: Sequence[str]) -> None:
    given = ", ".join(columns)
    if target not in columns:
        raise InputError(f"{file}: no target column {target!r}; correct `target` or `separator` (columns are {given})")
    for name in drop:
        if name not in columns or name == target:
            raise InputError(f"{file}: {name!r} in `drop` is no feature column; correct it (columns are {given})")
    if len(set(columns) - {target, *drop}) == 0:
        raise InputError(f"{file}: no column beside the target {target!r}; give some features")


def class_numbers(
    labels: Any, threshold: float | None = None, mapping: dict[str, str] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number the labels: int64 (N,), and the class names.

    Args:
        labels: a series of raw labels, indexed by where they stand, named for their file and column.
        threshold: two classes, `< threshold` and `≥ threshold`.
        mapping: raw label to class name; classes come in its order.

    Raises:
        InputError: a label is no number or unmapped, or all rows have one class.
    """
    numbers = as_floats(labels)
    if threshold is not None:
        if numbers.isna().any():
            where = labels.index[numbers.isna()][0]
            raise InputError(f"{where}: label {labels[where]!r} is no number; correct it, or the threshold")
        classes = (f"< {threshold:g}", f"≥ {threshold:g}")
        y = (numbers >= threshold).to_numpy(np.int64)
    else:
        if mapping is not None:
            named = labels.map(mapping)
            if named.isna().any():
                where = labels.index[named.isna()][0]
                raise InputError(f"{where}: label {labels[where]!r} is not in the rule's map; add it there")
            classes, labels = tuple(dict.fromkeys(mapping.values())), named
        else:
            # Numbers in their own order, so that 10 comes after 9.
            classes = tuple(sorted(labels.unique(), key=float if numbers.notna().all() else str))
        y = pd.Index(classes).get_indexer(pd.Index(labels)).astype(np.int64)
    if len(np.unique(y)) < 2:
        only = classes[y[0]]
        raise InputError(f"{labels.name}: every row has class {only!r}; give rows of two classes or more")
    return y, classes
