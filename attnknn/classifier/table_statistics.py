"""Neighbour statistics of a part of the rows of a Lance table."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from attnknn.classifier.nearest import SIZES
from attnknn.index.nearest_rows import NearestRows
from attnknn.neighbours.statistics import agreement_and_density


@dataclass
class StatisticsOfPart:
    """Call: rows (M,) of a part of the lists, their label agreement (M, S) and density (M,)."""

    nearest: NearestRows
    labels: np.ndarray  # of the table, sorted

    @cached_property
    def _y(self) -> Int[np.ndarray, " N"]:
        blocks = self.nearest.bank.blocks(["label"])
        return np.concatenate([class_numbers(self.labels, block["label"]).astype(np.int32) for block in blocks])

    def __call__(self, task: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y, results = self._y, []
        for rows, ids, sims in self.nearest.search(*task):
            labels = np.where(ids >= 0, y[ids], -1)
            results.append((rows, *agreement_and_density(y[rows], labels, sims, SIZES)))
        none = (np.empty(0, int), np.empty((0, len(SIZES)), np.float32), np.empty(0, np.float32))
        rows, agreement, density = (np.concatenate(values) for values in zip(none, *results, strict=True))
        return rows, agreement, density


def class_numbers(labels: np.ndarray, values: np.ndarray) -> Int[np.ndarray, " M"]:
    """Positions of values in sorted labels."""
    return np.searchsorted(labels, values.astype(labels.dtype, copy=False))
