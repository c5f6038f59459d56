"""The bank: vectors with row ids, an index over them, and exact re-ranking of its candidates."""

import copy
import operator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_folder, load_array, read_json, write_json
from attnknn.index.faiss_index import KINDS, METRICS, CandidateSearch, Index, IndexOptions, make_index, read_index
from attnknn.index.rerank import rerank
from attnknn.index.validation import LARGEST, check_exclusions, check_ids, check_vectors, format_ids

_QUERIES = 4096  # queries per block, as many as faiss multiplies at once
_CANDIDATES = 2**22  # candidates of all queries of a block
_SPARE = 8  # candidates beyond k, so that ties at the k-th place go to the lowest ids
_FIXED = "bank: memory-mapped, so its rows are fixed; load it without mmap to change them"


@dataclass(eq=False)
class Bank:
    """Vectors with row ids and an index over them; `len(bank)` rows can be returned by a search.

    `add` and `remove` replace `z`, `ids` and `index` by new ones, so that they do not affect a shallow copy of the bank
    or arrays passed to `build`.
    """

    z: np.ndarray  # float32 (N, D) vectors
    ids: np.ndarray  # (N,) unique row ids; int32 where they fit, else int64; −1: removed from an HNSW graph
    metric: str  # `l2` or `ip`
    index: Index  # over z; its candidates are re-ranked
    mapped: bool = False  # whether vectors and index are memory-mapped, and rows therefore fixed
    _n_removed: int = field(default=0, init=False, repr=False)
    _visible: np.ndarray | None = field(default=None, init=False, repr=False)
    _gpu_search: tuple[str, CandidateSearch] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._update_visible()

    def __len__(self) -> int:
        return len(self.ids) - self._n_removed

    def search(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None, device: str = "cpu"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k nearest bank rows of each query.

        A few more than k candidates of the index are re-ranked by exact similarity, ties by row id.

        Args:
            queries: (B, D).
            k: at most the number of rows that no query excludes.
            exclude: (B,) or (B, E) row ids hidden from each query (its own, or its duplicates); −1 pads.
            device: `cuda…` searches a flat index on that GPU.

        Returns:
            ids (B, k) and float32 similarities (B, k), best first; −1 and −inf pad rows of which an approximate index
            returned fewer than k.

        Raises:
            InputError: wrong shapes, values that are not finite, or k out of range.
        """
        k, queries, dimensions = operator.index(k), np.asarray(queries), self.z.shape[1]
        fits = queries.ndim == 2 and queries.shape[1] == dimensions
        require(fits, f"queries: shape {queries.shape}; expected (rows, dimensions), with {dimensions} dimensions")
        exclude = check_exclusions(exclude, len(queries))  # (B, E)
        largest, n_excluded = len(self), exclude.shape[1]
        if n_excluded and k + n_excluded > largest:
            ordered = np.sort(exclude, axis=1)
            repeated = np.diff(ordered, axis=1, prepend=-1) == 0
            largest -= int((np.isin(ordered, self.ids[self.ids >= 0]) & ~repeated).sum(1).max(initial=0))
        require(1 <= k <= largest, f"k: {k} neighbours; the bank has {len(self)} rows, so give 1 … {largest}")
        n_candidates = min(self.index.refine * (k + n_excluded) + _SPARE, len(self))
        search = self._searcher(device)
        ids = np.empty((len(queries), k), dtype=self.ids.dtype)
        sims = np.empty((len(queries), k), dtype=np.float32)
        step = max(1, min(_QUERIES, _CANDIDATES // n_candidates))
        for rows in (slice(start, start + step) for start in range(0, len(queries), step)):
            q = check_vectors("queries", queries[rows])
            candidates = search(q, n_candidates)
            ranked = rerank(q, self.z, self.ids, candidates, exclude[rows], self.metric)
            ids[rows], sims[rows] = (values[:, :k] for values in ranked)
        return ids, sims

    def _searcher(self, device: str) -> CandidateSearch:
        """The index's search function; on a GPU cached with the copied vectors until rows change."""
        if self._gpu_search is not None and self._gpu_search[0] == device:
            return self._gpu_search[1]
        search = self.index.searcher(self.z, self._visible, device)
        if device.startswith("cuda"):
            self._gpu_search = device, search
        return search

    def add(self, z: ArrayLike, ids: ArrayLike, threads: int = 1) -> None:
        """Add vectors z (M, D) with row ids (M,).

        IVF lists and PQ codes keep their trained centroids: build again once most rows are new.

        Raises:
            InputError: wrong shapes, values that are not finite, an id that the bank has, or a memory-mapped bank.
        """
        require(not self.mapped, _FIXED)
        vectors, (rows, dimensions) = check_vectors("bank", np.asarray(z)), self.z.shape
        new_ids = check_ids(ids, len(vectors))
        fits = vectors.shape[1] == dimensions
        require(fits, f"bank: {vectors.shape[1]} dimensions to add; it has {dimensions}")
        duplicates = self.ids[np.isin(self.ids, new_ids)]
        require(not len(duplicates), f"bank: row ids {format_ids(duplicates)} are in it already; remove them first")
        index = self.index.copy()
        index.add(vectors, np.arange(rows, rows + len(new_ids)), threads)
        self._replace(np.concatenate([self.z, vectors]), np.concatenate([self.ids, new_ids]), index)

    def remove(self, ids: ArrayLike) -> None:
        """Remove the rows with these ids (M,).

        The last rows move to the positions of the removed ones. In an HNSW graph removed rows stay as hidden nodes;
        once these outnumber the others, the graph is rebuilt without them, by one thread.

        Raises:
            InputError: an id that the bank does not have, no row is left, or a memory-mapped bank.
        """
        require(not self.mapped, _FIXED)
        ids = np.atleast_1d(np.asarray(ids))
        valid = ids.ndim == 1 and (ids.dtype.kind in "iu" or not ids.size)
        require(valid, f"bank: row ids to remove are {ids.dtype} of shape {ids.shape}; give integers (M,)")
        ids = np.unique(ids.astype(np.int64))
        positions = np.flatnonzero(np.isin(self.ids, ids) & (self.ids >= 0))
        missing = format_ids(np.setdiff1d(ids, self.ids[positions]))
        require(not missing, f"bank: row ids {missing} are not in it")
        require(len(positions) < len(self), "bank: no row would be left; keep at least one")
        if self.index.supports_removal:
            self._fill_from_end(positions)
            return
        row_ids = self.ids.copy()
        row_ids[positions] = -1
        visible = row_ids >= 0
        if 2 * visible.sum() >= len(visible):
            self._replace(self.z, row_ids, self.index)
            return
        self._replace(self.z, row_ids, self.index)
        self._drop_hidden()

    def _drop_hidden(self) -> None:
        """Rebuild an HNSW graph without the removed rows."""
        visible = self.ids >= 0
        z, index = self.z[visible], self.index.copy()
        index.faiss_index.reset()
        index.add(z, np.arange(len(z)))
        self._replace(z, self.ids[visible], index)

    def without_removed(self) -> "Bank":
        """The bank, or a copy that keeps nothing of rows removed from an HNSW graph."""
        if not self._n_removed:
            return self
        result = copy.copy(self)
        result._drop_hidden()
        return result

    def _fill_from_end(self, removed: np.ndarray) -> None:
        rows = len(self.ids) - len(removed)
        holes = removed[removed < rows]
        last = np.setdiff1d(np.arange(rows, len(self.ids)), removed, assume_unique=True)  # as many as holes
        positions = np.arange(rows)
        positions[holes] = last
        index = self.index.copy()
        index.remove(np.concatenate([removed, last]))
        index.add(self.z[last], holes)
        self._replace(self.z[positions], self.ids[positions], index)

    def _replace(self, z: np.ndarray, ids: np.ndarray, index: Index) -> None:
        self.z, self.ids, self.index = z, ids, index
        self._update_visible()

    def _update_visible(self) -> None:
        """Update the bitmap of the rows that an HNSW search may return."""
        self._gpu_search = None
        if self.index.supports_removal:
            return
        visible = self.ids >= 0
        self._n_removed = len(visible) - int(visible.sum())
        self._visible = np.packbits(visible, bitorder="little") if self._n_removed else None

    @property
    def n_bytes(self) -> int:
        """Size of the index on disk, or of the vectors of a flat one."""
        return self.index.n_bytes or self.z.nbytes

    def save(self, folder: Path) -> None:
        """Write vectors, ids and index to `folder`, atomically, and nothing of removed rows."""
        if self._n_removed:
            self.without_removed().save(folder)
            return
        with atomic_folder(folder) as draft:
            np.save(draft / "z.npy", self.z)
            np.save(draft / "ids.npy", self.ids)
            self.index.write(draft / "index.faiss")
            index = {"kind": self.index.kind, "compares": self.index.metric, "refine": self.index.refine}
            size = {"rows": len(self.ids), "dimensions": self.z.shape[1]}
            write_json(draft / "bank.json", {"metric": self.metric, **index, **size})

    @classmethod
    def load(cls, folder: Path, mmap: bool = False) -> "Bank":
        """Load a saved bank, or raise InputError; with `mmap`, vectors and index are memory-mapped and rows fixed."""
        folder = Path(folder)
        meta = read_json(folder / "bank.json")
        try:
            z, ids = (load_array(folder / f"{name}.npy", mmap) for name in ("z", "ids"))
            kind, compares, refine = meta["kind"], meta["compares"], meta["refine"]
            metric, shape = meta["metric"], (meta["rows"], meta["dimensions"])
            valid = kind in KINDS[:-1] and type(refine) is int and refine > 0
            valid = valid and metric in list(METRICS) and compares == metric
            require(valid, "bank.json: unknown kind, metric or refine")
            index = read_index(folder / "index.faiss", kind, compares, refine, mmap)
        except (RuntimeError, OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise InputError(f"{folder}: damaged index ({reason}); delete it and run `dvc repro`") from None
        valid = z.shape == shape and ids.shape == shape[:1] and z.dtype == np.float32 and ids.dtype.kind == "i"
        valid = valid and len(z) > 0 and z.flags.c_contiguous and (not index.supports_removal or ids.min() >= 0)
        valid = valid and index.matches(z)
        require(valid, f"{folder}: vectors, ids and index do not match; delete it and run `dvc repro`")
        return cls(z, ids, metric, index, mmap)


def build(z: np.ndarray, ids: np.ndarray, kind: str = "flat", metric: str = "l2", **options: int) -> Bank:
    """Build a bank over vectors z (N, D) with unique row ids (N,); float32 vectors are not copied.

    - `flat` is exhaustive; its float32 ‖q‖² + ‖k‖² − 2q·k needs vectors centred near the origin.
    - `hnsw` is a graph (Malkov & Yashunin 2018), approximate.
    - `ivf` is an inverted file (Jégou et al. 2011), approximate: a query reads the nearest k-means lists (fixed seed).
    - `ivfpq` stores each row of a list as a product-quantisation code (same paper).
    - `auto` chooses by the number of rows; see `faiss_index.auto_kind`.

    Args:
        options: fields of `faiss_index.IndexOptions`; with one build thread the same vectors give the same index.

    Raises:
        InputError: no rows, values that are not finite, repeated ids, or an unknown kind, metric or option.
    """
    z = check_vectors("bank", np.asarray(z))
    require(len(z) > 0, "bank: no rows")
    underflow = f"bank: all values are within ±{1 / LARGEST:g}, whose squares underflow float32; scale them up"
    require(not 0 < max(z.max(), -z.min()) < 1 / LARGEST, underflow)
    ids = check_ids(ids, len(z))
    require(kind in KINDS, f"kind: {kind}; allowed are {', '.join(KINDS)}")
    require(metric in METRICS, f"metric: {metric}; allowed are {', '.join(METRICS)}")
    require(kind != "ivfpq" or len(z) > 1, "kind: ivfpq of a single row; it needs two or more, so take flat")
    return Bank(z, ids, metric, make_index(z, kind, metric, IndexOptions(**options)))
