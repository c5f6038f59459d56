"""Search against torch.cdist: exactness, order, exclusion by id, ties, storage, and refused input."""

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from attnknn.core.artifacts import BANK, TEST
from attnknn.core.errors import InputError
from attnknn.index import bank as bank_module
from attnknn.index import faiss_index
from attnknn.index.bank import Bank, build
from attnknn.index.faiss_index import _gpu_searcher
from attnknn.index.rerank import rerank
from attnknn.neighbours.search import memory, search
from synthetic import blobs, embedded, nearest

N, B, D, K = 211, 23, 7, 5
KINDS = ("flat", "hnsw", "ivf", "ivfpq")
RNG = np.random.default_rng(0)
Z, Q = (RNG.normal(size=(n, D)).astype(np.float32) for n in (N, B))
ROWS = np.arange(N)
DATA = embedded(blobs(120))


@pytest.mark.parametrize(("kind", "metric"), [*((kind, "l2") for kind in KINDS), ("flat", "ip")])
def test_all_similarities_are_sorted_and_ids_are_those_of_the_rows(kind: str, metric: str) -> None:
    row_ids = np.random.default_rng(1).permutation(10_000)[:N]
    bank = build(Z, row_ids, kind=kind, metric=metric)
    ids, sims = bank.search(Q, K)
    expected = Q @ Z.T if metric == "ip" else -cdist(Q, Z, "sqeuclidean")
    np.testing.assert_array_equal(ids, row_ids[np.argsort(-expected, axis=1)[:, :K]])
    np.testing.assert_allclose(sims, -np.sort(-expected, axis=1)[:, :K], rtol=1e-5)
    assert (ids.dtype, sims.dtype) == (np.int32, np.float32)
    for exclude in (None, np.empty(0, int), np.empty((0, 2), int)):  # no queries
        ids, sims = bank.search(Q[:0], K, exclude)
        assert ids.shape == sims.shape == (0, K)


def test_all_searches_agree_to_the_bit() -> None:
    expected, *others = (build(Z, ROWS, kind=kind).search(Q, K) for kind in KINDS)
    candidates = _gpu_searcher(Z, "l2", "cpu")(Q, K + 1)
    ids, sims = rerank(Q, Z, ROWS, candidates, np.empty((B, 0)), "l2")
    for result in (*others, (ids[:, :K], sims[:, :K])):
        np.testing.assert_array_equal(result, expected)


def test_several_ids_can_be_excluded_and_all_rows_searched_for() -> None:
    expected, _ = nearest(Z, Q, K + 2)
    np.testing.assert_array_equal(build(Z, ROWS).search(Q, K, exclude=expected[:, :2])[0], expected[:, 2:])
    np.testing.assert_array_equal(np.sort(build(Z, ROWS).search(Q, N)[0]), ROWS[None].repeat(B, axis=0))
    ids, _ = build(Z[:10], np.arange(10)).search(Q[:1].tolist(), np.int64(9), [[3, 3]])  # twice the same
    assert sorted(ids[0]) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_fault_2_the_memory_holds_bank_rows_only() -> None:
    bank = memory(DATA)
    np.testing.assert_array_equal(bank.ids, DATA.rows(BANK))
    neighbours = search(bank, DATA, 20)
    assert (DATA.part[neighbours.ids] == BANK).all()
    np.testing.assert_array_equal(neighbours.rows, np.arange(120))
    assert (neighbours.sims < 0).all(), "a row at distance 0 from the memory is itself in it"
    with pytest.raises(InputError, match="rows that the embeddings do not have"):
        search(build(DATA.z, np.arange(1, 121)), DATA, K)


