"""Render examples, answers and the model's input as JSON and PNG for the page."""

import io
import secrets
from typing import Any

import numpy as np
from PIL import Image

from attnknn.app.model.inputs import Pictures, Vectors
from attnknn.app.model.model import Model
from attnknn.app.server.queries import Query
from attnknn.data.schema import MISSING

_MAX_DIMENSIONS = 256  # shown of a vector
_SCALE_ROWS = 10_000  # maximum sample of the memory for mean and standard deviation
_MAX_VALUES = 200  # suggested for a category


class Renderer:
    """Render examples of one model; vectors are standardised by the memory at construction."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._version = secrets.token_hex(4)  # browsers cache images by name, and models share names
        bank = model.memory.bank
        z = bank.z[bank.ids >= 0]
        sample = z[:: -(-len(z) // _SCALE_ROWS), :_MAX_DIMENSIONS].astype(np.float64)
        self._mean, self._std = sample.mean(0), np.maximum(sample.std(0), 1e-12)
        unreadable = model.examples.table is None and model.examples.images is None
        self._show_vectors = unreadable or isinstance(model.input, Vectors)

    def example(self, query: Query, whole: bool = False) -> dict[str, Any]:
        """Columns, image address and vector of a query, as far as the model has them.

        Args:
            whole: return a long vector in full, to be edited and sent.
        """
        example: dict[str, Any] = {}
        if query.examples.images is not None:
            example["picture"] = f"/api/picture/{query.name}.png?{self._version}"
        if query.examples.table is not None:
            example["columns"] = query.examples.columns(query.row)
        if self._show_vectors:
            example["vector"] = self._vector(query, None if whole else _MAX_DIMENSIONS)
        return example

    def _vector(self, query: Query, limit: int | None) -> dict[str, Any]:
        """Values in the input's units, and their z-scores (`off`)."""
        c = self._model.classifier
        if query.memory_id is None:
            z, x = c._vectors(query.vector)[0], query.vector[0]
        else:
            bank = self._model.memory.bank
            z = bank.z[np.flatnonzero(bank.ids == query.memory_id)[0]]
            x = z[:limit].astype(np.float64) * c._unit + c._origin[:limit]
            x = np.where(np.abs(x) < 1e-6 * c._unit, 0.0, x)  # rounding error of a 0
        z_scores = ((z[:_MAX_DIMENSIONS].astype(np.float64) - self._mean) / self._std).clip(-9, 9)
        return {"values": [float(f"{value:.5g}") for value in x[:limit]], "off": z_scores.round(2).tolist()}

    def input_form(self) -> dict[str, Any]:
        """Description of the model's input for the page's form."""
        model_input = self._model.input
        if isinstance(model_input, Pictures):
            return {"shape": list(model_input.shape)}
        if isinstance(model_input, Vectors):
            names = model_input.names or tuple(f"dimension {i}" for i in range(model_input.dim))
            return {"dim": model_input.dim, "names": list(names[:_MAX_DIMENSIONS]), "named": bool(model_input.names)}
        schema = model_input.schema
        columns: list[dict[str, Any]] = [{"name": c.name, "kind": "number", "scale": c.scale} for c in schema.numeric]
        for c in schema.categories:
            values = [value for value in c.values if value != MISSING]
            columns.append({"name": c.name, "kind": "category", "values": values[:_MAX_VALUES]})
        return {"columns": columns}


def png(image: np.ndarray) -> bytes:
    """Encode uint8 (H, W) or (H, W, 3) as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "PNG")
    return buffer.getvalue()
