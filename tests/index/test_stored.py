"""The bank in its folder: FAISS and Lance give the same neighbours; versions of a table at an address."""

from pathlib import Path

import numpy as np
import pytest

from attnknn.core.errors import InputError
from attnknn.index.bank import Bank, build
from attnknn.index.config import BuildIndex
from attnknn.index.lance_bank import LanceBank
from attnknn.index.stored import open_bank, store

RNG = np.random.default_rng(0)
Z, IDS = RNG.normal(size=(400, 6)).astype(np.float32), np.arange(400) * 2
QUERIES = RNG.normal(size=(30, 6)).astype(np.float32)


def options(**changes: object) -> dict:
    return BuildIndex(**changes).model_dump()  # type: ignore[arg-type]


def tables(folder: Path) -> int:
    return len(list(folder.glob("*.lance")))


@pytest.mark.parametrize("kind", ["flat", "hnsw", "lance"])
def test_neighbours_are_those_of_exact_search(tmp_path: Path, kind: str) -> None:
    expected = build(Z, IDS).search(QUERIES, 7, exclude=IDS[:30])
    stored = store(tmp_path / "bank", Z, IDS, **options(kind=kind))
    for bank in (stored, open_bank(tmp_path / "bank")):
        assert isinstance(bank, LanceBank if kind == "lance" else Bank)
        for values, own in zip(expected, bank.search(QUERIES, 7, exclude=IDS[:30]), strict=True):
            np.testing.assert_array_equal(own, values)
    (tmp_path / "bank").rename(tmp_path / "moved")
    np.testing.assert_array_equal(open_bank(tmp_path / "moved").search(QUERIES, 7, IDS[:30])[0], expected[0])


def test_a_table_at_an_address_keeps_its_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "tables" / "rows.lance")
    table = options(kind="lance", uri=uri)
    first = store(tmp_path / "a", Z, IDS, **table)
    second = store(tmp_path / "b", Z[:99], IDS[:99], **table)
    assert (len(first), len(second)) == (400, 99)
    assert len(open_bank(tmp_path / "a")) == 400
    assert len(open_bank(tmp_path / "b")) == 99
    assert tables(tmp_path / "tables") == 1
    before = sorted(path for path in (tmp_path / "tables").rglob("*"))
    pinned = store(tmp_path / "c", Z, IDS, **{**table, "version": first.version})
    assert (len(pinned), pinned.version) == (400, first.version)
    assert sorted(path for path in (tmp_path / "tables").rglob("*")) == before
    for z, ids in ((Z + 1, IDS), (Z, IDS + 1), (Z[:99], IDS[:99])):
        with pytest.raises(InputError, match=f"version {first.version} holds other rows"):
            store(tmp_path / "d", z, ids, **{**table, "version": first.version})
    with pytest.raises(InputError, match="no Lance table of version 99"):
        store(tmp_path / "d", Z, IDS, **{**table, "version": 99})
    with pytest.raises(InputError, match="NaN"):
        store(tmp_path / "d", np.full_like(Z, np.nan), IDS, **table)
    assert not (tmp_path / "d").exists()
    assert len(open_bank(tmp_path / "a")) == 400
    first.drop()
    store(tmp_path / "d", Z, IDS, **table)
    with pytest.raises(InputError, match="another table than that of"):
        open_bank(tmp_path / "a")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"uri": "s3://x"}, "of tables of kind lance; kind is flat"), ({"kind": "lance", "version": 2}, "give its uri")],
)
def test_settings_of_tables(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BuildIndex(**settings)
