"""The memory: bank rows with their ids, and their nearest neighbours. The only module that imports faiss.

Whatever the index, the search ends alike: similarities are computed again from the vectors themselves, in float32
differences, and neighbours are ordered by (similarity, id). So exact duplicates are at distance 0 exactly, and flat,
HNSW, IVF and GPU search agree to the bit on the neighbours that they all find.
"""

from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np

from attnknn.artifacts import BANK, Embeddings, Neighbours
from attnknn.errors import InputError, require
from attnknn.files import new_folder, read_json, write_json

FAISS = faiss.__version__
KINDS = ("flat", "hnsw", "ivf")
_GATHERED = 2**20  # floats gathered at once when similarities are computed again: they stay in the CPU's cache
_CHUNK = 64 * 2**20  # similarities held at once on a GPU
_TRAINING = 39  # rows a cluster that faiss wants to find its centre from


def _rows(name: str, value: np.ndarray) -> np.ndarray:
    """A float32 C-contiguous (N, D) copy or view; refuses NaN and infinity."""
    require(value.ndim == 2, f"{name}: shape {value.shape}; expected (rows, dimensions)")
    value = np.ascontiguousarray(value, dtype=np.float32)
    require(bool(np.isfinite(value).all()), f"{name}: NaN or infinite values")
    return value


def similarity(queries: np.ndarray, keys: np.ndarray, metric: str) -> np.ndarray:
    """Similarity of each query to its own keys: −‖q − k‖² (`l2`) or q·k (`ip`).

    Args:
        queries: (B, D).
        keys: (B, K, D).

    Returns:
        float32 (B, K).
    """
    if metric == "ip":
        return np.einsum("bd,bkd->bk", queries, keys)
    difference = keys - queries[:, None]  # (B, K, D)
    return -np.einsum("bkd,bkd->bk", difference, difference)


