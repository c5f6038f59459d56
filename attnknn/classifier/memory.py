"""A bank whose rows have labels, weights and evidence, which stay true while rows come and go."""

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.errors import require
from attnknn.index.bank import Bank, build
from attnknn.index.validation import check_vectors
from attnknn.neighbours.space import NeighbourBatch
from attnknn.nn.votes import class_shares

SIZES = (5, 20, 64)  # neighbourhoods that evidence is taken from, as in the study
_SPARE = 32  # neighbours of a row beyond those: so many may be forgotten before it is searched for again


@dataclass(eq=False)
class Memory:
    """Rows with ids in rising order, and what a head is told of them.

    Attributes:
        bank: the vectors, and the search.
        ids: int64 (N,), rising.
        y: int64 (N,) class numbers.
        weight: float32 (N,), above 0; a row of weight 2 counts as two of weight 1 at its place.
        near_ids, near_sims: (N, S) the nearest other rows of each row; −1 and −inf beyond those that are known.
        next_id: of the next row that is added; an id is never given twice.
        sums: float64 (C, D), of the vectors of each class times their weights.
        agreement: float32 (N, len(SIZES)). density: float32 (N,). See `artifacts.NeighbourStatistics`.
    """

    bank: Bank
    ids: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    near_ids: np.ndarray
    near_sims: np.ndarray
    sums: np.ndarray
    next_id: int
    agreement: np.ndarray = field(init=False)
    density: np.ndarray = field(init=False)
    _places: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._place()
        self.agreement = np.zeros((len(self.ids), len(SIZES)), dtype=np.float32)
        self.density = np.zeros(len(self.ids), dtype=np.float32)
        self._tell(np.arange(len(self.ids)))

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def build(cls, z: np.ndarray, y: np.ndarray, weight: np.ndarray, n_classes: int, **index: object) -> "Memory":
        """Rows 0 … N−1.

        Args:
            z: float32 (N, D), N ≥ 2. y: (N,). weight: (N,).
            index: of `bank.build`.
        """
        require(len(z) > 1, f"n_samples = {len(z)}: neighbours need two rows or more")
        ids = np.arange(len(z))
        bank = build(z, ids, **index)  # type: ignore[arg-type]
        wanted = min(SIZES[-1] + _SPARE, len(z) - 1)
        near_ids, near_sims = bank.search(z, wanted, exclude=ids)
        sums = class_sums(z, y, weight, n_classes)
        return cls(bank, ids, np.asarray(y), np.asarray(weight, np.float32), near_ids, near_sims, sums, len(z))

    def positions(self, ids: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Positions of row ids; −1 where an id is −1 or none of the rows'."""
        there = (ids >= 0) & (ids < len(self._places))
        return np.where(there, self._places[np.where(there, ids, 0)], -1)

    def _place(self) -> None:
        """Note where each id is."""
        self._places = np.full(int(self.ids[-1]) + 1, -1)
        self._places[self.ids] = np.arange(len(self.ids))

    def vectors(self) -> Float[np.ndarray, "N D"]:
        """In the order of ids; the bank moves rows when it forgets, and a graph keeps removed ones as −1."""
        order = np.argsort(self.bank.ids, kind="stable")
        return self.bank.z[order[len(order) - len(self.ids) :]]

    def around(
        self,
        queries: Float[np.ndarray, "B D"],
        k: int,
        needs: Collection[str],
        device: str = "cpu",
        without: Sequence[int] = (),
    ) -> tuple[Int[np.ndarray, "B K"], NeighbourBatch]:
        """Ids of the k nearest rows of each query, and what a head is given.

        Args:
            without: ids of rows taken as forgotten.
        """
        gone = np.unique(np.asarray(without, dtype=np.int64))
        hidden = np.broadcast_to(gone, (len(queries), len(gone))) if len(gone) else None
        ids, sims = self.bank.search(queries, k, exclude=hidden, device=device)
        at = self.positions(ids)
        if len(gone):
            agreement, density = self._evidence_without(at, gone)
        else:
            agreement, density = self.agreement[at], self.density[at]
        gathered = {"agreement": agreement, "density": density}
        known = {name: torch.from_numpy(of) for name, of in gathered.items() if name in needs}
        if "query" in needs:
            known["query"] = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32))
        labels = torch.from_numpy(np.where(at >= 0, self.y[at], -1))
        weights = torch.from_numpy(np.log(self.weight[at])) if self.weighted else None
        shares, prototypes = self.classes(gone)
        near = NeighbourBatch(torch.from_numpy(sims), labels, shares, prototypes, log_weight=weights, **known)
        return ids, near

    def _evidence_without(
        self, at: Int[np.ndarray, "B K"], gone: Int[np.ndarray, " M"]
    ) -> tuple[Float[np.ndarray, "B K S"], Float[np.ndarray, "B K"]]:
        """`agreement` and `density` of some rows as they are without others."""
        rows, place = np.unique(np.where(at >= 0, at, self.positions(self.ids[:1])), return_inverse=True)
        hidden = np.column_stack([self.ids[rows], np.broadcast_to(gone, (len(rows), len(gone)))])
        wanted = min(SIZES[-1], len(self) - len(gone) - 1)
        found = np.empty((len(rows), 0), np.int64), np.empty((len(rows), 0), np.float32)
        if wanted > 0:  # else one row is left, which has no other
            found = self.bank.search(self._vectors_of(rows), wanted, exclude=hidden)
        agreement, density = self._told(rows, *found)
        return agreement[place.reshape(at.shape)], density[place.reshape(at.shape)]

    def classes(self, without: Sequence[int] | np.ndarray = ()) -> tuple[Float[Tensor, " C"], Float[Tensor, "C D"]]:
        """Shares (see `votes.class_shares`) and prototypes, the mean vector of each class at unit length, zeros where
        it has no row; without some rows by their ids."""
        at = self.positions(np.asarray(without, dtype=np.int64))
        kept = np.ones(len(self), dtype=bool)
        kept[at] = False
        sums = self.sums
        if len(at):
            sums = sums - class_sums(self._vectors_of(at), self.y[at], self.weight[at], len(sums))
        shares = class_shares(self.y[kept], len(sums), self.weight[kept].astype(np.float64))
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return shares, torch.from_numpy(np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)).float()

    def relabelled(self, ids: Sequence[int], number: int, among: np.ndarray) -> "Memory":
        """The same rows, some of them of another class; rows and index are shared, so neither may be changed.

        Args:
            among: ids of the rows whose evidence is to be true then; that of the others is as it was.
        """
        at = self.positions(np.asarray(ids, dtype=np.int64))
        made = copy.copy(self)
        made.y, made.agreement, made.density = self.y.copy(), self.agreement.copy(), self.density.copy()
        made.y[at] = number
        z, weight, classes = self._vectors_of(at), self.weight[at], len(self.sums)
        made.sums = self.sums - class_sums(z, self.y[at], weight, classes) + class_sums(z, made.y[at], weight, classes)
        made._tell(self.positions(among[among >= 0]))
        return made

    def __getstate__(self) -> dict[str, object]:
        """Without the room that a bank keeps for rows to come, in which forgotten ones may still stand."""
        bank = Bank(self.bank.z.copy(), self.bank.ids.copy(), self.bank.metric, self.bank.index)
        return {**vars(self), "bank": bank}

    def _vectors_of(self, at: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Of the rows at some positions."""
        order = np.argsort(self.bank.ids, kind="stable")
        return self.bank.z[order[len(order) - len(self.ids) :][at]]

    @property
    def weighted(self) -> bool:
        """Whether rows differ in weight."""
        return bool((self.weight != self.weight[0]).any())

    def add(self, z: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Int[np.ndarray, " M"]:
        """Add rows; their ids, which follow those that there are and were."""
        z = check_vectors("X", z)
        new = np.arange(self.next_id, self.next_id + len(z))
        touched = self._meet(z, new)
        self.bank.add(z, new)
        wanted = min(SIZES[-1] + _SPARE, len(self.bank) - 1)
        found = self.bank.search(z, wanted, exclude=new)
        self.next_id += len(new)
        self.ids, self.y = np.concatenate([self.ids, new]), np.concatenate([self.y, y])
        self.weight = np.concatenate([self.weight, np.asarray(weight, np.float32)])
        self.near_ids, self.near_sims = (
            np.concatenate(_as_wide(old, more, nothing))
            for old, more, nothing in zip((self.near_ids, self.near_sims), found, (-1, -np.inf), strict=True)
        )
        self.sums += class_sums(z, y, weight, len(self.sums))
        rows = len(self.ids) - len(new)
        self.agreement = np.concatenate([self.agreement, np.zeros((len(new), len(SIZES)), np.float32)])
        self.density = np.concatenate([self.density, np.zeros(len(new), np.float32)])
        self._place()
        self._tell(np.concatenate([touched, np.arange(rows, rows + len(new))]))
        return new

    def forget(self, ids: np.ndarray) -> None:
        """Take rows out.

        Raises:
            InputError: an id is not there, or fewer than two rows would be left.
        """
        gone = np.unique(ids)
        at = self.positions(gone)
        missing = gone[at < 0]
        require(len(missing) == 0, f"ids: {', '.join(map(str, missing[:10]))} not in the memory")
        require(len(self) - len(gone) > 1, "ids: fewer than two rows would be left; keep at least two")
        self.sums -= class_sums(self._vectors_of(at), self.y[at], self.weight[at], len(self.sums))
        self.bank.remove(gone)
        kept = np.ones(len(self.ids), dtype=bool)
        kept[at] = False
        names = ("ids", "y", "weight", "near_ids", "near_sims", "agreement", "density")
        for name in names:
            setattr(self, name, getattr(self, name)[kept])
        self._place()
        lost = np.isin(self.near_ids, gone)
        touched = np.flatnonzero(lost.any(1))
        order = np.argsort(lost[touched], axis=1, kind="stable")  # what is left moves up, in its order
        left = np.take_along_axis(~lost[touched], order, axis=1)
        self.near_ids[touched] = np.where(left, np.take_along_axis(self.near_ids[touched], order, axis=1), -1)
        self.near_sims[touched] = np.where(left, np.take_along_axis(self.near_sims[touched], order, axis=1), -np.inf)
        needed = min(SIZES[-1], len(self) - 1)
        self._search_again(touched[(self.near_ids[touched] >= 0).sum(1) < needed])
        self._tell(touched)

    def _search_again(self, rows: np.ndarray) -> None:
        """The nearest rows anew of those rows that have lost too many."""
        if not len(rows):
            return
        wanted = min(self.near_ids.shape[1], len(self) - 1)
        found = self.bank.search(self.vectors()[rows], wanted, exclude=self.ids[rows])
        for mine, of in zip((self.near_ids, self.near_sims), found, strict=True):
            mine[rows, :wanted] = of

    def _meet(self, z: np.ndarray, new: np.ndarray) -> Int[np.ndarray, " T"]:
        """Put rows that are to be added among the nearest of those there; positions of the rows that this changes."""
        others = build(z, new, metric=self.bank.metric)
        known, z = (self.near_ids >= 0).sum(1), self.vectors()
        # Beyond its last known neighbour a row may have others, unless it knows them all.
        last = np.where(
            known == len(self) - 1, -np.inf, self.near_sims[np.arange(len(known)), np.maximum(known, 1) - 1]
        )
        touched = np.flatnonzero(others.search(z, 1)[1][:, 0] > last)
        width = min(SIZES[-1] + _SPARE, len(self) + len(new) - 1)
        found, near = others.search(z[touched], min(len(new), width))
        nearer = near > last[touched, None]
        ids = np.concatenate([self.near_ids[touched], np.where(nearer, found, -1)], axis=1)
        sims = np.concatenate([self.near_sims[touched], np.where(nearer, near, -np.inf)], axis=1)
        order = np.argsort(-sims, axis=1, kind="stable")[:, :width]  # of equally similar ones the older, as a search
        spare = ((0, 0), (0, max(0, width - self.near_ids.shape[1])))
        self.near_ids = np.pad(self.near_ids, spare, constant_values=-1)
        self.near_sims = np.pad(self.near_sims, spare, constant_values=-np.inf)
        self.near_ids[touched, :width] = np.take_along_axis(ids, order, 1)
        self.near_sims[touched, :width] = np.take_along_axis(sims, order, 1)
        return touched

    def _tell(self, rows: np.ndarray) -> None:
        """NeighbourStatistics about some rows, from the nearest of each."""
        near = self.near_ids[rows, : SIZES[-1]], self.near_sims[rows, : SIZES[-1]]
        self.agreement[rows], self.density[rows] = self._told(rows, *near)

    def _told(
        self, rows: Int[np.ndarray, " M"], near_ids: Int[np.ndarray, "M S"], near_sims: Float[np.ndarray, "M S"]
    ) -> tuple[np.ndarray, np.ndarray]:
        at = self.positions(near_ids)
        weights = np.where(at >= 0, self.weight[at], 0.0)
        agrees = weights * (self.y[at] == self.y[rows][:, None])
        agreement = np.zeros((len(rows), len(SIZES)), dtype=np.float32)
        for s, size in enumerate(SIZES):
            total = weights[:, :size].sum(1)
            agreement[:, s] = agrees[:, :size].sum(1) / np.where(total > 0, total, 1)
        sims = np.where(at >= 0, near_sims, 0)
        return agreement, (sims.sum(1) / np.maximum((at >= 0).sum(1), 1)).astype(np.float32)


def class_sums(z: np.ndarray, y: np.ndarray, weight: np.ndarray, n_classes: int) -> Float[np.ndarray, "C D"]:
    """Σ of weight·z over the rows of each class, float64."""
    out = np.zeros((n_classes, z.shape[1]))
    for s in range(0, len(z), 4096):
        some = slice(s, s + 4096)
        member = np.eye(n_classes)[y[some]] * np.asarray(weight[some], np.float64)[:, None]
        out += member.T @ z[some]
    return out


def _as_wide(one: np.ndarray, other: np.ndarray, filling: float) -> Sequence[np.ndarray]:
    """Both with as many columns as the wider has."""
    width = max(one.shape[1], other.shape[1])
    return [np.pad(of, ((0, 0), (0, width - of.shape[1])), constant_values=filling) for of in (one, other)]
