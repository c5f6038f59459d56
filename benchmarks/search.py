"""Search, compared with faiss, scikit-learn, hnswlib and usearch, at the same k and with the same threads.

Exact search is compared with exact search, and HNSW with HNSW of the same M and beam widths. Recall is the share of k
neighbours that are no further than the true k-th. Embeddings are synthetic clusters, unless the last line names
stored ones.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from attnknn.core.artifacts import BANK, TEST, Embeddings
from attnknn.experiments.profile import recall
from attnknn.index.bank import build
from attnknn.index.faiss_index import similarities
from benchmarks.comparison import Row, compare, peer, time_rounds, time_singles
from benchmarks.synthetic import clustered

SIZES = {
    "full": {"rows": 45_000, "dim": 256, "queries": 10_000, "ks": (16, 50, 256), "singles": 100, "few": 500},
    "quick": {"rows": 1_000, "dim": 32, "queries": 100, "ks": (5,), "singles": 3, "few": 20},
}
M, EF_CONSTRUCTION, EF_SEARCH = 32, 200, 128  # of every HNSW
EXACT, HNSW = "ours, flat", "ours, HNSW"
SLOW = ("scikit-learn, ball tree", "usearch, exact")  # timed with `few` queries
Search = Callable[[np.ndarray, int], np.ndarray]  # queries (B, D), k → positions (B, k)


def _ours(z: np.ndarray, kind: str) -> Search:
    beams = {"hnsw_m": M, "ef_construction": EF_CONSTRUCTION, "ef_search": EF_SEARCH}
    bank = build(z, np.arange(len(z)), kind=kind, **beams)  # type: ignore[arg-type]
    return lambda q, k: bank.search(q, k)[0]


def _faiss(z: np.ndarray, index: faiss.Index) -> Search:
    index.add(z)  # type: ignore[call-arg]
    return lambda q, k: index.search(q, k)[1]  # type: ignore[call-arg]


def _faiss_hnsw(z: np.ndarray) -> Search:
    index = faiss.IndexHNSWFlat(z.shape[1], M)
    index.hnsw.efConstruction, index.hnsw.efSearch = EF_CONSTRUCTION, EF_SEARCH
    return _faiss(z, index)


def _sklearn(z: np.ndarray, y: np.ndarray, algorithm: str, threads: int) -> Search:
    single, batched = (KNeighborsClassifier(algorithm=algorithm, n_jobs=n).fit(z, y) for n in (1, threads))  # type: ignore[arg-type]
    # For one query, starting workers takes longer than the search.
    return lambda q, k: (batched if len(q) > 1 else single).kneighbors(q, k)[1]


def _hnswlib(z: np.ndarray, threads: int) -> Search | None:
    hnswlib = peer("hnswlib")
    if hnswlib is None:
        return None
    index = hnswlib.Index("l2", z.shape[1])
    index.init_index(len(z), M=M, ef_construction=EF_CONSTRUCTION, random_seed=0)
    index.set_ef(EF_SEARCH)
    index.set_num_threads(threads)
    index.add_items(z)
    return lambda q, k: index.knn_query(q, k)[0].astype(np.int64)


def _usearch(z: np.ndarray, threads: int, exact: bool) -> Search | None:
    usearch = peer("usearch.index")
    if usearch is None:
        return None
    beams = {"connectivity": M, "expansion_add": EF_CONSTRUCTION, "expansion_search": EF_SEARCH}
    if exact:
        return lambda q, k: usearch.search(z, q, k, "l2sq", exact=True, threads=threads).keys.reshape(len(q), k)
    index = usearch.Index(ndim=z.shape[1], metric="l2sq", dtype="f32", **beams)
    index.add(np.arange(len(z)), z, threads=threads)
    return lambda q, k: index.search(q, k, threads=threads).keys.reshape(len(q), k)


def _sims(z: np.ndarray, queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Similarities (B, K) of retrieved rows, descending, all by the same arithmetic; −inf where position is −1."""
    positions = positions.astype(np.int64)
    return -np.sort(-np.where(positions < 0, -np.inf, similarities(queries, z, positions, "l2")), axis=1)


