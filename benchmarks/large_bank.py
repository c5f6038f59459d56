"""A large bank: time and memory to build and to search each index, and its recall.

Each index is built and searched in its own process, so that memory is its own; peaks are those of whole processes,
with the interpreter and memory-mapped files. Search is memory-mapped, as in the pipeline, after a warm-up with all
queries. Recall is the share of k neighbours that are no further than the true k-th.
"""

import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.experiments.profile import milliseconds, recall
from attnknn.index.bank import Bank, build
from attnknn.index.faiss_index import set_threads
from benchmarks.synthetic import clustered

SIZES = {
    "full": {"rows": 1_000_000, "dim": 256, "queries": 1000, "k": 16, "singles": 100},
    "quick": {"rows": 3_000, "dim": 32, "queries": 50, "k": 5, "singles": 3},
}
KINDS = ("flat", "ivf", "ivfpq", "hnsw")  # the first is the reference for recall
_GIB = 2**30


def memory(quantity: str) -> int:
    """Bytes of this process from Linux: `VmHWM`, the peak of its resident memory, or `VmRSS`, the current value."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(quantity))


def in_process(call: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
    """Call in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *args).result()


def time_build(folder: Path, kind: str, threads: int) -> dict[str, float]:
    """Build an index over z.npy with the default settings for its number of rows, and save it."""
    z = np.load(folder / "z.npy", mmap_mode="r")
    start = time.perf_counter()
    bank = build(z, np.arange(len(z)), kind=kind, build_threads=threads)
    seconds = time.perf_counter() - start
    bank.save(folder / kind)
    size = sum(path.stat().st_size for path in (folder / kind).iterdir())
    return {"build_s": seconds, "build_peak_gib": memory("VmHWM") / _GIB, "disk_gib": size / _GIB}


def time_search(folder: Path, kind: str, threads: int, repeats: int, k: int, singles: int) -> dict[str, float]:
    """Open an index and search it for queries.npy; the similarities of the first kind are written to truth.npy."""
    set_threads(threads)
    before = memory("VmRSS")
    start = time.perf_counter()
    bank = Bank.load(folder / kind, mmap=True)
    opened = {"open_ms": 1e3 * (time.perf_counter() - start), "open_mib": (memory("VmRSS") - before) / 2**20}
    queries = np.load(folder / "queries.npy")
    sims = bank.search(queries, k)[1]
    if kind == KINDS[0]:
        np.save(folder / "truth.npy", sims)
    batched = [milliseconds(partial(bank.search, queries, k)) / len(queries) for _ in range(repeats)]
    singles_ms = [milliseconds(partial(bank.search, query, k)) for query in queries[:singles, None]]
    return {
        **opened,
        "recall": recall(sims, np.load(folder / "truth.npy"), k),
        "batched_ms": float(np.median(batched)),
        "single_p50_ms": float(np.quantile(singles_ms, 0.5)),
        "single_p99_ms": float(np.quantile(singles_ms, 0.99)),
        "search_peak_gib": memory("VmHWM") / _GIB,
    }


def measure(
    threads: int, repeats: int, rows: int, dim: int, queries: int, k: int, singles: int
) -> list[dict[str, str | float]]:
    """A row per index: `index`, and the results of `time_build`, once, with all threads, and of `time_search`."""
    table: list[dict[str, str | float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        z, _ = clustered(rows + queries, dim)
        np.save(folder / "z.npy", z[:rows])
        np.save(folder / "queries.npy", z[rows:])
        del z
        for kind in KINDS:
            row = in_process(time_build, folder, kind, threads)
            row |= in_process(time_search, folder, kind, threads, repeats, k, singles)
            table.append({"index": kind, **row})
            shutil.rmtree(folder / kind)
            print(json.dumps(table[-1]), flush=True)
    return table
