"""A bank in a Lance table against a flat FAISS index: neighbours, changes, versions, kills, erasure, object storage."""

import contextlib
import importlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
from lance.fragment import write_fragments

from attnknn.core.errors import InputError
from attnknn.core.tables import to_array
from attnknn.index import erasure, faiss_index, lance_bank, lance_table
from attnknn.index.bank import build
from attnknn.index.erasure import erase
from attnknn.index.lance_bank import LanceBank
from attnknn.index.lance_rows import INDEX
from attnknn.index.lance_table import Block
from attnknn.index.nearest_rows import NearestRows

N, B, D, K = 1201, 67, 13, 11
LISTS = 17
PanicException = type("PanicException", (BaseException,), {})  # as pyo3 names it
RNG = np.random.default_rng(0)
CENTRES = 3 * RNG.normal(size=(LISTS, D))
Z = (CENTRES[RNG.integers(LISTS, size=N)] + RNG.normal(size=(N, D))).astype(np.float32)
Z[[5, 600]] = Z[900]
Q = np.concatenate([Z[: B - 7], RNG.normal(size=(7, D)).astype(np.float32)])
EXCLUDE = np.concatenate([np.arange(B - 7), np.full(7, -1)])
Y, WEIGHT = RNG.integers(5, size=N), RNG.random((N, 3)).astype(np.float32)


def blocks(rows: int = N) -> Iterator[Block]:
    for start in range(0, rows, 500):
        block = slice(start, min(start + 500, rows))
        yield Block(Z[block], np.arange(rows)[block], {"y": Y[block], "weight": WEIGHT[block]})


def small_bank(folder: Path) -> LanceBank:
    return LanceBank.build(folder / "rows.lance", blocks(), nlist=LISTS)


def ids_of(bank: LanceBank) -> np.ndarray:
    return np.concatenate([block["id"] for block in bank.blocks(["id"])])


