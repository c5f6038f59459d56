"""Adding and removing rows: searches return what those of a new bank over the same rows do."""

from pathlib import Path

import numpy as np
import pytest

from attnknn.core.errors import InputError
from attnknn.index.bank import Bank, build
from synthetic import nearest

N, D, K = 211, 7, 5
KINDS = ("flat", "hnsw", "ivf", "ivfpq")
RNG = np.random.default_rng(0)
Z, Q = (RNG.normal(size=(n, D)).astype(np.float32) for n in (N, 23))
IDS = RNG.permutation(1000)[:N]


def make_bank(kind: str, rows: np.ndarray) -> Bank:
    return build(Z[rows], IDS[rows], kind=kind, pq_refine=30)


def assert_finds(bank: Bank, rows: np.ndarray) -> None:
    """The K nearest of exactly these rows of Z."""
    assert len(bank) == len(rows)
    assert set(bank.ids[bank.ids >= 0]) == set(IDS[rows])
    ids, sims = bank.search(Q, K)
    positions, expected = nearest(Z[rows], Q, K)
    np.testing.assert_array_equal(ids, IDS[rows][positions])
    np.testing.assert_allclose(sims, expected, rtol=1e-5)
    np.testing.assert_array_equal((ids, sims), build(Z[rows], IDS[rows]).search(Q, K))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_added_and_removed_are_as_if_built_so(kind: str) -> None:
    bank, rows, rng = make_bank(kind, np.arange(150)), np.arange(150), np.random.default_rng(1)
    for new in (range(150, 190), range(190, 191), range(191, 211)):
        gone = rng.permutation(rows)[: len(new) - 1 or 1]  # one fewer than come, so that last rows fill their places
        bank.remove(IDS[gone])
        rows = np.setdiff1d(rows, gone)
        assert_finds(bank, rows)
        assert not np.isin(bank.search(Z[gone], K)[0], IDS[gone]).any()
        bank.add(Z[new], IDS[new])
        rows = np.concatenate([rows, new])
        assert_finds(bank, rows)
        bank.add(Z[gone], IDS[gone])
        bank.remove(IDS[gone[::-1]])
        assert_finds(bank, rows)
    for gone in (rows[-50:], rows[:50], rows[50]):  # the last rows, the first, one
        bank.remove(IDS[gone])
        rows = np.setdiff1d(rows, gone)
        assert_finds(bank, rows)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_passed_in_are_not_changed(kind: str) -> None:
    z, names = Z.copy(), IDS.copy()
    z.flags.writeable = names.flags.writeable = False  # so that a change would raise
    bank = build(z, names, kind=kind)
    assert np.shares_memory(bank.z, z), "not copied as long as nothing changes"
    bank.remove(names[3])


def test_a_graph_is_built_again_once_more_rows_are_hidden_than_left() -> None:
    bank = make_bank("hnsw", np.arange(N))
    bank.remove(IDS[:105])
    assert (bank.index.faiss_index.ntotal, len(bank)) == (211, 106)
    bank.remove(IDS[105])
    assert (bank.index.faiss_index.ntotal, len(bank)) == (105, 105)
    assert_finds(bank, np.arange(106, N))
    assert (bank.index.faiss_index.hnsw.efConstruction, bank.index.faiss_index.hnsw.efSearch) == (200, 128)


def test_hidden_rows_of_a_graph_leave_k_others_to_be_found() -> None:
    """A beam of K full of hidden rows must go on to K that are shown."""
    bank = build(Z, IDS, kind="hnsw", ef_search=1)
    hidden = IDS[nearest(Z, Q[:1], N // 3)[0][0]]
    bank.remove(hidden)
    ids, _ = bank.search(Q[:1], K)
    assert (ids >= 0).all()
    assert not np.isin(ids, hidden).any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_bank_is_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    bank = make_bank(kind, np.arange(150))
    bank.remove(IDS[10:40])
    bank.add(Z[150:], IDS[150:])
    rows = np.concatenate([np.arange(10), np.arange(40, N)])
    for mmap in (False, True):
        bank.save(tmp_path / "bank")
        bank = Bank.load(tmp_path / "bank", mmap)
        assert_finds(bank, rows)
    for change in (lambda: bank.remove(IDS[:1]), lambda: bank.add(Z[:1], [10_000])):
        with pytest.raises(InputError, match="memory-mapped"):
            change()
    assert_finds(bank, rows)
    bank = Bank.load(tmp_path / "bank")
    bank.add(Z[10:40], IDS[10:40])
    assert_finds(bank, np.concatenate([rows, np.arange(10, 40)]))


@pytest.mark.parametrize("kind", KINDS)
def test_refused_and_empty_changes_change_nothing(kind: str) -> None:
    bank = make_bank(kind, np.arange(150))
    nan = Z[150:152].copy()
    nan[1, 3] = np.nan
    for z, ids, message in (
        (Z[149:152], IDS[149:152], f"row ids {IDS[149]} are in it already"),
        (Z[150:152, :3], IDS[150:152], "3 dimensions to add; it has 7"),
        (nan, IDS[150:152], "NaN, infinite"),
        (Z[150:152], IDS[150:153], r"2 vectors and ids of shape \(3,\)"),
        (Z[150:152], [3000, 3000], "repeat"),
        (Z[150:152], [-1, 3000], "below 0"),
        (Z[0], [3000], r"shape \(7,\)"),
    ):
        with pytest.raises(InputError, match=message):
            bank.add(z, ids)
    for ids, message in (
        ([IDS[0], 4000, 3000], "row ids 3000, 4000 are not in it"),
        ([-1], "row ids -1 are not"),
        (np.arange(3000, 3050), r"(\d+, ){9}\d+ and 40 more are not in it"),
        (bank.ids, "no row would be left"),
        *((ids, r"row ids to remove are .* give integers") for ids in ([1.7], [True, False], [np.nan], [[1]])),
    ):
        with pytest.raises(InputError, match=message):
            bank.remove(ids)
    bank.add(Z[:0], IDS[:0])
    bank.remove(IDS[:0])
    assert_finds(bank, np.arange(150))


def test_ids_grow_to_int64_with_what_is_added() -> None:
    bank = make_bank("flat", np.arange(150))
    assert bank.ids.dtype == np.int32
    bank.add(Z[150:151], [2**40])
    assert bank.search(Z[150:151], 1)[0].tolist() == [[2**40]]
    bank.remove(2**40)
    assert_finds(bank, np.arange(150))
