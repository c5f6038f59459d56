"""Training rows in a Lance table, on disk or in `s3://`, which may be larger than memory."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.classifier.classes import by_class
from attnknn.classifier.nearest import SIZES, BaseMemory, Nearest, near_statistics
from attnknn.classifier.table_statistics import StatisticsOfPart, class_numbers
from attnknn.core.cluster import run_tasks
from attnknn.core.errors import InputError, require
from attnknn.core.lock import SharedLock
from attnknn.index.bank import build
from attnknn.index.erasure import erase
from attnknn.index.lance_bank import LanceBank
from attnknn.index.lance_rows import ALL_LISTS
from attnknn.index.lance_table import Block, reason_of
from attnknn.index.nearest_rows import NearestRows
from attnknn.index.validation import check_vectors
from attnknn.neighbours.statistics import class_prototypes, class_sums
from attnknn.nn.votes import shares_of_counts

_STATISTICS = ("agreement", "density", "added")
_PART = 250_000  # rows of a task of the neighbour statistics, or so
_FAR_FROM_ZERO = 1e3  # of the mean in units of the spread, beyond which float32 vectors lose digits that matter


def probes_of(index: str) -> int:
    """Lists that a query reads, of `LanceBank`, by the classifier's parameter `index`."""
    return ALL_LISTS if index == "flat" else 0


