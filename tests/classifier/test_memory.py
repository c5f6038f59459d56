"""A memory with rows added and removed equals one built from the remaining rows."""

import pickle
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from attnknn.classifier import memory as memory_module
from attnknn.classifier.memory import SIZES, Memory
from attnknn.core.artifacts import BANK, Embeddings
from attnknn.core.errors import InputError
from attnknn.index import bank as bank_module
from attnknn.index import faiss_index
from attnknn.neighbours.search import memory as bank_of
from attnknn.neighbours.search import search
from attnknn.neighbours.statistics import class_sums, neighbour_statistics


def make_rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 5)).astype(np.float32)
    z[n // 2 :: 7] = z[: len(z[n // 2 :: 7])]  # duplicates
    return z, rng.integers(0, 3, n), np.ones(n)


def assert_equals_rebuilt(memory: Memory, z: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
    """Compare with a memory built from the rows of `memory` among all rows z."""
    rebuilt, queries = Memory.build(z[memory.ids], y[memory.ids], weight[memory.ids], 3), z[-20:]
    np.testing.assert_array_equal(memory.y, rebuilt.y)
    np.testing.assert_allclose(memory.agreement, rebuilt.agreement, atol=1e-6)
    np.testing.assert_allclose(memory.density, rebuilt.density, rtol=1e-5, atol=1e-6)
    k = min(7, len(memory))
    needs = ("query", "agreement", "density")
    (nearest, batch), (rebuilt_nearest, expected) = (m.retrieve(queries, k, needs) for m in (memory, rebuilt))
    np.testing.assert_array_equal(nearest.ids, memory.ids[rebuilt_nearest.ids])
    np.testing.assert_array_equal(batch.labels, expected.labels)
    np.testing.assert_allclose(batch.require("agreement"), expected.require("agreement"), atol=1e-6)
    classes = [(memory.classes(), rebuilt.classes())]
    if len(memory) > 4:
        rows = np.array([1, len(memory) - 1])
        ids = memory.ids[rows]
        pairs = (memory, ids), (rebuilt, rows)
        nearest, positions = (m.retrieve(queries, 2, (), without=r)[0].ids for m, r in pairs)
        np.testing.assert_array_equal(nearest, memory.ids[positions])
        relabelled = memory.relabelled(ids, 0, memory.ids), rebuilt.relabelled(rows, 0, rebuilt.ids)
        classes += [(memory.classes(ids), rebuilt.classes(rows)), tuple(m.classes() for m in relabelled)]
    for pair in classes:  # shares and prototypes
        for values, expected in zip(*pair, strict=True):
            np.testing.assert_allclose(values, expected, atol=1e-6)


@pytest.mark.parametrize("n", [3, 40, 300])
def test_statistics_are_those_of_the_pipeline(n: int) -> None:
    z, y, weight = make_rows(n)
    memory = Memory.build(z, y, weight, 3)
    weight = np.random.default_rng(1).uniform(0.5, 3, n)
    np.testing.assert_allclose(class_sums(z, y, weight, 3), (np.eye(3)[y] * weight[:, None]).T @ z, rtol=1e-4)
    e = Embeddings(z, y, np.full(n, BANK, np.int8), ("a", "b", "c"))
    expected = neighbour_statistics(e, search(bank_of(e), e, 96), SIZES)
    np.testing.assert_allclose(memory.agreement, expected.agreement, atol=1e-6)
    np.testing.assert_allclose(memory.density, expected.density, rtol=1e-5)
    np.testing.assert_allclose(memory.classes()[1], expected.prototypes, atol=1e-6)


STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=6)


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(st.integers(2, 150), STEPS, st.integers(0, 99))
def test_any_changes_equal_a_rebuilt_memory(n: int, steps: list[tuple[bool, int]], seed: int) -> None:
    z, y, _ = make_rows(600, seed)
    weight = np.random.default_rng(seed).integers(1, 4, 600).astype(np.float32)
    memory = Memory.build(z[:n], y[:n], weight[:n], 3)
    rng, total = np.random.default_rng(seed), n
    for adds, count in steps:
        if adds:
            added = slice(total, total + count)
            new = memory.add(z[added], y[added], weight[added])
            np.testing.assert_array_equal(new, np.arange(total, total + count))
            total += count
        elif len(memory) - count > 1:
            memory.forget(rng.choice(memory.ids, count, replace=False))
    assert_equals_rebuilt(memory, z, y, weight)


def test_forgetting_most_neighbours_of_a_row_and_hnsw_with_removed_rows() -> None:
    z, y, weight = make_rows(400, 3)
    for kind, forgotten in (("flat", np.argsort(((z - z[0]) ** 2).sum(1))[1:200]), ("hnsw", np.arange(0, 100, 3))):
        memory = Memory.build(z[:350], y[:350], weight[:350], 3, kind=kind)
        memory.forget(forgotten[forgotten < 350])
        memory.add(z[350:], y[350:], weight[350:])
        assert_equals_rebuilt(memory, z, y, weight)


def test_invalid_changes() -> None:
    z, y, weight = make_rows(20)
    memory = Memory.build(z, y, weight, 3)
    memory.forget(np.array([4, 4]))
    assert_equals_rebuilt(memory, z, y, weight)
    for ids, message in (
        ([3, 4, 77], "ids: 4, 77 not in the memory"),
        (memory.ids[1:], "fewer than two rows would be"),
    ):
        with pytest.raises(InputError, match=message):
            memory.forget(np.array(ids))
    assert len(memory) == 19
    with pytest.raises(InputError, match="n_samples = 1"):
        Memory.build(z[:1], y[:1], weight[:1], 3)


def interrupted(call: Callable[[], object], step: int) -> bool:
    """Call a function, with a KeyboardInterrupt at a line of the memory or its bank; False if it has fewer lines."""
    own = tuple(module.__file__ for module in (memory_module, bank_module, faiss_index))
    left = step

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(own):
            return None
        left -= event == "line"
        if left < 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("change", ["add", "forget"])
@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_an_interrupted_change_is_made_whole_or_not_at_all(kind: str, change: str) -> None:
    z, y, weight = make_rows(60)
    before = pickle.dumps(Memory.build(z[:40], y[:40], weight[:40], 3, kind=kind))
    step, states = 0, []
    while True:
        memory: Memory = pickle.loads(before)
        rows = (z[40:], y[40:], weight[40:]) if change == "add" else (np.arange(25),)  # so that a graph is rebuilt
        stopped = interrupted(partial(getattr(memory, change), *rows), step)
        states.append(pickle.dumps(memory))
        if not stopped:
            break
        step += 1
    assert step > 40
    kept = states.count(before)
    assert set(states[:kept]) == {before} != {states[-1]}
    assert set(states[kept:]) == {states[-1]}
    assert kept >= step - 1, "only the return follows the change"


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_a_copied_state_is_not_changed_with_the_memory(kind: str) -> None:
    z, y, weight = make_rows(60)
    memory = Memory.build(z[:40], y[:40], weight[:40], 3, kind=kind)
    memory.add(z[40:50], y[40:50], weight[40:50])
    state = memory.__getstate__()
    before = pickle.dumps(state)
    memory.forget(np.arange(5))
    memory.add(z[50:], y[50:], weight[50:])
    assert pickle.dumps(state) == before