def _data(rows: int, dim: int, queries: int, embeddings: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bank vectors, their classes, and queries."""
    if embeddings is None:
        z, y = clustered(rows + queries, dim)
        return z[:rows], y[:rows], z[rows:]
    stored = Embeddings.load(embeddings)
    z, bank = np.asarray(stored.z), stored.rows(BANK)
    return z[bank], stored.y[bank], z[stored.rows(TEST)[:queries]]


def measure(
    threads: int,
    repeats: int,
    rows: int,
    dim: int,
    queries: int,
    ks: tuple[int, ...],
    singles: int,
    few: int,
    embeddings: Path | None = None,
) -> list[Row]:
    """Building, all queries at once, and single queries, of exact indexes and of HNSW ones.

    Args:
        few: queries for the slow peers, which would take minutes for all; times are per query.
        embeddings: folder of stored embeddings, whose bank rows are searched for its test rows; None takes synthetic.
    """
    z, y, q = _data(rows, dim, queries, embeddings)
    makers: dict[str, dict[str, Callable[[], Search | None]]] = {
        EXACT: {
            EXACT: partial(_ours, z, "flat"),
            "faiss IndexFlatL2": lambda: _faiss(z, faiss.IndexFlatL2(z.shape[1])),
            "scikit-learn, brute": partial(_sklearn, z, y, "brute", threads),
            SLOW[0]: partial(_sklearn, z, y, "ball_tree", threads),
            SLOW[1]: partial(_usearch, z, threads, exact=True),
        },
        HNSW: {
            HNSW: partial(_ours, z, "hnsw"),
            "faiss IndexHNSWFlat": partial(_faiss_hnsw, z),
            "hnswlib": partial(_hnswlib, z, threads),
            "usearch": partial(_usearch, z, threads, exact=False),
        },
    }
    size, table = f"{len(z):,} × {z.shape[1]}", []
    for ours, methods in makers.items():
        searches, seconds = {}, {}
        for name, make in methods.items():
            start = time.perf_counter()
            searches[name] = make()
            seconds[name] = None if searches[name] is None else [time.perf_counter() - start]
        if ours == HNSW:
            notes = dict.fromkeys(methods, "one build; ours with one thread, so that it is deterministic")
            table += compare(f"build over {size}", "s", seconds, ours, notes=notes)
        for k in ks:
            table += _search_rows(searches, ours, z, q, k, repeats, singles, few)
    return table


def _search_rows(
    searches: dict[str, Search | None],
    ours: str,
    z: np.ndarray,
    q: np.ndarray,
    k: int,
    repeats: int,
    singles: int,
    few: int,
) -> list[Row]:
    """All queries at once and single queries, at one k."""
    installed = {name: search for name, search in searches.items() if search is not None}
    missing = {name: None for name in searches if name not in installed}
    queries = {name: q[:few] if name in SLOW else q for name in installed}
    exact = _sims(z, q, faiss.knn(q, z, k)[1])
    recalls = {
        name: recall(_sims(z, queries[name], search(queries[name], k)), exact[: len(queries[name])], k)
        for name, search in installed.items()
    }
    batched = time_rounds({name: partial(search, queries[name], k) for name, search in installed.items()}, repeats)
    times = {name: [ms / len(queries[name]) for ms in values] for name, values in batched.items()}
    notes = {name: f"{few} of the queries" for name in SLOW if name in installed}
    what = f"{len(z):,} × {z.shape[1]}, k {k}"
    table = compare(
        f"{len(q):,} queries at once, {what}", "ms a query", times | missing, ours, recalls=recalls, notes=notes
    )
    calls = {name: lambda query, search=search: search(query, k) for name, search in installed.items()}
    for quantile, values in time_singles(calls, q[:singles, None], repeats).items():
        table += compare(f"a single query, {quantile}, {what}", "ms", values | missing, ours)
    return table