@dataclass(eq=False)
class TableMemory(BaseMemory):
    """Labelled rows of a Lance table, with neighbour statistics as columns.

    Labels, counts and sums of the classes are in memory, rows are not. A change makes a version of the table. Added
    rows have neighbour statistics of their own, but those of their neighbours do not know of them until
    `update_statistics`, which also takes changes by others.
    """

    bank: LanceBank
    labels: np.ndarray  # (C,) of the column `label`, sorted
    counts: np.ndarray  # int64 (C,) rows of each class
    sums: np.ndarray  # float64 (C, D) of the vectors of each class
    mean: np.ndarray  # float64 (D,) of the rows of `fit`
    unit: float  # RMS distance from the mean of the rows of `fit`
    next_id: int  # of the next row to be added; ids are never reused
    strength: float | None = field(init=False, default=None)
    lock: SharedLock = field(init=False, repr=False, default_factory=SharedLock)
    _change: str = field(init=False, repr=False, default="")  # `LanceBank.change` of the last change of this memory

    def __len__(self) -> int:
        return int(self.counts.sum())

    @classmethod
    def write(cls, uri: str, blocks: Iterable[tuple[np.ndarray, np.ndarray]], **options: int) -> "TableMemory":
        """Memory of blocks of vectors (M, D) and labels (M,), written to a new table with ids 0 … N−1.

        Args:
            options: of `LanceBank.open`.
        """

        def numbered() -> Iterator[Block]:
            start = 0
            for z, labels in blocks:
                yield Block(z, np.arange(start, start + len(z)), {"label": labels})
                start += len(z)

        bank = LanceBank.build(uri, numbered(), **options)  # type: ignore[arg-type]
        try:
            return cls.from_bank(bank)
        except BaseException:
            bank.drop()
            raise

    @classmethod
    def from_bank(cls, bank: LanceBank, least: int = 2) -> "TableMemory":
        """Memory of the rows of a table with a column `label`, of at least so many classes; one pass over its rows."""
        where = f"{bank.table.uri}: "
        columns = bank.table.schema.names
        require("label" in columns, where + "no column label; write the rows with their labels")
        others = ", ".join(set(columns).difference(("id", "vector", "label", *_STATISTICS)))
        require(not others, f"{where}columns {others}; a table to be used as it is has id, vector and label alone")
        counts: dict[object, int] = {}
        sums: dict[object, np.ndarray] = {}
        squares, last, dtype = 0.0, -1, None
        for block in bank.blocks(("id", "vector", "label")):
            labels, y = np.unique(block["label"], return_inverse=True)
            z = check_vectors("X", block["vector"])
            of_block = class_sums(z, y, np.ones(len(y)), len(labels))
            for label, count, total in zip(labels.tolist(), np.bincount(y), of_block, strict=True):
                counts[label] = counts.get(label, 0) + int(count)
                sums[label] = sums.get(label, 0) + total
            squares += float(np.square(z, dtype=np.float64).sum())
            last, dtype = max(last, int(block["id"].max())), labels.dtype
        names = np.array(sorted(counts), None if dtype is np.dtype(object) else dtype)  # type: ignore[type-var]
        require(len(names) >= least, "y: a single class; a classifier needs two classes or more")
        n, total = sum(counts.values()), np.array([sums[name] for name in names.tolist()])
        mean = total.sum(0) / n
        spread = squares / n - float(mean @ mean)
        far = float(np.abs(mean).max()) > _FAR_FROM_ZERO * np.sqrt(max(spread, 0)) > 0
        require(not far, "X: columns are far from 0 beside their spread, and float32 loses it; scale them before")
        unit = float(np.sqrt(spread)) if spread > 0 else 1.0
        next_id = max(bank.next_id, last + 1)
        return cls(bank, names, np.array([counts[name] for name in names.tolist()]), total, mean, unit, next_id)

    @classmethod
    def open(cls, uri: str, **options: int) -> "TableMemory":
        """`from_bank` of the latest version of a table."""
        return cls.from_bank(LanceBank.open(uri, **options))

    def take_latest(self) -> None:
        """Take the newest version of the table, and count and add up its rows."""
        now = TableMemory.from_bank(self.bank.latest(), least=1)
        unknown = np.setdiff1d(now.labels, self.labels).tolist()
        require(not unknown, f"{self.bank.table.uri}: labels {unknown[:10]} that the model does not know; fit again")
        positions = self.numbers(now.labels)
        self.bank, self.counts, self.sums = now.bank, np.zeros_like(self.counts), np.zeros_like(self.sums)
        self.counts[positions], self.sums[positions] = now.counts, now.sums
        self.next_id = max(self.next_id, now.next_id)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """Address, version and values of the memory, and its arrays, to be saved."""
        bank = self.bank
        table = {"uri": bank.table.uri, "uuid": bank.uuid, "version": bank.version, "unit": self.unit}
        return table, {f"memory.{name}": getattr(self, name) for name in ("counts", "sums", "mean")}

    def numbers(self, labels: np.ndarray) -> np.ndarray:
        """Class numbers of labels of the table."""
        return class_numbers(self.labels, labels)

    def nearest(
        self, queries: Float[np.ndarray, "B D"], k: int, exclude: np.ndarray | None = None, device: str = "cpu"
    ) -> Nearest:
        ids, sims, columns = self.bank.nearest(queries, k, exclude, ("label", *_STATISTICS))
        y = self.numbers(columns["label"])
        return Nearest(ids, sims, y, y, columns["agreement"], columns["density"], None, columns["added"])

    def vectors_of(self, ids: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        return self.bank.rows_of(ids)["vector"]

    def labels_of(self, ids: Int[np.ndarray, " M"]) -> Int[np.ndarray, " M"]:
        return self.numbers(self.bank.rows_of(ids, ["label"])["label"])

    def all_ids(self) -> NoReturn:
        raise InputError("X: None means all rows, which may not fit in memory; give the rows to search")

    def classes(self, without: Sequence[int] | np.ndarray = ()) -> tuple[Float[Tensor, " C"], Float[Tensor, "C D"]]:
        counts, sums = self.totals(without)
        return shares_of_counts(counts), torch.from_numpy(self.prototypes(counts, sums))

    def prototypes(self, counts: np.ndarray, sums: np.ndarray) -> Float[np.ndarray, "C D"]:
        """Class prototypes of `totals`."""
        return class_prototypes(sums - counts[:, None] * self.mean)

    def totals(self, without: Sequence[int] | np.ndarray = ()) -> tuple[np.ndarray, np.ndarray]:
        """Counts (C,) of the rows of each class and sums (C, D) of their vectors, without some rows."""
        if not len(without):
            return self.counts, self.sums
        rows, n_classes = self.bank.rows_of(without, ["label", "vector"]), len(self.labels)
        y = self.numbers(rows["label"])
        counts = self.counts - np.bincount(y, minlength=n_classes)
        return counts, self.sums - class_sums(rows["vector"], y, np.ones(len(y)), n_classes)

    def linear_classifier(self, without: Sequence[int] | np.ndarray = ()) -> NoReturn:
        raise InputError("null_scores: linear needs all rows in memory; leave storage None")

    def rows_by_class(self) -> Int[np.ndarray, " C"]:
        return self.counts

    def with_classes(self, classes: np.ndarray, source: Int[np.ndarray, " C"]) -> "TableMemory":
        result = object.__new__(type(self))
        vars(result).update(vars(self))
        result.labels, result.counts, result.sums = (
            classes,
            by_class(self.counts, source, 0),
            by_class(self.sums, source, 0),
        )
        return result

    def relabelled(self, ids: Sequence[int], label: int, neighbour_ids: np.ndarray) -> NoReturn:
        raise InputError("how: relabel needs all rows in memory; with storage take forget")

    def centred(self, queries: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B D"]:
        return (queries - self.mean) / self.unit

    def update_statistics(
        self, device: str = "cpu", hidden: Sequence[int] | np.ndarray = (), cluster: str | None = None
    ) -> None:
        if self._newer():
            self.take_latest()
        try:
            bank = self._marked()
            bank = bank.indexed() if bank.unindexed else bank
            call = StatisticsOfPart(NearestRows(bank, SIZES[-1], hidden=hidden, device=device), self.labels)
            parts = -(-len(bank) // _PART)
            n = len(bank)
            agreement, density = np.zeros((n, len(SIZES)), np.float32), np.zeros(n, np.float32)
            tasks = [(part, parts) for part in range(parts)]
            for rows, *values in run_tasks(call, tasks, cluster, "neighbour statistics"):
                agreement[rows], density[rows] = values
            # Rows that another process adds meanwhile stay marked as added.
            self.bank = bank.with_columns(agreement=agreement, density=density, added=np.zeros(n, bool))
        except InputError:
            raise
        except (ValueError, OSError) as error:  # files that another process deletes while they are read
            uri = self.bank.table.uri
            raise InputError(f"{uri}: changed meanwhile ({reason_of(error)}); call update_statistics again") from error
        self._take_changes()

    def add(self, z: np.ndarray, y: np.ndarray, weight: np.ndarray, fade: float = 1.0) -> Int[np.ndarray, " M"]:
        require(fade == 1, "decay: needs all rows in memory; leave storage or decay None")
        z = check_vectors("X", z)
        with self._changing(len(z)) as bank:
            new = np.arange(self.next_id, self.next_id + len(z))
            agreement, density = near_statistics(y, self._nearest_with(z, y, new))
            columns = {"agreement": agreement, "density": density, "added": np.ones(len(new), bool)}
            self.bank = bank.add(z, new, label=self.labels[y], **columns)
        self.next_id += len(new)
        n_classes = len(self.labels)
        self.counts = self.counts + np.bincount(y, minlength=n_classes)
        self.sums = self.sums + class_sums(z, y, np.ones(len(y)), n_classes)
        self._take_changes()
        return new

    def _nearest_with(self, z: np.ndarray, y: np.ndarray, new: np.ndarray) -> Nearest:
        """Nearest of rows to be added, among those of the memory and each other."""
        nearest = self.nearest(z, min(SIZES[-1], len(self)))
        if len(z) == 1:
            return nearest
        ids, sims = build(z, new, metric=self.bank.metric).search(z, min(SIZES[-1], len(z) - 1), exclude=new)
        sims = np.concatenate([nearest.sims, sims], axis=1)
        order = np.argsort(-sims, axis=1, kind="stable")[:, : SIZES[-1]]
        labels = np.concatenate([nearest.y, y[ids - self.next_id]], axis=1)
        ids = np.concatenate([nearest.ids, ids], axis=1)
        ids, sims, labels = (np.take_along_axis(values, order, 1) for values in (ids, sims, labels))
        return nearest._replace(ids=ids, sims=sims, y=labels)

    def forget(self, ids: np.ndarray) -> None:
        ids = np.unique(ids)
        counts, sums = self.totals(ids)
        require(counts.sum() > 1, "ids: fewer than two rows would be left; keep at least two")
        try:
            with self._changing() as bank:
                self.bank, self.counts, self.sums = erase(bank, ids), counts, sums
        except Exception as error:
            if not len(ids) or self.bank.latest().count(ids):
                raise
            message = f"{error}; the rows are removed, but files still hold their bytes: call `forget([])`"
            raise InputError(message) from error
        self._take_changes()

    def _take_changes(self) -> None:
        """Count the rows again if another process changed the table during a change of this one."""
        if len(self.bank) != len(self) or self.bank.change != self._change:
            self.take_latest()

    def _marked(self, bank: LanceBank | None = None, added: int = 0) -> LanceBank:
        """The bank with a mark, so that changes that begin later are seen, and the next id after so many rows."""
        bank = (bank or self.bank).with_next_id(self.next_id + added)
        self._change = bank.change
        return bank

    @contextmanager
    def _changing(self, added: int = 0) -> Iterator[LanceBank]:
        """Bank to change, which keeps `next_id` for so many rows; after an error the memory is of the table's rows.

        Ids that another process keeps are left to it: it may be about to write its rows.
        """
        bank = self._unchanged()
        self.next_id = max(self.next_id, bank.next_id)
        try:
            yield self._marked(bank, added)
        except BaseException:
            if self._newer():
                self.take_latest()
            raise

    def _newer(self) -> bool:
        """Whether the table has a newer version; InputError if it is another table."""
        now = LanceBank.open(self.bank.table.uri)
        require(now.uuid == self.bank.uuid, f"{self.bank.table.uri}: another table than this model's; load it again")
        return now.version != self.bank.version

    def _unchanged(self) -> LanceBank:
        """The newest version of the bank; InputError if it has other rows, changed by others."""
        now, uri = self.bank.latest() if self._newer() else self.bank, self.bank.table.uri
        require(
            now.fragments == self.bank.fragments,  # a change that failed may have made a version of the same rows
            f"{uri}: changed since version {self.bank.version}, which this model knows; load the model that changed it "
            "last, or take its rows in Python: load, update_statistics, save",
        )
        return now

    def __getstate__(self) -> dict[str, object]:
        with self.lock.reading():
            return dict(vars(self))
