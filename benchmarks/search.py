"""The search: ours beside bare faiss, scikit-learn, hnswlib and usearch, at the same k, with the same threads.

Exact search is compared with exact search, and HNSW with HNSW of the same M and beams. Recall is the share of k
neighbours found that are no further than the true k-th. The embeddings are made up, in clusters as a trained encoder's,
unless the last line names stored ones.
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
from benchmarks.compared import Row, compared, in_rounds, one_by_one, peer
from benchmarks.made_up import clustered

SIZES = {
    "full": {"rows": 45_000, "dim": 256, "queries": 10_000, "ks": (16, 50, 256), "singles": 100, "few": 500},
    "quick": {"rows": 1_000, "dim": 32, "queries": 100, "ks": (5,), "singles": 3, "few": 20},
}
M, EF_CONSTRUCTION, EF_SEARCH = 32, 200, 128  # of every HNSW
EXACT, HNSW = "ours, flat", "ours, HNSW"
SLOW = ("scikit-learn, ball tree", "usearch, exact")  # asked `few` queries at once
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
    alone, together = (KNeighborsClassifier(algorithm=algorithm, n_jobs=n).fit(z, y) for n in (1, threads))  # type: ignore[arg-type]
    # To share one query out takes longer than to answer it.
    return lambda q, k: (together if len(q) > 1 else alone).kneighbors(q, k)[1]


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


def _sims(z: np.ndarray, queries: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Similarities (B, K) of what was found, nearest first, all by the same arithmetic; −inf where nothing was."""
    at = at.astype(np.int64)
    return -np.sort(-np.where(at < 0, -np.inf, similarities(queries, z, at, "l2")), axis=1)


def _data(rows: int, dim: int, queries: int, embeddings: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bank vectors, their classes, and queries."""
    if embeddings is None:
        z, y = clustered(rows + queries, dim)
        return z[:rows], y[:rows], z[rows:]
    stored = Embeddings.load(embeddings)
    z, at = np.asarray(stored.z), stored.rows(BANK)
    return z[at], stored.y[at], z[stored.rows(TEST)[:queries]]


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
        few: queries that the slow peers are asked at once; all would take them minutes, and time a query is compared.
        embeddings: folder of stored ones, whose bank rows are searched for its test rows; else made-up ones.
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
    against, table = f"{len(z):,} × {z.shape[1]}", []
    for ours, of in makers.items():
        searches, built = {}, {}
        for name, make in of.items():
            start = time.perf_counter()
            searches[name] = make()
            built[name] = None if searches[name] is None else [time.perf_counter() - start]
        if ours == HNSW:
            one = dict.fromkeys(of, "one build; ours by one thread, so that it is the same each time")
            table += compared(f"build over {against}", "s", built, ours, notes=one)
        for k in ks:
            table += _searched(searches, ours, z, q, k, repeats, singles, few, against)
    return table


def _searched(
    searches: dict[str, Search | None],
    ours: str,
    z: np.ndarray,
    q: np.ndarray,
    k: int,
    repeats: int,
    singles: int,
    few: int,
    against: str,
) -> list[Row]:
    """All queries at once and one by one, at one k."""
    there = {name: search for name, search in searches.items() if search is not None}
    missing = {name: None for name in searches if name not in there}
    exact = _sims(z, q, faiss.knn(q, z, k)[1])
    asked = {name: q[:few] if name in SLOW else q for name in there}
    recalls = {
        name: recall(_sims(z, asked[name], s(asked[name], k)), exact[: len(asked[name])], k)
        for name, s in there.items()
    }
    together = in_rounds({name: partial(search, asked[name], k) for name, search in there.items()}, repeats)
    each = {name: [ms / len(asked[name]) for ms in of] for name, of in together.items()}
    notes = {name: f"{few} of the queries" for name in SLOW if name in there}
    table = compared(
        f"{len(q):,} queries at once, {against}, k {k}", "ms a query", each | missing, ours, False, recalls, notes
    )
    alone = one_by_one({name: lambda one, s=s: s(one, k) for name, s in there.items()}, q[:singles, None], repeats)
    for quantile, of in alone.items():
        table += compared(f"a single query, {quantile}, {against}, k {k}", "ms", of | missing, ours)
    return table
