"""Rows of a Lance table: vectors and further columns on disk or in `s3://`, searched by an inverted file."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.errors import require
from attnknn.core.tables import to_array
from attnknn.index.faiss_index import n_probes, n_threads, nearest, train_centroids
from attnknn.index.lance_table import one_line, one_line_errors, open_table
from attnknn.index.rerank import rerank
from attnknn.index.validation import check_exclusions, check_vectors, format_ids

_QUERIES = 1024  # of a call of lance, which one thread answers
_SPARE = 8  # candidates beyond k, so that ties at the k-th place go to the lowest ids
_REFINE = 8  # candidates by code per neighbour
_GROUP = 64  # lists of a group, or so
METRIC_NAMES = {"l2": "l2", "ip": "dot"}
METRIC, UUID = b"attnknn.metric", b"attnknn.uuid"
INDEX = "vectors"
CACHE_BYTES = 2**30
ALL_LISTS = 2**31  # probes of an exhaustive search


@dataclass(frozen=True)
class LanceRows:
    """Rows of one version of a Lance table: `id` (int64), `vector` (float32, D) and further columns."""

    table: Any  # lance.LanceDataset
    probes: int = 0  # lists of the inverted file that a query reads at most; 0 for `faiss_index.n_probes`
    threads: int = 0  # of a search; 0 for those of faiss
    n_lists: int = field(init=False)  # of the inverted file; 0 without one, where a search is exhaustive
    codes: bool = field(init=False)  # whether lists hold product-quantisation codes, not vectors

    def __post_init__(self) -> None:
        indexed = any(index.name == INDEX for index in self.table.describe_indices())
        statistics = self.table.index_statistics(INDEX) if indexed else {}
        object.__setattr__(self, "n_lists", statistics["indices"][0]["num_partitions"] if indexed else 0)
        object.__setattr__(self, "codes", statistics.get("index_type") == "IVF_PQ")

    @classmethod
    def open(cls, uri: str | Path, version: int | None = None, cache_bytes: int = CACHE_BYTES, **options: int) -> Self:
        """Open a table at its latest version, or an earlier one.

        Args:
            uri: a folder, or an address such as `s3://bucket/rows.lance`, with credentials from the environment.
            cache_bytes: maximum of the inverted file that is kept in memory.
            options: fields of the class.

        Raises:
            InputError: there is no such table or version.
        """
        table = open_table(uri, version=version, index_cache_size_bytes=cache_bytes)
        known = {"id", "vector"} <= set(table.schema.names) and {METRIC, UUID} <= set(table.schema.metadata or {})
        require(known, f"{uri}: another program's table; this library's have columns id and vector, and a metric")
        with one_line(table):
            return cls(table, **options)

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
    def probes_per_query(self) -> int:
        """Number of lists that a query reads."""
        return min(self.probes or n_probes(self.n_lists), self.n_lists)

    @property
    def unindexed(self) -> int:
        """Number of rows outside the inverted file."""
        return self.table.index_statistics(INDEX)["num_unindexed_rows"] if self.n_lists else len(self)

    def __len__(self) -> int:
        return self.table.count_rows()

    @one_line_errors
    def count(self, ids: ArrayLike) -> int:
        """Number of rows with one of these ids."""
        return self.table.to_table(columns=["id"], filter=has_id(np.asarray(ids))).num_rows

    @property
    def metric(self) -> str:
        return self.table.schema.metadata[METRIC].decode()

    @property
    def dimensions(self) -> int:
        return self.table.schema.field("vector").type.list_size

    @property
    def version(self) -> int:
        return self.table.version

    @property
    def fragments(self) -> list[Any]:
        """Files and deleted rows, the same in versions of the same rows and values."""
        return [fragment.metadata.to_json() for fragment in self.table.get_fragments()]

    @property
    def uuid(self) -> str:
        """Identity of the rows that `build` wrote, which changes keep."""
        return self.table.schema.metadata[UUID].decode()

    @one_line_errors
    def latest(self) -> Self:
        """Rows of the newest version, with the changes of other processes."""
        return replace(self, table=self.table.checkout_version(self.table.latest_version))

    def search(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None, device: str = "cpu"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k nearest rows of each query, see `Bank.search`; by the CPU on any device."""
        return self.nearest(queries, k, exclude)[:2]

    @one_line_errors
    def nearest(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None, columns: Sequence[str] = ()
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """`search` with columns of the rows: re-ranked by exact similarity, ties by id.

        Args:
            queries: (B, D).
            exclude: (B,) or (B, E) ids hidden from each query; −1 pads.
            columns: names of further columns to return.

        Returns:
            ids (B, k) and similarities (B, k), −1 and −inf where fewer than k rows are not hidden, and the columns
            (B, k, …), with any values there.
        """
        q = check_vectors("queries", np.asarray(queries))
        fits = q.shape[1] == self.dimensions
        require(fits, f"queries: {q.shape[1]} dimensions; the bank has {self.dimensions}")
        hidden, rows = check_exclusions(exclude, len(q)), len(self)
        require(1 <= k <= rows, f"k: {k} neighbours; the bank has {rows} rows, so give 1 … {rows}")
        if not len(q):
            none = {name: np.repeat(values[:, None], k, 1) for name, values in self.rows_of([], columns).items()}
            return np.empty((0, k), np.int64), np.empty((0, k), np.float32), none
        result = self._search(q, k, hidden, columns)
        short = np.flatnonzero(result["id"][:, -1] < 0)
        if len(short) and self.probes_per_query < self.n_lists:  # the lists that were read have too few rows
            rest = replace(self, probes=self.n_lists)._search(q[short], k, hidden[short], columns)
            for name, values in rest.items():
                result[name][short] = values
        return result.pop("id"), result.pop("sim"), result

    def _search(self, q: np.ndarray, k: int, hidden: np.ndarray, columns: Sequence[str]) -> dict[str, np.ndarray]:
        """`id` (B, k), `sim` (B, k) and columns of the nearest rows in the lists that queries read."""
        n_candidates = min((_REFINE if self.codes else 1) * (k + hidden.shape[1]) + _SPARE, len(self))
        request = {"column": "vector", "k": n_candidates, "metric": METRIC_NAMES[self.metric]}
        order = np.arange(len(q))
        if self.n_lists:
            request["nprobes"] = self.probes_per_query
        if self.n_lists and len(q) > _QUERIES:
            lists = nearest(q, self.centroids, 1, self.metric)[:, 0]
            order = np.lexsort((lists, self.groups[lists]))
        q, hidden = q[order], hidden[order]

        def search_block(start: int) -> dict[str, np.ndarray]:
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
            return {"id": ids, "sim": sims, **{name: to_array(table[name])[rows] for name in columns}}

        with ThreadPoolExecutor(self.threads or n_threads()) as pool:
            blocks = list(pool.map(search_block, range(0, len(q), _QUERIES)))
        back = np.argsort(order)
        return {name: np.concatenate([block[name] for block in blocks])[back] for name in blocks[0]}

    @one_line_errors
    def rows_of(self, ids: ArrayLike, columns: Sequence[str] = ("vector",)) -> dict[str, np.ndarray]:
        """Columns (M, …) of the rows with these ids (M,); InputError if one is not in the bank."""
        wanted = np.atleast_1d(np.asarray(ids, dtype=np.int64))
        table = self.table.to_table(columns=list({"id", *columns}), filter=has_id(wanted))
        present = to_array(table["id"])
        missing = np.setdiff1d(wanted, present)
        require(not len(missing), f"ids: {format_ids(missing)} not in the bank")
        order = np.argsort(present)
        rows = order[np.searchsorted(present, wanted, sorter=order)]
        return {name: to_array(table[name])[rows] for name in columns}

    @one_line_errors
    def take(self, rows: np.ndarray, columns: Sequence[str] = ("vector",)) -> dict[str, np.ndarray]:
        """Columns (M, …) of rows, numbered as in `blocks`."""
        table = self.table.take(rows, columns=list(columns))
        return {name: to_array(table[name]) for name in columns}

    def blocks(self, columns: Sequence[str] = ("id", "vector"), rows: int = 65_536) -> Iterator[dict[str, np.ndarray]]:
        """Columns of all rows, in the order in which they were added, in blocks."""
        with one_line(self.table):
            for batch in self.table.to_batches(columns=list(columns), batch_size=rows, scan_in_order=True):
                yield {name: to_array(batch[name]) for name in columns}


def has_id(ids: np.ndarray) -> str:
    """Filter of the rows with these ids."""
    return f"id IN ({', '.join(map(str, ids.tolist()))})" if len(ids) else "false"
