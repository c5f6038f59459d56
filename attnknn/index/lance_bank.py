"""A bank in a Lance table: vectors and further columns on disk or in `s3://`, searched by an inverted file.

A table may be larger than memory; every change makes a version of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.duplicates import first_identical
from attnknn.core.errors import require
from attnknn.index.faiss_index import (
    METRICS,
    code_bytes,
    n_lists,
    n_probes,
    n_threads,
    nearest,
    train_centroids,
    train_codebook,
)
from attnknn.index.lance_table import (
    Block,
    columns_reader,
    drop_table,
    files_with,
    open_table,
    record_batch,
    refuse_other_files,
    to_array,
    write_table,
)
from attnknn.index.rerank import rerank
from attnknn.index.validation import check_exclusions, check_vectors, format_ids

_QUERIES = 1024  # of a call of lance, which one thread answers
_SPARE = 8  # candidates beyond k, so that ties at the k-th place go to the lowest ids
_UNINDEXED = 10_000  # rows, up to which an exhaustive search takes no longer
_SAMPLE = 64  # rows per centroid that k-means reads
_EXACT_ROWS = 10_000_000  # up to which lists hold vectors; above, codes of a sixteenth of their size or so
_REFINE = 8  # candidates by code per neighbour
_GROUP = 64  # lists of a group, or so
_METRIC_NAMES = {"l2": "l2", "ip": "dot"}
_METRIC = b"attnknn.metric"
INDEX = "vectors"
CACHE_BYTES = 2**30


@dataclass(frozen=True)
class LanceBank:
    """Rows of one version of a Lance table: `id` (int64), `vector` (float32, D) and further columns.

    Changes are atomic, and return the bank of the new version; this one keeps its rows until `erase` deletes versions.
    """

    table: Any  # lance.LanceDataset
    probes: int = 0  # lists of the inverted file that a query reads; 0 for `faiss_index.n_probes`
    threads: int = 0  # of a search; 0 for those of faiss
    n_lists: int = field(init=False)  # of the inverted file; 0 without one, where a search is exhaustive
    codes: bool = field(init=False)  # whether lists hold product-quantisation codes, not vectors

    def __post_init__(self) -> None:
        indexed = any(index.name == INDEX for index in self.table.describe_indices())
        statistics = self.table.index_statistics(INDEX) if indexed else {}
        object.__setattr__(self, "n_lists", statistics["indices"][0]["num_partitions"] if indexed else 0)
        object.__setattr__(self, "codes", statistics.get("index_type") == "IVF_PQ")

    @classmethod
    def open(
        cls, uri: str | Path, version: int | None = None, cache_bytes: int = CACHE_BYTES, **options: int
    ) -> "LanceBank":
        """Open a table at its latest version, or an earlier one.

        Args:
            uri: a folder, or an address such as `s3://bucket/rows.lance`, with credentials from the environment.
            cache_bytes: maximum of the inverted file that is kept in memory.
            options: fields of the class.

        Raises:
            InputError: there is no such table or version.
        """
        table = open_table(uri, version=version, index_cache_size_bytes=cache_bytes)
        known = {"id", "vector"} <= set(table.schema.names) and _METRIC in (table.schema.metadata or {})
        require(known, f"{uri}: another program's table; this library's have columns id and vector, and a metric")
        return cls(table, **options)

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
        schema = record_batch(first).schema.with_metadata({_METRIC: metric})
        errors: list[BaseException] = []  # lance hides what blocks raise

        def batches() -> Iterator[Any]:
            try:
                for block in chain([first], remaining):
                    yield record_batch(block, schema)
            except BaseException as error:
                errors.append(error)
                raise

        try:
            write_table(str(uri), batches(), schema, "overwrite" if overwrite else "create")
            bank = cls.open(uri, **options)
            bank.table.create_scalar_index("id", "BTREE")
            return bank.latest().indexed(nlist, codes)
        except BaseException as error:
            require("already exists" not in str(error), f"{uri}: exists; give another address, or remove it")
            conflict = type(error).__name__ == "CommitConflictError"
            require(not conflict, f"{uri}: another process wrote to it meanwhile; run again")
            if not overwrite:
                drop_table(str(uri))
            raise errors[0] if errors else error from None

    def indexed(self, nlist: int = 0, codes: bool | None = None) -> "LanceBank":
        """Bank of the same rows with an inverted file over all of them; by the present centroids, unless `nlist`.

        New centroids are of a k-means with a fixed seed on a fixed sample, so that two builds are equal. Rows added
        later are searched exhaustively until the next call.

        Args:
            nlist: number of lists, see `faiss_index.n_lists`.
            codes: whether lists hold product-quantisation codes, whose candidates are re-ranked by their vectors; None:
                as before, or if there are more than 10,000,000 rows.
        """
        rows = len(self)
        if rows <= _UNINDEXED and not nlist and not self.n_lists:
            return self
        codes = self.codes or rows > _EXACT_ROWS if codes is None else codes
        sample = np.empty((0, self.dimensions), dtype=np.float32)
        if nlist or not self.n_lists or codes:
            size = min(rows, _SAMPLE * max(n_lists(rows, nlist), 256))
            sample = self.take(np.sort(np.random.default_rng(0).choice(rows, size, replace=False)))["vector"]
        new = bool(nlist or not self.n_lists)
        centroids = train_centroids(sample, n_lists(rows, nlist), self.metric) if new else self.centroids
        settings: dict[str, Any] = {"num_partitions": len(centroids), "ivf_centroids": centroids}
        if codes:
            if self.metric == "l2":  # lance codes what the centroid leaves
                sample = sample - centroids[nearest(sample, centroids, 1, "l2")[:, 0]]
            n_bytes = code_bytes(self.dimensions)
            settings |= {"num_sub_vectors": n_bytes, "pq_codebook": train_codebook(sample, n_bytes)}
        kind = "IVF_PQ" if codes else "IVF_FLAT"
        metric = _METRIC_NAMES[self.metric]
        self.table.create_index("vector", kind, name=INDEX, metric=metric, replace=True, **settings)
        return self.latest()

    @cached_property
    def centroids(self) -> np.ndarray:
        """Centroids (L, D) of the inverted file."""
        return to_array(self.table.centroids(index_name=INDEX))

    @cached_property
    def groups(self) -> np.ndarray:
        """Group (L,) of each list; lists of a group have neighbours in common, which a cache then holds."""
        centres = train_centroids(self.centroids, max(1, self.n_lists // _GROUP), self.metric)
        return nearest(self.centroids, centres, 1, self.metric)[:, 0]

    @property
    def unindexed(self) -> int:
        """Number of rows outside the inverted file."""
        return self.table.index_statistics(INDEX)["num_unindexed_rows"] if self.n_lists else len(self)

    def __len__(self) -> int:
        return self.table.count_rows()

    @property
    def metric(self) -> str:
        return self.table.schema.metadata[_METRIC].decode()

    @property
    def dimensions(self) -> int:
        return self.table.schema.field("vector").type.list_size

    @property
    def version(self) -> int:
        return self.table.version

    def latest(self) -> "LanceBank":
        """Bank of the newest version, with the changes of other processes."""
        return replace(self, table=self.table.checkout_version(self.table.latest_version))

    def search(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None, device: str = "cpu"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k nearest rows of each query, see `Bank.search`; by the CPU on any device."""
        return self.nearest(queries, k, exclude)[:2]

    def nearest(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None, columns: Sequence[str] = ()
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """`search` with columns of the rows: re-ranked by exact similarity, ties by id.

        Args:
            queries: (B, D).
            exclude: (B,) or (B, E) ids hidden from each query; −1 pads.
            columns: names of further columns to return.

        Returns:
            ids (B, k) and similarities (B, k), −1 and −inf where the lists hold fewer than k rows, and the columns
            (B, k, …), with any values there.
        """
        q = check_vectors("queries", np.asarray(queries))
        fits = q.shape[1] == self.dimensions
        require(fits, f"queries: {q.shape[1]} dimensions; the bank has {self.dimensions}")
        hidden = check_exclusions(exclude, len(q))
        rows = len(self)
        require(1 <= k <= rows, f"k: {k} neighbours; the bank has {rows} rows, so give 1 … {rows}")
        if not len(q):
            none = {name: np.repeat(values[:, None], k, 1) for name, values in self.rows_of([], columns).items()}
            return np.empty((0, k), np.int64), np.empty((0, k), np.float32), none
        n_candidates = min((_REFINE if self.codes else 1) * (k + hidden.shape[1]) + _SPARE, rows)
        request = {"column": "vector", "k": n_candidates, "metric": _METRIC_NAMES[self.metric]}
        order = np.arange(len(q))
        if self.n_lists:
            request["nprobes"] = self.probes or n_probes(self.n_lists)
        if self.n_lists and len(q) > _QUERIES:
            lists = nearest(q, self.centroids, 1, self.metric)[:, 0]
            order = np.lexsort((lists, self.groups[lists]))
        q, hidden = q[order], hidden[order]

        def search_block(start: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
            block = slice(start, start + _QUERIES)
            result = self.table.to_table(columns=["_distance"], with_row_id=True, nearest=request | {"q": q[block]})
            result = result.sort_by("query_index")
            query = result["query_index"].to_numpy()
            unique, positions = np.unique(result["_rowid"].to_numpy(), return_inverse=True)
            candidates = np.full((len(q[block]), n_candidates), -1)
            candidates[query, np.arange(len(query)) - np.searchsorted(query, query)] = positions
            table = self.table._take_rows(unique, columns=["id", "vector", *columns])
            row_ids = to_array(table["id"])
            ids, sims = rerank(q[block], to_array(table["vector"]), row_ids, candidates, hidden[block], self.metric)
            ids, sims = ids[:, :k], sims[:, :k]
            order = np.argsort(row_ids)
            rows = order[np.searchsorted(row_ids, ids, sorter=order)]
            return ids, sims, {name: to_array(table[name])[rows] for name in columns}

        with ThreadPoolExecutor(self.threads or n_threads()) as pool:
            ids, sims, values = zip(*pool.map(search_block, range(0, len(q), _QUERIES)), strict=True)
        back = np.argsort(order)
        columns_of_rows = {name: np.concatenate([value[name] for value in values])[back] for name in columns}
        return np.concatenate(ids)[back], np.concatenate(sims)[back], columns_of_rows

    def rows_of(self, ids: ArrayLike, columns: Sequence[str] = ("vector",)) -> dict[str, np.ndarray]:
        """Columns (M, …) of the rows with these ids (M,); InputError if one is not in the bank."""
        wanted = np.atleast_1d(np.asarray(ids, dtype=np.int64))
        table = self.table.to_table(columns=list({"id", *columns}), filter=_has_id(wanted))
        present = to_array(table["id"])
        missing = np.setdiff1d(wanted, present)
        require(not len(missing), f"ids: {format_ids(missing)} not in the bank")
        order = np.argsort(present)
        rows = order[np.searchsorted(present, wanted, sorter=order)]
        return {name: to_array(table[name])[rows] for name in columns}

    def take(self, rows: np.ndarray, columns: Sequence[str] = ("vector",)) -> dict[str, np.ndarray]:
        """Columns (M, …) of rows, numbered as in `blocks`."""
        table = self.table.take(rows, columns=list(columns))
        return {name: to_array(table[name]) for name in columns}

    def blocks(self, columns: Sequence[str] = ("id", "vector"), rows: int = 65_536) -> Iterator[dict[str, np.ndarray]]:
        """Columns of all rows, in the order in which they were added, in blocks."""
        for batch in self.table.to_batches(columns=list(columns), batch_size=rows, scan_in_order=True):
            yield {name: to_array(batch[name]) for name in columns}

    def with_columns(self, **columns: np.ndarray) -> "LanceBank":
        """Bank with these columns (N, …), in the order of `blocks`, added or in the place of earlier ones."""
        table = self.table.checkout_version(self.version)
        earlier = [name for name in columns if name in table.schema.names]
        if earlier:
            table.drop_columns(earlier)
        table.add_columns(columns_reader(columns))
        return replace(self, table=table)

    def add(self, z: ArrayLike, ids: ArrayLike, **columns: np.ndarray) -> "LanceBank":
        """Bank with further rows: vectors z (M, D), ids (M,) and a value (M, …) of every further column."""
        batch = record_batch(Block(np.asarray(z), np.asarray(ids), columns), self.table.schema)
        added = to_array(batch["id"])
        present = self.table.to_table(columns=["id"], filter=_has_id(added))["id"].to_numpy()
        require(not len(present), f"bank: row ids {format_ids(present)} are in it already; remove them first")
        table = write_table(self.table.uri, iter([batch]), batch.schema, "append")
        return replace(self, table=self.table.checkout_version(table.version))

    def drop(self) -> None:
        """Delete the table with all its versions."""
        drop_table(self.table.uri)

    def remove(self, ids: ArrayLike) -> "LanceBank":
        """Bank without the rows of these ids; their bytes stay in the files, until `erase`."""
        wanted = np.unique(np.asarray(ids, dtype=np.int64))
        z = self.rows_of(wanted)["vector"]
        require(len(wanted) < len(self), "bank: no row would be left; keep at least one")
        table = self.table.checkout_version(self.version)
        table.delete(_has_id(wanted))
        bank = replace(self, table=table)
        if not self.n_lists:
            return bank
        centroid_of = first_identical(np.concatenate([self.centroids, z]))[self.n_lists :]
        if (centroid_of < self.n_lists).any():  # of a list of a single row: the centroid holds its vector
            return bank.indexed(self.n_lists)
        return bank

    def erase(self, ids: ArrayLike) -> "LanceBank":
        """Bank without these rows and with no file that holds their vectors, or those of rows removed earlier.

        Other versions are deleted, unless they have a tag. Files are written anew, and read to see that it is so.

        Raises:
            InputError: a tag holds a row, an id is not in the bank, or a file still holds a vector.
        """
        wanted = np.unique(np.asarray(ids, dtype=np.int64))
        vectors = self.rows_of(wanted)["vector"]
        table = self.table.to_table(columns=["_rowaddr"], filter=_has_id(wanted))
        fragments = set((to_array(table["_rowaddr"]) >> 32).tolist())
        for name, tag in self.table.tags.list().items():
            kept = {fragment.fragment_id for fragment in self.table.checkout_version(tag["version"]).get_fragments()}
            require(not kept & fragments, f"{self.table.uri}: tag {name} holds a row to erase; delete the tag first")
        table = (self.remove(wanted) if len(wanted) else self.latest()).table
        table.optimize.compact_files(materialize_deletions=True, materialize_deletions_threshold=0.0)
        table.create_scalar_index("id", "BTREE", replace=True)
        result = replace(self, table=table).latest().indexed()
        result.table.cleanup_old_versions(timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)
        for block in result.blocks(["vector"]):  # copies of a vector may stay
            present = block["vector"]
            vectors = vectors[first_identical(np.concatenate([present, vectors]))[len(present) :] >= len(present)]
        left = files_with(result.table, [vector.tobytes() for vector in vectors])
        require(not left, f"{self.table.uri}: a vector to erase is still in {', '.join(left)}")
        return result


def _has_id(ids: np.ndarray) -> str:
    """Filter of the rows with these ids."""
    return f"id IN ({', '.join(map(str, ids.tolist()))})" if len(ids) else "false"
