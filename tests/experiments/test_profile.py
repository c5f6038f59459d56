"""Time and recall of indexes and heads on a dataset."""

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from attnknn.core.artifacts import BANK, TEST, Embeddings
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments import profile
from attnknn.experiments.profile import accuracy_lost, machine, profile_heads, profile_indexes, recall, rounds
from attnknn.heads.baselines import Distance, Uniform
from attnknn.index.bank import Bank
from synthetic import SCORING, blobs, embedded, retrieved

HNSW = {"hnsw_m": 8, "ef_construction": 40, "ef_search": 100}
IVF = {"ivf_nlist": 16, "ivf_nprobe": 16}
HEADS = {"uniform": Uniform(5, 0.01), "distance": Distance(12, 0.3, 0.01)}


def data(n: int = 600, noise: float = 1.0) -> Embeddings:
    return embedded(blobs(n, noise=noise))


def row_of(table: Table, name: str, quantity: str) -> dict[str, float]:
    rows = [r for r in table if name in (r.get("index"), r.get("head")) and r["quantity"] == quantity]
    assert len(rows) == 1, (name, quantity)
    return rows[0]


def test_fault_14_queries_are_the_test_rows_and_memory_the_bank_rows() -> None:
    e, searched = data(), Counter()
    with (
        mock.patch.object(profile, "build", side_effect=profile.build) as build,
        mock.patch.object(Bank, "search", autospec=True, side_effect=Bank.search) as search,
    ):
        profile_indexes(e, 12, "l2", HNSW, IVF, repeats=2, singles=7, seed=0)
    for call in build.call_args_list:
        np.testing.assert_array_equal(call.args[0], e.z[e.rows(BANK)])
        np.testing.assert_array_equal(call.args[1], e.rows(BANK))
    for call in search.call_args_list:
        queries, test = call.args[1], e.z[e.rows(TEST)]
        assert (queries[:, None] == test).all(2).any(1).all()
        if len(queries) > 1:
            np.testing.assert_array_equal(queries, test)
        searched[len(queries)] += 1
    assert [call.kwargs["kind"] for call in build.call_args_list] == ["flat", "flat", "hnsw", "ivf"]
    assert searched == {100: 4 * (1 + 2), 1: 4 * 7 * (1 + 2)}, "each index once to warm up, and twice"


def test_rounds_warm_up_and_take_turns_and_speed_is_relative_to_the_fastest_exact_index_of_the_same() -> None:
    called: list[str] = []
    results = rounds({name: lambda name=name: called.append(name) or len(called) for name in "abc"}, 3)
    assert "".join(called) == "abcbcacababc", "none is always first"
    assert results == {"a": [6, 8, 10], "b": [4, 9, 11], "c": [5, 7, 12]}
    # Medians of a, b: 4, 3; so b's rounds are divided by each other's, not by its median.
    ms = {"a": [4.0, 4.0, 1.0], "b": [3.0, 2.0, 6.0], "c": [1.0, 2.0, 1.5]}
    speedups = profile._speedups(ms, ["a", "b"])
    rows = {row["quantity"]: row for row in profile._rows({"index": "any"}, speedups)}
    expected = {"a": (0.5, 0.75, 6.0), "b": (1.0, 1.0, 1.0), "c": (1.0, 3.0, 4.0)}
    assert {name: (r["low"], r["value"], r["high"]) for name, r in rows.items()} == expected


def test_recall_by_hand_with_ties_and_missing_ones() -> None:
    """A tie with the k-th counts, farther and missing neighbours do not."""
    exact = np.array([[-1.0, -2.0, -2.0], [-1.0, -2.0, -3.0]])
    sims = np.array([[-2.0, -2.0, -5.0], [-1.0, -3.0, -np.inf]])
    assert recall(exact, exact, 2) == 1
    assert recall(sims, exact, 2) == 3 / 4
    assert recall(sims, exact, 3) == 4 / 6


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_exact_search_recalls_everything_and_costs_are_positive(metric: str) -> None:
    table, neighbours = profile_indexes(data(), 12, metric, HNSW, IVF, repeats=2, singles=5, seed=0)
    for index in ("flat_l2", "flat_ip"):
        assert row_of(table, index, "recall_at_10")["value"] == row_of(table, index, "recall_at_k")["value"] == 1
        assert row_of(table, index, "exact")["value"] == 1
    for index, one in neighbours.items():
        assert one.metric == metric
        np.testing.assert_array_equal(one.rows, data().rows(TEST))
        for quantity in ("build_s", "memory_mib", "batched_ms", "index_ms", "single_p50_ms", "single_p99_ms"):
            row = row_of(table, index, quantity)
            assert 0 < row["low"] <= row["value"] <= row["high"]
        assert row_of(table, index, "index_ms")["value"] < row_of(table, index, "batched_ms")["value"]
    assert row_of(table, "ivf", "nlist")["value"] == 300 // 39