def test_fault_1_bank_rows_are_left_out_of_their_own_neighbourhoods_by_id() -> None:
    """Of three bank rows and a query at one point, each sees the bank rows among the others, at distance 0."""
    data = embedded(blobs(60))
    a, b, c = data.rows(BANK)[[3, 8, 20]]
    query = data.rows(TEST)[2]
    z = np.array(data.z)
    z[[b, c, query]] = z[a]
    data = dataclasses.replace(data, z=z)
    for kind in KINDS:
        neighbours = search(memory(data, kind=kind), data, 20)
        assert not (neighbours.ids == neighbours.rows[:, None]).any()
        for row, duplicates in ((a, {b, c}), (b, {a, c}), (c, {a, b}), (query, {a, b, c})):
            n = len(duplicates)
            assert set(neighbours.ids[row, :n]) == duplicates
            assert (neighbours.sims[row, :n] == 0).all()
            assert neighbours.sims[row, n] < 0


@pytest.mark.parametrize("k_max", [59, 60, 256])
def test_searching_all_of_a_small_bank(k_max: int) -> None:
    """Every bank row has the 59 others as neighbours; every other row has all but the furthest of the 60."""
    ids, bank = search(memory(DATA), DATA, k_max).ids, DATA.rows(BANK)
    assert ids.shape == (120, 59)
    for row in bank:
        assert set(ids[row]) == set(bank) - {row}
    everything, held_out = memory(DATA).search(DATA.z, 60)[0], DATA.part != BANK
    np.testing.assert_array_equal(ids[held_out], everything[held_out, :59])


def test_neighbours_an_approximate_index_misses_are_masked() -> None:
    """A beam of one in a graph of few links does not reach k rows; the rest must be −1, never a wrong row."""
    z = np.random.default_rng(0).normal(size=(500, D)).astype(np.float32)
    bank = build(z, np.arange(500), kind="hnsw", hnsw_m=2, ef_construction=2, ef_search=1)
    ids, sims = bank.search(z[:50], 400)
    assert (ids == -1).any()
    assert ((ids == -1) == np.isneginf(sims)).all()
    assert (ids[:, 0] >= 0).all()
    for row in ids:
        assert len(set(row[row >= 0])) == (row >= 0).sum()


def test_row_ids_are_int32_where_they_fit() -> None:
    most = np.iinfo(np.int32).max
    for first, dtype in ((most - N + 1, np.int32), (most - N + 2, np.int64)):
        row_ids = np.arange(first, first + N)
        ids, _ = build(Z, row_ids).search(Q, K)
        assert ids.dtype == dtype
        np.testing.assert_array_equal(ids, row_ids[nearest(Z, Q, K)[0]])


def test_queries_are_searched_for_in_parts(monkeypatch: Any) -> None:
    whole = build(Z, ROWS).search(Z, K, exclude=ROWS)
    monkeypatch.setattr(bank_module, "_CANDIDATES", 10 * (K + 1 + 8))
    calls: list[int] = []
    monkeypatch.setattr(bank_module, "rerank", lambda q, *args: calls.append(len(q)) or rerank(q, *args))
    np.testing.assert_array_equal(build(Z, ROWS).search(Z, K, exclude=ROWS), whole)
    assert calls == [10] * 21 + [1]


def test_any_float_layout_is_taken_and_no_value_that_is_not_finite() -> None:
    bank = build(np.asfortranarray(Z.astype(np.float64)), ROWS)
    np.testing.assert_array_equal(bank.search(np.repeat(Q, 2, axis=0)[::2], K), build(Z, ROWS).search(Q, K))
    for value in (np.nan, np.inf, -np.inf, 1e20):
        q = np.where(np.arange(D) == 2, value, Q)
        for name, call in (("queries", lambda: bank.search(q, K)), ("bank", lambda: build(q, np.arange(B)))):  # noqa: B023
            with pytest.raises(InputError, match=f"{name}: NaN, infinite"):
                call()


