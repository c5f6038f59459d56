"""How the nearest of a bank's vectors are found: among all, or by an index. The only module that imports faiss.

A label in an index is a position in the vectors. What an index finds are candidates; `bank` orders them.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from attnknn.core.errors import require

FAISS = faiss.__version__
KINDS = ("flat", "hnsw", "ivf", "ivfpq", "auto")
_CLASSES = {"hnsw": faiss.IndexHNSWFlat, "ivf": faiss.IndexIVFFlat, "ivfpq": faiss.IndexIVFPQ}
METRICS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}
_TRAINING = 39  # rows a cluster that faiss wants to find its centre from
_ENOUGH = 64  # rows a cluster from which on more of them cost time and move no centre much
_EXACT = 100_000  # rows up to which every one is compared
_MEMORY = 4 * 2**30  # bytes that vectors and graph may take
_HELD = 64 * 2**20  # similarities held at once on a GPU
Nearest = Callable[[np.ndarray, int], np.ndarray]


def set_threads(threads: int) -> None:
    """Let faiss use this many CPU threads from here on."""
    faiss.omp_set_num_threads(threads)


def get_threads() -> int:
    """CPU threads that faiss uses."""
    return faiss.omp_get_max_threads()


def similarities(queries: np.ndarray, z: np.ndarray, at: np.ndarray, metric: str) -> np.ndarray:
    """Similarity of each query to its own candidates: −‖q − k‖² (`l2`) or q·k (`ip`), whatever is at position −1.

    From the differences, so that of equal vectors it is 0 exactly; the same bits under any number of threads.

    Args:
        queries: float32 (B, D).
        z: float32 (N, D), C-contiguous; only the candidates are read.
        at: (B, K), the candidates' positions in z.

    Returns:
        float32 (B, K).
    """
    queries, at = np.ascontiguousarray(queries), np.ascontiguousarray(at, dtype=np.int64)
    assert queries.dtype == z.dtype == np.float32
    assert len(queries) == len(at)
    assert queries.shape[1] == z.shape[1]
    assert z.flags.c_contiguous
    # What lies outside would be read all the same.
    require(at.max(initial=-1) < len(z), "index: finds rows that the bank does not have; build it again")
    out = np.empty(at.shape, dtype=np.float32)
    compare = getattr(faiss, "fvec_L2sqr_by_idx" if metric == "l2" else "fvec_inner_products_by_idx")
    compare(*map(faiss.swig_ptr, (out, queries, z, at)), z.shape[1], *at.shape)
    return np.negative(out, out=out) if metric == "l2" else out


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    before = get_threads()
    set_threads(threads)
    try:
        yield
    finally:
        set_threads(before)


def chosen(rows: int, dimensions: int, hnsw_m: int) -> str:
    """The kind that `auto` stands for: `flat`, `hnsw` or `ivfpq`.

    `flat` up to 100,000 rows: about there a graph takes as long to build (.3 ms a row at 50,000 × 256) as all rows to
    be looked up among each other (.23 ms there, .86 ms at 200,000), for which no graph is needed. `hnsw` while the
    vectors, those that the graph holds again, and its links fit 4 GiB. `ivfpq` beyond: its codes take a 32nd of the
    vectors, which can stay on disk.
    """
    if rows <= _EXACT:
        return "flat"
    graph = rows * (2 * 4 * dimensions + 4 * (2 * hnsw_m + 2))
    return "hnsw" if graph <= _MEMORY else "ivfpq"


def lists_of(rows: int, nlist: int = 0) -> int:
    """Lists of an IVF index: as many as told, or 4·√N; never more than leave each 39 rows to find its centre from."""
    return max(1, min(nlist or round(4 * math.sqrt(rows)), rows // _TRAINING))


def probes_of(lists: int, nprobe: int = 0) -> int:
    """Lists that a query reads: as many as told, or a 32nd of them and at least 64.

    Among 50,000 and 200,000 made-up rows like a trained encoder's (256 dimensions), 64 of 4·√N lists held .9999 and
    .996 of the 16 nearest; a few of many lists are a smaller share of them.
    """
    return min(nprobe or max(64, lists // 32), lists)


def code_bytes(dimensions: int, pq_bytes: int = 0) -> int:
    """Bytes that a vector is quantised to: as many as told, or 16, or what makes parts of at most eight dimensions.

    Twice as many found no more neighbours once candidates are compared by the vectors, and took twice the time.

    Raises:
        InputError: the dimensions cannot be cut into so many parts.
    """
    if not pq_bytes:
        least = max(math.ceil(dimensions / 8), min(dimensions, 16))
        return next(m for m in range(least, dimensions + 1) if dimensions % m == 0)
    fits = f"pq_bytes: {pq_bytes} do not divide {dimensions} dimensions; give one that does, or 0"
    require(dimensions % pq_bytes == 0, fits)
    return pq_bytes


@dataclass(frozen=True)
class Index:
    """Candidates for the nearest rows.

    Attributes:
        kind: `flat`, `hnsw`, `ivf` or `ivfpq`.
        metric: what it compares by, `l2` or `ip`.
        made: the faiss index; None where kind is `flat`, which reads the vectors themselves.
        refine: candidates for each neighbour wanted; above 1 where codes stand for the vectors.
    """

    kind: str
    metric: str
    made: Any = None
    refine: int = 1

    @property
    def forgets(self) -> bool:
        """Whether rows can be taken out of it; from a graph they cannot."""
        return self.kind != "hnsw"

    def nearest(self, z: np.ndarray, shown: np.ndarray | None, device: str) -> Nearest:
        """The function of queries (B, D) and k that gives the positions int64 (B, k) of their candidates, −1 for none.

        Args:
            z: (N, D), the vectors.
            shown: uint8, a bit for each position that may be found, or None for all; for a graph alone.
            device: with `cuda…` a flat index compares there.
        """
        if self.kind == "flat":
            if device.startswith("cuda"):
                return _on_gpu(z, self.metric, device)
            return lambda queries, k: faiss.knn(queries, z, k, METRICS[self.metric])[1]
        if shown is None:
            return lambda queries, k: self.made.search(queries, k)[1]
        beam = self.made.hnsw.efSearch
        shown_only: Any = faiss.IDSelectorBitmap(shown)  # type: ignore[call-arg]
        told = faiss.SearchParametersHNSW(sel=shown_only, efSearch=beam)  # type: ignore[attr-defined]
        return lambda queries, k: self.made.search(queries, k, params=told)[1]

    def fits(self, z: np.ndarray) -> bool:
        """Whether it is of the kind and metric that it says, over as many vectors of as many dimensions as z (N, D)."""
        if self.made is None:
            return True
        same = (self.made.ntotal, self.made.d, self.made.metric_type) == (*z.shape, METRICS[self.metric])
        return same and isinstance(self.made, _CLASSES[self.kind])

    def add(self, z: np.ndarray, at: np.ndarray, threads: int = 1) -> None:
        """Put in vectors (M, D) at positions `at` (M,); of a graph, those that follow what it holds."""
        with _threads(threads):
            if self.kind == "hnsw":
                self.made.add(z)
            elif self.made is not None:
                self.made.add_with_ids(z, at)

    def remove(self, at: np.ndarray) -> None:
        """Take out the positions `at` (M,)."""
        if self.made is not None:
            self.made.remove_ids(faiss.IDSelectorBatch(at))

    def empty(self) -> None:
        """Take out everything; settings and centres stay."""
        self.made.reset()

    @property
    def n_bytes(self) -> int:
        """Its size as it is written; 0 where it is the vectors themselves."""
        if self.made is None:
            return 0
        size = 0

        def count(part: bytes) -> None:
            nonlocal size
            size += len(part)

        faiss.write_index(self.made, faiss.PyCallbackIOWriter(count))  # type: ignore[call-overload]
        return size

    def write(self, path: Path) -> None:
        """Write it to a file; where it is the vectors themselves there is nothing to write."""
        if self.made is not None:
            faiss.write_index(self.made, str(path))  # type: ignore[call-overload]


def read(path: Path, kind: str, metric: str, refine: int, mmap: bool) -> Index:
    """Open what `Index.write` wrote, memory-mapped if wished: pages are then read as searches touch them.

    Raises:
        RuntimeError: the file is missing or damaged.
    """
    made = None if kind == "flat" else faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mmap else 0)
    return Index(kind, metric, made, refine)


def make(
    z: np.ndarray,
    kind: str,
    metric: str,
    hnsw_m: int,
    ef_construction: int,
    ef_search: int,
    ivf_nlist: int,
    ivf_nprobe: int,
    pq_bytes: int,
    pq_refine: int,
    threads: int,
) -> Index:
    """An index of a kind over all of z (N, D); see `bank.build`."""
    rows, dimensions = z.shape
    kind = chosen(rows, dimensions, hnsw_m) if kind == "auto" else kind
    if kind == "flat":
        return Index(kind, metric)
    measure = METRICS[metric]
    if kind == "hnsw":
        made = faiss.IndexHNSWFlat(dimensions, hnsw_m, measure)
        made.hnsw.efConstruction, made.hnsw.efSearch = ef_construction, ef_search
    else:
        lists, centres = lists_of(rows, ivf_nlist), faiss.IndexFlat(dimensions, measure)
        if kind == "ivf":
            made = faiss.IndexIVFFlat(centres, dimensions, lists, measure)
        else:
            bits = min(8, max(1, (rows // _TRAINING).bit_length() - 1))
            made = faiss.IndexIVFPQ(centres, dimensions, lists, code_bytes(dimensions, pq_bytes), bits, measure)
            _sampled(made.pq.cp, rows)
        made.nprobe = probes_of(lists, ivf_nprobe)
        _sampled(made.cp, rows)
        made.cp.seed = 0
        with _threads(threads):
            made.train(_sample(z, max(lists, 256) * _ENOUGH))
    index = Index(kind, metric, made, pq_refine if kind == "ivfpq" else 1)
    index.add(z, np.arange(rows), threads)
    return index


def _sampled(means: Any, rows: int) -> None:
    """Tell k-means how many rows a cluster it may have; it warns of fewer and draws among more."""
    means.min_points_per_centroid, means.max_points_per_centroid = min(_TRAINING, rows), _ENOUGH


def _sample(z: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows of z, drawn from a fixed seed."""
    if len(z) <= most:
        return z
    return z[np.sort(np.random.default_rng(0).choice(len(z), most, replace=False))]


def _on_gpu(z: np.ndarray, metric: str, device: str) -> Nearest:
    """Exact search by torch; the vectors are copied to the device once.

    In float32: whoever lets a GPU multiply in TF32 gets neighbours as near as that tells.
    """
    import torch

    bank = torch.tensor(z, device=device)  # (N, D)
    squares = (bank * bank).sum(1) if metric == "l2" else 0.0
    step = max(1, _HELD // len(z))

    def nearest(queries: np.ndarray, k: int) -> np.ndarray:
        out = np.empty((len(queries), k), dtype=np.int64)
        for s in range(0, len(queries), step):
            q = torch.tensor(queries[s : s + step], device=device)  # (B, D)
            # ‖q‖² is the same for all keys of a query, so it is left out of the order.
            with torch.autocast(bank.device.type, enabled=False):
                closeness = q @ bank.T if metric == "ip" else 2 * q @ bank.T - squares  # (B, N)
            out[s : s + step] = closeness.topk(k, dim=1).indices.cpu().numpy()
        return out

    return nearest
