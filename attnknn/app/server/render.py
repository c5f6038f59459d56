"""What rows look like on the page: columns, a link to a picture, or the numbers of a vector."""

import io
import secrets
from typing import Any

import numpy as np

from attnknn.app.model.examples import Examples
from attnknn.app.model.inputs import Pictures, Rows, Vectors
from attnknn.app.model.model import Model

_DIMENSIONS = 256  # of a vector that are shown
_SCALED_BY = 10_000  # rows of the memory at most, from which the spread of a vector's dimensions is taken
_VALUES = 200  # of a category that are offered


class Looks:
    """Of one model; what it reads of the memory is taken when it is made."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._mark = secrets.token_hex(4)  # browsers keep pictures, and another model's have the same names
        bank = model.classifier.memory_.bank
        z = bank.z[bank.ids >= 0]
        some = z[:: -(-len(z) // _SCALED_BY), :_DIMENSIONS].astype(np.float64)
        self._mean, self._spread = some.mean(0), np.maximum(some.std(0), 1e-12)
        bare = model.examples.table is None and model.examples.images is None
        self._numbers = bare or isinstance(model.input, Vectors)

    def of_memory(self, row: int, whole: bool = False) -> dict[str, Any]:
        """A row of the memory; of a long vector the first numbers, or the whole, to be asked again."""
        memory = self._model.classifier.memory_
        at = int(memory.positions(np.array([row]))[0])
        shown = self._shown(self._model.examples, at, f"memory/{row}")
        if self._numbers:
            shown["vector"] = self._vector(memory.bank.z[np.flatnonzero(memory.bank.ids == row)[0]], None, whole)
        return shown

    def of_query(
        self, vectors: np.ndarray, examples: Examples, at: int, name: str, whole: bool = False
    ) -> dict[str, Any]:
        """A row that was asked, or a test case; vectors (B, D), of which it is number `at`."""
        shown = self._shown(examples, at, name)
        if self._numbers:
            given = np.asarray(vectors)[at : at + 1]
            shown["vector"] = self._vector(self._model.classifier._vectors(given)[0], given[0], whole)
        return shown

    def _shown(self, examples: Examples, at: int, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        if examples.images is not None:
            shown["picture"] = f"/api/picture/{name}.png?{self._mark}"
        if examples.table is not None:
            shown["columns"] = examples.row(at)
        return shown

    def _vector(self, z: np.ndarray, given: np.ndarray | None, whole: bool) -> dict[str, Any]:
        """Values as they were given, and by how many standard deviations each is off the memory's mean."""
        first, c = z[:_DIMENSIONS].astype(np.float64), self._model.classifier
        most = None if whole else _DIMENSIONS
        if given is None:  # back from what is compared, where a 0 has become a few billionths
            given = z[:most].astype(np.float64) * c._unit + c._origin[:most]
            given = np.where(np.abs(given) < 1e-6 * c._unit, 0.0, given)
        off = ((first - self._mean) / self._spread).clip(-9, 9)
        values = [float(f"{value:.5g}") for value in given[:most]]
        return {"values": values, "off": [round(float(v), 2) for v in off]}

    def about(self) -> dict[str, Any]:
        """What the model reads, for a form that asks for it."""
        given = self._model.input
        if isinstance(given, Pictures):
            return {"shape": list(given.shape)}
        if isinstance(given, Rows):
            numbers = [
                {"name": c.name, "kind": "number", "scale": c.scale, "usual": f"{c.median:.6g}"}
                for c in given.schema.numeric
            ]
            categories = [
                {"name": c.name, "kind": "category", "values": [v for v in c.values if v != "(missing)"][:_VALUES]}
                for c in given.schema.categories
            ]
            return {"columns": [*numbers, *categories]}
        names = given.names or tuple(f"dimension {i}" for i in range(given.dim))
        return {"dim": given.dim, "names": list(names[:_DIMENSIONS]), "named": bool(given.names)}


def png(pixels: np.ndarray) -> bytes:
    """A file of uint8 (H, W) or (H, W, 3)."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def as_texts(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of `Model.answers` whose labels are texts, as `Model.labels` reads them and a page compares them."""
    answer["prediction"] = str(answer["prediction"])
    answer["set"] = [str(label) for label in answer["set"]]
    for of in (*answer["probabilities"], *answer["neighbours"]):
        of["label"] = str(of["label"])
    return answer
