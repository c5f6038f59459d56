"""Re-ranking against loops, and against a sort of every row."""

import numpy as np
import pytest

from attnknn.index.faiss_index import similarities
from attnknn.index.rerank import rerank

N, B, D, K = 41, 13, 5, 7


@pytest.fixture
def case() -> tuple[np.ndarray, ...]:
    """Values of few sizes, so that ties abound; candidates in any order, some −1; two ids excluded."""
    rng = np.random.default_rng(0)
    vectors, queries = (rng.integers(-1, 2, (n, D)).astype(np.float32) for n in (N, B))
    ids = rng.permutation(100)[:N]
    candidates = np.stack([rng.permutation(N)[:K] for _ in range(B)])
    candidates[rng.random(candidates.shape) < 0.2] = -1
    exclude = np.stack([ids[candidates[:, 0]], np.full(B, -1)], axis=1)
    return queries, vectors, ids, candidates, exclude


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_reranked_by_loops(case: tuple[np.ndarray, ...], metric: str) -> None:
    queries, vectors, ids, candidates, exclude = case
    result, sims = rerank(*case, metric)
    assert (result == -1).any()
    for b in range(B):
        pairs = []
        for i in candidates[b]:
            if i >= 0 and ids[i] not in exclude[b]:
                value = queries[b] @ vectors[i] if metric == "ip" else -((queries[b] - vectors[i]) ** 2).sum()
                pairs.append((-value, ids[i]))
        expected = [(i, -value) for value, i in sorted(pairs)] + [(-1, -np.inf)] * (K - len(pairs))
        assert list(zip(result[b], sims[b], strict=True)) == expected


@pytest.mark.parametrize("ordered", [0, 5, B])
def test_rows_in_order_are_as_if_sorted(case: tuple[np.ndarray, ...], ordered: int) -> None:
    queries, vectors, ids, candidates, exclude = case
    sims = similarities(queries, vectors, candidates, "l2")
    labels = np.where(candidates < 0, -1, ids[candidates])
    sims[labels < 0] = -np.inf
    order = np.lexsort((labels, -sims), axis=-1)
    expected = np.take_along_axis(labels, order, 1), np.take_along_axis(sims, order, 1)
    candidates = np.concatenate([np.take_along_axis(candidates, order, 1)[:ordered], candidates[ordered:]])
    for result, right in zip(rerank(queries, vectors, ids, candidates, exclude[:, 1:], "l2"), expected, strict=True):
        np.testing.assert_array_equal(result, right)
