"""Parse and validate a query (an image, a row or a vector) as a `Batch`; what does not fit the model is an InputError.

Functions take the model's input and what a client sent.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from attnknn.app.model.inputs import Batch, Input, Pictures, Rows, Vectors
from attnknn.app.server.security import IMAGE_PIXELS, RequestError
from attnknn.core.errors import InputError, require
from attnknn.data.read_csv import MISSING

_MAX_CELL = 10_000  # characters
_PICTURE = "a picture's bytes with Content-Type image/…"


def parse_picture(model_input: Input, data: bytes) -> Batch:
    """Decode one image file."""
    if not isinstance(model_input, Pictures):
        raise RequestError(415, f"this model does not read pictures but {model_input.kind}; send JSON")
    require(len(data) > 0, "the picture is empty; send its bytes")
    return Batch(["the picture"], model_input.decode(data, "the picture", IMAGE_PIXELS)[None])


def parse_row(model_input: Input, row: Any) -> Batch:
    """Parse one row, strings by column, like the cells of a CSV file."""
    if isinstance(model_input, Pictures):
        raise InputError(f"this model reads pictures; send {_PICTURE}")
    require(isinstance(row, dict) and len(row) > 0, "row: give an object of strings by column, such as {…}")
    columns, layout = (
        (model_input.columns, model_input.layout) if isinstance(model_input, Rows) else (model_input.names, {})
    )
    if isinstance(model_input, Vectors) and not columns:
        raise InputError(f"this model reads vectors without names; send a vector of {model_input.dim} numbers")
    missing = [name for name in columns if name not in row]
    unknown = [name for name in row if name not in columns]
    expected = f"the model reads {_listed(columns)}"
    require(not missing, f"the row: no column {_listed(missing)}; {expected}")
    require(not unknown, f"the row: unknown column {_listed(unknown)}; {expected}")
    cells = pd.DataFrame([[_text(name, row[name]) for name in columns]], ["the row"], list(columns), dtype=object)
    for name, characters in layout.get("strip", {}).items():
        if name in columns:
            cells[name] = cells[name].str.strip(characters + " ")
    return Batch(["the row"], cells.mask(cells.isin([*MISSING, *layout.get("missing", ())])))


def _text(name: str, value: Any) -> str:
    column = f"column {name[:60]!r}"
    if value is None:
        return ""
    if type(value) in (int, float):
        value = repr(value)
    require(isinstance(value, str), f"{column}: not a string; give a string or a number")
    require(len(value) <= _MAX_CELL, f"{column}: {len(value)} characters; at most {_MAX_CELL} are allowed")
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise InputError(f"{column}: invalid Unicode; correct it") from None
    require("\0" not in value, f"{column}: contains a NUL character; remove it")
    return value.strip()


def parse_vector(model_input: Input, vector: Any) -> Batch:
    """Parse one vector: a list of finite numbers, one for each dimension of the model."""
    if not isinstance(model_input, Vectors):
        expected = "a row: strings by column" if isinstance(model_input, Rows) else _PICTURE
        raise InputError(f"this model does not read vectors; send {expected}")
    require(isinstance(vector, list), "vector: give a list of numbers")
    dim = model_input.dim
    require(len(vector) == dim, f"vector: {len(vector)} numbers; this model was fitted on {dim}")
    numeric = all(type(value) in (int, float) for value in vector)
    require(numeric, "vector: an element is not a number; give numbers only")
    try:
        values = np.array([[float(value) for value in vector]])
    except OverflowError:
        values = np.array([[math.inf]])
    require(bool(np.isfinite(values).all()), "vector: NaN or infinite values; give finite numbers")
    return Batch(["the vector"], values)


def _listed(names: Any) -> str:
    quoted = [repr(str(name)[:60]) for name in list(names)[:12]]
    return ", ".join(quoted) + (", …" if len(names) > 12 else "")