def test_neighbours_are_sorted_by_the_similarity_of_the_heads_and_few_cells_lower_recall() -> None:
    e = data()
    # Of different norms: inner product has other neighbours than L2, and lower recall.
    e = replace(e, z=e.z * np.random.default_rng(0).uniform(0.5, 3, size=(len(e.z), 1)).astype(np.float32))
    table, neighbours = profile_indexes(e, 12, "l2", HNSW, IVF, repeats=1, singles=2, seed=0)
    assert row_of(table, "flat_l2", "recall_at_k")["value"] == 1
    assert row_of(table, "flat_ip", "recall_at_k")["value"] < 0.9
    assert [row_of(table, index, "exact")["value"] for index in ("flat_l2", "flat_ip")] == [1, 0]
    assert row_of(table, "flat_l2", "batched_speedup")["low"] == row_of(table, "flat_l2", "single_speedup")["high"] == 1
    ids, sims = neighbours["flat_ip"].ids, neighbours["flat_ip"].sims
    np.testing.assert_allclose(sims, -((e.z[e.rows(TEST)][:, None] - e.z[ids]) ** 2).sum(2), rtol=1e-4)
    assert (np.diff(sims) <= 0).all()
    e = data(1200, noise=30.0)
    hnsw, ivf = {"hnsw_m": 2, "ef_construction": 2, "ef_search": 1}, {"ivf_nlist": 16, "ivf_nprobe": 1}
    table, neighbours = profile_indexes(e, 12, "l2", hnsw, ivf, repeats=1, singles=2, seed=0)
    assert all(row_of(table, index, "recall_at_10")["value"] < 0.9 for index in ("hnsw", "ivf"))
    rows = accuracy_lost(retrieved(e), neighbours, HEADS, 12, SCORING, seed=0)
    assert any(r["difference"] != 0 for r in rows if r["index"] == "ivf")


def test_accuracy_lost_is_zero_with_true_neighbours_and_negative_with_random_ones() -> None:
    space, e = retrieved(data(1200)), data(1200)
    true = profile_indexes(e, 12, "l2", HNSW, IVF, repeats=1, singles=1, seed=0)[1]["flat_l2"]
    wrong = replace(true, ids=np.random.default_rng(0).choice(e.rows(BANK), true.ids.shape).astype(np.int32))
    rows = accuracy_lost(space, {"flat_l2": true, "hnsw": true, "ivf": wrong}, HEADS, 12, SCORING, seed=0)
    assert {(r["index"], r["method"]) for r in rows} == {(i, m) for i in ("hnsw", "ivf") for m in HEADS}
    for r in rows:
        if r["index"] == "hnsw":
            assert (r["difference"], r["low"], r["high"], r["p"]) == (0, 0, 0, 1)
        elif r["metric"] == "accuracy":
            assert r["test"] == "McNemar"
            assert r["high"] < -0.1
            assert r["p"] < 1e-6


def test_heads_are_timed_on_the_test_rows_round_by_round() -> None:
    space = retrieved(data(240))
    with mock.patch.object(profile, "classify", side_effect=profile.classify) as classify:
        table = profile_heads(space, HEADS, 12, repeats=2, singles=3, seed=0)
    assert all(np.isin(call.args[2], space.embeddings.rows(TEST)).all() for call in classify.call_args_list)
    calls = Counter((type(call.args[0]).__name__, len(call.args[2])) for call in classify.call_args_list)
    assert calls == {(name, n): times * 3 for name in ("Uniform", "Distance") for n, times in ((40, 1), (1, 3))}
    expected = {"head": "distance", "quantity": "over_distance_ms", "value": 0, "low": 0, "high": 0}
    assert row_of(table, "distance", "over_distance_ms") == expected
    assert row_of(table, "uniform", "single_p99_ms")["low"] > 0


def test_the_machine_is_described() -> None:
    about = machine()
    assert set(about) == {"processor", "cores", "load", "system", "python", "faiss", "numpy", "torch"}
    assert all(about.values())
    assert about["numpy"] == np.__version__
