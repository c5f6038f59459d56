"""The classifier with its rows in a Lance table, compared with rows in memory over a FAISS index: `storage`.

Each fit runs in its own process, so that memory is its own; peaks are those of whole processes, with the interpreter.
Rows are unit vectors in 2,000 clusters of two of 100 classes each, and 10 % of the labels are wrong, also in the test
rows: no classifier can be right more often than .9. Both fit the head on the same 10,000 held-out rows. `predict_ms` is
of a row, where all test rows are given at once; `single_ms` the median where one is. Disk is the table.
"""

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from attnknn import AttnKNNClassifier
from attnknn.evaluation.metrics import scores
from attnknn.experiments.profile import milliseconds
from attnknn.index.faiss_index import set_threads
from benchmarks.large_bank import in_process, memory
from benchmarks.synthetic import clusters

SIZES = {
    "full": {"fits": (("table", 1_000_000, 0), ("memory", 1_000_000, 0), ("table", 1_000_000, 1),
                      ("memory", 1_000_000, 1), ("table", 10_000_000, 0)), "dim": 128,
             "queries": 10_000, "singles": 100},
    "quick": {"fits": (("table", 2_000, 0), ("memory", 2_000, 0)), "dim": 16, "queries": 100, "singles": 3},
}  # fmt: skip


def fit(
    folder: Path, kind: str, rows: int, seed: int, threads: int, dim: int, queries: int, singles: int
) -> dict[str, Any]:
    """Fit on rows of `clusters`, predict other rows of it."""
    set_threads(threads)
    z, y = next(clusters(2 * queries, dim, seed + 1000))
    held_out, test, truth = (z[:queries], y[:queries]), z[queries:], y[queries:]
    options: dict[str, Any] = {"n_neighbors": 50, "random_state": seed, "n_jobs": threads}
    start = time.perf_counter()
    if kind == "table":
        model = AttnKNNClassifier(storage=str(folder / "rows.lance"), **options)
        model.fit(clusters(rows, dim, seed), None, held_out=held_out)
    else:
        blocks = list(clusters(rows, dim, seed))
        X, labels = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        del blocks
        model = AttnKNNClassifier(**options).fit(X, labels, held_out=held_out)
    seconds, fit_peak = time.perf_counter() - start, memory("VmHWM")
    model.predict_proba(test[:100])
    start = time.perf_counter()
    p = model.predict_proba(test)
    predicting = 1e3 * (time.perf_counter() - start) / len(test)
    single = [milliseconds(lambda row=row: model.predict_proba(row)) for row in test[:singles, None]]
    result = scores(p, np.searchsorted(model.classes_, truth))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "fit_s": seconds, "fit_peak_gib": fit_peak / 2**30, "predict_ms": predicting,
        "single_ms": float(np.median(single)),
        "peak_gib": memory("VmHWM") / 2**30, "disk_gib": size / 2**30,
        **{name: f"{result[name]:.4f}" for name in ("accuracy", "nll", "ece")},
    }  # fmt: skip


def measure(
    threads: int, repeats: int, fits: tuple[tuple[str, int, int], ...], dim: int, queries: int, singles: int
) -> list[dict[str, str | float]]:
    """A row per fit: `rows in`, `rows`, `seed`, and the results of `fit`."""
    table: list[dict[str, str | float]] = []
    for kind, rows, seed in fits:
        folder = Path(tempfile.mkdtemp())
        try:
            result = in_process(fit, folder, kind, rows, seed, threads, dim, queries, singles)
        finally:
            shutil.rmtree(folder)
        table.append({"rows in": kind, "rows": rows, "seed": seed, **result})
        print(json.dumps(table[-1]), flush=True)
    return table
