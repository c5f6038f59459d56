"""Candidates in order, against loops."""

import numpy as np
import pytest

from attnknn.index.rerank import settle

N, B, D, K = 41, 13, 5, 7


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_settled_by_loops(metric: str) -> None:
    """Values of few sizes, so that ties abound; candidates in any order, some none; two ids excluded."""
    rng = np.random.default_rng(0)
    z, q = (rng.integers(-1, 2, (n, D)).astype(np.float32) for n in (N, B))
    ids = rng.permutation(100)[:N]
    at = np.stack([rng.permutation(N)[:K] for _ in range(B)])
    at[rng.random(at.shape) < 0.2] = -1
    exclude = np.stack([ids[at[:, 0]], np.full(B, -1)], axis=1)
    found, sims = settle(q, z, ids, at, exclude, metric)
    assert (found == -1).any()
    for b in range(B):
        pairs = []
        for i in at[b]:
            if i >= 0 and ids[i] not in exclude[b]:
                value = q[b] @ z[i] if metric == "ip" else -((q[b] - z[i]) ** 2).sum()
                pairs.append((-value, ids[i]))
        expected = [(i, -value) for value, i in sorted(pairs)] + [(-1, -np.inf)] * (K - len(pairs))
        assert list(zip(found[b], sims[b], strict=True)) == expected
