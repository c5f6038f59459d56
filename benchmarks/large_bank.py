"""A large memory: what each index takes to build and to search, in time and in memory, and what it misses.

Every index is built and searched in processes of its own, so that memory is its own; peaks are of whole processes, the
interpreter and what is mapped from disk among them. It is searched memory-mapped, as the pipeline does, after all
queries have been asked once. Recall is the share of k neighbours found that are no further than the true k-th.
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
from benchmarks.made_up import clustered

SIZES = {
    "full": {"rows": 1_000_000, "dim": 256, "queries": 1000, "k": 16, "singles": 100},
    "quick": {"rows": 3_000, "dim": 32, "queries": 50, "k": 5, "singles": 3},
}
KINDS = ("flat", "ivf", "ivfpq", "hnsw")  # the first is what the others are compared with
_GIB = 2**30


def memory(quantity: str) -> int:
    """Bytes of this process, as Linux tells them: `VmHWM`, the most it ever had in memory, or `VmRSS`, what it has."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(quantity))


def alone(call: Callable[..., dict[str, float]], *given: Any) -> dict[str, float]:
    """What a call returns in a process that does nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *given).result()


def built(folder: Path, kind: str, threads: int) -> dict[str, float]:
    """Build an index of a kind over z.npy, its sizes by the number of rows, and save it."""
    z = np.load(folder / "z.npy", mmap_mode="r")
    start = time.perf_counter()
    bank = build(z, np.arange(len(z)), kind=kind, build_threads=threads)
    seconds = time.perf_counter() - start
    bank.save(folder / kind)
    size = sum(path.stat().st_size for path in (folder / kind).iterdir())
    return {"build_s": seconds, "build_peak_gib": memory("VmHWM") / _GIB, "disk_gib": size / _GIB}


def searched(folder: Path, kind: str, threads: int, repeats: int, k: int, singles: int) -> dict[str, float]:
    """Open the index of a kind and search it for queries.npy; what the first kind finds is written as truth.npy."""
    set_threads(threads)
    before = memory("VmRSS")
    start = time.perf_counter()
    bank = Bank.load(folder / kind, mmap=True)
    found = {"open_ms": 1e3 * (time.perf_counter() - start), "open_mib": (memory("VmRSS") - before) / 2**20}
    queries = np.load(folder / "queries.npy")
    sims = bank.search(queries, k)[1]
    if kind == KINDS[0]:
        np.save(folder / "truth.npy", sims)
    together = [milliseconds(partial(bank.search, queries, k)) / len(queries) for _ in range(repeats)]
    each = [milliseconds(partial(bank.search, query, k)) for query in queries[:singles, None]]
    return {
        **found,
        "recall": recall(sims, np.load(folder / "truth.npy"), k),
        "batched_ms": float(np.median(together)),
        "single_p50_ms": float(np.quantile(each, 0.5)),
        "single_p99_ms": float(np.quantile(each, 0.99)),
        "search_peak_gib": memory("VmHWM") / _GIB,
    }


def measure(
    threads: int, repeats: int, rows: int, dim: int, queries: int, k: int, singles: int
) -> list[dict[str, str | float]]:
    """A row for each index: `index`, and what `built` and `searched` return, each built once, by all threads."""
    table: list[dict[str, str | float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        z, _ = clustered(rows + queries, dim)
        np.save(folder / "z.npy", z[:rows])
        np.save(folder / "queries.npy", z[rows:])
        del z
        for kind in KINDS:
            row = alone(built, folder, kind, threads)
            row |= alone(searched, folder, kind, threads, repeats, k, singles)
            table.append({"index": kind, **row})
            shutil.rmtree(folder / kind)
            print(json.dumps(table[-1]), flush=True)
    return table
