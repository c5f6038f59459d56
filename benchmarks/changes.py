"""Rows that come and go: added to a classifier's memory and forgotten, beside a memory built anew with those rows.

The answers of both are compared on queries that neither holds. What is told of each memory row, how far its own
neighbours agree with its label, changes with it, so a row that comes or goes changes what is known of its neighbours.
"""

from functools import partial
from time import perf_counter

import numpy as np

from attnknn import AttnKNNClassifier
from attnknn.classifier.memory import Memory
from benchmarks.compared import Row, compared
from benchmarks.made_up import clustered

SIZES = {
    "full": {"rows": 50_000, "dim": 256, "changed": 500, "queries": 2000},
    "quick": {"rows": 400, "dim": 8, "changed": 20, "queries": 50},
}
OURS, PEER = "add or forget", "the memory built anew"


def _ms(call: partial) -> float:
    start = perf_counter()
    call()
    return 1000 * (perf_counter() - start)


def measure(threads: int, repeats: int, rows: int, dim: int, changed: int, queries: int) -> list[Row]:
    """Milliseconds to add so many rows and to forget so many others, and how far answers lie apart."""
    z, y = clustered(rows + repeats * changed + queries, dim)
    asked = z[-queries:]
    model = AttnKNNClassifier(max_iter=5, random_state=0).fit(z[:rows], y[:rows])
    taken: dict[str, dict[str, list[float]]] = {what: {OURS: [], PEER: []} for what in ("add", "forget")}
    apart = 0.0
    for turn in range(repeats):
        new = np.arange(rows + turn * changed, rows + (turn + 1) * changed)
        steps = {
            "add": partial(model.partial_fit, z[new], y[new]),
            "forget": partial(model.forget, np.arange(turn * changed, (turn + 1) * changed)),
        }
        for what, step in steps.items():
            taken[what][OURS].append(_ms(step))
            changing, answers = model.memory_, model.predict_proba(asked)
            given = changing.vectors(), changing.y, changing.weight, len(model.classes_)
            start = perf_counter()
            model.memory_ = Memory.build(*given)
            taken[what][PEER].append(1000 * (perf_counter() - start))
            apart = max(apart, float(np.abs(model.predict_proba(asked) - answers).max()))
            model.memory_ = changing
    notes = {PEER: f"answers to {queries:,} queries at most {apart:.0e} apart, over all rounds"}
    table: list[Row] = []
    for what, of in taken.items():
        table += compared(f"{what} {changed:,} of {rows:,} × {dim} rows", "ms", of, OURS, notes=notes)
    return table
