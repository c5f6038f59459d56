"""A bank in a Lance table: vectors and further columns on disk or in `s3://`, searched by an inverted file.

The only module that imports lance. A table may be larger than memory; every change makes a version of it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.duplicates import first_identical
from attnknn.core.errors import InputError, require
from attnknn.index.faiss_index import METRICS, Index, n_lists, n_probes, n_threads, train_centroids
from attnknn.index.rerank import rerank
from attnknn.index.validation import check_exclusions, check_ids, check_vectors, format_ids

try:
    for name, value in {"LANCE_LOG": "error", "LANCE_INCLUDE_VECTOR_CENTROIDS": "false"}.items():
        os.environ.setdefault(name, value)  # its warnings are for its developers
    import lance
    import pyarrow as pa
    from lance.dataset import VectorIndexReader
    from pyarrow.dataset import dataset
    from pyarrow.fs import FileSystem, LocalFileSystem
except ImportError:
    raise InputError("lance: not installed; run `pip install attnknn[lance]`") from None

_QUERIES = 1024  # of a call of lance, which one thread answers
_SPARE = 8  # candidates beyond k, so that ties at the k-th place go to the lowest ids
_UNINDEXED = 10_000  # rows, up to which an exhaustive search takes no longer
_SAMPLE = 64  # rows per centroid that k-means reads
_CACHE = 2**28  # bytes of lists that `nearest_rows` keeps
_METRIC_NAMES = {"l2": "l2", "ip": "dot"}
_METRIC = b"attnknn.metric"
_INDEX = "vectors"


class Block(NamedTuple):
    """Rows to be written."""

    z: np.ndarray  # (M, D)
    ids: np.ndarray  # (M,)
    columns: Mapping[str, np.ndarray] = {}  # further ones (M,) or (M, W)


@dataclass(frozen=True)
class LanceBank:
    """Rows of one version of a Lance table: `id` (int64), `vector` (float32, D) and further columns.

    Changes are atomic, and return the bank of the new version; this one keeps its rows until `erase` deletes versions.
    """

    table: Any  # lance.LanceDataset
    probes: int = 0  # lists of the inverted file that a query reads; 0 for `faiss_index.n_probes`
    threads: int = 0  # of a search; 0 for those of faiss
    n_lists: int = field(init=False)  # of the inverted file; 0 without one, where a search is exhaustive

    def __post_init__(self) -> None:
        indexed = any(index.name == _INDEX for index in self.table.describe_indices())
        statistics = self.table.index_statistics(_INDEX) if indexed else {"indices": [{"num_partitions": 0}]}
        object.__setattr__(self, "n_lists", statistics["indices"][0]["num_partitions"])

    @classmethod
    def open(cls, uri: str | Path, version: int | None = None, cache_bytes: int = 2**30, **options: int) -> "LanceBank":
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
        overwrite: bool = False,
        **options: int,
    ) -> "LanceBank":
        """Write blocks of rows to a new table, and index them.

        An error leaves no table; a kill may leave one without an index, see `indexed`.

        Args:
            overwrite: whether to make a new version of a table that exists; an error leaves its earlier versions.
            options: fields of the class.
        """
        require(metric in METRICS, f"metric: {metric}; allowed are {', '.join(METRICS)}")
        remaining = iter(blocks)
        first = next(remaining, Block(np.empty((0, 1)), np.empty(0)))
        require(len(first.ids) > 0, "bank: no rows")
        schema = _batch(first).schema.with_metadata({_METRIC: metric})
        errors: list[BaseException] = []  # lance hides what blocks raise

        def batches() -> Iterator[Any]:
            try:
                for block in chain([first], remaining):
                    yield _batch(block, schema)
            except BaseException as error:
                errors.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(schema, batches())
        mode = "overwrite" if overwrite else "create"
        try:
            table = lance.write_dataset(reader, str(uri), mode=mode, enable_stable_row_ids=True)
            table.create_scalar_index("id", "BTREE")
            return cls(table, **options).latest().indexed(nlist)
        except BaseException as error:
            require("already exists" not in str(error), f"{uri}: exists; give another address, or remove it")
            if not overwrite:
                lance.LanceDataset.drop(str(uri))
            raise errors[0] if errors else error from None

    def indexed(self, nlist: int = 0) -> "LanceBank":
        """Bank of the same rows with an inverted file over all of them; by the present centroids, unless `nlist`.

        New centroids are of a k-means with a fixed seed on a fixed sample, so that two builds are equal. Rows added
        later are searched exhaustively until the next call.
        """
        if len(self) <= _UNINDEXED and not nlist and not self.n_lists:
            return self
        if self.n_lists and not nlist:
            centroids = _centroids(self.table)
        else:
            count = n_lists(len(self), nlist)
            sample = min(len(self), _SAMPLE * max(count, 256))
            rows = np.sort(np.random.default_rng(0).choice(len(self), sample, replace=False))
            centroids = train_centroids(self.take(rows)["vector"], count, self.metric)
        settings = {"name": _INDEX, "num_partitions": len(centroids), "ivf_centroids": centroids, "replace": True}
        self.table.create_index("vector", "IVF_FLAT", metric=_METRIC_NAMES[self.metric], **settings)
        return self.latest()

    @property
    def unindexed(self) -> int:
        """Number of rows outside the inverted file."""
        return self.table.index_statistics(_INDEX)["num_unindexed_rows"] if self.n_lists else len(self)

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
        n_candidates = min(k + hidden.shape[1] + _SPARE, rows)
        nearest = {"column": "vector", "k": n_candidates, "metric": _METRIC_NAMES[self.metric]}
        if self.n_lists:
            nearest["nprobes"] = self.probes or n_probes(self.n_lists)

        def search_block(start: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
            block = slice(start, start + _QUERIES)
            result = self.table.to_table(columns=["_distance"], with_row_id=True, nearest=nearest | {"q": q[block]})
            result = result.sort_by("query_index")
            query = result["query_index"].to_numpy()
            unique, positions = np.unique(result["_rowid"].to_numpy(), return_inverse=True)
            candidates = np.full((len(q[block]), n_candidates), -1)
            candidates[query, np.arange(len(query)) - np.searchsorted(query, query)] = positions
            table = self.table._take_rows(unique, columns=["id", "vector", *columns])
            row_ids = _array(table["id"])
            ids, sims = rerank(q[block], _array(table["vector"]), row_ids, candidates, hidden[block], self.metric)
            ids, sims = ids[:, :k], sims[:, :k]
            order = np.argsort(row_ids)
            rows = order[np.searchsorted(row_ids, ids, sorter=order)]
            return ids, sims, {name: _array(table[name])[rows] for name in columns}

        with ThreadPoolExecutor(self.threads or n_threads()) as pool:
            ids, sims, values = zip(*pool.map(search_block, range(0, len(q), _QUERIES)), strict=True)
        return np.concatenate(ids), np.concatenate(sims), {c: np.concatenate([v[c] for v in values]) for c in columns}

    def nearest_rows(
        self, k: int, lists: int = 8, hidden: ArrayLike = (), device: str = "cpu"
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Find the k nearest other rows of every row by a search of whole lists, which is faster than `search`.

        Rows are numbered as in `blocks`. All must be in lists; see `indexed`. Approximate: a list is searched with
        those of the centroids nearest to its own.

        Args:
            lists: number of lists searched for each list.
            hidden: ids of rows that are not returned as neighbours.
            device: `cuda…` searches on that GPU.

        Yields:
            rows (M,) of a list, their neighbours (M, k), nearest first, padded by −1, and similarities (M, k), padded
            by −inf.
        """
        table = self.table.to_table(columns=["id"], with_row_id=True, scan_in_order=True)
        visible, row_ids = ~np.isin(_array(table["id"]), hidden), _array(table["_rowid"])
        row_of = np.full(int(row_ids.max()) + 1, -1)
        row_of[row_ids] = np.arange(len(row_ids))
        if self.n_lists:
            centroids = _centroids(self.table)
            nearest = Index("flat", self.metric).searcher(centroids, None, "cpu")(centroids, min(lists, self.n_lists))
            groups = train_centroids(centroids, max(1, self.n_lists // 64), self.metric)  # lists that share neighbours
            order = np.argsort(Index("flat", self.metric).searcher(groups, None, "cpu")(centroids, 1)[:, 0])
            reader = VectorIndexReader(self.table, _INDEX)
        else:
            nearest, order = np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)

        @lru_cache(max(lists, _CACHE * max(1, self.n_lists) // (4 * self.dimensions * len(row_ids))))
        def read(i: int) -> tuple[np.ndarray, np.ndarray]:
            if not self.n_lists:
                return np.arange(len(row_ids)), np.concatenate([block["vector"] for block in self.blocks(["vector"])])
            part = reader.read_partition(i, with_vector=True)
            rows = row_of[_array(part["_rowid"])]  # the list of a row removed later still holds it
            return rows[rows >= 0], _array(part["flat"])[rows >= 0]

        for i in order:
            rows, z = read(int(i))
            if not len(rows):
                continue
            others, keys = (np.concatenate(parts) for parts in zip(*map(read, nearest[i].tolist()), strict=True))
            others, keys = others[visible[others]], keys[visible[others]]
            count = min(k + 1 + _SPARE, len(others))
            ids, sims = np.full((len(rows), k), -1), np.full((len(rows), k), -np.inf, dtype=np.float32)
            if count:
                search = Index("flat", self.metric).searcher(keys, None, device)
                ranked = rerank(z, keys, others, search(z, count), rows[:, None], self.metric)
                ids[:, :count], sims[:, :count] = (values[:, :k] for values in ranked)
            yield rows, ids, sims

    def rows_of(self, ids: ArrayLike, columns: Sequence[str] = ("vector",)) -> dict[str, np.ndarray]:
        """Columns (M, …) of the rows with these ids (M,); InputError if one is not in the bank."""
        wanted = np.atleast_1d(np.asarray(ids, dtype=np.int64))
        table = self.table.to_table(columns=list({"id", *columns}), filter=_has_id(wanted))
        present = _array(table["id"])
        missing = np.setdiff1d(wanted, present)
        require(not len(missing), f"ids: {format_ids(missing)} not in the bank")
        order = np.argsort(present)
        rows = order[np.searchsorted(present, wanted, sorter=order)]
        return {name: _array(table[name])[rows] for name in columns}

    def take(self, rows: np.ndarray, columns: Sequence[str] = ("vector",)) -> dict[str, np.ndarray]:
        """Columns (M, …) of rows, numbered as in `blocks`."""
        table = self.table.take(rows, columns=list(columns))
        return {name: _array(table[name]) for name in columns}

    def blocks(self, columns: Sequence[str] = ("id", "vector"), rows: int = 65_536) -> Iterator[dict[str, np.ndarray]]:
        """Columns of all rows, in the order in which they were added, in blocks."""
        for batch in self.table.to_batches(columns=list(columns), batch_size=rows, scan_in_order=True):
            yield {name: _array(batch[name]) for name in columns}

    def with_columns(self, **columns: np.ndarray) -> "LanceBank":
        """Bank with these columns (N, …), in the order of `blocks`, added or in the place of earlier ones."""
        table = self.table.checkout_version(self.version)
        earlier = [name for name in columns if name in table.schema.names]
        if earlier:
            table.drop_columns(earlier)
        arrays = {name: _arrow(values) for name, values in columns.items()}
        table.add_columns(pa.table(arrays).to_reader())
        return replace(self, table=table)

    def add(self, z: ArrayLike, ids: ArrayLike, **columns: np.ndarray) -> "LanceBank":
        """Bank with further rows: vectors z (M, D), ids (M,) and a value (M, …) of every further column."""
        batch = _batch(Block(np.asarray(z), np.asarray(ids), columns), self.table.schema)
        added = _array(batch["id"])
        present = self.table.to_table(columns=["id"], filter=_has_id(added))["id"].to_numpy()
        require(not len(present), f"bank: row ids {format_ids(present)} are in it already; remove them first")
        table = lance.write_dataset(pa.Table.from_batches([batch]), self.table.uri, mode="append")
        return replace(self, table=self.table.checkout_version(table.version))

    def drop(self) -> None:
        """Delete the table with all its versions."""
        lance.LanceDataset.drop(self.table.uri)

    def remove(self, ids: ArrayLike) -> "LanceBank":
        """Bank without the rows of these ids; their bytes stay in the files, until `erase`."""
        wanted = np.unique(np.asarray(ids, dtype=np.int64))
        self.rows_of(wanted, ["id"])
        require(len(wanted) < len(self), "bank: no row would be left; keep at least one")
        table = self.table.checkout_version(self.version)
        table.delete(_has_id(wanted))
        return replace(self, table=table)

    def erase(self, ids: ArrayLike) -> "LanceBank":
        """Bank without these rows and with no file that holds their vectors, or those of rows removed earlier.

        Other versions are deleted, unless they have a tag. Files are written anew, and read to see that it is so.

        Raises:
            InputError: a tag holds a row, an id is not in the bank, or a file still holds a vector.
        """
        wanted = np.unique(np.asarray(ids, dtype=np.int64))
        vectors = self.rows_of(wanted)["vector"]
        table = self.table.to_table(columns=["_rowaddr"], filter=_has_id(wanted))
        fragments = set((_array(table["_rowaddr"]) >> 32).tolist())
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
        left = result._files_with([vector.tobytes() for vector in vectors])
        require(not left, f"{self.table.uri}: a vector to erase is still in {', '.join(left)}")
        return result

    def _files_with(self, patterns: Sequence[bytes]) -> list[str]:
        """Files of the table that hold one of the patterns."""
        uri = self.table.uri
        system, root = FileSystem.from_uri(uri) if "://" in uri else (LocalFileSystem(), uri)
        files = []
        for path in self.table.all_files().read_all()["path"].to_pylist():
            with system.open_input_file(f"{root}/{path}") as file:
                data = file.read()
            files += [path] * any(pattern in data for pattern in patterns)
        return files


def open_table(uri: str | Path, version: int | None = None, **options: Any) -> Any:
    """Open a Lance table; InputError if there is none, or no such version."""
    try:
        return lance.dataset(str(uri), version=version, **options)
    except (ValueError, OSError) as error:
        at_version = "" if version is None else f" of version {version}"
        raise InputError(f"{uri}: no Lance table{at_version} ({_reason(error)})") from None


def read_table(uri: str, label: str, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield vectors (M, D) and labels (M,) of a Parquet file, or folder of such, or of a Lance table.

    Vectors are the column `vector`, or all columns but that of the labels, as numbers.
    """
    try:
        parquet = any(path.suffix == ".parquet" for path in (Path(uri), *Path(uri).glob("*")))
        table = dataset(uri, format="parquet") if parquet else lance.dataset(uri)
    except (ValueError, OSError) as error:
        raise InputError(f"{uri}: no Parquet file or Lance table ({_reason(error)})") from None
    names = table.schema.names
    require(label in names, f"{uri}: no column {label}; it has {', '.join(names[:20])}")
    columns = ["vector"] if "vector" in names else [name for name in names if name != label]
    for batch in table.to_batches(columns=[*columns, label], batch_size=rows):
        try:
            arrays = [_array(batch[name]) for name in columns]
            z = np.stack(list(arrays[0])) if columns == ["vector"] else np.column_stack(arrays)
        except (ValueError, TypeError, pa.ArrowInvalid) as error:
            raise InputError(f"{uri}: columns {', '.join(columns[:20])} are not numbers ({error})") from None
        if len(batch):
            yield z, _array(batch[label])


def _batch(block: Block, schema: Any = None) -> Any:
    """Record batch of rows; InputError unless they fit the schema."""
    z = check_vectors("bank", block.z)
    arrays = {"id": _arrow(check_ids(block.ids, len(z)).astype(np.int64)), "vector": _arrow(z)}
    arrays |= {name: _arrow(np.asarray(values)) for name, values in block.columns.items()}
    if schema is not None:
        own, expected = (", ".join(names) or "none" for names in (block.columns, schema.names[2:]))
        require(set(arrays) == set(schema.names), f"bank: columns {own}; it has {expected}")
        for field in schema:
            own = arrays[field.name].type
            require(own == field.type, f"bank: column {field.name} is {own}; it has {field.type}")
    return pa.RecordBatch.from_pydict(arrays, schema=schema)


def _arrow(values: np.ndarray) -> Any:
    """Arrow array of (M,) or of fixed-size lists of (M, W)."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])


def _array(column: Any) -> np.ndarray:
    """NumPy array (M,), or (M, W) of fixed-size lists."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return column.to_numpy(zero_copy_only=False)


def _reason(error: Exception) -> str:
    """First line of an error of lance, without places in its source."""
    return str(error).partition(", /")[0].splitlines()[0][:200]


def _centroids(table: Any) -> np.ndarray:
    """Centroids (L, D) of the inverted file."""
    return _array(table.centroids(index_name=_INDEX))


def _has_id(ids: np.ndarray) -> str:
    """Filter of the rows with these ids."""
    return f"id IN ({', '.join(map(str, ids.tolist()))})" if len(ids) else "false"
