"""A larger bank for test rows: search and predictions."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from attnknn.core.artifacts import BANK, FIT, TEST, VAL
from attnknn.evaluation.evaluate import compare
from attnknn.neighbours.search import retrieve, with_larger_bank
from synthetic import blobs, embedded

K = 12
GRIDS = {"ks": [1, 5, K], "temperatures": [0.1, 1.0], "priors": [0.01, 0.1], "ridges": [0.1]}
GRIDS |= {"calibrations": ("vector",)}


@pytest.fixture(scope="module")
def spaces():
    e = embedded(blobs(noise=1.5))
    return retrieve(e, K, [5]), with_larger_bank(e, K, [5])


@pytest.fixture(scope="module")
def results(spaces):
    bank, more = spaces
    return {name: compare([bank], {}, K, **GRIDS, memory=memory) for name, memory in (("grown", more), ("bank", None))}


def test_all_rows_but_the_test_rows_are_in_it(spaces):
    bank, more = spaces
    e, rows = bank.embeddings, bank.embeddings.rows(TEST)
    ids, known = more.neighbours.take(rows, K)[0], np.flatnonzero(e.part != TEST)
    oracle = known[NearestNeighbors(n_neighbors=K).fit(e.z[known]).kneighbors(e.z[rows])[1]]
    assert (ids == oracle).mean() > 0.99
    assert {BANK, FIT, VAL} == set(e.part[ids].ravel().tolist())
    assert (bank.embeddings.part[bank.neighbours.take(rows, K)[0]] == BANK).all()
    assert (more.statistics.agreement[e.part == FIT] > 0).any()


def test_it_answers_test_rows_and_tunes_nothing(spaces, results):
    (bank, more), (result, alone) = spaces, results.values()
    assert result.tuned == alone.tuned
    np.testing.assert_array_equal(result.val.probs, alone.val.probs)
    place = result.test.methods.index("linear")
    np.testing.assert_array_equal(result.test.probs[place], alone.test.probs[place])
    assert not np.array_equal(result.test.probs[0], alone.test.probs[0])
    k, prior = (result.tuned["uniform"][name] for name in ("k", "prior"))
    e = bank.embeddings
    votes = np.eye(3)[e.y[more.neighbours.take(e.rows(TEST), K)[0][:, :k]]].mean(1)
    shares = np.bincount(e.y[e.part != TEST]) / (e.part != TEST).sum()
    np.testing.assert_allclose(result.test.probs[0], (1 - prior) * votes + prior * shares, atol=1e-5)
