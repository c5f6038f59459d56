"""Views of held-out images for test-time augmentation: mirrored and shifted images, searched in the unchanged bank."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnknn.core.artifacts import BANK, Neighbours, check_array
from attnknn.core.errors import require
from attnknn.core.files import atomic_folder, read_json, write_json


@dataclass(frozen=True)
class View(Neighbours):
    """Neighbours and embeddings of one view of held-out rows."""

    z: np.ndarray  # float32 (M, D), embeddings of the view
    logits: np.ndarray | None = None  # float32 (M, C) of the encoder's linear head, or None without one

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("z", self.z), ("logits", self.logits)):
            if value is not None:
                check_array(name, value, "float32", 2)
                require(len(value) == len(self.rows), f"{name}: {len(value)} rows; expected {len(self.rows)}")


def held_out(part: np.ndarray) -> np.ndarray:
    """Row ids int32 (M,), ascending, of all rows outside the bank, given the part (N,) of each row."""
    return np.flatnonzero(part != BANK).astype(np.int32)


def save_views(views: Iterator[tuple[str, View]], folder: Path) -> list[str]:
    """Write each view to a folder of its name inside `folder`, atomically; return the names."""
    names = []
    with atomic_folder(folder) as draft:
        for name, view in views:
            view.save(draft / name)
            names.append(name)
        write_json(draft / "views.json", {"views": names})
    return names


def load_views(folder: Path) -> Mapping[str, View]:
    """Load saved views by name; raise InputError if a file is missing or damaged."""
    names = read_json(Path(folder) / "views.json")["views"]
    return {name: View.load(Path(folder) / name) for name in names}
