"""What rows look like to a person: pictures or columns, kept beside their vectors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from attnknn.core.errors import InputError, require


@dataclass(frozen=True)
class Examples:
    """Rows in the order of a memory's ids, or of test cases.

    Attributes:
        table: a data frame of strings, NaN where missing; None where there are no columns.
        images: uint8 (N, C, H, W); None where there are no pictures.
    """

    table: Any = None
    images: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Self:
        """Those at some positions."""
        table = None if self.table is None else self.table.iloc[rows].reset_index(drop=True)
        return type(self)(table, None if self.images is None else self.images[rows])

    def joined(self, more: Self, count: int) -> Self:
        """These, then so many more."""
        import pandas as pd

        table = self.table
        if table is not None:  # columns that the new rows lack stay empty
            new = pd.DataFrame(index=range(count)) if more.table is None else more.table
            table = pd.concat([table, new.reindex(columns=table.columns)], ignore_index=True)
        images = self.images
        if images is not None:
            assert more.images is not None
            images = np.concatenate([images, more.images])
        return type(self)(table, images)

    def row(self, at: int) -> dict[str, str | None]:
        """The columns of one row; none where there are none."""
        if self.table is None:
            return {}
        return {str(name): None if value != value else str(value) for name, value in self.table.iloc[at].items()}

    def picture(self, at: int) -> np.ndarray | None:
        """uint8 (H, W) or (H, W, 3)."""
        if self.images is None:
            return None
        image = np.asarray(self.images[at])
        return image[0] if len(image) == 1 else image[:3].transpose(1, 2, 0)

    def save(self, folder: Path, name: str) -> None:
        """Write to a folder that is there."""
        if self.table is not None:
            self.table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
        if self.images is not None:
            np.save(folder / f"{name}.npy", self.images)

    @classmethod
    def load(cls, folder: Path, name: str, rows: int) -> Self:
        """What `save` wrote, of so many rows; images memory-mapped.

        Raises:
            InputError: a file is damaged.
        """
        import pandas as pd

        table = images = None
        try:
            if (folder / f"{name}.csv").is_file():
                table = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False, na_values=[""])
            if (folder / f"{name}.npy").is_file():
                images = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{folder}: {name} damaged ({error}); copy the model again, or fit it anew") from None
        for of in (table, images):
            require(of is None or len(of) == rows, f"{folder}: {name} are not {rows}; fit the model anew")
        return cls(table, images)
