"""Queries with their neighbours: gathered by id, from one embedding space or several."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Neighbours
from attnknn.core.errors import InputError
from attnknn.neighbours.space import NEEDS, EmbeddingSpace, classes_of, part_neighbours, part_rows
from synthetic import blobs, embedded, neighbourhood, retrieved

PARTS = ("embeddings", "neighbours", "statistics")


@pytest.fixture(scope="module")
def space() -> EmbeddingSpace:
    return retrieved(embedded(blobs(120, noise=1.5)))


def fold(space: EmbeddingSpace, seed: int) -> EmbeddingSpace:
    """The same rows by another encoder (another rotation of the table), with other parts."""
    e = space.embeddings
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    part = rng.permutation(e.part)
    return retrieved(dataclasses.replace(e, z=(e.z @ turn).astype(np.float32), part=part), k=15)


@pytest.fixture(scope="module")
def folds(space: EmbeddingSpace) -> list[EmbeddingSpace]:
    return [fold(space, seed) for seed in (1, 2)]


def test_around_is_what_is_stored_of_each_neighbour(space: EmbeddingSpace) -> None:
    e, evidence = space.embeddings, space.statistics
    rows = np.array([e.rows(TEST)[3], e.rows(BANK)[5], e.rows(FIT)[0], e.rows(TEST)[3]])
    batch, ids = space.around(rows, 6), space.neighbours.ids[rows, :6]
    assert (batch.sims.diff(dim=1) <= 0).all()
    assert (e.part[ids] == BANK).all()
    assert (ids != rows[:, None]).all()
    np.testing.assert_allclose(batch.sims, -((e.z[rows][:, None] - e.z[ids]) ** 2).sum(2), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(batch.labels, e.y[ids])
    stored = {"query": e.z[rows], "keys": e.z[ids], "agreement": evidence.agreement[ids]}
    stored |= {"density": evidence.density[ids], "logits": e.logits[rows]}  # type: ignore[index]
    bank, (regions, centroids) = e.z[e.rows(BANK)], space.regions
    assert len(centroids) == round(len(bank) ** 0.5)
    moved = np.where((e.part == BANK)[:, None], e.z, 9.0).astype(np.float32)
    moved_space = dataclasses.replace(space, embeddings=dataclasses.replace(e, z=moved))
    np.testing.assert_array_equal(moved_space.regions[1], centroids, "of bank rows alone")
    own = ((e.z[:, None] - centroids[None]) ** 2).sum(2)
    np.testing.assert_array_equal(regions, own.argmin(1))
    stored |= {"region": regions[ids]}
    stored["region_sims"] = -((e.z[rows][:, None] - centroids[regions[ids]]) ** 2).sum(2)
    inner = dataclasses.replace(space, neighbours=dataclasses.replace(space.neighbours, metric="ip"))
    products = (e.z[rows][:, None] * centroids[regions[ids]]).sum(2)
    np.testing.assert_allclose(inner.around(rows, 6, ("region", "region_sims")).region_sims, products, atol=1e-6)
    for needs in (NEEDS, (), ("density",), ("query", "keys")):
        part = space.around(rows, 6, needs)
        for name in NEEDS:
            if name in needs:
                np.testing.assert_allclose(part.require(name), stored[name], rtol=1e-5, atol=1e-6)
            else:
                with pytest.raises(AssertionError, match=f"{name} was not gathered"):
                    part.require(name)


def test_shares_are_those_of_the_bank_alone_and_can_be_trained_with(space: EmbeddingSpace) -> None:
    e = space.embeddings
    y, bank = np.ones_like(e.y), e.rows(BANK)
    y[bank[:6]], y[bank[6:]] = 2, 0
    fresh = dataclasses.replace(space, embeddings=dataclasses.replace(e, y=y))
    with torch.inference_mode():  # as a prediction computes them
        kept = fresh.shares, fresh.prototypes
    counts = np.array([54, 0.5, 6])  # a class that is nowhere in the bank counts as half a row
    np.testing.assert_allclose(kept[0], counts / 60.5, rtol=1e-6)
    for values in kept:
        gain = torch.ones(1, requires_grad=True)
        (gain * values).sum().backward()


def test_a_missing_neighbour_has_no_label(space: EmbeddingSpace) -> None:
    ids, sims = np.array(space.neighbours.ids), np.array(space.neighbours.sims)
    ids[:, -1], sims[:, -1] = -1, -np.inf
    neighbours = Neighbours(space.neighbours.rows, ids, sims, "l2")
    batch = EmbeddingSpace(space.embeddings, neighbours, space.statistics).around(np.arange(120), 20, NEEDS)
    assert (batch.labels[:, -1] == -1).all()
    assert torch.isneginf(batch.sims[:, -1]).all()
    assert (batch.labels[:, :-1] >= 0).all()
    assert batch.region is not None
    assert (batch.region[:, -1] == -1).all()


def test_moving_to_another_type_leaves_labels_whole() -> None:
    n = neighbourhood()
    n = dataclasses.replace(n, log_share=n.sims, log_weight=n.sims, features=n.agreement)
    wide = n.to(torch.float64)
    for field in dataclasses.fields(n):
        before, after = getattr(n, field.name), getattr(wide, field.name)
        assert after.dtype == (torch.int64 if field.name in ("labels", "region") else torch.float64)
        np.testing.assert_array_equal(after, before)
    assert dataclasses.replace(n, keys=None).to("cpu").keys is None


def test_rows_of_a_part_come_from_each_space_that_has_some(space: EmbeddingSpace, folds) -> None:
    spaces = [space, *folds]
    for part in (FIT, VAL):
        assert [one for one, _ in part_rows(spaces, part)] == spaces
        y = np.concatenate([one.embeddings.y[one.embeddings.rows(part)] for one in spaces])
        np.testing.assert_array_equal(classes_of(spaces, part), y)
    e = folds[0].embeddings
    unfitted = dataclasses.replace(e, part=np.where(e.part == FIT, TEST, e.part).astype(np.int8))
    without = [space, EmbeddingSpace(unfitted, folds[0].neighbours, folds[0].statistics), folds[1]]
    assert [one for one, _ in part_rows(without, FIT)] == [without[0], without[2]]


def test_neighbours_of_a_part_are_those_of_each_space(space: EmbeddingSpace, folds) -> None:
    spaces = [space, *folds]
    sims, labels = part_neighbours(spaces, VAL, 9)
    expected = [one.neighbours.take(one.embeddings.rows(VAL), 9) for one in spaces]
    np.testing.assert_array_equal(sims, np.concatenate([s for _, s in expected]))
    y = [one.embeddings.y[ids] for one, (ids, _) in zip(spaces, expected, strict=True)]
    np.testing.assert_array_equal(labels, np.concatenate(y))
    with pytest.raises(InputError, match="15 stored"):
        part_neighbours(spaces, VAL, 16)


def test_saved_and_loaded(folds, tmp_path: Path) -> None:
    EmbeddingSpace.save_folds(iter(folds), tmp_path)
    for one, other in zip(folds, EmbeddingSpace.load_folds(tmp_path), strict=True):
        a, b = (space.around(one.embeddings.rows(FIT), 5, NEEDS) for space in (one, other))
        for field in dataclasses.fields(a):
            np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))
    EmbeddingSpace.save_folds(iter(()), tmp_path)
    assert EmbeddingSpace.load_folds(tmp_path) == []
    (tmp_path / "folds.json").unlink()
    with pytest.raises(InputError, match=r"folds\.json"):
        EmbeddingSpace.load_folds(tmp_path)


def test_artifacts_that_do_not_belong_together_are_refused(space: EmbeddingSpace, tmp_path: Path) -> None:
    space.save(tmp_path / "large")
    retrieved(embedded(blobs(90))).save(tmp_path / "small")
    for names in (("small", "large", "large"), ("large", "large", "small"), ("small", "large", "small")):
        folders = [tmp_path / name / part for name, part in zip(names, PARTS, strict=True)]
        with pytest.raises(InputError, match="does not belong to"):
            EmbeddingSpace.load(*folders)
