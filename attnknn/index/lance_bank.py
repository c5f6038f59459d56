"""A bank in a Lance table, which may be larger than memory; every change makes a version of it."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.duplicates import first_identical
from attnknn.core.errors import InputError, require
from attnknn.core.tables import to_array
from attnknn.index.faiss_index import (
    METRICS,
    code_bytes,
    n_lists,
    nearest,
    train_centroids,
    train_codebook,
)
from attnknn.index.lance_rows import INDEX, METRIC, METRIC_NAMES, UUID, LanceRows, has_id
from attnknn.index.lance_table import (
    Block,
    add_columns,
    create_lists,
    drop_table,
    is_conflict,
    one_line_errors,
    reason_of,
    record_batch,
    refuse_other_files,
    replace_columns,
    write_table,
)
from attnknn.index.validation import format_ids

_NEXT_ID = "attnknn.next_id."
_UNINDEXED = 10_000  # rows, up to which an exhaustive search takes no longer
_SAMPLE = 64  # rows per centroid that k-means reads
_EXACT_ROWS = 10_000_000  # up to which lists hold vectors; above, codes of a sixteenth of their size or so


@dataclass(frozen=True)
class LanceBank(LanceRows):
    """Rows of a Lance table, and their changes, which make a version of it.

    Changes are atomic, and return the bank of the new version; this one keeps its rows until `erase` deletes versions.
    """

    @classmethod
    def build(
        cls,
        uri: str | Path,
        blocks: Iterable[Block],
        metric: str = "l2",
        nlist: int = 0,
        codes: bool | None = None,
        overwrite: bool = False,
        **options: int,
    ) -> "LanceBank":
        """Write blocks of rows to a new table, and index them.

        An error leaves no table; a kill may leave one without an index, see `indexed`.

        Args:
            nlist, codes: see `indexed`.
            overwrite: whether to make a new version of a table that exists; an error leaves its earlier versions.
            options: of `open`.
        """
        require(metric in METRICS, f"metric: {metric}; allowed are {', '.join(METRICS)}")
        refuse_other_files(str(uri))  # an error below deletes the folder
        remaining = iter(blocks)
        first = next(remaining, Block(np.empty((0, 1)), np.empty(0)))
        require(len(first.ids) > 0, "bank: no rows")
        schema = record_batch(first).schema.with_metadata({METRIC: metric, UUID: uuid4().hex})
        ids: list[np.ndarray] = []
        errors: list[BaseException] = []  # lance hides what blocks raise

        def batches() -> Iterator[Any]:
            try:
                for block in chain([first], remaining):
                    batch = record_batch(block, schema)
                    ids.append(to_array(batch["id"]))
                    yield batch
            except BaseException as error:
                errors.append(error)
                raise

        try:
            table = write_table(str(uri), batches(), schema, "overwrite" if overwrite else "create")
            rows = np.sort(np.concatenate(ids))
            repeated = rows[1:][rows[1:] == rows[:-1]]
            require(not len(repeated), f"bank: row ids {format_ids(repeated)} are repeated")
            bank = cls.open(uri, table.version, **options)
            bank.table.create_scalar_index("id", "BTREE")
            return bank.indexed(nlist, codes)
        except BaseException as error:
            require("already exists" not in str(error), f"{uri}: exists; give another address, or remove it")
            require(not is_conflict(error), f"{uri}: another process wrote to it meanwhile; run again")
            if not overwrite:
                with suppress(OSError, ValueError):  # nothing was written
                    drop_table(str(uri))
            if not errors and isinstance(error, ValueError | OSError) and not isinstance(error, InputError):
                error = InputError(f"{uri}: not written ({reason_of(error)})")
            raise errors[0] if errors else error from None

    @one_line_errors
    def indexed(self, nlist: int = 0, codes: bool | None = None, without: np.ndarray | None = None) -> "LanceBank":
        """Bank of the same rows with an inverted file over all of them; by the present centroids, unless `nlist`.

        New centroids are of a k-means with a fixed seed on a fixed sample, so that two builds are equal. Rows added
        later are searched exhaustively until the next call.

        Args:
            nlist: number of lists, see `faiss_index.n_lists`.
            codes: whether lists hold product-quantisation codes, whose candidates are re-ranked by their vectors; None:
                as before, or if there are more than 10,000,000 rows.
            without: (M, D) vectors of rows to be removed, which k-means does not read.
        """
        rows = len(self)
        if rows <= _UNINDEXED and not nlist and not self.n_lists:
            return self
        codes = self.codes or rows > _EXACT_ROWS if codes is None else codes
        sample = np.empty((0, self.dimensions), dtype=np.float32)
        if nlist or not self.n_lists or codes:
            size = min(rows, _SAMPLE * max(n_lists(rows, nlist), 256))
            sample = self.take(np.sort(np.random.default_rng(0).choice(rows, size, replace=False)))["vector"]
            if without is not None:
                kept = first_identical(np.concatenate([without, sample]))[len(without) :] >= len(without)
                sample = sample[kept] if kept.any() else sample  # copies of the removed vectors stay
                rows = len(sample)
        new = bool(nlist or not self.n_lists)
        centroids = train_centroids(sample, n_lists(rows, nlist), self.metric) if new else self.centroids
        settings: dict[str, Any] = {"num_partitions": len(centroids), "ivf_centroids": centroids}
        if codes:
            if self.metric == "l2":  # lance codes what the centroid leaves
                sample = sample - centroids[nearest(sample, centroids, 1, "l2")[:, 0]]
            n_bytes = code_bytes(self.dimensions)
            settings |= {"num_sub_vectors": n_bytes, "pq_codebook": train_codebook(sample, n_bytes)}
        settings |= {"index_type": "IVF_PQ" if codes else "IVF_FLAT", "metric": METRIC_NAMES[self.metric]}
        table = self.table.checkout_version(self.version)
        create_lists(table, INDEX, lambda z: nearest(z, centroids, 1, self.metric)[:, 0], **settings)
        return replace(self, table=table)

    @one_line_errors
    def with_columns(self, **columns: np.ndarray) -> "LanceBank":
        """Bank with these columns (N, …), in the order of `blocks`, added or in the place of earlier ones."""
        table = self.table.checkout_version(self.version)
        earlier = {name: columns.pop(name) for name in self.table.schema.names if name in columns}
        if columns:
            add_columns(table, columns)
        return replace(self, table=replace_columns(table, earlier) if earlier else table)

    @one_line_errors
    def with_next_id(self, next_id: int) -> "LanceBank":
        """Bank whose table keeps the next free id, also when the row of the largest id is removed.

        InputError if another did the same since this version, so that of two changes at once one is refused.
        """
        table = self.table.checkout_version(self.version)
        # A key for each call, since after an erasure lance sees no conflict with what was before it.
        earlier, own = replace(self, table=table)._marks, f"{_NEXT_ID}{next_id}.{uuid4().hex}"
        table.update_config({**dict.fromkeys(earlier), own: ""})
        bank = replace(self, table=table)
        require(bank._marks == [own], f"{table.uri}: another process changed it meanwhile; run again")
        return bank

    @property
    def _marks(self) -> list[str]:
        return sorted(name for name in self.table.config() if name.startswith(_NEXT_ID))

    @property
    def next_id(self) -> int:
        """Id of `with_next_id`, or 0."""
        return max((int(mark.removeprefix(_NEXT_ID).partition(".")[0]) for mark in self._marks), default=0)

    @property
    def change(self) -> str:
        """A mark of the last call of `with_next_id`, by this or another process."""
        return " ".join(self._marks)

    @one_line_errors
    def add(self, z: ArrayLike, ids: ArrayLike, **columns: np.ndarray) -> "LanceBank":
        """Bank of the newest version with further rows.

        Args:
            z: (M, D) vectors.
            ids: (M,) that the newest version does not have.
            columns: a value (M, …) of every further column.
        """
        batch = record_batch(Block(np.asarray(z), np.asarray(ids), columns), self.table.schema)
        table, added = self.latest().table, to_array(batch["id"])
        present = table.to_table(columns=["id"], filter=has_id(added))["id"].to_numpy()
        require(not len(present), f"bank: row ids {format_ids(present)} are in it already; give others")
        table = write_table(table.uri, iter([batch]), batch.schema, "append")
        return replace(self, table=self.table.checkout_version(table.version))

    def drop(self) -> None:
        """Delete the table with all its versions."""
        drop_table(self.table.uri)

    @one_line_errors
    def remove(self, ids: ArrayLike) -> "LanceBank":
        """Bank without the rows of these ids; their bytes stay in the files, until `erase`."""
        wanted = np.unique(np.asarray(ids, dtype=np.int64))
        z = self.rows_of(wanted)["vector"]
        require(len(wanted) < len(self), "bank: no row would be left; keep at least one")
        bank = self
        if self.n_lists and (first_identical(np.concatenate([self.centroids, z]))[self.n_lists :] < self.n_lists).any():
            # The centroid of a list of a single row holds its vector. New ones come first: a kill loses no removal.
            bank = self.indexed(self.n_lists, without=z)
        table = bank.table.checkout_version(bank.version)
        table.delete(has_id(wanted))
        return replace(self, table=table)
