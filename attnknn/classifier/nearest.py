"""What a classifier needs of its training rows, wherever they are stored: a protocol, and batches for a head."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.classifier.linear import LinearClassifier
from attnknn.core.lock import SharedLock
from attnknn.neighbours.space import NeighbourBatch
from attnknn.neighbours.statistics import agreement_and_density

SIZES = (5, 20, 64)  # neighbourhood sizes of label agreement; the defaults of the pipeline


class Nearest(NamedTuple):
    """The nearest rows of each query, nearest first, and what is known of them; any values at id −1, which pads."""

    ids: np.ndarray  # (B, K)
    sims: np.ndarray  # (B, K), padded by −inf
    y: np.ndarray  # (B, K) class numbers, which vote
    given_y: np.ndarray  # (B, K) as given, where `y` are corrected
    agreement: np.ndarray  # (B, K, len(SIZES)); see `artifacts.NeighbourStatistics`
    density: np.ndarray  # (B, K)
    weight: np.ndarray | None  # (B, K); None for equal weights
    added: np.ndarray  # (B, K) whether a row was added after neighbour statistics were last computed

    def take(self, queries: np.ndarray | slice) -> "Nearest":
        """Select queries by position."""
        return Nearest(*(None if array is None else array[queries] for array in self))  # type: ignore[arg-type]


class BaseMemory(ABC):
    """Labelled rows with ids.

    `lock` is for callers with several threads: held for reading while a prediction lasts, for writing by changes.
    """

    lock: SharedLock
    sums: np.ndarray  # float64 (C, D), weighted sum of the vectors of each class
    next_id: int  # of the next row to be added; ids are never reused
    strength: float | None  # C of the linear classifier; None without one
    unit: float  # of the distances that a head reads, in those of `nearest`

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def nearest(
        self, queries: Float[np.ndarray, "B D"], k: int, exclude: np.ndarray | None = None, device: str = "cpu"
    ) -> Nearest:
        """The k nearest rows of queries; see `Bank.search`."""

    @abstractmethod
    def vectors_of(self, ids: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Vectors of rows; InputError if one is not in the memory."""

    @abstractmethod
    def all_ids(self) -> Int[np.ndarray, " N"]:
        """Ids of all rows, whose vectors fit in memory; InputError otherwise."""

    @abstractmethod
    def labels_of(self, ids: Int[np.ndarray, " M"]) -> Int[np.ndarray, " M"]:
        """Class numbers of rows, which vote."""

    @abstractmethod
    def classes(self, without: Sequence[int] | np.ndarray = ()) -> tuple[Float[Tensor, " C"], Float[Tensor, "C D"]]:
        """Class shares (see `votes.class_shares`) and prototypes, computed without the rows of these ids."""

    @abstractmethod
    def linear_classifier(self, without: Sequence[int] | np.ndarray = ()) -> LinearClassifier:
        """Linear classifier of the rows, without those of some ids."""

    @abstractmethod
    def rows_by_class(self) -> Int[np.ndarray, " C"]:
        """Number of rows of each class."""

    @abstractmethod
    def with_classes(self, classes: np.ndarray, source: Int[np.ndarray, " C"]) -> "BaseMemory":
        """Copy of the same rows with other classes; see `classes.sources`."""

    @abstractmethod
    def relabelled(self, ids: Sequence[int], label: int, neighbour_ids: np.ndarray) -> "BaseMemory":
        """Copy with another class number for some rows; statistics are recomputed for the rows `neighbour_ids`."""

    @abstractmethod
    def add(self, z: np.ndarray, y: np.ndarray, weight: np.ndarray, fade: float = 1.0) -> Int[np.ndarray, " M"]:
        """Add rows: all of them, or none after an error or Ctrl-C. Return their ids, which follow all earlier ones.

        Args:
            fade: factor of the weights of the rows present.
        """

    @abstractmethod
    def forget(self, ids: np.ndarray) -> None:
        """Remove rows: all of them, or none after an error or Ctrl-C.

        Raises:
            InputError: an id is not in the memory, or fewer than two rows would be left.
        """

    @abstractmethod
    def update_statistics(
        self, device: str = "cpu", hidden: Sequence[int] | np.ndarray = (), cluster: str | None = None
    ) -> None:
        """Let neighbour statistics know of all rows added until now.

        Args:
            hidden: ids of rows that the statistics of others shall not know of.
            cluster: of machines that share the work, see `run_tasks`.
        """

    def centred(self, queries: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B D"]:
        """Queries as the prototypes are, with the mean of all rows at 0."""
        return queries

    def retrieve(
        self,
        queries: Float[np.ndarray, "B D"],
        k: int,
        needs: Collection[str],
        device: str = "cpu",
        without: Sequence[int] = (),
    ) -> tuple[Nearest, NeighbourBatch]:
        """The k nearest rows of each query, and the batch for a head.

        Args:
            needs: optional fields of the batch that the head reads; its attribute `needs`.
            without: ids of rows to leave out.
        """
        removed = np.unique(np.asarray(without, dtype=np.int64))
        exclude = np.broadcast_to(removed, (len(queries), len(removed))) if len(removed) else None
        nearest = self.nearest(queries, k, exclude, device)
        if len(removed):
            agreement, density = self._statistics_without(nearest.ids, removed)
            nearest = nearest._replace(agreement=agreement, density=density)
        squared = np.float32(self.unit**2)
        arrays = {"agreement": nearest.agreement, "density": nearest.density / squared}
        arrays["query"] = np.ascontiguousarray(self.centred(queries), dtype=np.float32)
        if "logits" in needs:
            arrays["logits"] = self.linear_classifier(removed).logits(queries)
        optional = {name: torch.from_numpy(array) for name, array in arrays.items() if name in needs}
        if nearest.weight is not None:
            optional["log_weight"] = torch.from_numpy(np.log(nearest.weight))
        labels = torch.from_numpy(np.where(nearest.ids >= 0, nearest.y, -1))
        sims = torch.from_numpy(nearest.sims / squared)
        return nearest, NeighbourBatch(sims, labels, *self.classes(removed), **optional)

    def _statistics_without(
        self, ids: Int[np.ndarray, "B K"], removed: Int[np.ndarray, " M"]
    ) -> tuple[Float[np.ndarray, "B K S"], Float[np.ndarray, "B K"]]:
        """Agreement and density of rows, computed without the removed ones."""
        rows, inverse = np.unique(np.where(ids >= 0, ids, ids.max()), return_inverse=True)
        exclude = np.column_stack([rows, np.broadcast_to(removed, (len(rows), len(removed)))])
        k = min(SIZES[-1], len(self) - len(removed) - 1)
        agreement, density = np.zeros((len(rows), len(SIZES)), np.float32), np.zeros(len(rows), np.float32)
        if k > 0:  # a single row left has no neighbour
            nearest = self.nearest(self.vectors_of(rows), k, exclude)
            agreement, density = near_statistics(self.labels_of(rows), nearest)
        return agreement[inverse.reshape(ids.shape)], density[inverse.reshape(ids.shape)]


def near_statistics(y: Int[np.ndarray, " M"], nearest: Nearest) -> tuple[np.ndarray, np.ndarray]:
    """Agreement (M, S) and density (M,) of rows of classes y (M,) from their nearest other rows."""
    return agreement_and_density(y, np.where(nearest.ids >= 0, nearest.y, -1), nearest.sims, SIZES, nearest.weight)
