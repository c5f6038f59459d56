"""The votes: from stored neighbours to class probabilities, ours beside numpy's `np.add.at`, the historic way.

Both weigh by distance and give the class shares the same prior mass; how far their answers lie apart is noted.
"""

from functools import partial

import numpy as np
import torch

from attnknn.core.artifacts import TEST
from attnknn.heads.attention import Distance
from attnknn.heads.classify import classify
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.votes import distance_weights, vote
from benchmarks.compared import Row, compared, in_rounds, one_by_one
from benchmarks.made_up import retrieved

SIZES = {
    "full": {"rows": 45_000, "dim": 256, "queries": 10_000, "ks": (16, 50), "singles": 200},
    "quick": {"rows": 500, "dim": 16, "queries": 100, "ks": (5,), "singles": 3},
}
TEMPERATURE, PRIOR = 0.1, 0.01
OURS, PEER = "ours", "numpy, np.add.at"


def added(sims: np.ndarray, labels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Probabilities (B, C) of distance-weighted votes, without a loop: w = softmax(sim/τ), added up label by label."""
    weights = np.exp((sims - sims.max(1, keepdims=True)) / TEMPERATURE)  # (B, K)
    weights /= weights.sum(1, keepdims=True)
    votes = np.zeros((len(sims), len(shares)), dtype=sims.dtype)
    np.add.at(votes, (np.arange(len(sims))[:, None], labels), weights)
    return (1 - PRIOR) * votes + PRIOR * shares


def by_numpy(data: EmbeddingSpace, rows: np.ndarray, k: int) -> np.ndarray:
    """What `classify` does with the head `distance`, by numpy: the labels of the stored neighbours, and their votes."""
    ids, sims = data.neighbours.take(rows, k)
    return added(sims, data.embeddings.y[ids], data.shares.numpy())


def measure(
    threads: int, repeats: int, rows: int, dim: int, queries: int, ks: tuple[int, ...], singles: int
) -> list[Row]:
    """The whole path from stored neighbours, and the votes alone with labels at hand, at each k."""
    data, table = retrieved(rows, queries, dim, max(ks), (5,)), []
    asked = data.embeddings.rows(TEST)
    for k in ks:
        paths = {OURS: partial(classify, Distance(k, TEMPERATURE, PRIOR), data), PEER: partial(by_numpy, data)}
        apart = float(np.abs(paths[OURS](asked, k) - paths[PEER](asked, k)).max())
        notes = {PEER: f"answers at most {apart:.0e} apart"}
        taken = in_rounds({name: partial(path, asked, k) for name, path in paths.items()}, repeats)
        what = f"neighbours to probabilities, {queries:,} queries, k {k}"
        table += compared(what, "ms", taken, OURS, notes=notes)
        one = {name: lambda row, path=path, k=k: path(row, k) for name, path in paths.items()}
        for quantile, of in one_by_one(one, asked[:singles, None], repeats).items():
            table += compared(f"neighbours to probabilities, a single query, {quantile}, k {k}", "ms", of, OURS)
        n = data.around(asked, k)
        sims, labels, shares = (t.numpy() for t in (n.sims, n.labels, n.shares))

        def ours(n=n, k=k) -> torch.Tensor:
            return vote(*distance_weights(n.sims, k, TEMPERATURE, PRIOR), n.labels, n.shares)

        taken = in_rounds({OURS: ours, PEER: partial(added, sims, labels, shares)}, repeats)
        table += compared(f"the votes alone, {queries:,} queries, k {k}", "ms", taken, OURS)
    return table
