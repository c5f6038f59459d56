"""FAISS indexes: kinds, sizes, and reproducible builds."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from attnknn.core.errors import InputError
from attnknn.index.bank import build
from attnknn.index.faiss_index import auto_kind, code_bytes, n_lists, n_probes, set_threads, similarities
from synthetic import nearest

N, D, K = 211, 7, 5
Z = np.random.default_rng(0).normal(size=(2000, D)).astype(np.float32)


def recall(ids: np.ndarray, exact: np.ndarray) -> float:
    return (ids[:, :, None] == exact[:, None]).any(2).mean()


def test_lists_and_probes_of_ivf() -> None:
    """39 rows a list: 211 rows make 5 lists, 38 rows one; of 5 lists of a hard memory, one is not enough."""
    z = Z[:N]
    for rows, settings, expected in ((N, {}, (5, 5)), (N, {"ivf_nlist": 3, "ivf_nprobe": 2}, (3, 2)), (38, {}, (1, 1))):
        index: Any = build(z[:rows], np.arange(rows), kind="ivf", **settings).index.faiss_index
        assert (index.nlist, index.nprobe) == expected
    for nprobe, least, most in ((1, 0, 0.95), (5, 1, 1)):
        ids, sims = build(z, np.arange(N), kind="ivf", ivf_nprobe=nprobe).search(z, K)
        assert ((ids == -1) == np.isneginf(sims)).all()
        assert least <= recall(ids, nearest(z, z, K)[0]) <= most


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq"])
def test_approximate_indexes_are_built_alike_under_any_thread_count(tmp_path: Path, kind: str) -> None:
    for threads in (1, 2):
        set_threads(threads)
        build(Z, np.arange(2000), kind=kind).save(tmp_path / str(threads))
        assert faiss.omp_get_max_threads() == threads
    assert (tmp_path / "1/index.faiss").read_bytes() == (tmp_path / "2/index.faiss").read_bytes()


def test_sizes_by_the_number_of_rows() -> None:
    """4·√N lists, as far as each has 39 rows; 64 or a 32nd are read; 16 bytes, or parts of at most eight dimensions."""
    assert [n_lists(n) for n in (1, 78, 1521, 10_000, 1_000_000)] == [1, 2, 39, 256, 4000]
    assert [n_lists(n, 100) for n in (78, 10_000)] == [2, 100]
    assert [n_probes(lists) for lists in (1, 256, 4000)] == [1, 64, 125]
    assert [n_probes(256, n) for n in (1, 300)] == [1, 256]
    assert [code_bytes(d) for d in (1, 7, 30, 64, 130, 256)] == [1, 7, 30, 16, 26, 32]
    assert code_bytes(30, 6) == 6
    with pytest.raises(InputError, match="pq_bytes: 4 does not divide 30 dimensions"):
        code_bytes(30, 4)


def test_auto_is_exact_then_a_graph_then_codes() -> None:
    """Of 256 dimensions and 32 links a row, 2·1024 + 4·66 = 2312 bytes, and 2^32/2312 is 1,857,684.8 rows."""
    assert [auto_kind(n, 256, 32) for n in (1, 100_000, 100_001)] == ["flat", "flat", "hnsw"]
    assert [auto_kind(n, 256, 32) for n in (1_857_684, 1_857_685)] == ["hnsw", "ivfpq"]
    index = build(np.zeros((3, D), np.float32), np.arange(3), kind="auto").index
    assert index.kind == "flat"


def test_codes_are_of_as_many_centres_as_the_rows_can_train() -> None:
    """211 rows make 39 · 2^2 ≤ 211 < 39 · 2^3: two bits a part; seven parts of one dimension take 14 bits, 2 bytes."""
    z = Z[:N]
    index: Any = build(z, np.arange(N), kind="ivfpq").index.faiss_index
    assert (index.pq.nbits, index.pq.M, index.code_size) == (2, 7, 2)
    few: Any = build(z[:3], np.arange(3), kind="ivfpq").index.faiss_index
    assert (few.pq.nbits, few.ntotal) == (1, 3)


def test_recall_of_refined_codes_and_of_a_graph_built_by_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnknn.index.bank._SPARE", 1)
    q = np.random.default_rng(1).normal(size=(50, D)).astype(np.float32)
    exact = build(Z, np.arange(2000)).search(q, K)[0]
    codes = {"kind": "ivfpq", "ivf_nprobe": 300, "pq_bytes": 1}
    banks = [build(Z, np.arange(2000), **codes, pq_refine=refine) for refine in (1, 400)]
    coarse, refined = (recall(bank.search(q, K)[0], exact) for bank in banks)
    assert coarse < 0.5
    assert refined == 1
    graph = build(Z, np.arange(2000), kind="hnsw", build_threads=2)
    assert recall(graph.search(q, K)[0], exact) > 0.99


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_similarities_by_hand(metric: str) -> None:
    """Of rows in any memory order, the same bits under any number of threads, 0 for equal vectors far from 0."""
    rng = np.random.default_rng(0)
    z, candidates = 100 + rng.normal(size=(41, 19)).astype(np.float32), rng.integers(41, size=(300, 7))
    other = 100 + rng.normal(size=(260, 19)).astype(np.float32)
    queries = np.asfortranarray(np.concatenate([z[candidates[:40, 0]], other]))
    sims = similarities(queries, z, candidates, metric)
    assert sims.dtype == np.float32
    q, keys = queries[:, None].astype(float), z[candidates].astype(float)
    expected = -((q - keys) ** 2).sum(2) if metric == "l2" else (q * keys).sum(2)
    np.testing.assert_allclose(sims, expected, rtol=1e-5)
    if metric == "l2":
        assert not sims[:40, 0].any()
    before = faiss.omp_get_max_threads()
    try:
        for threads in (1, 2, 3):
            set_threads(threads)
            np.testing.assert_array_equal(similarities(queries, z, candidates.astype(np.int32), metric), sims)
    finally:
        set_threads(before)
