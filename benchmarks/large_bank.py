"""Large banks of made-up clustered rows × 128: time and memory to build and to search each index, and recall of 50.

Each index is built and searched in its own process, so that memory is its own; peaks are those of whole processes,
with the interpreter and memory-mapped files. Search is memory-mapped, as in the pipeline, after a warm-up with all
queries; times are of a query. Recall is the share of 50 neighbours that are no further than the true 50th. HNSW and
IVF-PQ are measured up to 1,000,000 rows.
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
from attnknn.index.config import BuildIndex
from attnknn.index.faiss_index import set_threads
from attnknn.index.stored import open_bank, store
from benchmarks.synthetic import clusters

SIZES: dict[str, dict[str, Any]] = {
    "full": {"rows": (45_000, 1_000_000, 10_000_000), "dim": 128, "queries": 1000, "k": 50, "singles": 100},
    "quick": {"rows": (3_000,), "dim": 32, "queries": 50, "k": 5, "singles": 3},
}
KINDS = ("flat", "ivf", "ivfpq", "hnsw", "lance")  # the first is the reference for recall
_SLOW = {"hnsw": 2_000_000, "ivfpq": 2_000_000}  # rows above which they are left out
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
    """Build an index over z.npy with the default settings for its number of rows, in its folder."""
    z = np.load(folder / "z.npy", mmap_mode="r")
    set_threads(threads)
    start, cpu = time.perf_counter(), time.process_time()
    store(folder / kind, z, np.arange(len(z)), **BuildIndex().model_dump() | {"kind": kind, "build_threads": threads})
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    size = sum(path.stat().st_size for path in (folder / kind).rglob("*") if path.is_file())
    return {"build_s": seconds, "build_cpu_s": cpu, "build_peak_gib": memory("VmHWM") / _GIB, "disk_gib": size / _GIB}


def time_search(folder: Path, kind: str, threads: int, repeats: int, k: int, singles: int) -> dict[str, float]:
    """Open an index and search it for queries.npy; the similarities of the first kind are written to truth.npy."""
    set_threads(threads)
    before = memory("VmRSS")
    start = time.perf_counter()
    bank = open_bank(folder / kind)
    opened = {"open_ms": 1e3 * (time.perf_counter() - start), "open_mib": (memory("VmRSS") - before) / 2**20}
    queries = np.load(folder / "queries.npy")
    sims = bank.search(queries, k)[1]
    if kind == KINDS[0]:
        np.save(folder / "truth.npy", sims)
    cpu = time.process_time()
    batched = [milliseconds(partial(bank.search, queries, k)) / len(queries) for _ in range(repeats)]
    cpu = 1e3 * (time.process_time() - cpu) / repeats / len(queries)
    singles_ms = [milliseconds(partial(bank.search, query, k)) for query in queries[:singles, None]]
    return {
        **opened,
        "recall": recall(sims, np.load(folder / "truth.npy"), k),
        "batched_ms": float(np.median(batched)),
        "batched_cpu_ms": cpu,
        "single_p50_ms": float(np.quantile(singles_ms, 0.5)),
        "single_p99_ms": float(np.quantile(singles_ms, 0.99)),
        "search_peak_gib": memory("VmHWM") / _GIB,
    }


def measure(
    threads: int, repeats: int, rows: tuple[int, ...], dim: int, queries: int, k: int, singles: int
) -> list[dict[str, str | float]]:
    """A row per number of rows and index: the results of `time_build`, once, with all threads, and of `time_search`."""
    table: list[dict[str, str | float]] = []
    for n in rows:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            z = np.lib.format.open_memmap(folder / "z.npy", "w+", np.float32, (n, dim))
            start = 0
            for block, _ in clusters(n, dim, seed=0):
                z[start : start + len(block)] = block
                start += len(block)
            z.flush()
            del z
            np.save(folder / "queries.npy", next(clusters(queries, dim, seed=1))[0])
            for kind in KINDS:
                if n > _SLOW.get(kind, n):
                    continue
                row = in_process(time_build, folder, kind, threads)
                row |= in_process(time_search, folder, kind, threads, repeats, k, singles)
                table.append({"rows": n, "index": kind, **row})
                shutil.rmtree(folder / kind)
                print(json.dumps(table[-1]), flush=True)
    return table
