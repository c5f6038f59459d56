"""What a client sends in JSON, checked and as a `Batch`."""

import math
from typing import Any

import numpy as np

from attnknn.app.model.inputs import Batch, Input, Pictures, Rows, Vectors
from attnknn.core.errors import InputError, require

_CELL = 10_000  # characters
_WHERE = "the row"


def batch_of_row(given: Input, row: Any) -> Batch:
    """One row of texts by column, read as a cell of a CSV file would be.

    Raises:
        InputError: it is none, has other columns, or cells that are no texts.
    """
    import pandas as pd

    from attnknn.data.read_csv import MISSING

    if isinstance(given, Pictures):
        raise InputError("this model reads pictures; send a picture's bytes with Content-Type image/…")
    require(isinstance(row, dict) and len(row) > 0, "row: give an object of texts by column, such as {…}")
    columns = given.columns if isinstance(given, Rows) else given.names
    if isinstance(given, Vectors) and not columns:
        raise InputError(f"this model reads vectors without names; send a vector of {given.dim} numbers")
    unknown = [name for name in row if name not in columns]
    lacks = [name for name in columns if name not in row]
    known = f"the model reads {_listed(columns)}"
    require(not lacks, f"{_WHERE}: no column {_listed(lacks)}; {known}")
    require(not unknown, f"{_WHERE}: column {_listed(unknown)} is none of the model's; {known}")
    layout = given.layout if isinstance(given, Rows) else {}
    missing = {*MISSING, *layout.get("missing", ())}
    cells: dict[str, Any] = {}
    for name in columns:
        text = _text(name, row[name])
        text = text.strip(layout.get("strip", {}).get(name, "") + " ") if name in layout.get("strip", {}) else text
        cells[name] = np.nan if text in missing else text
    return Batch([_WHERE], pd.DataFrame([cells], index=[_WHERE], columns=list(columns), dtype=object))


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if type(value) in (int, float):
        value = repr(value)
    require(isinstance(value, str), f"column {name[:60]!r}: no text; give one, or a number")
    require(len(value) <= _CELL, f"column {name[:60]!r}: {len(value)} characters; at most {_CELL} are taken")
    try:
        value.encode()
    except UnicodeEncodeError:  # half a pair of surrogates, which no file can hold
        raise InputError(f"column {name[:60]!r}: no valid Unicode; correct it") from None
    require("\0" not in value, f"column {name[:60]!r}: holds a NUL; remove it")
    return value.strip()


def batch_of_vector(given: Input, vector: Any) -> Batch:
    """One vector of numbers.

    Raises:
        InputError: it is none, or of other dimensions.
    """
    if not isinstance(given, Vectors):
        takes = "a row: texts by column" if isinstance(given, Rows) else "a picture's bytes with Content-Type image/…"
        raise InputError(f"this model does not read vectors; send {takes}")
    require(isinstance(vector, list), "vector: give a list of numbers")
    require(len(vector) == given.dim, f"vector: {len(vector)} numbers; this model was taught {given.dim}")
    numbers = all(type(value) in (int, float) for value in vector)
    require(numbers, "vector: something in it is no number; give numbers alone")
    try:
        values = np.array([[float(value) for value in vector]])
    except OverflowError:
        values = np.array([[math.inf]])
    require(bool(np.isfinite(values).all()), "vector: NaN or infinite values; give finite numbers")
    return Batch(["the vector"], values)


def _listed(names: Any) -> str:
    shown = [repr(str(name)[:60]) for name in list(names)[:12]]
    return ", ".join(shown) + (", …" if len(names) > 12 else "")
