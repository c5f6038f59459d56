"""Read CSV and Parquet files as columns of strings, and encode labels as class numbers."""

import csv
import gzip
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import numpy as np
import pandas as pd

from attnknn.core.errors import InputError, needs_extra, require
from attnknn.core.files import display_name
from attnknn.data.schema import as_floats

TABLES = (".csv", ".tsv", ".txt", ".data", ".csv.gz", ".tsv.gz", ".parquet")  # names of files that `row_chunks` reads
_SEPARATORS, _DETECT_LINES = ";\t|,", 50
_NUMBERS = 0.9  # minimum share of numbers in labels for the others to be errors
_CLASSES = 20  # maximum number of distinct numbers with fractions that are classes
MISSING = ("", "NA", "N/A", "n/a", "na", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")


def read_csv(
    path: Path, target: str, *, target_strip: str = "", drop: Sequence[str] = (), **layout: Any
) -> tuple[pd.DataFrame, pd.Series]:
    """Read features and labels of a CSV file, as strings.

    Args:
        target: the column of the labels.
        target_strip: characters to strip from both ends of a label.
        drop: columns to drop.
        layout: arguments of `row_chunks`.

    Raises:
        InputError: the file, a column or a label is missing or malformed.
    """
    frame = read_rows(path, **layout, strip={target: target_strip})
    columns = list(frame.columns)
    names = f"(columns are {', '.join(columns)})"
    require(target in columns, f"{path.name}: no target column {target!r}; correct `target` or `separator` {names}")
    labels = frame.pop(target)
    for name in drop:
        require(name in frame, f"{path.name}: {name!r} in `drop` is no feature column; correct it {names}")
    frame = frame.drop(columns=list(drop))
    require(frame.shape[1] > 0, f"{path.name}: no column beside the target {target!r}; give at least one feature")
    for where in labels.index[labels.isna()]:
        raise InputError(f"{where}: no label in column {target!r}; give it one, or remove the line")
    return frame, labels


def read_rows(path: Path, **layout: Any) -> Any:
    """Read a CSV file as one data frame; see `row_chunks`."""
    (frame,) = row_chunks(path, **layout)
    return frame


def row_chunks(
    source: Path | TextIO,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    comment: str = "",
    missing: Sequence[str] = (),
    strip: Mapping[str, str] = MappingProxyType({}),
    size: int = sys.maxsize,
) -> Iterator[Any]:
    """Yield data frames of the rows of a table: stripped strings, NaN where missing, index `<file> line <n>`.

    Args:
        source: path of a CSV file in UTF-8, which .gz may compress, or of a .parquet file; or an open CSV file.
        columns: names of all columns if the file has no header line.
        separator: None for `detect_separator`.
        comment: prefix of lines to skip; empty for none.
        missing: markers of missing values, besides `MISSING`.
        strip: characters to strip from both ends of a column's values.
        size: rows per chunk.

    Raises:
        InputError: the file is missing or malformed.
    """
    name = display_name(source.name) if isinstance(source, Path) else "standard input"

    def frame(table: Any) -> Any:
        table = table.apply(lambda column: column.str.strip())
        for column in strip:
            if column in table.columns:
                table[column] = table[column].str.strip(strip[column] + " ")
        return table.mask(table.isin([*MISSING, *missing]))

    def csv_frame(rows: list[tuple[int, list[str]]]) -> Any:
        index = [f"{name} line {line}" for line, _ in rows]
        return frame(pd.DataFrame([row for _, row in rows], index=index, columns=list(columns or ()), dtype=object))

    if isinstance(source, Path) and source.suffix.lower() == ".parquet":
        yield from map(frame, _parquet_tables(source, name, size))
        return
    try:
        with _open(source) if isinstance(source, Path) else nullcontext(source) as file:
            # Comments become empty lines, so that line numbers stay those of the file.
            lines = ("\n" if comment and line.startswith(comment) else line for line in _without_bom(file))
            first = _first_lines(lines)
            excel = re.fullmatch("sep=(.)", first[0].strip()) if first else None  # its first line may say so
            if excel is not None:
                separator, first[0] = separator or excel[1], "\n"
            likely, lines = detect_separator(first, name if separator is None else ""), chain(first, lines)
            separator = separator or likely
            reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
            rows: list[tuple[int, list[str]]] = []
            empty = True
            for row in reader:
                if not row:
                    continue
                if columns is None:
                    columns = [column.strip() for column in row]
                    wrong = len(columns) == 1 and likely != separator and likely in row[0]
                    others = f"one column with the separator {separator!r}; it looks like {likely!r}"
                    require(not wrong, f"{name}: {others}: give `separator` {likely!r}")
                    _check_unique(name, columns)
                    continue
                if len(row) != len(columns):
                    counts = f"{name} line {reader.line_num}: {len(row)} values for {len(columns)} columns"
                    raise InputError(f"{counts}; correct the line, `columns` or the separator {separator!r}")
                rows.append((reader.line_num, row))
                if len(rows) == size:
                    yield csv_frame(rows)
                    empty, rows = False, []
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{source}: no such file; correct the path, or run `dvc repro` to download it") from None
    except (csv.Error, UnicodeDecodeError, TypeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        text = "give a text file, saved as UTF-8"
        remedy = text if isinstance(error, UnicodeError) else "correct the file or the separator"
        raise InputError(f"{name}: no valid CSV in UTF-8 ({error}); {remedy}") from None
    require(columns is not None, f"{name}: empty; give a file with a header line and rows")
    _check_unique(name, columns or ())
    require(bool(rows) or not empty, f"{name}: no rows; give a file with rows")
    if rows:
        yield csv_frame(rows)


def _open(path: Path) -> Any:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix.lower() == ".gz" else path.open(encoding="utf-8")


def _first_lines(lines: Iterator[str]) -> list[str]:
    """Lines up to the 50th that is not empty."""
    first, filled = [], 0
    for line in lines:
        first.append(line)
        filled += bool(line.strip())
        if filled == _DETECT_LINES:
            break
    return first


def detect_separator(lines: Sequence[str], name: str = "") -> str:
    """Tab for .tsv; else that of ; tab | , with most values in the first line, and as many in nine of ten."""
    if name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    best, most = ",", 1
    for separator in _SEPARATORS:
        rows = [row for row in csv.reader(lines, delimiter=separator, skipinitialspace=True) if row]
        counts = [len(row) for row in (rows[:-1] if len(rows) >= _DETECT_LINES else rows)]  # the last may be cut off
        if counts and counts[0] > most and counts.count(counts[0]) >= 0.9 * len(counts):
            best, most = separator, counts[0]
    return best


def _parquet_tables(path: Path, name: str, size: int) -> Iterator[Any]:
    """Yield the rows of a Parquet file as data frames of strings, NaN where null, index `<file> row <n>`."""
    with needs_extra("tables", f"{name}"):
        import pyarrow
        from pyarrow import parquet
    require(path.is_file(), f"{path}: no such file; correct the path")
    try:
        file = parquet.ParquetFile(path)
        start = 0
        for table in [file.read()] if size == sys.maxsize else file.iter_batches(size):
            columns = {}
            for column, values in zip(table.schema.names, table.columns, strict=True):
                plain = not pyarrow.types.is_nested(values.type) and not pyarrow.types.is_binary(values.type)
                held = (
                    f"{name}: column {column!r} holds {values.type}; drop it, or name it 'vector' if it holds vectors"
                )
                require(plain, held)
                columns[column] = values.cast("string").to_pandas().astype(object)
            frame: Any = pd.DataFrame(columns)
            frame.index = pd.Index([f"{name} row {start + i}" for i in range(len(frame))])
            start += len(frame)
            yield frame.where(frame.notna(), np.nan)
    except pyarrow.ArrowException as error:
        raise InputError(f"{name}: no valid Parquet ({str(error).splitlines()[0]}); correct the file") from None
    require(start > 0, f"{name}: no rows; give a file with rows")


def _without_bom(lines: Iterable[str]) -> Iterator[str]:
    """Drop the byte order mark that Windows writes at the start of UTF-8 files and pipes."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")


def _check_unique(file: str, columns: Sequence[str]) -> None:
    for name in columns:
        require(list(columns).count(name) == 1, f"{file}: column {name!r} appears twice; rename one")


def refuse_continuous(labels: Any) -> None:
    """Raise InputError if labels are numbers with fractions, and neither few nor repeated.

    scikit-learn's `type_of_target` has such floats as continuous and texts as classes; a CSV file holds texts alone.
    At most 20 distinct labels that all repeat are classes, such as half stars. Numbers may have a decimal comma,
    separated thousands, a currency or percent sign; up to a tenth of the labels may be none, such as "?". Numbers with
    a leading 0, such as 01,02, are codes.

    Args:
        labels: series of strings; its name is that of the column in errors.
    """
    counts = labels.value_counts()
    if len(counts) <= _CLASSES and counts.min() > 1:
        return
    texts = labels.astype(str).str.replace(r"[\s%$€£¥]", "", regex=True)
    commas = texts.str.contains(",")
    thousands = texts[commas].str.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?").all()
    decimal = texts.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    without_commas = texts.str.replace(",", "", regex=False)
    numbers = as_floats((without_commas if thousands else decimal).where(commas, texts))
    finite = np.isfinite(numbers) & ~texts.str.match(r"[-+]?0\d")
    fractions = labels[finite & (numbers % 1 != 0)].unique()[:3]
    continuous = len(fractions) > 0 and finite.mean() >= _NUMBERS
    remedy = (
        "replace the numbers by classes such as low and high, or name the column in `categories` if each is a class"
    )
    require(not continuous, f"{labels.name}: continuous numbers ({', '.join(fractions)}, …), not classes; {remedy}")


def class_numbers(
    labels: Any, threshold: float | None = None, mapping: dict[str, str] | None = None, continuous: bool = False
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Encode labels as class numbers: int64 (N,), and the class names.

    Args:
        labels: series of labels; index and name locate them in errors.
        threshold: makes two classes, `< threshold` and `≥ threshold`.
        mapping: label to class name, in the order of the classes.
        continuous: whether continuous labels are classes too.

    Raises:
        InputError: a label is no number or unmapped, labels are continuous, or all rows have one class.
    """
    numbers = as_floats(labels)
    if threshold is not None:
        for where in labels.index[numbers.isna()]:
            raise InputError(f"{where}: label {labels[where]!r} is no number; correct it, or the threshold")
        classes = (f"< {threshold:g}", f"≥ {threshold:g}")
        y = (numbers >= threshold).to_numpy(np.int64)
    else:
        if mapping is not None:
            named = labels.map(mapping)
            for where in labels.index[named.isna()]:
                raise InputError(f"{where}: label {labels[where]!r} is not in the rule's map; add it there")
            classes, labels = tuple(dict.fromkeys(mapping.values())), named
        else:
            if not continuous:
                refuse_continuous(labels)
            # Numeric order, so that 10 comes after 9.
            classes = tuple(sorted(labels.unique(), key=float if numbers.notna().all() else str))
        y = pd.Index(classes).get_indexer(pd.Index(labels)).astype(np.int64)
    several = len(np.unique(y)) > 1
    require(several, f"{labels.name}: every row has class {classes[y[0]]!r}; give rows of two classes or more")
    return y, classes
