"""Adding and forgetting rows of a classifier's memory, compared with building the memory again.

Predictions of both are compared on queries outside the memory. The neighbour statistics of memory rows (label
agreement among their own neighbours) are updated with each change.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, cast

import numpy as np

from attnknn import AttnKNNClassifier
from attnknn.classifier.memory import Memory
from attnknn.experiments.profile import milliseconds
from benchmarks.comparison import Row, compare
from benchmarks.synthetic import clustered

SIZES = {
    "full": {"rows": 50_000, "dim": 256, "changed": 500, "queries": 2000},
    "quick": {"rows": 400, "dim": 8, "changed": 20, "queries": 50},
}
OURS, PEER = "add or forget", "the memory built anew"


def measure(threads: int, repeats: int, rows: int, dim: int, changed: int, queries: int) -> list[Row]:
    """Milliseconds to add and to forget `changed` rows, and the largest difference of the predictions."""
    z, y = clustered(rows + repeats * changed + queries, dim)
    query = z[-queries:]
    model = AttnKNNClassifier(max_iter=5, random_state=0).fit(z[:rows], y[:rows])
    times: dict[str, dict[str, list[float]]] = {what: {OURS: [], PEER: []} for what in ("add", "forget")}
    difference = 0.0
    for i in range(repeats):
        new = np.arange(rows + i * changed, rows + (i + 1) * changed)
        steps: dict[str, Callable[[], Any]] = {
            "add": partial(model.partial_fit, z[new], y[new]),
            "forget": partial(model.forget, np.arange(i * changed, (i + 1) * changed)),
        }
        for what, step in steps.items():
            times[what][OURS].append(milliseconds(step))
            updated, probs = cast(Memory, model.memory_), model.predict_proba(query)
            inputs = updated.vectors(), updated.y, updated.weight, len(model.classes_)
            start = perf_counter()
            model.memory_ = Memory.build(*inputs)
            times[what][PEER].append(1000 * (perf_counter() - start))
            difference = max(difference, float(np.abs(model.predict_proba(query) - probs).max()))
            model.memory_ = updated
    notes = {PEER: f"probabilities of {queries:,} queries differ by at most {difference:.0e}, over all rounds"}
    table: list[Row] = []
    for what, measured in times.items():
        table += compare(f"{what} {changed:,} of {rows:,} × {dim} rows", "ms", measured, OURS, notes=notes)
    return table
