"""Save the input of a model, and load it again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnknn.app.model.inputs import Batch, Input, Pictures, Rows, Vectors
from attnknn.classifier.persistence import incomplete
from attnknn.core.errors import require
from attnknn.core.files import read_json, write_json
from attnknn.data.schema import Schema
from attnknn.encoder.encoder import Encoder

_FILE = "input.json"


def save_input(model_input: Input, folder: Path) -> None:
    """Write `input.json` and the encoder, if any, to an existing folder."""
    config: dict[str, Any]
    if isinstance(model_input, Vectors):
        config = {"dim": model_input.dim, "names": list(model_input.names), "pictures": model_input.pictures}
    elif isinstance(model_input, Rows):
        config = {"schema": model_input.schema.to_dict(), "layout": model_input.layout}
        config["stored"] = list(model_input.stored)
    else:
        config = {"bf16": model_input.bf16}
    write_json(folder / _FILE, {"kind": model_input.kind, **config})
    if not isinstance(model_input, Vectors) and model_input.encoder is not None:
        model_input.encoder.save(folder / "encoder")


def load_input(folder: Path, dim: int) -> Input:
    """Read an input saved by `save_input`.

    Args:
        dim: dimensions of the vectors that it must encode rows as.

    Raises:
        InputError: a file is damaged, or encodes rows otherwise.
    """
    path = folder / _FILE
    config = read_json(path, "copy the model again, or fit again")
    known = config.get("kind") in (Vectors.kind, Rows.kind, Pictures.kind)
    require(known, f"{path}: unknown kind of input; the model is of a later version: upgrade")
    try:
        model_input, blank = _restored(config, folder)
        with np.errstate(all="ignore"):
            vectors = model_input.vectors(Batch(["blank"], blank))
        fits = vectors.shape == (1, dim) and bool(np.isfinite(vectors).all())
        require(fits, f"{_FILE}: encodes rows otherwise than as {dim} finite numbers")
        return model_input
    except Exception as error:  # values of other types and shapes raise anything
        raise incomplete(folder.parent, error) from None


def _restored(config: dict[str, Any], folder: Path) -> tuple[Input, Any]:
    """The input of `save_input`, and a blank row to try it with."""
    if config["kind"] == Vectors.kind:
        dim, names, pictures = config["dim"], config["names"], config.get("pictures", "")
        named = len(names) in (0, dim) and all(type(name) is str for name in names)
        require(named, f"{_FILE}: {len(names)} names of {dim} columns")
        require(type(pictures) is str, f"{_FILE}: pictures {pictures}")
        return Vectors(dim, tuple(names), pictures=pictures), np.zeros((1, dim))
    if config["kind"] == Pictures.kind:
        pictures = Pictures(Encoder.load(folder / "encoder")[0], config["bf16"])
        return pictures, np.zeros((1, *pictures.shape), np.uint8)
    encoder = Encoder.load(folder / "encoder")[0] if (folder / "encoder").is_dir() else None
    layout = config["layout"]
    valid = all(_is_valid[name](value) for name, value in layout.items())
    require(valid, f"{_FILE}: layout {layout}")
    stored = config.get("stored", [])
    require(_are_texts(stored), f"{_FILE}: stored {stored}")
    rows = Rows(Schema.from_dict(config["schema"]), layout, encoder, tuple(stored))
    return rows, pd.DataFrame(np.nan, ["blank"], list(rows.columns), dtype=object)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(type(text) is str for text in value)


# Whether a keyword argument of `row_chunks` is one.
_is_valid: dict[str, Callable[[Any], bool]] = {
    "columns": _are_texts,
    "separator": lambda value: type(value) is str and len(value) == 1,
    "comment": lambda value: type(value) is str,
    "missing": _are_texts,
    "strip": lambda value: isinstance(value, dict) and _are_texts(list(value.values())),
}
