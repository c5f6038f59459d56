"""`fit` with estimated label noise beside `fit` of the labels as they are, of clean and of partly wrong labels."""

from functools import partial

import numpy as np

from attnknn import AttnKNNClassifier
from attnknn.experiments.profile import milliseconds
from benchmarks.comparison import Row, compare
from benchmarks.synthetic import CLASSES, clustered

SIZES = {"full": {"rows": 45_000, "dim": 256}, "quick": {"rows": 600, "dim": 8}}
RATES = (0.0, 0.3)
OURS, PEER = "label_noise='auto'", "label_noise=None"


def measure(threads: int, repeats: int, rows: int, dim: int) -> list[Row]:
    """Seconds of both for each share of wrong labels."""
    z, y = clustered(rows, dim)
    rng, table = np.random.default_rng(0), []
    for rate in RATES:
        wrong = rng.random(rows) < rate
        labels = np.where(wrong, (y + rng.integers(1, CLASSES, size=rows)) % CLASSES, y)

        measured: dict[str, list[float]] = {OURS: [], PEER: []}
        for _ in range(repeats):  # no warm-up: a fit takes minutes
            for name, noise in ((OURS, "auto"), (PEER, None)):
                model = AttnKNNClassifier(label_noise=noise, random_state=0)
                measured[name].append(milliseconds(partial(model.fit, z, labels)) / 1000)
        table += compare(f"fit {rows:,} × {dim}, {rate:.0%} of the labels wrong", "s", measured, OURS)
    return table