@dataclass(frozen=True)
class Bank:
    """An index over bank rows.

    Attributes:
        z: float32 (N, D) the vectors.
        ids: int64 (N,) their row ids, unique.
        metric: `l2` or `ip`.
        index: the faiss index over z, its labels positions in z; None for exact search by torch on a GPU.
    """

    z: np.ndarray
    ids: np.ndarray
    metric: str
    index: faiss.Index | None

    def search(
        self, queries: np.ndarray, k: int, exclude: np.ndarray | None = None, device: str = "cpu"
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest bank rows of each query, nearest first.

        Args:
            queries: (B, D).
            k: neighbours; at most the bank's rows less those of them that a query excludes.
            exclude: (B,) or (B, E) row ids that each query must not see (its own, or its duplicates); −1 is nobody.
            device: with `cuda…` and a flat index, exact search by torch there.

        Returns:
            ids int32 (B, k) and sims float32 (B, k), −1 and −inf where an approximate index found fewer than k.

        Raises:
            InputError: dimensions differ, values are not finite, or k is out of range.
        """
        queries = _rows("queries", queries)
        require(
            queries.shape[1] == self.z.shape[1],
            f"queries: {queries.shape[1]} dimensions; the bank has {self.z.shape[1]}",
        )
        if exclude is None:
            exclude = np.empty((len(queries), 0), dtype=np.int64)
        exclude = exclude.reshape(len(queries), -1)
        extra = exclude.shape[1]
        hidden = int(np.isin(exclude, self.ids).sum(1).max(initial=0))
        most = len(self.ids) - hidden
        require(
            1 <= k <= most,
            f"k: {k} neighbours asked for; of the bank's {len(self.ids)} rows 1 … {most} can be had",
        )
        # One more than needed, as far as there are: a tie at the edge is then settled by id, not by the index.
        wanted = min(k + extra + 1, len(self.ids))
        if device.startswith("cuda") and not isinstance(self.index, faiss.IndexHNSW | faiss.IndexIVF):
            at = _torch_search(self.z, queries, wanted, self.metric, device)
        else:
            require(self.index is not None, "index: none; build one, or search on a GPU")
            at = self.index.search(queries, wanted)[1]  # type: ignore[union-attr]
        return self._settle(queries, at, k, exclude)

    def _settle(
        self, queries: np.ndarray, at: np.ndarray, k: int, exclude: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute similarities again, mask what is excluded or missing, order by (similarity, id), keep k."""
        ids = np.where(at >= 0, self.ids[at], -1)  # (B, K')
        ids[(ids[:, :, None] == exclude[:, None, :]).any(-1)] = -1
        sims = np.empty(at.shape, dtype=np.float32)
        step = max(1, _GATHERED // (at.shape[1] * self.z.shape[1]))
        for s in range(0, len(at), step):
            sims[s : s + step] = similarity(queries[s : s + step], self.z[at[s : s + step]], self.metric)
        sims[ids < 0] = -np.inf
        order = np.lexsort((ids, -sims), axis=-1)[:, :k]
        take = np.take_along_axis
        return take(ids, order, axis=1).astype(np.int32), take(sims, order, axis=1)

    @property
    def n_bytes(self) -> int:
        """Size of the index as it is written, the vectors in it among them."""
        require(self.index is not None, "index: none to measure")
        return faiss.serialize_index(self.index).nbytes  # type: ignore[arg-type]

    def save(self, folder: Path) -> None:
        """Write index and ids to `folder`, in one step. The vectors are the embeddings' and are not written again."""
        require(self.index is not None, "index: none to save")
        with new_folder(folder) as draft:
            faiss.write_index(self.index, str(draft / "index.faiss"))  # type: ignore[arg-type, call-overload]
            np.save(draft / "ids.npy", self.ids)
            write_json(
                draft / "bank.json",
                {"metric": self.metric, "rows": len(self.ids), "dimensions": self.z.shape[1]},
            )

    @classmethod
    def load(cls, folder: Path, z: np.ndarray) -> "Bank":
        """Open a saved bank beside the embeddings z (all rows of the dataset, float32 (·, D)) it was built from.

        Raises:
            InputError: a file is missing, damaged, or does not fit z.
        """
        folder = Path(folder)
        about = read_json(folder / "bank.json")
        try:
            index = faiss.read_index(str(folder / "index.faiss"))
            ids = np.load(folder / "ids.npy")
        except (RuntimeError, OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise InputError(f"{folder}: damaged index ({reason}); delete it and run `dvc repro`") from None
        fits = index.ntotal == len(ids) == about["rows"] and index.d == z.shape[1] and ids.max() < len(z)
        require(fits, f"{folder}: index and embeddings do not belong together; run `dvc repro`")
        return cls(np.ascontiguousarray(z[ids], dtype=np.float32), ids, about["metric"], index)


def build(
    z: np.ndarray,
    ids: np.ndarray,
    kind: str = "flat",
    metric: str = "l2",
    hnsw_m: int = 32,
    ef_construction: int = 200,
    ef_search: int = 128,
    ivf_nlist: int = 256,
    ivf_nprobe: int = 16,
) -> Bank:
    """A bank over vectors z (N, D) with unique row ids (N,).

    `flat` is exact; `hnsw` is approximate (Malkov & Yashunin 2018): M links a node, beams of ef_construction and
    ef_search. `ivf` is approximate (Jégou et al. 2011): k-means from a fixed seed puts the rows in ivf_nlist lists, and
    a query reads the ivf_nprobe nearest of them. There are never more lists than leave 39 rows each to find their
    centres from, ⌊N/39⌋ and at least one, and ivf_nprobe reads all where it is above that.
    Both are built by one thread, so that the same vectors give the same index.

    Raises:
        InputError: no rows, values that are not finite, ids that repeat, or an unknown kind or metric.
    """
    z = _rows("bank", z)
    ids = np.asarray(ids, dtype=np.int64)
    require(len(z) > 0 and ids.shape == (len(z),), f"bank: {len(z)} vectors and ids of shape {ids.shape}")
    require(len(np.unique(ids)) == len(ids), "bank: row ids repeat")
    require(kind in KINDS, f"kind: {kind}; allowed are {', '.join(KINDS)}")
    require(metric in ("l2", "ip"), f"metric: {metric}; allowed are l2, ip")
    measure = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(z.shape[1], hnsw_m, measure)
        index.hnsw.efConstruction = ef_construction
        index.hnsw.efSearch = ef_search
    elif kind == "ivf":
        index = _ivf(z, measure, ivf_nlist, ivf_nprobe)
    else:
        index = faiss.IndexFlat(z.shape[1], measure)
    threads = faiss.omp_get_max_threads()
    set_threads(1)
    try:
        index.train(z)
        index.add(z)
    finally:
        set_threads(threads)
    return Bank(z, ids, metric, index)


def _ivf(z: np.ndarray, measure: int, nlist: int, nprobe: int) -> faiss.IndexIVFFlat:
    """An untrained IVF index for the rows of z."""
    lists = max(1, min(nlist, len(z) // _TRAINING))
    index = faiss.IndexIVFFlat(faiss.IndexFlat(z.shape[1], measure), z.shape[1], lists, measure)
    index.cp.seed = 0
    index.cp.min_points_per_centroid = min(_TRAINING, len(z))  # else it warns of a memory of fewer rows than that
    index.nprobe = min(nprobe, lists)
    return index


def memory(embeddings: Embeddings, **index: object) -> Bank:
    """A bank (see `build`) over the rows of part bank, and no others: held-out rows are never in the memory."""
    rows = embeddings.rows(BANK)
    return build(np.asarray(embeddings.z)[rows], rows, **index)  # type: ignore[arg-type]


def search(bank: Bank, embeddings: Embeddings, k_max: int, device: str = "cpu") -> Neighbours:
    """The k_max nearest bank rows of every row, itself excluded by its id; all others where the bank has fewer.

    Held-out rows are the queries of heads and baselines; the neighbours of bank rows are evidence about them.

    Raises:
        InputError: the bank is a single row, which has no neighbour.
    """
    size = len(bank.ids)
    require(size > 1, "bank: a single row; its rows are each other's neighbours, so give it two or more")
    rows = np.arange(len(embeddings.z))
    ids, sims = bank.search(np.asarray(embeddings.z), min(k_max, size - 1), exclude=rows, device=device)
    return Neighbours(rows.astype(np.int32), ids, sims, bank.metric)


def set_threads(threads: int) -> None:
    """Let faiss use this many CPU threads from here on."""
    faiss.omp_set_num_threads(threads)


def _torch_search(z: np.ndarray, queries: np.ndarray, k: int, metric: str, device: str) -> np.ndarray:
    """Positions (B, k) of the k nearest rows of z, exact, by torch, in chunks of queries."""
    import torch

    bank = torch.from_numpy(z).to(device)  # (N, D)
    squares = (bank * bank).sum(1) if metric == "l2" else 0.0
    out = np.empty((len(queries), k), dtype=np.int64)
    step = max(1, _CHUNK // len(z))
    for s in range(0, len(queries), step):
        q = torch.from_numpy(queries[s : s + step]).to(device)  # (B, D)
        # ‖q‖² is the same for all keys of a query, so it is left out of the order.
        closeness = q @ bank.T if metric == "ip" else 2 * q @ bank.T - squares  # (B, N)
        out[s : s + step] = closeness.topk(k, dim=1).indices.cpu().numpy()
    return out