def files_with(folder: Path, vector: np.ndarray) -> int:
    return sum(vector.tobytes() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("nlist", [0, LISTS])
def test_all_lists_give_the_neighbours_of_a_flat_index_to_the_bit(tmp_path: Path, metric: str, nlist: int) -> None:
    bank = LanceBank.build(tmp_path / "rows.lance", blocks(), metric, nlist, probes=nlist, threads=2)
    assert (bank.n_lists, len(bank), bank.dimensions, bank.metric) == (nlist, N, D, metric)
    expected = build(Z, np.arange(N), metric=metric).search(Q, K, exclude=EXCLUDE)
    ids, sims, columns = bank.nearest(Q, K, exclude=EXCLUDE, columns=["y", "weight"])
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(sims, expected[1])
    np.testing.assert_array_equal(columns["y"], Y[ids])
    np.testing.assert_array_equal(columns["weight"], WEIGHT[ids])
    for name, values in bank.rows_of([700, 3], ["vector", "y"]).items():
        np.testing.assert_array_equal(values, {"vector": Z, "y": Y}[name][[700, 3]])


def test_few_lists_give_most_neighbours_and_two_builds_are_equal(tmp_path: Path) -> None:
    expected, _ = build(Z, np.arange(N)).search(Q, K)
    first, second = (replace(small_bank(tmp_path / name), probes=3).search(Q, K) for name in ("a", "b"))
    np.testing.assert_array_equal(first[0], second[0])
    hits = (first[0][:, :, None] == expected[:, None]).any(1)
    assert 0.9 < hits.mean() < 1


@pytest.mark.parametrize("nlist", [0, LISTS])
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_nearest_rows_are_those_of_a_search(tmp_path: Path, metric: str, nlist: int) -> None:
    """Of all lists, after a removal, without hidden rows."""
    bank = LanceBank.build(tmp_path / "rows.lance", blocks(), metric, nlist).remove([0, 700])
    rows, hidden = ids_of(bank), [5, 1200]
    seen = np.zeros(len(rows), dtype=int)
    exclude = np.column_stack([rows, np.tile(hidden, (len(rows), 1))])
    expected = build(Z[rows], rows, metric=metric).search(Z[rows], K, exclude=exclude)
    for numbers, nearest, sims in NearestRows(bank, K, LISTS, hidden).search():
        seen[numbers] += 1
        np.testing.assert_array_equal(rows[nearest], expected[0][numbers])
        np.testing.assert_array_equal(sims, expected[1][numbers])
    assert (seen == 1).all()


def test_rows_are_in_the_list_of_their_nearest_centroid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where lists × dimensions exceed 1,000,000, from where on Lance by default searches centroids by a graph."""
    z = RNG.normal(size=(2000, 1024)).astype(np.float32)
    monkeypatch.setattr(lance_bank, "n_lists", lambda rows, nlist: nlist)
    monkeypatch.setattr(lance_bank, "train_centroids", lambda *_: z[:1000])
    bank = LanceBank.build(tmp_path / "rows.lance", [Block(z, np.arange(2000))], nlist=1000)
    lists = np.full(2000, -1)
    for i in range(1000):
        lists[to_array(lance_table.list_reader(bank.table, INDEX).read_partition(i)["_rowid"])] = i
    np.testing.assert_array_equal(lists, faiss_index.nearest(z, z[:1000], 1, "l2")[:, 0])


def test_nearest_rows_of_few_lists(tmp_path: Path) -> None:
    expected, _ = build(Z, np.arange(N)).search(Z, K, exclude=np.arange(N))
    bank, hits = small_bank(tmp_path), 0
    assert bank.unindexed == 0
    for numbers, nearest, sims in NearestRows(bank, K, lists=1).search():
        hits += (nearest[:, :, None] == expected[numbers][:, None]).sum()
        assert ((nearest >= 0) == np.isfinite(sims)).all()
    assert 0.5 * N * K < hits < N * K


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_codes_take_less_room_and_find_most_neighbours(tmp_path: Path, metric: str) -> None:
    rng = np.random.default_rng(1)
    z = (rng.normal(size=(5000, 12)) @ rng.normal(size=(12, 64))).astype(np.float32)
    rows = [Block(z, np.arange(len(z)))]
    exact, coded, again = (
        LanceBank.build(tmp_path / name, rows, metric, LISTS, codes, probes=LISTS)
        for name, codes in (("exact", False), ("coded", True), ("again", True))
    )
    assert (exact.codes, coded.codes, coded.n_lists) == (False, True, LISTS)
    sizes = [sum(path.stat().st_size for path in (tmp_path / name).rglob("aux*")) for name in ("exact", "coded")]
    assert 8 * sizes[1] < sizes[0]
    queries, own = z[:100] + np.float32(0.1), np.arange(100)
    expected, sims = build(z, np.arange(len(z)), metric=metric).search(queries, K, exclude=own)
    ids, coded_sims = coded.search(queries, K, exclude=own)
    hits = (ids[:, :, None] == expected[:, None]).any(2)
    assert hits.mean() > 0.95
    np.testing.assert_array_equal(coded_sims[:, 0], sims[:, 0])  # re-ranked by vectors
    np.testing.assert_array_equal(again.search(queries, K, exclude=own)[0], ids)
    larger = coded.add(z[:3] + 1, [6000, 6001, 6002])
    if metric == "l2":
        assert larger.search(z[:3] + 1, 1)[0].ravel().tolist() == [6000, 6001, 6002]
    larger = larger.indexed()
    assert (larger.codes, larger.unindexed) == (True, 0)
    for numbers, nearest, _ in NearestRows(coded, K, LISTS).search():
        of_search, _ = coded.search(z[numbers], K, exclude=numbers)
        assert (nearest == of_search).mean() > 0.95


def test_parts_of_the_lists_are_all_rows_once(tmp_path: Path) -> None:
    nearest = NearestRows(small_bank(tmp_path), K)
    whole = {int(row): ids.tolist() for rows, ids, _ in nearest.search() for row, ids in zip(rows, ids, strict=True)}
    parts = [result for part in range(5) for result in nearest.search(part, 5)]
    assert sum(len(rows) for rows, _, _ in parts) == len(whole) == N
    for rows, ids, _ in parts:
        assert ids.tolist() == [whole[int(row)] for row in rows]


def test_many_queries_come_back_in_their_order(tmp_path: Path) -> None:
    queries = np.tile(Z, (2, 1))
    bank = replace(small_bank(tmp_path), probes=LISTS)
    ids, sims, columns = bank.nearest(queries, K, exclude=np.tile(np.arange(N), 2), columns=["y"])
    expected = build(Z, np.arange(N)).search(queries, K, exclude=np.tile(np.arange(N), 2))
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(sims, expected[1])
    np.testing.assert_array_equal(columns["y"], Y[ids])


def test_columns_are_added_and_replaced(tmp_path: Path) -> None:
    bank = small_bank(tmp_path).remove([3])
    wide = RNG.random((N - 1, 2)).astype(np.float32)
    larger = bank.with_columns(wide=wide, y=Y[1:] + 7)
    rows = larger.take(np.array([0, 3, N - 2]), ["id", "wide", "y"])
    np.testing.assert_array_equal(rows["id"], [0, 4, N - 1])
    np.testing.assert_array_equal(rows["wide"], wide[[0, 3, N - 2]])
    np.testing.assert_array_equal(rows["y"], Y[1:][[0, 3, N - 2]] + 7)
    np.testing.assert_array_equal(bank.rows_of([4], ["y"])["y"], Y[4:5])
    larger.drop()
    assert not (tmp_path / "rows.lance").exists()


def test_changes_make_versions_that_other_processes_see(tmp_path: Path) -> None:
    bank = replace(small_bank(tmp_path), probes=LISTS)
    new = Z[:2] + 1
    larger = bank.add(new, [N + 5, N + 6], y=Y[:2], weight=WEIGHT[:2])
    smaller = larger.remove([0, N + 6])
    expected = build(np.concatenate([Z[1:], new[:1]]), np.r_[1:N, N + 5]).search(Q, K)
    for rows in (smaller, bank.latest(), LanceBank.open(tmp_path / "rows.lance", probes=LISTS), smaller.indexed()):
        for values, own in zip(expected, rows.search(Q, K)[:2], strict=True):
            np.testing.assert_array_equal(own, values)
    assert larger.search(new, 1)[0].ravel().tolist() == [N + 5, N + 6]
    for rows in (bank, LanceBank.open(tmp_path / "rows.lance", version=bank.version)):
        np.testing.assert_array_equal(ids_of(rows), np.arange(N))


def test_a_writer_of_an_old_version_repeats_no_id(tmp_path: Path) -> None:
    bank = small_bank(tmp_path)
    larger = bank.add(Z[:1], [N], y=Y[:1], weight=WEIGHT[:1])
    with pytest.raises(InputError, match="row ids 1201 are in it already"):
        bank.add(Z[:1], [N], y=Y[:1], weight=WEIGHT[:1])
    assert bank.latest().version == larger.version


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    bank = small_bank(tmp_path)
    other = LanceBank.open(bank.table.uri)
    bank.add(Z[:1], [N], y=Y[:1], weight=WEIGHT[:1])
    other.remove([1])
    other.add(Z[:1], [N + 1], y=Y[:1], weight=WEIGHT[:1])
    np.testing.assert_array_equal(np.sort(ids_of(bank.latest())), np.r_[0, 2 : N + 2])


def test_erased_vectors_are_in_no_file(tmp_path: Path) -> None:
    bank = small_bank(tmp_path)
    assert files_with(tmp_path, Z[7]) == 2  # the rows, and the inverted file
    erased = erase(bank.remove([8]), [5, 7])  # row 5 has copies
    assert [files_with(tmp_path, Z[row]) for row in (5, 7, 8, 9)] == [2, 0, 0, 2]
    np.testing.assert_array_equal(ids_of(erased), np.setdiff1d(np.arange(N), [5, 7, 8]))
    assert erased.n_lists == LISTS
    with pytest.raises(InputError, match="no Lance table of version"):
        LanceBank.open(bank.table.uri, version=bank.version)


@pytest.mark.parametrize("removed", [[], [7]])
def test_a_vector_that_is_a_centroid_is_erased_too(tmp_path: Path, removed: list[int]) -> None:
    z = Z.copy()
    z[7] += 1000
    bank = LanceBank.build(tmp_path / "rows.lance", [Block(z, np.arange(N))], nlist=LISTS)
    assert (bank.centroids == z[7]).all(1).any()
    erased = erase(bank.remove([7]), []) if removed else erase(bank, [7])
    assert files_with(tmp_path, z[7]) == 0
    assert (erased.n_lists, len(erased)) == (LISTS, N - 1)


def test_a_vector_leaves_the_centroids_before_its_row_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted between the two, a removal is not done; else `erase` of no row would leave the centroid."""
    z = Z.copy()
    z[7] += 1000
    bank = LanceBank.build(tmp_path / "rows.lance", [Block(z, np.arange(N))], nlist=LISTS)
    with monkeypatch.context() as patch:
        patch.setattr(lance.LanceDataset, "delete", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bank.remove([7])
    now = bank.latest()
    assert len(now) == N
    assert now.search(z[7:8], 1)[0] == 7
    assert not (now.centroids == z[7]).all(1).any()


@pytest.mark.parametrize("step", ["delete", "create_index", "create_scalar_index", "cleanup_old_versions"])
def test_an_interrupted_removal_leaves_a_table_that_can_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    bank = small_bank(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(lance.LanceDataset, step, lambda *args, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            erase(bank, np.arange(20, 60))
    rows = np.arange(N) if step == "delete" else np.r_[0:20, 60:N]
    expected = build(Z[rows], rows).search(Z[:80], K)
    now = LanceBank.open(bank.table.uri, probes=LISTS)
    before, after = now.search(Z[:80], K), erase(now, []).search(Z[:80], K)
    for ids, sims in (before, after):
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(sims, expected[1])
    assert files_with(tmp_path, Z[30]) == (2 if step == "delete" else 0)


def test_copies_of_an_erased_vector_may_be_all_that_is_left(tmp_path: Path) -> None:
    z = np.tile(np.arange(D, dtype=np.float32), (100, 1))
    z[:50] = Z[0]
    bank = LanceBank.build(tmp_path / "rows.lance", [Block(z, np.arange(100))], nlist=2)
    assert len(erase(bank, np.r_[0:50, 60])) == 49
    assert files_with(tmp_path, z[0]) == 0


def test_an_address_that_cannot_be_written_is_one_line() -> None:
    with pytest.raises(InputError, match=r"/proc/rows.lance: not written"):
        LanceBank.build("/proc/rows.lance", [Block(Z, np.arange(N))])


@pytest.mark.parametrize("chunk", [97, 2**26])
def test_files_are_searched_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    bank = small_bank(tmp_path)
    monkeypatch.setattr(erasure, "_CHUNK", chunk)
    for row in range(20):
        assert len(erasure.files_with(bank.table, [b"none", Z[row].tobytes()])) == 2
    assert erasure.files_with(bank.table, [(Z[0] + 1).tobytes()]) == []


def written(bank: LanceBank, z: np.ndarray, row: int) -> Any:
    """Transaction of a row whose files are written, and which is not committed."""
    batch = lance_table.record_batch(Block(z, [row], {"y": Y[:1], "weight": WEIGHT[:1]}), bank.table.schema)
    return write_fragments(batch, bank.table, mode="append", return_transaction=True)


def test_an_addition_that_has_begun_before_an_erasure_is_refused(tmp_path: Path) -> None:
    bank = small_bank(tmp_path)
    transaction = written(bank, Z[:1] + 1, N)
    erase(bank, [7])
    with pytest.raises(InputError, match="another process changed it meanwhile"), lance_table.one_line(bank.table):
        lance.LanceDataset.commit(bank.table, transaction)
    assert len(ids_of(LanceBank.open(bank.table.uri))) == N - 1


def test_an_addition_that_begins_during_an_erasure_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, begun = small_bank(tmp_path), []

    def cleanup(table: Any, *args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        begun.append(written(bank.latest(), Z[:1] + 1, N))
        return table.cleanup_old_versions(*args, **options)

    monkeypatch.setattr(lance.LanceDataset, "cleanup_old_versions", cleanup)
    erase(bank, [7])
    lance.LanceDataset.commit(bank.table.uri, begun[0])
    np.testing.assert_array_equal(np.sort(ids_of(bank.latest())), np.delete(np.arange(N + 1), 7))


def test_an_addition_before_an_erasure_is_done_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = small_bank(tmp_path)
    refuse = erasure.refuse_earlier_changes

    def late(table: Any) -> Any:
        bank.add(Z[:1] + 1, [N], y=Y[:1], weight=WEIGHT[:1])
        return refuse(table)

    monkeypatch.setattr(erasure, "refuse_earlier_changes", late)
    with pytest.raises(InputError, match="another process changed it meanwhile"):
        erase(bank, [7])
    assert len(ids_of(bank.latest())) == N


def test_files_of_a_killed_addition_are_erased(tmp_path: Path) -> None:
    bank = small_bank(tmp_path)
    written(bank, Z[7:8], N)
    assert files_with(tmp_path, Z[7]) == 3
    erase(bank, [7])
    assert files_with(tmp_path, Z[7]) == 0


@pytest.mark.parametrize("next_id", [N + 20, N + 50])
def test_ids_that_another_took_before_an_erasure_are_not_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_id: int
) -> None:
    bank = small_bank(tmp_path)
    update = lance.LanceDataset.update_config

    def late(table: Any, values: dict[str, str | None]) -> Any:
        monkeypatch.undo()
        erase(bank.with_next_id(N + 50), [7])
        return update(table, values)

    monkeypatch.setattr(lance.LanceDataset, "update_config", late)
    with pytest.raises(InputError, match="another process changed it meanwhile"):
        bank.with_next_id(next_id)
    assert bank.latest().next_id == N + 50


@pytest.mark.parametrize("error", [OSError("a"), RuntimeError("a"), PanicException("a")])
def test_errors_of_lance_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    bank = small_bank(tmp_path)

    def fails(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(lance.LanceDataset, "create_index", fails)
    with pytest.raises(InputError, match=r"rows\.lance: version \d+ \(a\)"):
        bank.indexed(LISTS)


def test_a_tag_keeps_its_rows(tmp_path: Path) -> None:
    bank = small_bank(tmp_path)
    bank.table.tags.create("published", bank.version)
    with pytest.raises(InputError, match="tag published holds a row"):
        erase(bank.remove([7]), [8])
    assert files_with(tmp_path, Z[8]) == 2
    larger = bank.latest().add(Z[:1] + 1, [N], y=Y[:1], weight=WEIGHT[:1])
    erase(larger, [N])
    assert len(LanceBank.open(bank.table.uri, version=bank.version)) == N


_CHANGE = """
import sys
import numpy as np
from attnknn.index import faiss_index
from attnknn.index.erasure import erase
from attnknn.index.lance_bank import LanceBank
from attnknn.index.lance_rows import INDEX
bank = LanceBank.open(sys.argv[1])
print("ready", flush=True)
while True:
    {change}
"""


@pytest.mark.parametrize(
    "change",
    [
        "bank = bank.add(np.ones((50_000, 13)), np.arange(50_000) + bank.version * 100_000, y=np.zeros(50_000, int),"
        "weight=np.zeros((50_000, 3), np.float32))",
        "bank = bank.remove([bank.version])",
        "bank = bank.indexed(17)",
        "bank = erase(bank, [bank.version])",
    ],
)
def test_a_kill_leaves_a_whole_version(tmp_path: Path, change: str) -> None:
    bank = small_bank(tmp_path)
    command = [sys.executable, "-c", _CHANGE.format(change=change), bank.table.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGKILL)
    rows = replace(LanceBank.open(bank.table.uri), probes=LISTS)
    ids, added = ids_of(rows), (len(rows) - N) / 50_000
    assert process.returncode == -signal.SIGKILL
    assert len(np.unique(ids)) == len(rows)
    assert len(rows) < N or added == int(added)
    np.testing.assert_array_equal(rows.search(Z[N - 9 :], 1)[0].ravel(), np.arange(N - 9, N))


def test_no_queries_and_no_ids_have_no_rows(tmp_path: Path) -> None:
    bank = small_bank(tmp_path)
    ids, sims, columns = bank.nearest(Q[:0], K, columns=["y"])
    assert (ids.shape, sims.shape, columns["y"].shape) == ((0, K), (0, K), (0, K))
    assert bank.rows_of([])["vector"].shape == (0, D)


def test_without_lance_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lance", None)
    monkeypatch.delitem(sys.modules, "attnknn.index.lance_table")
    with pytest.raises(InputError, match=r"pip install attnknn\[lance\]"):
        importlib.import_module("attnknn.index.lance_table")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bank: LanceBank.open(bank.table.uri + "x"), "no Lance table"),
        (lambda bank: LanceBank.open(bank.table.uri, version=99), "no Lance table of version 99"),
        (lambda bank: LanceBank.build(bank.table.uri, blocks()), "exists; give another address"),
        (lambda bank: LanceBank.build(bank.table.uri + "x", []), "no rows"),
        (lambda bank: LanceBank.build(bank.table.uri + "x", [*blocks(), *blocks(3)]), "row ids 0, 1, 2 are repeated"),
        (lambda bank: LanceBank.build(bank.table.uri + "x", blocks(), "cosine"), "allowed are l2, ip"),
        (lambda bank: bank.search(Q[:, 1:], 1), "12 dimensions; the bank has 13"),
        (lambda bank: bank.search(Q, N + 1), "give 1 … 1201"),
        (lambda bank: bank.rows_of([3, N]), "ids: 1201 not in the bank"),
        (lambda bank: bank.remove([N]), "ids: 1201 not in the bank"),
        (lambda bank: bank.remove(np.arange(N)), "no row would be left"),
        (lambda bank: bank.add(Z[:1], [3], y=Y[:1], weight=WEIGHT[:1]), "row ids 3 are in it already"),
        (lambda bank: bank.add(Z[:1], [N], y=Y[:1]), "columns y; it has y, weight"),
        (lambda bank: bank.add(Z[:1, 1:], [N], y=Y[:1], weight=WEIGHT[:1]), "column vector is"),
        (lambda bank: bank.add(Z[:1] * np.nan, [N], y=Y[:1], weight=WEIGHT[:1]), "NaN"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(tmp_path: Path, call: object, message: str) -> None:
    bank = small_bank(tmp_path)
    with pytest.raises(InputError, match=message):
        call(bank)  # type: ignore[operator]
    assert bank.latest().version == bank.version
    assert [path.name for path in tmp_path.iterdir()] == ["rows.lance"]


def test_object_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    credentials = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**credentials, "AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
        monkeypatch.setenv(name, value)
    try:
        import boto3

        boto3.client("s3").create_bucket(Bucket="rows")
        bank = LanceBank.build("s3://rows/a.lance", blocks(), nlist=LISTS, probes=LISTS)
        expected = build(Z, np.arange(N)).search(Q, K)
        np.testing.assert_array_equal(bank.search(Q, K)[0], expected[0])
        smaller = bank.remove([1])
        assert len(LanceBank.open("s3://rows/a.lance")) == N - 1
        assert len(LanceBank.open("s3://rows/a.lance", version=bank.version)) == N
        written(smaller, Z[2:3], N)  # killed before its commit
        smaller = erase(smaller, [2])
        assert len(erase(smaller, [3])) == N - 3
    finally:
        server.stop()
