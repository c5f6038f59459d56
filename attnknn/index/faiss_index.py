"""FAISS indexes for candidate search: flat, HNSW, IVF and IVF-PQ. The only module that imports faiss.

Labels of an index are positions in the bank's vectors.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from attnknn.core.errors import require

FAISS = faiss.__version__
KINDS = ("flat", "hnsw", "ivf", "ivfpq", "auto")
_CLASSES = {"hnsw": faiss.IndexHNSWFlat, "ivf": faiss.IndexIVFFlat, "ivfpq": faiss.IndexIVFPQ}
METRICS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}
_MIN_POINTS_PER_CENTROID = 39  # faiss warns of fewer
_MAX_POINTS_PER_CENTROID = 64  # more take time and hardly change the centroids
_ITERATIONS = 10  # of a k-means; more take time and hardly change the centroids
_FLAT_ROWS = 100_000  # maximum for which `auto` takes a flat index
_GRAPH_BYTES = 4 * 2**30  # maximum for which `auto` takes an HNSW graph
_GPU_SIMILARITIES = 64 * 2**20  # similarities held at once on a GPU
CandidateSearch = Callable[[np.ndarray, int], np.ndarray]


def set_threads(threads: int) -> None:
    """Set the number of CPU threads of faiss."""
    faiss.omp_set_num_threads(threads)


def n_threads() -> int:
    """Number of CPU threads of faiss in this thread."""
    return faiss.omp_get_max_threads()


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    set_threads(threads)
    try:
        yield
    finally:
        set_threads(before)


def similarities(queries: np.ndarray, vectors: np.ndarray, candidates: np.ndarray, metric: str) -> np.ndarray:
    """Similarity of each query to its own candidates: −‖q − k‖² (`l2`) or q·k (`ip`); undefined at position −1.

    Distances are sums of squared differences, exactly 0 for equal vectors. Results do not depend on the thread count.

    Args:
        queries: float32 (B, D).
        vectors: float32 (N, D), C-contiguous; only the candidates are read.
        candidates: int (B, K), positions in `vectors`.

    Returns:
        float32 (B, K).
    """
    queries, candidates = np.ascontiguousarray(queries), np.ascontiguousarray(candidates, dtype=np.int64)
    assert queries.dtype == vectors.dtype == np.float32
    assert len(queries) == len(candidates)
    assert queries.shape[1] == vectors.shape[1]
    assert vectors.flags.c_contiguous
    # faiss does not check bounds.
    require(candidates.max(initial=-1) < len(vectors), "index: labels beyond the bank's rows; build it again")
    out = np.empty(candidates.shape, dtype=np.float32)
    compute = getattr(faiss, "fvec_L2sqr_by_idx" if metric == "l2" else "fvec_inner_products_by_idx")
    compute(*map(faiss.swig_ptr, (out, queries, vectors, candidates)), vectors.shape[1], *candidates.shape)
    return np.negative(out, out=out) if metric == "l2" else out


@dataclass(frozen=True)
class IndexOptions:
    """Parameters of the approximate indexes."""

    hnsw_m: int = 32  # links per node of an HNSW graph
    ef_construction: int = 200  # beam widths of an HNSW graph
    ef_search: int = 128
    ivf_nlist: int = 0  # lists of an IVF index; see `n_lists`
    ivf_nprobe: int = 0  # lists that a query reads; see `n_probes`
    pq_bytes: int = 0  # per code; see `code_bytes`
    pq_refine: int = 8  # candidates by code per neighbour
    build_threads: int = 1  # with more, an HNSW graph is not deterministic

    def __post_init__(self) -> None:
        least = {"hnsw_m": 2, "ivf_nlist": 0, "ivf_nprobe": 0, "pq_bytes": 0}
        for name, value in asdict(self).items():
            require(value >= least.get(name, 1), f"{name}: {value}; the minimum is {least.get(name, 1)}")


def auto_kind(rows: int, dimensions: int, hnsw_m: int) -> str:
    """Choose the kind of an `auto` index.

    `flat` up to 100,000 rows, where building a graph takes as long (.3 ms per row at 50,000 × 256) as the exact
    neighbours of all rows (.23 ms per row there, .86 ms at 200,000). `hnsw` while the vectors, their copy in the graph
    and its links fit 4 GiB. `ivfpq` beyond: its codes take 1/32 of the vectors, which can stay on disk.
    """
    if rows <= _FLAT_ROWS:
        return "flat"
    graph = rows * (2 * 4 * dimensions + 4 * (2 * hnsw_m + 2))
    return "hnsw" if graph <= _GRAPH_BYTES else "ivfpq"


def n_lists(rows: int, nlist: int = 0) -> int:
    """Number of lists of an IVF index: `nlist`, or 4·√N if 0; between 1 and ⌊N/39⌋."""
    return max(1, min(nlist or round(4 * math.sqrt(rows)), rows // _MIN_POINTS_PER_CENTROID))


def n_probes(lists: int, nprobe: int = 0) -> int:
    """Number of lists that a query reads: `nprobe`, or max(64, lists/32) if 0.

    On 50,000 and 200,000 synthetic rows (256 dimensions), 64 of 4·√N lists had recalls at 16 of .9999 and .996.
    """
    return min(nprobe or max(64, lists // 32), lists)


def code_bytes(dimensions: int, pq_bytes: int = 0) -> int:
    """Bytes of a product-quantisation code: `pq_bytes`; if 0, at least 16 and one per 8 dimensions.

    Twice as many bytes did not raise the recall after re-ranking, and took twice the time.

    Raises:
        InputError: `pq_bytes` does not divide the dimensions.
    """
    if not pq_bytes:
        least = max(math.ceil(dimensions / 8), min(dimensions, 16))
        return next(m for m in range(least, dimensions + 1) if dimensions % m == 0)
    divides = dimensions % pq_bytes == 0
    require(divides, f"pq_bytes: {pq_bytes} does not divide {dimensions} dimensions; give a divisor, or 0")
    return pq_bytes


@dataclass(frozen=True)
class Index:
    """An index over the vectors of a bank."""

    kind: str  # `flat`, `hnsw`, `ivf` or `ivfpq`
    metric: str  # `l2` or `ip`
    faiss_index: Any = None  # None for `flat`, which searches the bank's own vectors
    refine: int = 1  # candidates per neighbour; above 1 for quantised vectors

    @property
    def supports_removal(self) -> bool:
        """Whether rows can be removed; not from an HNSW graph."""
        return self.kind != "hnsw"

    def searcher(self, vectors: np.ndarray, visible: np.ndarray | None, device: str) -> CandidateSearch:
        """The function (queries (B, D), k) → candidates int64 (B, k), positions padded by −1.

        Args:
            vectors: (N, D).
            visible: uint8 bitmap of the positions that an HNSW search may return, or None for all.
            device: `cuda…` searches a flat index on that GPU.
        """
        if self.kind == "flat":
            if device.startswith("cuda"):
                return _gpu_searcher(vectors, self.metric, device)
            return lambda queries, k: nearest(queries, vectors, k, self.metric)
        params = None
        if visible is not None:
            selector: Any = faiss.IDSelectorBitmap(visible)  # type: ignore[call-arg]
            beam = self.faiss_index.hnsw.efSearch
            params = faiss.SearchParametersHNSW(sel=selector, efSearch=beam)  # type: ignore[attr-defined]
        return lambda queries, k: self.faiss_index.search(queries, k, params=params)[1]

    def matches(self, vectors: np.ndarray) -> bool:
        """Whether the faiss index is of this kind and metric, over as many vectors of as many dimensions (N, D)."""
        index = self.faiss_index
        if index is None:
            return True
        same = (index.ntotal, index.d, index.metric_type) == (*vectors.shape, METRICS[self.metric])
        return same and isinstance(index, _CLASSES[self.kind])

    def copy(self) -> "Index":
        """Copy that can be changed while this one is searched."""
        return self if self.faiss_index is None else replace(self, faiss_index=faiss.clone_index(self.faiss_index))

    def add(self, vectors: np.ndarray, positions: np.ndarray, threads: int = 1) -> None:
        """Add vectors (M, D) at positions (M,); an HNSW graph takes only those that follow its last."""
        with _threads(threads):
            if self.kind == "hnsw":
                self.faiss_index.add(vectors)
            elif self.faiss_index is not None:
                self.faiss_index.add_with_ids(vectors, positions)

    def remove(self, positions: np.ndarray) -> None:
        """Remove the positions (M,)."""
        if self.faiss_index is not None:
            self.faiss_index.remove_ids(faiss.IDSelectorBatch(positions))

    @property
    def n_bytes(self) -> int:
        """Size on disk; 0 for a flat index."""
        return 0 if self.faiss_index is None else faiss.serialize_index(self.faiss_index).nbytes

    def write(self, path: Path) -> None:
        """Write to a file; nothing for a flat index."""
        if self.faiss_index is not None:
            # faiss's own writer does not notice a disk that is full at the last buffer.
            with path.open("wb") as file:
                faiss.write_index(self.faiss_index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[call-overload]


def read_index(path: Path, kind: str, metric: str, refine: int, mmap: bool) -> Index:
    """Read an index file; faiss raises RuntimeError if it is missing or damaged."""
    flags = faiss.IO_FLAG_MMAP_IFC if mmap else 0
    return Index(kind, metric, None if kind == "flat" else faiss.read_index(str(path), flags), refine)


def make_index(vectors: np.ndarray, kind: str, metric: str, options: IndexOptions) -> Index:
    """Build an index of a kind over all vectors (N, D); see `bank.build`."""
    rows, dimensions = vectors.shape
    kind = auto_kind(rows, dimensions, options.hnsw_m) if kind == "auto" else kind
    if kind == "flat":
        return Index(kind, metric)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimensions, options.hnsw_m, METRICS[metric])
        index.hnsw.efConstruction, index.hnsw.efSearch = options.ef_construction, options.ef_search
    else:
        lists, quantizer = n_lists(rows, options.ivf_nlist), faiss.IndexFlat(dimensions, METRICS[metric])
        if kind == "ivf":
            index = faiss.IndexIVFFlat(quantizer, dimensions, lists, METRICS[metric])
        else:
            assert kind == "ivfpq", kind
            bits = min(8, max(1, (rows // _MIN_POINTS_PER_CENTROID).bit_length() - 1))
            size = code_bytes(dimensions, options.pq_bytes)
            index = faiss.IndexIVFPQ(quantizer, dimensions, lists, size, bits, METRICS[metric])
            _limit_points(index.pq.cp)
        index.nprobe = n_probes(lists, options.ivf_nprobe)
        _limit_points(index.cp)
        index.cp.seed = 0
        most, training = max(lists, 256) * _MAX_POINTS_PER_CENTROID, vectors
        if rows > most:
            training = vectors[np.sort(np.random.default_rng(0).choice(rows, most, replace=False))]
        with _threads(options.build_threads):
            index.train(training)
    result = Index(kind, metric, index, options.pq_refine if kind == "ivfpq" else 1)
    result.add(vectors, np.arange(rows), options.build_threads)
    return result


def nearest(queries: np.ndarray, vectors: np.ndarray, k: int, metric: str) -> np.ndarray:
    """Positions int64 (B, k) of the nearest of vectors (N, D), by exhaustive search."""
    return faiss.knn(queries, vectors, k, METRICS[metric])[1]


def train_centroids(vectors: np.ndarray, count: int, metric: str) -> np.ndarray:
    """Centroids float32 (count, D) of k-means on vectors (N, D), with a fixed seed."""
    clustering = faiss.Clustering(vectors.shape[1], count)
    clustering.seed, clustering.niter = 0, _ITERATIONS
    _limit_points(clustering)
    clustering.train(vectors, faiss.IndexFlat(vectors.shape[1], METRICS[metric]))  # type: ignore[call-arg]
    return faiss.vector_to_array(clustering.centroids).reshape(count, -1)


def train_codebook(vectors: np.ndarray, n_bytes: int) -> np.ndarray:
    """Codebook float32 (n_bytes, 256, D / n_bytes) of a product quantiser trained on vectors (N, D), fixed seed."""
    quantizer = faiss.ProductQuantizer(vectors.shape[1], n_bytes, 8)
    _limit_points(quantizer.cp)
    quantizer.cp.seed = 0
    quantizer.train(np.resize(vectors, (max(len(vectors), 256), vectors.shape[1])))
    return faiss.vector_to_array(quantizer.centroids).reshape(n_bytes, 256, -1)


def _limit_points(clustering: Any) -> None:
    """Set the range of points per centroid of k-means: it warns on standard error below, and samples above."""
    clustering.min_points_per_centroid = 1
    clustering.max_points_per_centroid = _MAX_POINTS_PER_CENTROID


def _gpu_searcher(vectors: np.ndarray, metric: str, device: str) -> CandidateSearch:
    """Exact search by torch in float32; the vectors are copied to the device once."""
    import torch

    keys = torch.tensor(vectors, device=device)  # (N, D)
    norms = (keys * keys).sum(1) if metric == "l2" else 0.0
    step = max(1, _GPU_SIMILARITIES // len(vectors))

    def search(queries: np.ndarray, k: int) -> np.ndarray:
        out = np.empty((len(queries), k), dtype=np.int64)
        for start in range(0, len(queries), step):
            q = torch.tensor(queries[start : start + step], device=device)  # (B, D)
            # ‖q‖² does not change the order.
            with torch.autocast(keys.device.type, enabled=False):
                scores = q @ keys.T if metric == "ip" else 2 * q @ keys.T - norms  # (B, N)
            out[start : start + step] = scores.topk(k, dim=1).indices.cpu().numpy()
        return out

    return search