MINIMA = {"hnsw_m": 1, "ef_construction": 0, "ef_search": 0, "ivf_nprobe": -1, "pq_bytes": -8, "pq_refine": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.zeros(N, dtype=int)}, "repeat"),
        ({"ids": ROWS - 1}, "below 0"),
        ({"ids": ROWS / 2}, "float64; give integers"),
        ({"z": Z[:0], "ids": ROWS[:0]}, "no rows"),
        ({"z": Z[:, :0]}, "with at least one dimension"),
        ({"z": Z[:1], "ids": ROWS[:1], "kind": "ivfpq"}, "a single row"),
        ({"kind": "tree"}, "allowed are flat, hnsw, ivf, ivfpq, auto"),
        ({"metric": "cosine"}, "allowed are l2, ip"),
        *(({"kind": "hnsw", name: value}, f"{name}: .*; the minimum is") for name, value in MINIMA.items()),
    ],
)
def test_bad_banks_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**{"z": Z, "ids": ROWS} | change)


UNFIT = [[3], np.zeros(B + 1, int), np.zeros((B, 2, 2), int), np.full(B, 1.5)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({"k": k}, f"k: {k} .*1 … {N}") for k in (0, N + 1)),
        ({"queries": Z, "k": N, "exclude": ROWS}, f"1 … {N - 1}"),
        ({"queries": Q[:, :3]}, r"shape \(23, 3\); expected \(rows, dimensions\), with 7 dimensions"),
        *(({"exclude": exclude}, f"one or several for each of {B} queries") for exclude in UNFIT),
    ],
)
def test_bad_searches_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(Z, ROWS).search(**{"queries": Q, "k": K} | change)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 5, 9])
def test_duplicates_are_ordered_by_id(kind: str, k: int) -> None:
    """Ten rows on one spot, their ids in no order, among others further off; one is excluded."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(N, D)).astype(np.float32)
    ids = rng.permutation(1000)[:N]
    rows = rng.choice(N, 10, replace=False)
    z[rows] = 7.0
    result, sims = build(z, ids, kind=kind).search(np.full((2, D), 7.0), k, exclude=[ids[rows].min(), -1])
    duplicates = np.sort(ids[rows])
    np.testing.assert_array_equal(result, [duplicates[1 : k + 1], duplicates[:k]])
    assert not sims.any()


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("k", [16, 300, 1100])
def test_ties_at_the_kth_place_go_to_the_lowest_ids(k: int, metric: str) -> None:
    """Rows on a line; the k-th nearest is one of nine at one place, of which four come."""
    rng = np.random.default_rng(0)
    position = np.arange(1500, dtype=np.float32)
    position[k - 4 : k + 5] = position[k]
    z = (1 + position if metric == "l2" else 2000 - position)[:, None] * np.eye(4, dtype=np.float32)[:1]
    queries = np.zeros((30, 4)) if metric == "l2" else np.eye(4)[[0] * 30]
    row_ids = rng.permutation(1500)
    ids, _ = build(z, row_ids, metric=metric).search(queries, k)
    assert sorted(ids[0, k - 4 :]) == sorted(row_ids[k - 4 : k + 5])[:4]
    assert (ids == ids[0]).all()


def test_vectors_go_to_the_gpu_once_until_rows_change(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = Mock(side_effect=lambda z, metric, _: _gpu_searcher(z, metric, "cpu"))
    monkeypatch.setattr(faiss_index, "_gpu_searcher", on_cpu)
    bank = build(Z, ROWS)
    for _ in range(3):
        bank.search(Q, K, device="cuda")
    bank.remove([3])
    bank.search(Q, K, device="cuda")
    bank.add(Z[3:4], [3])
    ids, _ = bank.search(Q, K, device="cuda")
    assert [len(call.args[0]) for call in on_cpu.call_args_list] == [N, N - 1, N]
    np.testing.assert_array_equal(ids, nearest(Z, Q, K)[0])


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(tmp_path: Path, kind: str, mmap: bool) -> None:
    bank = memory(DATA, kind=kind)
    bank.save(tmp_path / "bank")
    again = Bank.load(tmp_path / "bank", mmap)
    assert isinstance(again.z, np.memmap) == mmap
    q = DATA.z[DATA.rows(TEST)]
    for a, b in zip(bank.search(q, K), again.search(q, K), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    again.save(tmp_path / "again")
    for path in (tmp_path / "bank").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    index, flat = tmp_path / "bank/index.faiss", bank.z.nbytes
    assert bank.n_bytes == (flat if kind == "flat" else index.stat().st_size)
    assert index.exists() == (kind != "flat")
    assert (bank.n_bytes < memory(DATA, kind="ivf").n_bytes) == (kind in ("flat", "ivfpq"))


def test_a_damaged_bank_is_refused_in_one_line(tmp_path: Path) -> None:
    data, folder = DATA, tmp_path / "bank"
    for kind, name in (("flat", "z.npy"), ("flat", "ids.npy"), ("hnsw", "index.faiss"), ("ivfpq", "index.faiss")):
        for mmap in (False, True):
            memory(data, kind=kind).save(folder)
            (folder / name).write_bytes((folder / name).read_bytes()[:100])
            with pytest.raises(InputError, match="damaged index") as raised:
                Bank.load(folder, mmap)
            assert "\n" not in str(raised.value)
    memory(data, kind="ivf").save(folder)
    for z in (np.array(data.z[:, :3]), np.asfortranarray(data.z)):
        np.save(folder / "z.npy", z)
        with pytest.raises(InputError, match="do not match"):
            Bank.load(folder)
    np.savez(tmp_path / "z.npz", data.z)
    for name, content in (("z.npy", (tmp_path / "z.npz").read_bytes()), ("z.npy", b"PK"), ("bank.json", b"[]")):
        (folder / name).write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            Bank.load(folder)
    with pytest.raises(InputError, match="no such file"):
        Bank.load(tmp_path / "nothing")


def test_the_index_is_searched_once_for_a_few_candidates_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    knn = faiss_index.faiss.knn
    monkeypatch.setattr(faiss_index.faiss, "knn", lambda q, z, k, *args: calls.append(k) or knn(q, z, k, *args))
    build(np.ones((3000, 4)), np.arange(3000)).search(np.ones((40, 4)), 300, exclude=np.arange(40))
    assert calls == [309]


def test_tight_classes() -> None:
    """Rows far nearer to each other than to the origin: ‖x‖² + ‖y‖² − 2xy would lose the digits of their distances."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(10, 64))[rng.integers(10, size=2000)] + 0.003 * rng.normal(size=(2000, 64))
    z = (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)
    _, sims = build(z[:1500], np.arange(1500)).search(z[1500:], 16)
    np.testing.assert_allclose(sims, nearest(z[:1500], z[1500:], 16)[1], rtol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        *({"metric": value} for value in ("foo", ["l2"], None, "ip")),
        *({"refine": value} for value in (0, 1.0, True, "a")),
        *({"compares": value} for value in ("foo", "ip")),
        *({"kind": value} for value in ("auto", "hnsw")),
        *({"rows": None}, {"dimensions": None}),
    ],
    ids=str,
)
def test_wrong_metadata_is_refused(tmp_path: Path, change: dict) -> None:
    build(np.eye(4, dtype=np.float32), np.arange(4)).save(tmp_path / "bank")
    file = tmp_path / "bank" / "bank.json"
    about = json.loads(file.read_text()) | change
    file.write_text(json.dumps({name: value for name, value in about.items() if value is not None}))
    with pytest.raises(InputError, match="dvc repro"):
        Bank.load(tmp_path / "bank")


def test_values_whose_squares_vanish_are_refused() -> None:
    with pytest.raises(InputError, match="scale them up"):
        build(1e-22 * np.eye(4), np.arange(4))
    ids, _ = build(1e-14 * np.eye(4), np.arange(4)).search(1e-14 * np.eye(4), 1)
    assert ids[:, 0].tolist() == [0, 1, 2, 3]
    build(np.zeros((4, 2)), np.arange(4))
