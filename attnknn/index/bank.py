"""Bank rows with their ids, and their nearest neighbours.

Whatever the index, the search ends alike, in `settle`: exact duplicates are at distance 0 exactly, and all kinds of
index, and GPU search, agree to the bit on the neighbours that they all find.
"""

import operator
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_folder, read_json, write_json
from attnknn.index import faiss_index
from attnknn.index.faiss_index import KINDS, METRICS, Index, Nearest
from attnknn.index.rerank import settle, undecided, within

_CANDIDATES = 2**22  # candidates of all queries that are searched for at once
_QUERIES = 4096  # faiss compares so many queries at once where it compares all rows
_TIED = 1024  # candidates up to which it is looked beyond those that are as similar as the k-th
_UNDECIDED = 1024  # queries at once that are compared with all rows once more
_SPARE = 8  # more candidates, and one for each 8 neighbours, where the index cannot tell close ones apart


@dataclass(eq=False)
class Bank:
    """An index over bank rows, which can be added and removed.

    Attributes:
        z: float32 (N, D) the vectors.
        ids: (N,) their row ids, unique; int32 where they fit, else int64. −1 is a row removed from an HNSW graph.
        metric: `l2` or `ip`.
        index: candidates for the nearest of z.
        mapped: whether it lies on disk, memory-mapped; no row can be added or removed then.

    `len(bank)` is the number of rows that a search can find. `add` and `remove` work in place and build nothing anew;
    z and ids as they were before are then no longer valid. What was handed to `build` stays as it is.
    """

    z: np.ndarray
    ids: np.ndarray
    metric: str
    index: Index
    mapped: bool = False
    _room: tuple[np.ndarray, np.ndarray] | None = field(default=None, init=False, repr=False)
    _hidden: int = field(default=0, init=False, repr=False)
    _shown: np.ndarray | None = field(default=None, init=False, repr=False)
    _on_device: tuple[str, Nearest] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._hide()

    def __len__(self) -> int:
        return len(self.ids) - self._hidden

    def search(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None, device: str = "cpu"
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest bank rows of each query, nearest first.

        Args:
            queries: (B, D).
            k: neighbours; at most the bank's rows less those of them that a query excludes.
            exclude: (B,) or (B, E) row ids that each query must not see (its own, or its duplicates); −1 is nobody.
            device: with `cuda…` and a flat index, exact search by torch there.

        Returns:
            ids (B, k) of the bank's type and sims float32 (B, k), −1 and −inf where an approximate index found fewer
            than k. Of equally similar rows those of the lowest ids come first; where more than some thousand are as
            similar as the k-th, which of them come is up to the index, unless it is `flat` by `l2`. Beside the answer
            some hundred MB are held, however many ask.

        Raises:
            InputError: dimensions differ, values are not finite, exclude does not fit, or k is out of range.
        """
        k, queries, dimensions = operator.index(k), np.asarray(queries), self.z.shape[1]
        require(queries.ndim == 2, f"queries: shape {queries.shape}; expected (rows, dimensions)")
        given = f"queries: {queries.shape[1]} dimensions; the bank has {dimensions}"
        require(queries.shape[1] == dimensions, given)
        rows = len(queries)
        hidden = checked_exclusions(exclude, rows)  # (B, E)
        most, extra = len(self), hidden.shape[1]
        if k + extra > most and extra:
            once = np.sort(hidden, axis=1)
            again = np.diff(once, axis=1, prepend=-1) == 0
            most -= int((np.isin(once, self.ids[self.ids >= 0]) & ~again).sum(1).max(initial=0))
        can = f"k: {k} neighbours asked for; of the bank's {len(self)} rows 1 … {most} can be had"
        require(1 <= k <= most, can)
        # More than needed, as far as there are: ties at the edge are then settled by id, not by the index.
        expanded = self.index.kind == "flat" and self.metric == "l2"
        spare = 1 + (_SPARE + k // _SPARE if expanded else 0)
        wanted = min(self.index.refine * (k + extra + spare), len(self))
        widest = min(max(_TIED, 4 * wanted), len(self))
        nearest = self._candidates(device)
        ids, sims = np.empty((rows, k), dtype=self.ids.dtype), np.empty((rows, k), dtype=np.float32)

        def take(some: np.ndarray, asked: np.ndarray, at: np.ndarray) -> np.ndarray:
            """The k nearest of these candidates; the queries for which more have to be looked at."""
            found, near = settle(asked, self.z, self.ids, at, hidden[some], self.metric)
            ids[some], sims[some] = found[:, :k], near[:, :k]
            return some[undecided(near, k, asked if expanded else None)]

        def ask(asking: np.ndarray, number: int) -> np.ndarray:
            """Take the k nearest of so many candidates each, as many queries at once as memory allows."""
            step = max(1, _CANDIDATES // number)
            step -= step % _QUERIES if step > _QUERIES else 0
            left = [asking[:0]]
            for some in (asking[s : s + step] for s in range(0, len(asking), step)):
                asked = checked_vectors("queries", queries[some])
                left.append(take(some, asked, nearest(asked, number)))
            return np.concatenate(left)

        def ask_all(asking: np.ndarray) -> None:
            """Take the k nearest of all rows that may be as near as the k nearest found so far."""
            asked = checked_vectors("queries", queries[asking])
            at = within(asked, self.z, -sims[asking, k - 1], k + extra)
            if at is not None:
                take(asking, asked, at)
                return
            for half in np.array_split(asking, 2):
                ask_all(half)

        left = ask(np.arange(rows), wanted)
        if wanted == len(self):
            return ids, sims
        if expanded:
            for s in range(0, len(left), _UNDECIDED):
                ask_all(left[s : s + _UNDECIDED])
            return ids, sims
        for number in dict.fromkeys((min(4 * wanted, widest), widest)):
            left = ask(left, number)
        return ids, sims

    def _candidates(self, device: str) -> Nearest:
        """What finds candidates; on a GPU it is made once, with a copy of the vectors there, until rows change."""
        if not device.startswith("cuda"):
            return self.index.nearest(self.z, self._shown, device)
        if self._on_device is None or self._on_device[0] != device:
            self._on_device = device, self.index.nearest(self.z, self._shown, device)
        return self._on_device[1]

    def add(self, z: ArrayLike, ids: ArrayLike, threads: int = 1) -> None:
        """Add vectors z (M, D) with row ids (M,), in place.

        Lists of IVF and codes of PQ keep the centres that they were built with: build anew once most rows are others.

        Raises:
            InputError: dimensions differ, values are not finite, an id is there already, or the bank is mapped.
        """
        self._changeable()
        new = checked_vectors("bank", np.asarray(z))
        names = checked_ids(ids, len(new))
        given = f"bank: {new.shape[1]} dimensions to add; it has {self.z.shape[1]}"
        require(new.shape[1] == self.z.shape[1], given)
        there = self.ids[np.isin(self.ids, names)]
        require(len(there) == 0, f"bank: row ids {listed(there)} are in it already; remove them first, or leave them")
        before, rows = len(self.ids), len(self.ids) + len(names)
        self._make_room(rows, np.result_type(self.ids, names))
        self._resize(rows)
        self.z[before:], self.ids[before:] = new, names
        self.index.add(new, np.arange(before, rows), threads)
        self._hide()

    def remove(self, ids: ArrayLike) -> None:
        """Remove the rows with these ids (M,), in place.

        The last rows take the places of those removed. A graph (HNSW) forgets nothing: its rows are passed through,
        never found, until more are hidden than left, and it is then built again of those left, by one thread.

        Raises:
            InputError: an id is not there, none would be left, or the bank is mapped.
        """
        self._changeable()
        given = np.atleast_1d(np.asarray(ids))
        fits = given.ndim == 1 and (given.dtype.kind in "iu" or not given.size)
        require(fits, f"bank: row ids to remove are {given.dtype} of shape {given.shape}; give integers (M,)")
        names = np.unique(given.astype(np.int64))
        at = np.flatnonzero(np.isin(self.ids, names) & (self.ids >= 0))
        if len(at) < len(names):
            raise InputError(f"bank: row ids {listed(np.setdiff1d(names, self.ids[at]))} are not in it")
        require(len(at) < len(self), "bank: no row would be left; keep at least one")
        self._make_room(len(self.ids), self.ids.dtype)
        if self.index.forgets:
            self._move_last(at)
        else:
            self.ids[at] = -1
            self._hide()
            if self._hidden > len(self):
                self._rebuild()

    def _move_last(self, at: np.ndarray) -> None:
        left = len(self.ids) - len(at)
        holes = at[at < left]
        last = np.setdiff1d(np.arange(left, len(self.ids)), at, assume_unique=True)  # as many as there are holes
        self.index.remove(np.concatenate([at, last]))
        self.z[holes], self.ids[holes] = self.z[last], self.ids[last]
        self._resize(left)
        self.index.add(self.z[holes], holes)

    def _rebuild(self) -> None:
        kept = np.flatnonzero(self.ids >= 0)
        for s in range(0, len(kept), _QUERIES):  # kept[s] ≥ s, so that nothing is overwritten before it has moved
            some = kept[s : s + _QUERIES]
            self.z[s : s + len(some)], self.ids[s : s + len(some)] = self.z[some], self.ids[some]
        self._resize(len(kept))
        self.index.empty()
        self.index.add(self.z, np.arange(len(kept)))
        self._hide()

    def _changeable(self) -> None:
        require(not self.mapped, "bank: memory-mapped, so its rows are fixed; load it without mmap to change them")

    def _make_room(self, rows: int, dtype: np.dtype) -> None:
        """Make z and ids the bank's own, with room for so many rows and an eighth more."""
        if self._room is not None and len(self._room[0]) >= rows and self.ids.dtype == dtype:
            return
        z, ids = self.z, self.ids
        room = rows + rows // 8
        self._room = np.empty((room, z.shape[1]), dtype=np.float32), np.empty(room, dtype=dtype)
        self._resize(len(ids))
        self.z[:], self.ids[:] = z, ids

    def _resize(self, rows: int) -> None:
        assert self._room is not None
        self.z, self.ids = self._room[0][:rows], self._room[1][:rows]
        self._on_device = None

    def _hide(self) -> None:
        """Take note of the rows that a graph must not find."""
        self._on_device = None
        if self.index.forgets:
            return
        shown = self.ids >= 0
        self._hidden = len(shown) - int(shown.sum())
        self._shown = np.packbits(shown, bitorder="little") if self._hidden else None

    @property
    def n_bytes(self) -> int:
        """Size of what a search reads: the index as it is written, or the vectors where all of them are compared."""
        return self.index.n_bytes or self.z.nbytes

    def save(self, folder: Path) -> None:
        """Write vectors, ids and index to `folder`, in one step."""
        with atomic_folder(folder) as draft:
            np.save(draft / "z.npy", self.z)
            np.save(draft / "ids.npy", self.ids)
            self.index.write(draft / "index.faiss")
            about = {"kind": self.index.kind, "compares": self.index.metric, "refine": self.index.refine}
            size = {"rows": len(self.ids), "dimensions": self.z.shape[1]}
            write_json(draft / "bank.json", {"metric": self.metric, **about, **size})

    @classmethod
    def load(cls, folder: Path, mmap: bool = False) -> "Bank":
        """Open a saved bank.

        Args:
            mmap: leave vectors and index on disk, and read what a search touches; rows can then not be changed.

        Raises:
            InputError: a file is missing or damaged.
        """
        folder = Path(folder)
        about = read_json(folder / "bank.json")
        try:
            mode = "r" if mmap else None
            z, ids = (np.load(folder / f"{name}.npy", mmap_mode=mode) for name in ("z", "ids"))
            require(all(isinstance(value, np.ndarray) for value in (z, ids)), "an archive in the place of an array")
            made = (about["kind"], about["compares"], about["refine"])
            metric, shape = about["metric"], (about["rows"], about["dimensions"])
            known = made[0] in KINDS[:-1] and type(made[2]) is int and made[2] > 0
            known = known and metric in list(METRICS) and made[1] == metric
            require(known, "bank.json tells of a kind, metric or refine that there is not")
            index = faiss_index.read(folder / "index.faiss", *made, mmap)
        except (RuntimeError, OSError, ValueError, EOFError, KeyError, TypeError, BadZipFile) as error:
            reason = str(error).strip().splitlines()[-1]
            raise InputError(f"{folder}: damaged index ({reason}); delete it and run `dvc repro`") from None
        fits = z.shape == shape and ids.shape == shape[:1] and z.dtype == np.float32 and ids.dtype.kind == "i"
        fits = fits and len(z) > 0 and z.flags.c_contiguous and (not index.forgets or ids.min() >= 0)
        fits = fits and index.fits(z)
        require(fits, f"{folder}: vectors, ids and index do not belong together; delete it and run `dvc repro`")
        return cls(z, ids, metric, index, mmap)


def build(
    z: np.ndarray,
    ids: np.ndarray,
    kind: str = "flat",
    metric: str = "l2",
    hnsw_m: int = 32,
    ef_construction: int = 200,
    ef_search: int = 128,
    ivf_nlist: int = 0,
    ivf_nprobe: int = 0,
    pq_bytes: int = 0,
    pq_refine: int = 8,
    build_threads: int = 1,
) -> Bank:
    """A bank over vectors z (N, D) with unique row ids (N,), which are not copied where they are float32.

    - `flat` compares all rows. By `l2` it is exact: queries whose neighbours float32 products may not tell apart are
      answered by products in float64, which takes a few times as long (and dozens of times where tens of thousands of
      rows are as near as the k-th); by `ip`, up to the rounding of float32.
    - `hnsw` is approximate (Malkov & Yashunin 2018): M links a node, beams of ef_construction and ef_search.
    - `ivf` is approximate (Jégou et al. 2011): k-means from a fixed seed puts the rows in ivf_nlist lists, and a query
      reads the ivf_nprobe nearest of them. 0 is by the number of rows: see `indexes.lists_of` and `probes_of`. There
      are never more lists than leave 39 rows each to find their centres from, ⌊N/39⌋ and at least one, and ivf_nprobe
      reads all where it is above that.
    - `ivfpq` keeps each row of such a list as pq_bytes bytes (the same paper), 0 for as many as
      `indexes.code_bytes` says; the pq_refine · k nearest by the bytes are then compared by the vectors themselves.
    - `auto` is one of them by the number of rows: see `indexes.chosen`.

    All are built by one thread, so that the same vectors give the same index. With more build_threads the order in
    which rows enter an HNSW graph, and so its links, differ from run to run.

    Raises:
        InputError: no rows, values that are not finite, ids that repeat, or an unknown kind or metric.
    """
    z = checked_vectors("bank", np.asarray(z))
    require(len(z) > 0, "bank: no rows")
    vanish = f"bank: all values are within ±{1 / LARGEST:g}, where squares vanish in float32; scale them up"
    require(not 0 < max(z.max(), -z.min()) < 1 / LARGEST, vanish)
    ids = checked_ids(ids, len(z))
    require(kind in KINDS, f"kind: {kind}; allowed are {', '.join(KINDS)}")
    require(metric in METRICS, f"metric: {metric}; allowed are {', '.join(METRICS)}")
    least = {"hnsw_m": (hnsw_m, 2), "ef_construction": (ef_construction, 1), "ef_search": (ef_search, 1)}
    least |= {"ivf_nlist": (ivf_nlist, 0), "ivf_nprobe": (ivf_nprobe, 0), "pq_bytes": (pq_bytes, 0)}
    least |= {"pq_refine": (pq_refine, 1), "build_threads": (build_threads, 1)}
    for name, (value, low) in least.items():
        require(value >= low, f"{name}: {value}; the least is {low}")
    require(kind != "ivfpq" or len(z) > 1, "kind: ivfpq of a single row; it needs two or more, so take flat")
    lists = (ivf_nlist, ivf_nprobe, pq_bytes, pq_refine)
    index = faiss_index.make(z, kind, metric, hnsw_m, ef_construction, ef_search, *lists, build_threads)
    return Bank(z, ids, metric, index)


_SHOWN = 10  # row ids that an error names
LARGEST = 1e15  # of a value: squared and added up, larger ones would leave float32


def checked_vectors(name: str, value: np.ndarray) -> np.ndarray:
    """A float32 C-contiguous (N, D) copy or view; refuses NaN, infinity, and what has no square in float32."""
    fits = value.ndim == 2 and value.shape[1] > 0
    require(fits, f"{name}: shape {value.shape}; expected (rows, dimensions), of one dimension or more")
    require(value.dtype.kind in "fiub", f"{name}: values of type {value.dtype}; give real numbers")
    value = np.ascontiguousarray(value, dtype=np.float32)
    lowest, highest = value.min(initial=0), value.max(initial=0)  # NaN where there is one
    fits = bool(lowest >= -LARGEST and highest <= LARGEST)
    require(fits, f"{name}: NaN, infinite, or values beyond ±{LARGEST:g}; remove them, or scale them down")
    return value


def checked_ids(ids: ArrayLike, rows: int) -> np.ndarray:
    """Row ids as int32 where they fit, as int64 otherwise."""
    given = np.asarray(ids)
    require(given.dtype.kind in "iu" or not given.size, f"bank: row ids of type {given.dtype}; give integers")
    names = given.astype(np.int64)
    require(names.shape == (rows,), f"bank: {rows} vectors and ids of shape {names.shape}")
    require(names.min(initial=0) >= 0, "bank: row ids below 0")
    require(len(np.unique(names)) == rows, "bank: row ids repeat")
    return names.astype(np.int32) if names.max(initial=0) <= np.iinfo(np.int32).max else names


def checked_exclusions(exclude: ArrayLike | None, rows: int) -> np.ndarray:
    """Row ids (B, E) that the queries must not see."""
    given = np.empty((rows, 0), dtype=np.int64) if exclude is None else np.asarray(exclude)
    given = given[:, None] if given.ndim == 1 else given
    fits = given.ndim == 2 and len(given) == rows and (given.dtype.kind in "iu" or not given.size)
    require(
        fits, f"exclude: shape {given.shape} of {given.dtype}; give row ids, one or several for each of {rows} queries"
    )
    return given


def listed(ids: np.ndarray) -> str:
    return ", ".join(map(str, ids[:_SHOWN])) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")
