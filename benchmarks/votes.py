"""Votes: from stored neighbours to class probabilities, compared with numpy's `np.add.at`.

Both weigh by distance and give the class shares the same prior mass; the largest difference of the probabilities is
noted.
"""

from functools import partial

import numpy as np
import torch

from attnknn.core.artifacts import TEST
from attnknn.heads.baselines import Distance
from attnknn.heads.classify import classify
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.votes import distance_weights, vote
from benchmarks.comparison import Row, compare, time_rounds, time_singles
from benchmarks.synthetic import random_space

SIZES = {
    "full": {"rows": 45_000, "dim": 256, "queries": 10_000, "ks": (16, 50), "singles": 200},
    "quick": {"rows": 500, "dim": 16, "queries": 100, "ks": (5,), "singles": 3},
}
TEMPERATURE, PRIOR = 0.1, 0.01
OURS, PEER = "ours", "numpy, np.add.at"


def numpy_votes(sims: np.ndarray, labels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Probabilities (B, C) of distance-weighted votes, w = softmax(sim/τ), without a loop."""
    weights = np.exp((sims - sims.max(1, keepdims=True)) / TEMPERATURE)  # (B, K)
    weights /= weights.sum(1, keepdims=True)
    votes = np.zeros((len(sims), len(shares)), dtype=sims.dtype)
    np.add.at(votes, (np.arange(len(sims))[:, None], labels), weights)
    return (1 - PRIOR) * votes + PRIOR * shares


def classify_numpy(data: EmbeddingSpace, rows: np.ndarray, k: int) -> np.ndarray:
    """`classify` with the head `distance`, in numpy."""
    ids, sims = data.neighbours.take(rows, k)
    return numpy_votes(sims, data.embeddings.y[ids], data.shares.numpy())


def measure(
    threads: int, repeats: int, rows: int, dim: int, queries: int, ks: tuple[int, ...], singles: int
) -> list[Row]:
    """The whole path from stored neighbours, and the votes alone, at each k."""
    data, table = random_space(rows, queries, dim, max(ks), (5,)), []
    test = data.embeddings.rows(TEST)
    for k in ks:
        paths = {
            OURS: lambda ids, k=k: classify(Distance(k, TEMPERATURE, PRIOR), data, ids, k),
            PEER: lambda ids, k=k: classify_numpy(data, ids, k),
        }
        difference = float(np.abs(paths[OURS](test) - paths[PEER](test)).max())
        notes = {PEER: f"probabilities differ by at most {difference:.0e}"}
        times = time_rounds({name: partial(path, test) for name, path in paths.items()}, repeats)
        what = "neighbours to probabilities"
        table += compare(f"{what}, {queries:,} queries, k {k}", "ms", times, OURS, notes=notes)
        for quantile, values in time_singles(paths, test[:singles, None], repeats).items():
            table += compare(f"{what}, a single query, {quantile}, k {k}", "ms", values, OURS)
        batch = data.around(test, k)

        def ours(batch=batch, k=k) -> torch.Tensor:
            return vote(*distance_weights(batch.sims, k, TEMPERATURE, PRIOR), batch.labels, batch.shares)

        arrays = (t.numpy() for t in (batch.sims, batch.labels, batch.shares))
        times = time_rounds({OURS: ours, PEER: partial(numpy_votes, *arrays)}, repeats)
        table += compare(f"the votes alone, {queries:,} queries, k {k}", "ms", times, OURS)
    return table
