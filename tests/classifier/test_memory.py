"""Rows added and removed: labels, statistics and neighbours are those of a memory built anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnknn.classifier.memory import SIZES, Memory
from attnknn.core.artifacts import BANK, Embeddings
from attnknn.core.errors import InputError
from attnknn.neighbours.search import memory, search
from attnknn.neighbours.statistics import class_sums, neighbour_statistics


def rows(n: int, seed: int = 0, dim: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, dim)).astype(np.float32)
    z[n // 2 :: 7] = z[: len(z[n // 2 :: 7])]  # duplicates
    return z, rng.integers(0, 3, n), np.ones(n)


def built_anew(bank: Memory, z: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Memory:
    """A memory of the rows that `bank` holds, of all that there ever were."""
    return Memory.build(z[bank.ids], y[bank.ids], weight[bank.ids], 3)


def assert_same(bank: Memory, anew: Memory, queries: np.ndarray) -> None:
    np.testing.assert_array_equal(bank.y, anew.y)
    np.testing.assert_allclose(bank.agreement, anew.agreement, atol=1e-6)
    np.testing.assert_allclose(bank.density, anew.density, rtol=1e-5, atol=1e-6)
    for values, expected in zip(bank.classes(), anew.classes(), strict=True):
        np.testing.assert_allclose(values, expected, atol=1e-6)
    k = min(7, len(bank))
    needs = ("query", "agreement", "density")
    (ids, batch), (positions, expected) = (memory.retrieve(queries, k, needs) for memory in (bank, anew))
    np.testing.assert_array_equal(ids, bank.ids[positions])
    np.testing.assert_array_equal(batch.labels, expected.labels)
    np.testing.assert_allclose(batch.require("agreement"), expected.require("agreement"), atol=1e-6)
    if len(bank) > 4:
        rows = np.array([1, len(bank) - 1])
        for values, expected in zip(bank.classes(bank.ids[rows]), anew.classes(rows), strict=True):
            np.testing.assert_allclose(values, expected, atol=1e-6)
        np.testing.assert_array_equal(
            bank.retrieve(queries, 2, (), without=bank.ids[rows])[0],
            bank.ids[anew.retrieve(queries, 2, (), without=rows)[0]],
        )
        relabelled = bank.relabelled(bank.ids[rows], 0, bank.ids), anew.relabelled(rows, 0, anew.ids)
        for values, expected in zip(*(memory.classes() for memory in relabelled), strict=True):
            np.testing.assert_allclose(values, expected, atol=1e-6)


@pytest.mark.parametrize("n", [3, 40, 300])
def test_evidence_is_that_of_the_study(n: int) -> None:
    z, y, weight = rows(n)
    bank = Memory.build(z, y, weight, 3)
    e = Embeddings(z, y, np.full(n, BANK, np.int8), ("a", "b", "c"))
    expected = neighbour_statistics(e, search(memory(e), e, 96), SIZES)
    np.testing.assert_allclose(bank.agreement, expected.agreement, atol=1e-6)
    np.testing.assert_allclose(bank.density, expected.density, rtol=1e-5)
    np.testing.assert_allclose(bank.classes()[1], expected.prototypes, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 150), st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=6), st.integers(0, 99))
def test_rows_that_came_and_went_leave_no_trace(n: int, steps: list[tuple[bool, int]], seed: int) -> None:
    z, y, weight = rows(600, seed)
    weight = np.random.default_rng(seed).integers(1, 4, 600).astype(np.float32)
    bank = Memory.build(z[:n], y[:n], weight[:n], 3)
    rng, total = np.random.default_rng(seed), n
    for adds, count in steps:
        if adds:
            added = slice(total, total + count)
            new = bank.add(z[added], y[added], weight[added])
            np.testing.assert_array_equal(new, np.arange(total, total + count))
            total += count
        elif len(bank) - count > 1:
            bank.forget(rng.choice(bank.ids, count, replace=False))
    assert_same(bank, built_anew(bank, z, y, weight), z[-20:])


def test_many_rows_forgotten_are_searched_for_again() -> None:
    z, y, weight = rows(400, 3)
    bank = Memory.build(z, y, weight, 3)
    bank.forget(np.argsort(((z - z[0]) ** 2).sum(1))[1:200])  # all that were near to a row
    assert_same(bank, built_anew(bank, z, y, weight), z[:20])


def test_a_graph_that_hides_what_it_forgot_serves_as_well() -> None:
    z, y, weight = rows(300, 4)
    bank = Memory.build(z[:250], y[:250], weight[:250], 3, kind="hnsw")
    bank.forget(np.arange(0, 100, 3))
    bank.add(z[250:], y[250:], weight[250:])
    assert_same(bank, built_anew(bank, z, y, weight), z[:20])


def test_what_is_not_there_cannot_be_forgotten() -> None:
    z, y, weight = rows(20)
    bank = Memory.build(z, y, weight, 3)
    bank.forget(np.array([4, 4]))
    assert_same(bank, built_anew(bank, z, y, weight), z[:5])
    with pytest.raises(InputError, match="ids: 4, 77 not in the memory"):
        bank.forget(np.array([3, 4, 77]))
    with pytest.raises(InputError, match="fewer than two rows would be left"):
        bank.forget(bank.ids[1:])
    assert len(bank) == 19
    with pytest.raises(InputError, match="n_samples = 1"):
        Memory.build(z[:1], y[:1], weight[:1], 3)


def test_sums_of_classes_are_those_of_a_loop() -> None:
    z, y, _ = rows(5000)
    weight = np.random.default_rng(1).uniform(0.5, 3, 5000)
    expected = [sum(w * row for row, label, w in zip(z, y, weight, strict=True) if label == c) for c in range(3)]
    np.testing.assert_allclose(class_sums(z, y, weight, 3), expected, rtol=1e-4, atol=1e-3)
