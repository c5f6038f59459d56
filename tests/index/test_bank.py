"""The memory against torch.cdist, and everything that has gone wrong with memories before."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import BANK, TEST
from attnknn.core.errors import InputError
from attnknn.index import bank as bank_module
from attnknn.index import faiss_index, rerank
from attnknn.index.bank import Bank, build
from attnknn.index.faiss_index import _on_gpu, similarities
from attnknn.index.rerank import settle
from attnknn.neighbours.search import memory, search
from synthetic import blobs, embedded

N, B, D, K = 211, 23, 7, 5
KINDS = ("flat", "hnsw", "ivf", "ivfpq")


@pytest.fixture
def vectors() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)).astype(np.float32), rng.normal(size=(B, D)).astype(np.float32)


def oracle(z: np.ndarray, q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    distance = torch.cdist(torch.from_numpy(q).double(), torch.from_numpy(z).double())
    nearest = distance.topk(k, largest=False)
    return nearest.indices.numpy(), -(nearest.values**2).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_l2_equals_cdist(vectors: tuple[np.ndarray, np.ndarray], kind: str) -> None:
    z, q = vectors
    ids, sims = build(z, np.arange(N), kind=kind).search(q, K)
    expected_ids, expected_sims = oracle(z, q, K)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(sims, expected_sims, rtol=1e-5)
    assert ids.dtype == np.int32
    assert sims.dtype == np.float32


def test_inner_product_equals_a_matrix_product(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    ids, sims = build(z, np.arange(N), metric="ip").search(q, K)
    products = q @ z.T
    np.testing.assert_array_equal(ids, np.argsort(-products, axis=1)[:, :K])
    np.testing.assert_allclose(sims, -np.sort(-products, axis=1)[:, :K], rtol=1e-5)


def test_l2_and_inner_product_find_the_same_on_the_unit_sphere(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors)
    ids_l2, sims_l2 = build(z, np.arange(N)).search(q, K)
    ids_ip, sims_ip = build(z, np.arange(N), metric="ip").search(q, K)
    np.testing.assert_array_equal(ids_l2, ids_ip)
    np.testing.assert_allclose(sims_l2, 2 * sims_ip - 2, atol=1e-5)


def test_all_searches_agree_to_the_bit(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    banks = [build(z, np.arange(N), kind=kind) for kind in KINDS]
    expected = banks[0].search(q, K)
    for bank in banks[1:]:
        for values, right in zip(bank.search(q, K), expected, strict=True):
            np.testing.assert_array_equal(values, right)
    at = _on_gpu(z, "l2", "cpu")(q, K + 1)
    found = settle(q, z, np.arange(N), at, np.empty((B, 0)), "l2")
    for values, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(values[:, :K], right)


def test_ids_are_the_rows_ids_and_not_positions(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    names = np.random.default_rng(1).permutation(10_000)[:N]
    np.testing.assert_array_equal(build(z, names).search(q, K)[0], names[oracle(z, q, K)[0]])


def test_fault_1_a_query_never_sees_itself_and_duplicates_do_not_break_that() -> None:
    """Rows 0, 1 and 2 are the same point: each must find the other two, at distance 0, and never itself."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(40, D)).astype(np.float32)
    z[1] = z[2] = z[0]
    for kind in KINDS:
        ids, sims = build(z, np.arange(40), kind=kind).search(z, 3, exclude=np.arange(40))
        assert not (ids == np.arange(40)[:, None]).any()
        assert [set(row) for row in ids[:3, :2]] == [{1, 2}, {0, 2}, {0, 1}]
        assert (sims[:3, :2] == 0).all()
        assert (sims[3:] < 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_queries_have_no_neighbours(vectors: tuple[np.ndarray, np.ndarray], kind: str) -> None:
    bank = build(vectors[0], np.arange(N), kind=kind)
    for exclude in (None, np.empty(0, int), np.empty((0, 2), int)):
        ids, sims = bank.search(vectors[1][:0], K, exclude)
        assert ids.shape == sims.shape == (0, K)


def test_several_ids_can_be_excluded(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    nearest = oracle(z, q, K + 2)[0]
    ids, _ = build(z, np.arange(N)).search(q, K, exclude=nearest[:, :2])
    np.testing.assert_array_equal(ids, nearest[:, 2:])


def test_fault_2_the_memory_holds_bank_rows_only() -> None:
    data = embedded(blobs(120))
    bank = memory(data)
    np.testing.assert_array_equal(bank.ids, data.rows(BANK))
    found = search(bank, data, 20)
    assert (data.part[found.ids] == BANK).all()
    np.testing.assert_array_equal(found.rows, np.arange(120))
    assert (found.sims < 0).all(), "a row at distance 0 from the memory is itself in it"


def test_fault_1_bank_rows_are_left_out_of_their_own_neighbourhoods_by_id() -> None:
    """Of three bank rows and a query at one point, each sees the bank rows among the others, at distance 0."""
    data = embedded(blobs(60))
    a, b, c = data.rows(BANK)[[3, 8, 20]]
    query = data.rows(TEST)[2]
    z = np.array(data.z)
    z[[b, c, query]] = z[a]
    data = dataclasses.replace(data, z=z)
    for kind in KINDS:
        found = search(memory(data, kind=kind), data, 20)
        assert not (found.ids == found.rows[:, None]).any()
        for row, twins in ((a, {b, c}), (b, {a, c}), (c, {a, b}), (query, {a, b, c})):
            assert set(found.ids[row, : len(twins)]) == twins
            assert (found.sims[row, : len(twins)] == 0).all()
            assert found.sims[row, len(twins)] < 0


def test_searching_all_of_a_small_bank() -> None:
    """Every bank row has the 29 others as neighbours; every other row has all but the furthest of the 30."""
    data = embedded(blobs(60))
    found = search(memory(data), data, 29)
    bank = data.rows(BANK)
    assert found.ids.shape == (60, 29)
    for row in bank:
        assert set(found.ids[row]) == set(bank) - {row}
    everything = memory(data).search(data.z, 30)[0]
    held_out = np.flatnonzero(data.part != BANK)
    np.testing.assert_array_equal(found.ids[held_out], everything[held_out, :29])
    for k_max in (30, 256):
        np.testing.assert_array_equal(search(memory(data), data, k_max).ids, found.ids)


@pytest.mark.parametrize("k", [0, N + 1])
def test_k_out_of_range(vectors: tuple[np.ndarray, np.ndarray], k: int) -> None:
    z, q = vectors
    bank = build(z, np.arange(N))
    with pytest.raises(InputError, match=f"k: {k} .*1 … {N}"):
        bank.search(q, k)
    assert bank.search(q, N)[0].shape == (B, N)
    with pytest.raises(InputError, match=f"1 … {N - 1}"):
        bank.search(z, N, exclude=np.arange(N))


def test_neighbours_an_approximate_index_misses_are_masked() -> None:
    """A beam of one in a graph of few links does not reach k rows; the rest must be −1, never a wrong row."""
    z = np.random.default_rng(0).normal(size=(500, D)).astype(np.float32)
    bank = build(z, np.arange(500), kind="hnsw", hnsw_m=2, ef_construction=2, ef_search=1)
    ids, sims = bank.search(z[:50], 400)
    assert (ids == -1).any()
    assert ((ids == -1) == np.isneginf(sims)).all()
    assert (ids[:, 0] >= 0).all()
    for row in ids:
        found = row[row >= 0]
        assert len(set(found)) == len(found)


def test_the_size_of_an_index_is_that_of_its_file(tmp_path: Path) -> None:
    data = embedded(blobs(120))
    for kind in ("hnsw", "ivf"):
        bank = memory(data, kind=kind)
        bank.save(tmp_path)
        assert bank.n_bytes == (tmp_path / "index.faiss").stat().st_size > bank.z.nbytes
    assert memory(data, kind="ivfpq").n_bytes < bank.n_bytes
    flat = memory(data)
    flat.save(tmp_path)
    assert flat.n_bytes == flat.z.nbytes
    assert {path.name for path in tmp_path.iterdir()} == {"z.npy", "ids.npy", "bank.json"}


def test_row_ids_are_int32_where_they_fit(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    most = np.iinfo(np.int32).max
    for first, dtype in ((most - N + 1, np.int32), (most - N + 2, np.int64)):
        names = np.arange(first, first + N)
        ids, _ = build(z, names).search(q, K)
        assert ids.dtype == dtype
        np.testing.assert_array_equal(ids, names[oracle(z, q, K)[0]])


def test_queries_are_searched_for_in_parts(vectors: tuple[np.ndarray, np.ndarray], monkeypatch: Any) -> None:
    z, own = vectors[0], np.arange(N)
    whole = build(z, own).search(z, K, exclude=own)
    monkeypatch.setattr(bank_module, "_CANDIDATES", 10 * (K + 1 + 9))
    calls: list[int] = []
    true_settle = bank_module.settle
    monkeypatch.setattr(bank_module, "settle", lambda q, *more: calls.append(len(q)) or true_settle(q, *more))
    for values, right in zip(build(z, own).search(z, K, exclude=own), whole, strict=True):
        np.testing.assert_array_equal(values, right)
    assert calls == [10] * 21 + [1]


def test_any_float_layout_is_taken(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    ids, sims = build(np.asfortranarray(z.astype(np.float64)), np.arange(N)).search(np.repeat(q, 2, axis=0)[::2], K)
    expected = build(z, np.arange(N)).search(q, K)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(sims, expected[1])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e20])
def test_values_that_are_not_finite_are_refused(vectors: tuple[np.ndarray, np.ndarray], value: float) -> None:
    z, q = vectors
    bank = build(z, np.arange(N))
    q[3, 2] = value
    with pytest.raises(InputError, match="queries: NaN, infinite"):
        bank.search(q, K)
    with pytest.raises(InputError, match="bank: NaN, infinite"):
        build(q, np.arange(B))


def test_bad_banks_are_refused(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    with pytest.raises(InputError, match="repeat"):
        build(z, np.zeros(N, dtype=int))
    with pytest.raises(InputError, match="below 0"):
        build(z, np.arange(N) - 1)
    with pytest.raises(InputError, match="no rows"):
        build(z[:0], np.arange(0))
    with pytest.raises(InputError, match="dimensions"):
        build(z, np.arange(N)).search(q[:, :3], K)
    with pytest.raises(InputError, match="allowed are flat, hnsw, ivf, ivfpq, auto"):
        build(z, np.arange(N), kind="tree")
    with pytest.raises(InputError, match="allowed are l2, ip"):
        build(z, np.arange(N), metric="cosine")
    with pytest.raises(InputError, match="float64; give integers"):
        build(z, np.arange(N) / 2)
    with pytest.raises(InputError, match="a single row"):
        build(z[:1], np.arange(1), kind="ivfpq")


@pytest.mark.parametrize(
    "setting",
    [{"hnsw_m": 1}, {"ef_construction": 0}, {"ef_search": 0}, {"ivf_nprobe": -1}, {"pq_bytes": -8}, {"pq_refine": 0}],
)
def test_settings_that_faiss_would_not_survive(vectors: tuple[np.ndarray, np.ndarray], setting: dict[str, int]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(setting))}: .*; the least is"):
        build(vectors[0], np.arange(N), kind="hnsw", **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("exclude", [[3], np.zeros(B + 1, int), np.zeros((B, 2, 2), int), np.full(B, 1.5)])
def test_exclusions_that_do_not_fit(vectors: tuple[np.ndarray, np.ndarray], exclude: Any) -> None:
    z, q = vectors
    with pytest.raises(InputError, match=f"one or several for each of {B} queries"):
        build(z, np.arange(N)).search(q, K, exclude)


def test_an_id_excluded_twice_counts_once(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    z, q = vectors
    ids, _ = build(z[:10], np.arange(10)).search(q[:1].tolist(), np.int64(9), [[3, 3]])
    assert sorted(ids[0]) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 5, 30])
def test_however_many_tie_the_lowest_ids_come(kind: str, k: int) -> None:
    """Forty rows on one spot, their ids in no order, among others further off; one is excluded."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(N, D)).astype(np.float32)
    ids = rng.permutation(1000)[:N]
    at = rng.choice(N, 40, replace=False)
    z[at] = 7.0
    found, sims = build(z, ids, kind=kind).search(np.full((2, D), 7.0), k, exclude=[ids[at].min(), -1])
    same = np.sort(ids[at])
    np.testing.assert_array_equal(found, [same[1 : k + 1], same[:k]])
    assert not sims.any()


def test_vectors_go_to_the_gpu_once(vectors: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Until rows change."""
    z, q = vectors
    sent = []
    monkeypatch.setattr(faiss_index, "_on_gpu", lambda *given: sent.append(len(given[0])) or _on_gpu(*given[:2], "cpu"))
    bank = build(z, np.arange(N))
    for _ in range(3):
        bank.search(q, K, device="cuda")
    bank.remove([3])
    bank.search(q, K, device="cuda")
    bank.add(z[3:4], [3])
    ids, _ = bank.search(q, K, device="cuda")
    assert sent == [N, N - 1, N]
    np.testing.assert_array_equal(ids, oracle(z, q, K)[0])


def test_distances_are_true_where_the_expanded_square_is_not() -> None:
    """‖x‖² + ‖y‖² − 2xy loses all digits far from the origin; differences do not."""
    z = (1e4 + np.array([[0.0], [0.5], [2.0]])).astype(np.float32).repeat(3, axis=1)
    _, sims = build(z, np.arange(3)).search(z[:1], 3)
    np.testing.assert_allclose(sims[0], [0, -0.75, -12.0])


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(tmp_path: Path, kind: str, mmap: bool) -> None:
    data = embedded(blobs(120))
    bank = memory(data, kind=kind)
    bank.save(tmp_path / "bank")
    again = Bank.load(tmp_path / "bank", mmap)
    assert isinstance(again.z, np.memmap) == mmap
    q = data.z[data.rows(TEST)]
    for a, b in zip(bank.search(q, K), again.search(q, K), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    again.save(tmp_path / "again")
    for path in (tmp_path / "bank").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_damaged_bank_is_refused_in_one_line(tmp_path: Path) -> None:
    data, folder = embedded(blobs(120)), tmp_path / "bank"
    for kind, name in (("flat", "z.npy"), ("flat", "ids.npy"), ("hnsw", "index.faiss"), ("ivfpq", "index.faiss")):
        for mmap in (False, True):
            memory(data, kind=kind).save(folder)
            (folder / name).write_bytes((folder / name).read_bytes()[:100])
            with pytest.raises(InputError, match="damaged index") as raised:
                Bank.load(folder, mmap)
            assert "\n" not in str(raised.value)
    memory(data, kind="ivf").save(folder)
    np.save(folder / "z.npy", np.load(folder / "z.npy")[:, :3])
    with pytest.raises(InputError, match="do not belong together"):
        Bank.load(folder)
    with pytest.raises(InputError, match="no such file"):
        Bank.load(tmp_path / "nothing")


def test_a_bank_of_other_rows_is_refused() -> None:
    data = embedded(blobs(120))
    with pytest.raises(InputError, match="rows that the embeddings do not have"):
        search(build(data.z, np.arange(1, 121)), data, K)


def collapsed(spread: float, n: int = 1500, dim: int = 64) -> np.ndarray:
    """Unit vectors that all lie about one centre."""
    rng = np.random.default_rng(0)
    centre = rng.normal(size=dim)
    z = centre / np.linalg.norm(centre) + spread * rng.normal(size=(n, dim)) / 8
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def grey(low: float, high: float, dim: int, n: int = 1500) -> np.ndarray:
    """All columns alike, as of images of one brightness each: the rounding of no column cancels another's."""
    return np.linspace(low, high, n, dtype=np.float32)[:, None].repeat(dim, axis=1)


def templates(dim: int, n: int = 1500) -> np.ndarray:
    """Two pictures, each in many brightnesses: stripes of two levels, and of light and nothing."""
    rng = np.random.default_rng(0)
    stripe = np.arange(dim) % 28 < 14
    shapes = np.stack([np.where(stripe, 0.3, 0.9), stripe * 1.0])
    return (rng.uniform(0.9, 1.1, (n, 1)) * shapes[rng.integers(2, size=n)]).astype(np.float32)


CLOSE = {
    "one spot": collapsed(1e-4),
    "nearly": collapsed(3e-3),
    "far off": np.random.default_rng(0).normal(1000, 1, (1500, 64)).astype(np.float32),
    "far off, wide": np.random.default_rng(0).normal(1000, 1, (600, 8192)).astype(np.float32),
    "grey": grey(100, 110, 256),
    "grey, narrow": grey(0.9, 1.1, 64),
    "grey, wide": grey(0, 255, 1024),
    "templates": templates(784),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("z", CLOSE.values(), ids=CLOSE)
def test_exact_search_is_exact_however_many_ask_and_however_near_all_rows_are(
    z: np.ndarray, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the expanded square of many queries at once cannot tell rows apart, their differences do."""
    monkeypatch.setattr(faiss_index, "_on_gpu", lambda *given: _on_gpu(*given[:2], "cpu"))
    bank = build(z, np.arange(len(z)))
    own = bank.search(np.tile(z, (1 + 2000 // len(z), 1)), K, device=device)
    some = z[:16] if z.shape[1] > 1000 else z[::20]
    between = (some.astype(np.float64) * 0.75 + z[1 : len(some) + 1] * 0.25).astype(np.float32)
    for queries, (ids, sims) in (
        (z[:40], (own[0][:40], own[1][:40])),
        (between, bank.search(between, K, device=device)),
    ):
        d = np.stack([np.square(q.astype(np.float64) - z).sum(1) for q in queries])
        np.testing.assert_allclose(-sims, np.sort(d, axis=1)[:, :K], rtol=1e-4)
        np.testing.assert_allclose(np.take_along_axis(d, ids.astype(int), 1), -sims, rtol=1e-4)
    assert not own[1][:, 0].any()  # every row finds itself, or its like


def test_one_row_far_off_has_no_query_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rounding may hide depends on where a query and its neighbours are, on no other row."""
    z = np.random.default_rng(0).normal(size=(3000, 32)).astype(np.float32)
    z[0] *= 1e6
    asked = []
    monkeypatch.setattr(
        "attnknn.index.bank.settle", lambda queries, *rest: asked.append(len(queries)) or settle(queries, *rest)
    )
    build(z, np.arange(3000)).search(z[1:1001], K)
    assert asked == [1000]


@pytest.mark.parametrize("k", [300, 1022, 1023, 1100])
def test_ties_at_the_edge_go_to_the_lowest_ids_however_large_k_is(k: int) -> None:
    rng = np.random.default_rng(0)
    z = (1 + np.arange(1500, dtype=np.float32))[:, None] * np.eye(4, dtype=np.float32)[:1]
    z[k - 10 : k + 30] = z[k]
    names = rng.permutation(1500)
    ids, _ = build(z, names).search(np.zeros((30, 4)), k)
    assert sorted(ids[0, k - 10 :]) == sorted(names[k - 10 : k + 30])[:10]
    assert (ids == ids[0]).all()


@pytest.mark.parametrize("pairs", [40, 10**6])
def test_of_any_number_of_rows_on_one_spot_those_of_the_lowest_ids_come(
    pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where so few pairs are held at once that queries have to be asked one by one."""
    monkeypatch.setattr(rerank, "_PAIRED", pairs)
    names = np.random.default_rng(0).permutation(3000)
    z = np.zeros((3000, 4), dtype=np.float32)
    z[2900:] = np.random.default_rng(1).normal(size=(100, 4)) + 9
    ids, sims = build(z, names).search(np.zeros((3, 4)), 20, [-1, names[:2900].min(), -1])
    lowest = np.sort(names[:2900])
    np.testing.assert_array_equal(ids, [lowest[:20], lowest[1:21], lowest[:20]])
    assert not sims.any()


@pytest.mark.parametrize("scale", [1e-19, 1e-20, 1e-22, 1e-23])
@pytest.mark.parametrize("dim", [1, 2, 16, 256])
def test_where_squares_vanish_in_float32_neighbours_are_those_of_its_differences(dim: int, scale: float) -> None:
    z = (np.random.default_rng(0).standard_normal((1200, dim)) * scale).astype(np.float32)
    z[0] = 1
    for queries in (np.zeros((40, dim), dtype=np.float32), z[1:100]):
        ids, sims = build(z, np.arange(1200)).search(queries, K)
        near = similarities(queries, z, np.tile(np.arange(1200), (len(queries), 1)), "l2")
        order = np.argsort(-near, axis=1, kind="stable")[:, :K]
        np.testing.assert_array_equal(ids, order)
        np.testing.assert_array_equal(sims, np.take_along_axis(near, order, axis=1))


@pytest.mark.parametrize("dim", [1, 2, 64])
def test_what_is_compared_once_more_is_held_in_parts(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few dimensions, and so however many rows fit their own bound, products with all queries are bounded."""
    monkeypatch.setattr(rerank, "_PAIRED", 64 * 500)
    shapes = []
    nonzero = np.nonzero
    monkeypatch.setattr(np, "nonzero", lambda near: shapes.append(near.shape) or nonzero(near))
    z = np.random.default_rng(0).normal(size=(3000, dim)).astype(np.float32)
    rerank.within(z[:64], z, np.full(64, 1e-3), 3)
    assert shapes == [(64, 500)] * 6


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_nothing_is_searched_for_twice(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    knn = faiss_index.faiss.knn
    monkeypatch.setattr(faiss_index.faiss, "knn", lambda q, z, k, *more: asked.append(k) or knn(q, z, k, *more))
    build(np.ones((3000, 4)), np.arange(3000), metric=metric).search(np.ones((40, 4)), 300)
    assert asked == ([301, 1204] if metric == "ip" else [346])


@pytest.mark.parametrize("spread", [0.1, 0.03, 0.003])
def test_tight_classes(spread: float) -> None:
    """Ten classes, their rows far nearer to each other than to the origin, as a long-trained encoder puts them."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(10, 64))[rng.integers(10, size=2000)] + spread * rng.normal(size=(2000, 64))
    z = (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)
    ids, sims = build(z[:1500], np.arange(1500)).search(z[1500:], 16)
    d = np.square(z[1500:, None].astype(np.float64) - z[None, :1500]).sum(2)
    np.testing.assert_allclose(-sims, np.sort(d, axis=1)[:, :16], rtol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(d, ids.astype(int), 1), -sims, rtol=1e-4)


@pytest.mark.parametrize("ids", [[1.7], [True, False], [float("nan")], [[1]]])
def test_what_is_no_id_removes_nothing(ids: list) -> None:
    bank = build(np.eye(4, dtype=np.float32), np.arange(4))
    with pytest.raises(InputError, match=r"row ids to remove are .* give integers"):
        bank.remove(ids)
    assert bank.ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["flat", "ivf", "ivfpq", "hnsw"])
def test_vectors_without_a_dimension_are_refused(kind: str) -> None:
    with pytest.raises(InputError, match="of one dimension or more"):
        build(np.empty((50, 0), dtype=np.float32), np.arange(50), kind)


NOTES = [
    {"metric": "foo"},
    {"metric": ["l2"]},
    {"metric": None},
    {"rows": None},
    {"dimensions": None},
    {"compares": "foo"},
    {"kind": "auto"},
    {"compares": "ip"},
    {"metric": "ip"},
    {"kind": "hnsw"},
    {"refine": 0},
    {"refine": 1.0},
    {"refine": True},
    {"refine": "a"},
]


@pytest.mark.parametrize("change", NOTES)
def test_a_bank_whose_notes_are_wrong_is_refused(tmp_path: Path, change: dict) -> None:
    build(np.eye(4, dtype=np.float32), np.arange(4)).save(tmp_path / "bank")
    file = tmp_path / "bank" / "bank.json"
    about = {name: value for name, value in (json.loads(file.read_text()) | change).items() if value is not None}
    file.write_text(json.dumps(about))
    with pytest.raises(InputError, match="dvc repro"):
        Bank.load(tmp_path / "bank")


def test_vectors_in_another_order_and_notes_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bank"
    build(np.eye(4, dtype=np.float32), np.arange(4)).save(folder)
    np.save(
        folder / "z.npy", np.asfortranarray(np.eye(4, dtype=np.float32) + 1e-3 * np.arange(4)[:, None].astype("f4"))
    )
    with pytest.raises(InputError, match="do not belong together"):
        Bank.load(folder)
    np.savez(folder / "z.npz", np.eye(4, dtype=np.float32))
    (folder / "z.npz").rename(folder / "z.npy")
    with pytest.raises(InputError, match="damaged index"):
        Bank.load(folder)
    (folder / "z.npy").write_bytes((folder / "z.npy").read_bytes()[:100])
    with pytest.raises(InputError, match="damaged index"):
        Bank.load(folder)
    (folder / "bank.json").write_text("[]")
    with pytest.raises(InputError, match="damaged index"):
        Bank.load(folder)


def test_values_whose_squares_vanish_are_refused() -> None:
    with pytest.raises(InputError, match="scale them up"):
        build(1e-22 * np.eye(4), np.arange(4))
    ids, _ = build(1e-14 * np.eye(4), np.arange(4)).search(1e-14 * np.eye(4), 1)
    assert ids[:, 0].tolist() == [0, 1, 2, 3]
    build(np.zeros((4, 2)), np.arange(4))
