"""Views of held-out images: the mirror image, the image a little shifted; each embedded and searched in the same bank.

The bank keeps the rows as they are. A view takes no label, and is made of held-out rows alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnknn.core.artifacts import BANK, Artifact, Neighbours, finite
from attnknn.core.errors import require
from attnknn.core.files import atomic_folder, read_json, write_json


@dataclass(frozen=True)
class View(Artifact):
    """What encoder and bank make of one view of some rows.

    Attributes:
        rows: int32 (M,), ascending, the rows that the view is of.
        z: float32 (M, D), their embeddings under this view.
        ids, sims, metric: their K nearest bank rows, as in `Neighbours`.
        logits: float32 (M, C) of the encoder's own linear head, or None where it has none.
    """

    rows: np.ndarray
    z: np.ndarray
    ids: np.ndarray
    sims: np.ndarray
    metric: str
    logits: np.ndarray | None = None

    def __post_init__(self) -> None:
        _ = self.neighbours  # refuses what is no set of neighbours
        for name, value in (("z", self.z), ("logits", self.logits)):
            if value is None:
                continue
            right = value.dtype == np.float32 and value.ndim == 2 and len(value) == len(self.rows)
            label = f"{name}: {value.dtype.name} of shape {value.shape}"
            require(right, f"{label}; expected float32 and {len(self.rows)} rows")
            require(finite(value), f"{name}: NaN or infinite values")

    @property
    def neighbours(self) -> Neighbours:
        """The nearest bank rows of this view's rows."""
        return Neighbours(self.rows, self.ids, self.sims, self.metric)


def held_out(part: np.ndarray) -> np.ndarray:
    """Row ids int32 (M,), ascending, of all parts (N,) but the bank."""
    return np.flatnonzero(part != BANK).astype(np.int32)


def save_views(views: Iterator[tuple[str, View]], folder: Path) -> list[str]:
    """Write views by their names to folders inside `folder`, in one step; their names, also to `views.json` there."""
    names = []
    with atomic_folder(folder) as draft:
        for name, view in views:
            view.save(draft / name)
            names.append(name)
        write_json(draft / "views.json", {"views": names})
    return names


def load_views(folder: Path) -> Mapping[str, View]:
    """Open what `save_views` wrote; empty where there are no views, as of a table.

    Raises:
        InputError: a file is missing or damaged.
    """
    names = read_json(Path(folder) / "views.json")["views"]
    return {name: View.load(Path(folder) / name) for name in names}
