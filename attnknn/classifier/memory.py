"""Training rows with labels, weights, an index and neighbour statistics, updated as rows are added and removed."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.classifier.classes import by_class, renumbered, transition_by_class
from attnknn.classifier.linear import LinearClassifier, fit_linear
from attnknn.classifier.nearest import SIZES, BaseMemory, Nearest
from attnknn.core.errors import require
from attnknn.core.lock import SharedLock
from attnknn.index.bank import Bank, build
from attnknn.index.validation import check_vectors, format_ids
from attnknn.neighbours.statistics import agreement_and_density, class_prototypes, class_sums
from attnknn.nn.votes import class_shares

_LARGE_FIT = 1e6  # rows · columns · classes of a linear classifier that takes more than about .1 s
_SPARE = 32  # neighbours stored beyond the largest size; so many can be removed before a row is searched again


@dataclass(eq=False)
class Memory(BaseMemory):
    """Labelled rows in arrays, ordered by id."""

    unit = 1.0

    bank: Bank  # vectors and search
    ids: np.ndarray  # int64 (N,), ascending
    y: np.ndarray  # int64 (N,) class numbers
    weight: np.ndarray  # float32 (N,), above 0; a row of weight 2 counts as two identical rows of weight 1
    neighbour_ids: np.ndarray  # (N, S) nearest other rows of each row, padded by −1
    neighbour_sims: np.ndarray  # (N, S), padded by −inf
    sums: np.ndarray  # float64 (C, D), weighted sum of the vectors of each class
    next_id: int  # of the next row to be added; ids are never reused
    strength: float | None = field(init=False, default=None)  # C of the linear classifier; None without one
    linear: LinearClassifier | None = field(init=False, default=None)  # of these rows; None until it is needed
    given_y: np.ndarray = field(init=False)  # int64 (N,) labels as given; `y` may be corrected ones, which vote
    transition: np.ndarray | None = field(init=False, default=None)  # of true to given labels; None if these are right
    first_added: int = field(init=False)  # rows of ids from here on were added after the fit; their labels are right
    agreement: np.ndarray = field(init=False)  # float32 (N, len(SIZES)); see `artifacts.NeighbourStatistics`
    density: np.ndarray = field(init=False)  # float32 (N,)
    lock: SharedLock = field(init=False, repr=False, default_factory=SharedLock)
    _position_of: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._update_positions()
        self.given_y, self.first_added = self.y, self.next_id
        self.agreement = np.zeros((len(self.ids), len(SIZES)), dtype=np.float32)
        self.density = np.zeros(len(self.ids), dtype=np.float32)
        self._update_statistics(np.arange(len(self.ids)))

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def build(cls, z: np.ndarray, y: np.ndarray, weight: np.ndarray, n_classes: int, **index: object) -> "Memory":
        """Build a memory of rows 0 … N−1: z float32 (N, D), y (N,), weight (N,); `index` goes to `bank.build`."""
        require(len(z) > 1, f"n_samples = {len(z)}: neighbours need two rows or more")
        ids = np.arange(len(z))
        bank = build(z, ids, **index)  # type: ignore[arg-type]
        neighbours = bank.search(z, min(SIZES[-1] + _SPARE, len(z) - 1), exclude=ids)
        sums = class_sums(z, y, weight, n_classes)
        return cls(bank, ids, np.asarray(y), np.asarray(weight, np.float32), *neighbours, sums, len(z))

    def positions(self, ids: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Positions of row ids; −1 for ids not in the memory."""
        valid = (ids >= 0) & (ids < len(self._position_of))
        return np.where(valid, self._position_of[np.where(valid, ids, 0)], -1)

    def require_positions(self, ids: Int[np.ndarray, " M"]) -> Int[np.ndarray, " M"]:
        """Positions of row ids; InputError if one is not in the memory."""
        positions = self.positions(ids)
        missing = ids[positions < 0]
        require(len(missing) == 0, f"ids: {format_ids(missing)} not in the memory")
        return positions

    def _update_positions(self) -> None:
        self._position_of = np.full(int(self.ids[-1]) + 1, -1)
        self._position_of[self.ids] = np.arange(len(self.ids))

    def vectors(self, positions: Int[np.ndarray, " M"] | slice = slice(None)) -> Float[np.ndarray, "M D"]:
        """Vectors at positions, by default all. The bank stores them in another order; HNSW keeps removed ones too."""
        order = np.argsort(self.bank.ids, kind="stable")
        return self.bank.z[order[len(order) - len(self.ids) :][positions]]

    def vectors_of(self, ids: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        return self.vectors(self.require_positions(ids))

    def labels_of(self, ids: Int[np.ndarray, " M"]) -> Int[np.ndarray, " M"]:
        return self.y[self.positions(ids)]

    def nearest(
        self, queries: Float[np.ndarray, "B D"], k: int, exclude: np.ndarray | None = None, device: str = "cpu"
    ) -> Nearest:
        ids, sims = self.bank.search(queries, k, exclude=exclude, device=device)
        positions = self.positions(ids)
        weight = self.weight[positions] if self.weighted else None
        fields = self.y[positions], self.given_y[positions], self.agreement[positions], self.density[positions], weight
        return Nearest(ids, sims, *fields, np.zeros(ids.shape, dtype=bool))

    def all_ids(self) -> Int[np.ndarray, " N"]:
        return self.ids

    def classes(self, without: Sequence[int] | np.ndarray = ()) -> tuple[Float[Tensor, " C"], Float[Tensor, "C D"]]:
        positions = self.positions(np.asarray(without, dtype=np.int64))
        sums = self.sums - self._class_sums(positions) if len(positions) else self.sums
        y, weight = np.delete(self.y, positions), np.delete(self.weight, positions)
        return class_shares(y, len(sums), weight.astype(np.float64)), torch.from_numpy(class_prototypes(sums))

    def linear_classifier(self, without: Sequence[int] | np.ndarray = ()) -> LinearClassifier:
        """Linear classifier of the rows, without those of some ids; fitted from zeros at the first call after a change,
        so that it keeps no trace of forgotten rows.
        """
        if self.linear is None:
            self.linear = self._fit_linear(())
        return self._fit_linear(without, self.linear) if len(without) else self.linear

    def _fit_linear(
        self, without: Sequence[int] | np.ndarray, start: LinearClassifier | None = None
    ) -> LinearClassifier:
        """Fit without some rows; in a large memory from `start`, up to the solver's tolerance the same."""
        assert self.strength is not None, "set by the fit of a head that needs logits"
        start = start if len(self) * self.sums.size > _LARGE_FIT else None
        positions = self.positions(np.asarray(without, dtype=np.int64))
        arrays = self.vectors(), self.given_y, self.weight, self.ids >= self.first_added
        z, y, weight, right = (np.delete(array, positions, axis=0) for array in arrays)
        return fit_linear(z, y, weight, len(self.sums), self.strength, start, self.transition, right)

    def _class_sums(self, positions: Int[np.ndarray, " M"]) -> Float[np.ndarray, "C D"]:
        return class_sums(self.vectors(positions), self.y[positions], self.weight[positions], len(self.sums))

    def update_statistics(
        self, device: str = "cpu", hidden: Sequence[int] | np.ndarray = (), cluster: str | None = None
    ) -> None:
        """Do nothing: neighbour statistics follow every change."""

    def rows_by_class(self) -> Int[np.ndarray, " C"]:
        """Number of rows that have, or were given, the label of each class."""
        return np.bincount(np.concatenate([self.y, self.given_y]), minlength=len(self.sums))

    def with_classes(self, classes: np.ndarray, source: Int[np.ndarray, " C"]) -> "Memory":
        result, n_classes = self._copy(), len(self.sums)
        result.y, result.given_y = (renumbered(y, source, n_classes) for y in (self.y, self.given_y))
        result.sums, result.linear = by_class(self.sums, source, 0), None
        result.transition = transition_by_class(self.transition, source)
        return result

    def relabelled(self, ids: Sequence[int], label: int, neighbour_ids: np.ndarray) -> "Memory":
        positions = self.positions(np.asarray(ids, dtype=np.int64))
        result = self._copy()
        for name in ("y", "given_y", "agreement", "density"):
            setattr(result, name, getattr(self, name).copy())
        result.y[positions] = result.given_y[positions] = label
        result.sums = self.sums - self._class_sums(positions) + result._class_sums(positions)
        result._update_statistics(self.positions(neighbour_ids[neighbour_ids >= 0]))
        result.linear = None if self.linear is None else result._fit_linear((), self.linear)
        return result

    def correct(self, y: np.ndarray, transition: np.ndarray) -> None:
        """Let corrected labels (N,) vote in place of the given ones, of transition matrix T (C, C)."""
        self.y, self.transition, self.linear = y, transition, None
        self.sums = class_sums(self.vectors(), y, self.weight, len(self.sums))
        self._update_statistics(np.arange(len(y)))

    def _copy(self) -> "Memory":
        """Copy that shares arrays, bank and lock; `add` and `forget` replace all but the lock."""
        result = object.__new__(type(self))
        vars(result).update(vars(self))
        return result

    def __getstate__(self) -> dict[str, object]:
        with self.lock.reading():
            bank = self.bank.without_removed()
            return {**vars(self), "bank": Bank(bank.z, bank.ids, bank.metric, bank.index)}

    @property
    def weighted(self) -> bool:
        """Whether the rows have different weights."""
        return bool((self.weight != self.weight[0]).any())

    def add(self, z: np.ndarray, y: np.ndarray, weight: np.ndarray, fade: float = 1.0) -> Int[np.ndarray, " M"]:
        result = self._copy()
        # Statistics of rows whose neighbours all fade alike do not change.
        result.weight = np.maximum(self.weight * np.float32(fade), np.finfo(np.float32).tiny)
        result.sums = self.sums * fade
        new = result._add(z, y, weight)
        vars(self).update(vars(result))
        return new

    def _add(self, z: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Int[np.ndarray, " M"]:
        z = check_vectors("X", z)
        new = np.arange(self.next_id, self.next_id + len(z))
        changed = self._insert_neighbours(z, new)
        self.bank = copy.copy(self.bank)
        self.bank.add(z, new)
        self.linear = None
        neighbours = self.bank.search(z, min(SIZES[-1] + _SPARE, len(self.bank) - 1), exclude=new)
        self.next_id += len(new)
        self.sums = self.sums + class_sums(z, y, weight, len(self.sums))
        rows, width = len(self.ids), self.neighbour_ids.shape[1]  # at least as many columns as `neighbours`
        added = {
            "ids": new,
            "y": y,
            "given_y": y,
            "weight": np.asarray(weight, np.float32),
            "neighbour_ids": pad_columns(neighbours[0], width, -1),
            "neighbour_sims": pad_columns(neighbours[1], width, -np.inf),
            "agreement": np.zeros((len(new), len(SIZES)), np.float32),
            "density": np.zeros(len(new), np.float32),
        }
        for name, values in added.items():
            setattr(self, name, np.concatenate([getattr(self, name), values]))
        self._update_positions()
        self._update_statistics(np.concatenate([changed, np.arange(rows, rows + len(new))]))
        return new

    def balance(self, added: Int[np.ndarray, " M"]) -> None:
        """Weight the classes of added rows so that each weighs as much as the mean of the others that have rows.

        Args:
            added: ids of rows, which get the mean weight of their class.
        """
        positions, n_classes = self.positions(added), len(self.sums)
        earlier, weight = np.delete(np.arange(len(self)), positions), self.weight.astype(np.float64)
        counts = np.bincount(self.y[earlier], minlength=n_classes)
        totals = np.bincount(self.y[earlier], weight[earlier], minlength=n_classes)
        weight[positions] = np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)[self.y[positions]]
        totals, classes = np.bincount(self.y, weight, minlength=n_classes), np.unique(self.y[positions])
        factor = np.ones(n_classes)
        factor[classes] = np.delete(totals, classes)[np.delete(totals, classes) > 0].mean() / totals[classes]
        self.weight = (weight * factor[self.y]).astype(np.float32)
        self.sums = class_sums(self.vectors(), self.y, self.weight, n_classes)
        self._update_statistics(np.arange(len(self)))

    def forget(self, ids: np.ndarray) -> None:
        result = self._copy()
        result._forget(ids)
        vars(self).update(vars(result))

    def _forget(self, ids: np.ndarray) -> None:
        removed = np.unique(ids)
        positions = self.require_positions(removed)
        require(len(self) - len(removed) > 1, "ids: fewer than two rows would be left; keep at least two")
        fewer = np.unique(self.y[positions])
        self.bank = copy.copy(self.bank)
        self.bank.remove(removed)
        self.linear = None
        for name in ("ids", "y", "given_y", "weight", "neighbour_ids", "neighbour_sims", "agreement", "density"):
            setattr(self, name, np.delete(getattr(self, name), positions, axis=0))
        self._update_positions()
        rows = np.flatnonzero(np.isin(self.y, fewer))  # summed anew: a difference would be off in the last bits
        self.sums = self.sums.copy()
        self.sums[fewer] = self._class_sums(rows)[fewer]
        lost = np.isin(self.neighbour_ids, removed)
        changed = np.flatnonzero(lost.any(1))
        self.neighbour_ids[lost], self.neighbour_sims[lost] = -1, -np.inf
        order = np.argsort(lost[changed], axis=1, kind="stable")  # the remaining neighbours move up
        for array in (self.neighbour_ids, self.neighbour_sims):
            array[changed] = np.take_along_axis(array[changed], order, axis=1)
        rows = changed[(self.neighbour_ids[changed] >= 0).sum(1) < min(SIZES[-1], len(self) - 1)]
        if len(rows):  # too few neighbours left
            k = min(self.neighbour_ids.shape[1], len(self) - 1)
            neighbours = self.bank.search(self.vectors(rows), k, exclude=self.ids[rows])
            self.neighbour_ids[rows, :k], self.neighbour_sims[rows, :k] = neighbours
        self._update_statistics(changed)

    def _insert_neighbours(self, z: np.ndarray, new: np.ndarray) -> Int[np.ndarray, " T"]:
        """Insert rows to be added among the stored neighbours of present rows; return the positions changed."""
        added = build(z, new, metric=self.bank.metric)
        count, z = (self.neighbour_ids >= 0).sum(1), self.vectors()
        # Beyond the last stored neighbour there may be nearer rows than a new one, unless all rows are stored.
        threshold = self.neighbour_sims[np.arange(len(count)), np.maximum(count, 1) - 1]
        threshold = np.where(count == len(self) - 1, -np.inf, threshold)
        changed = np.flatnonzero(added.search(z, 1)[1][:, 0] > threshold)
        width = min(SIZES[-1] + _SPARE, len(self) + len(new) - 1)
        new_ids, new_sims = added.search(z[changed], min(len(new), width))
        nearer = new_sims > threshold[changed, None]
        ids = np.concatenate([self.neighbour_ids[changed], np.where(nearer, new_ids, -1)], axis=1)
        sims = np.concatenate([self.neighbour_sims[changed], np.where(nearer, new_sims, -np.inf)], axis=1)
        order = np.argsort(-sims, axis=1, kind="stable")[:, :width]  # ties: the older row, as in a search
        self.neighbour_ids = pad_columns(self.neighbour_ids, width, -1)
        self.neighbour_sims = pad_columns(self.neighbour_sims, width, -np.inf)
        self.neighbour_ids[changed, :width] = np.take_along_axis(ids, order, 1)
        self.neighbour_sims[changed, :width] = np.take_along_axis(sims, order, 1)
        return changed

    def _update_statistics(self, rows: np.ndarray) -> None:
        neighbours = self.neighbour_ids[rows, : SIZES[-1]], self.neighbour_sims[rows, : SIZES[-1]]
        self.agreement[rows], self.density[rows] = self._statistics(rows, *neighbours)

    def _statistics(
        self, rows: Int[np.ndarray, " M"], ids: Int[np.ndarray, "M S"], sims: Float[np.ndarray, "M S"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Agreement and density of rows, from their neighbours."""
        positions = self.positions(ids)
        labels = np.where(positions >= 0, self.y[positions], -1)
        return agreement_and_density(self.y[rows], labels, sims, SIZES, self.weight[positions])


def pad_columns(array: np.ndarray, width: int, fill: float) -> np.ndarray:
    """Pad (N, K) to at least `width` columns."""
    return np.pad(array, ((0, 0), (0, max(0, width - array.shape[1]))), constant_values=fill)
