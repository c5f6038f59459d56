"""Re-ranking against loops."""

import numpy as np
import pytest

from attnknn.index.rerank import rerank

N, B, D, K = 41, 13, 5, 7


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("ordered", [0, 5, B])
def test_reranked_by_loops(metric: str, ordered: int) -> None:
    """Values of few sizes, so that ties abound; candidates in any order, or some rows in order; −1; two exclusions."""
    rng = np.random.default_rng(0)
    vectors, queries = (rng.integers(-1, 2, (n, D)).astype(np.float32) for n in (N, B))
    ids = rng.permutation(100)[:N]
    candidates = np.stack([rng.permutation(N)[:K] for _ in range(B)])
    candidates[rng.random(candidates.shape) < 0.2] = -1
    exclude = np.stack([ids[candidates[:, 0]], np.full(B, -1)], axis=1)
    expected = []
    for b in range(B):
        pairs = []
        for i in candidates[b]:
            if i >= 0 and ids[i] not in exclude[b]:
                value = queries[b] @ vectors[i] if metric == "ip" else -((queries[b] - vectors[i]) ** 2).sum()
                pairs.append((-value, ids[i], i))
        pairs = sorted(pairs) + [(np.inf, -1, -1)] * (K - len(pairs))
        expected.append([(i, -value) for value, i, _ in pairs])
        if b < ordered:
            candidates[b] = [i for *_, i in pairs]
    result, sims = rerank(queries, vectors, ids, candidates, exclude, metric)
    assert (result == -1).any()
    assert [list(zip(*row, strict=True)) for row in zip(result, sims, strict=True)] == expected
