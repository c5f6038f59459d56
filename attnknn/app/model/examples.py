"""Readable form of rows: images or table columns, stored beside their vectors."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from attnknn.core.artifacts import check_array
from attnknn.core.errors import InputError, require
from attnknn.core.files import load_array


@dataclass(frozen=True)
class Examples:
    """Table columns or images of rows, in the order of a memory's ids or of test cases."""

    table: Any = None  # a data frame of strings, NaN where missing
    images: np.ndarray | None = None  # uint8 (N, C, H, W)

    def take(self, rows: np.ndarray) -> Self:
        """The rows at these positions."""
        table = None if self.table is None else self.table.iloc[rows].reset_index(drop=True)
        return type(self)(table, None if self.images is None else self.images[rows])

    def append(self, more: Self, count: int) -> Self:
        """Concatenate with the `count` rows of `more`; columns and images missing there are empty."""
        table = self.table
        if table is not None:
            new = pd.DataFrame(index=range(count)) if more.table is None else more.table
            table = pd.concat([table, new.reindex(columns=table.columns)], ignore_index=True)
        images = self.images
        if images is not None:
            blank = np.full((count, *images.shape[1:]), 127, images.dtype)
            images = np.concatenate([images, blank if more.images is None else more.images])
        return type(self)(table, images)

    def columns(self, row: int) -> dict[str, str | None]:
        """Text by column name of one row; empty without a table."""
        if self.table is None:
            return {}
        return {str(name): None if value != value else str(value) for name, value in self.table.iloc[row].items()}

    def image(self, row: int) -> np.ndarray | None:
        """Image of one row, uint8 (H, W) or (H, W, 3)."""
        if self.images is None:
            return None
        image = np.asarray(self.images[row])
        return image[0] if len(image) == 1 else image[:3].transpose(1, 2, 0)

    def save(self, folder: Path, name: str) -> None:
        """Write `name`.csv and `name`.npy to an existing folder."""
        if self.table is not None:
            self.table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", quoting=csv.QUOTE_ALL)
        if self.images is not None:
            np.save(folder / f"{name}.npy", self.images)

    @classmethod
    def load(cls, folder: Path, name: str, rows: int) -> Self:
        """Read the files of `save`, images memory-mapped; raise InputError if one is damaged or has not `rows` rows."""
        table = images = None
        try:
            if (folder / f"{name}.csv").is_file():
                # pandas would rename columns without a name, or with the name of another.
                text = {"dtype": str, "keep_default_na": False, "na_values": [""], "skip_blank_lines": False}
                lines = pd.read_csv(folder / f"{name}.csv", header=None, **text)
                table = lines.iloc[1:].reset_index(drop=True).set_axis(lines.iloc[0].fillna("").tolist(), axis=1)
            if (folder / f"{name}.npy").is_file():
                images = load_array(folder / f"{name}.npy")
                check_array(f"{name}.npy", images, "uint8", 4)
        except Exception as error:  # damaged texts raise anything
            raise InputError(f"{folder}: {name} damaged ({error}); copy the model again, or fit again") from None
        for suffix, values in (("csv", table), ("npy", images)):
            count = rows if values is None else len(values)
            changed = f"{folder / name}.{suffix}: {count} rows, the model has {rows}; the file was changed"
            require(count == rows, f"{changed}. Restore it or fit again.")
        return cls(table, images)
