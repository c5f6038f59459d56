"""Threads and processes that use one model, and processes that are killed."""

import multiprocessing
import pickle
import time
from concurrent.futures import ThreadPoolExecutor, wait
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kills import kill_runs

from attnknn import AttnKNNClassifier
from attnknn.classifier.locking import LockedError, model_lock
from attnknn.core import files


def fitted(index: str = "flat", rows: int = 40) -> AttnKNNClassifier:
    x = np.random.default_rng(0).normal(size=(rows, 2))
    return AttnKNNClassifier(n_neighbors=5, weights="distance", index=index).fit(x, (x[:, 0] > 0).astype(int))


def save_repeatedly(folder: Path, times: int) -> None:
    """Save a model with one row more, and with one row less, again and again."""
    model = AttnKNNClassifier.load(folder)
    for _ in range(times):
        model.partial_fit([[0.0, 0.0]], [0]).save(folder)
        model.forget([model.memory_.ids[-1]]).save(folder)


def start_saver(folder: Path, times: int) -> Any:
    """A process forked from a server of its own: OpenMP's threads of this process do not survive a fork."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attnknn.classifier.estimator", "pytest", __name__])
    process = context.Process(target=save_repeatedly, args=(folder, times), daemon=True)
    process.start()
    return process


@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_threads_predict_while_another_adds_and_forgets(index: str) -> None:
    model, x = fitted(index, 300), np.random.default_rng(1).normal(size=(64, 2))
    before = model.predict_proba(x)

    def change() -> None:
        for _ in range(30):
            model.partial_fit(x, np.zeros(len(x), int))
            model.forget(model.memory_.ids[-len(x) :])

    def predict(_: int) -> int:
        answers = [model.predict_proba(x), model.explain(x).probabilities, model.kneighbors(x)[0]]
        return sum(not np.isfinite(answer).all() for answer in answers)

    with ThreadPoolExecutor(5) as threads:
        changes = threads.submit(change)
        assert sum(threads.map(predict, range(60))) == 0
        changes.result()
    if index == "flat":  # a graph depends on the order of its changes
        np.testing.assert_array_equal(model.predict_proba(x), before)


def test_a_copy_waits_for_a_change_in_another_thread() -> None:
    model = fitted()
    with ThreadPoolExecutor(2) as threads:
        with model.memory_.lock.writing():
            copies = [threads.submit(copy, model) for copy in (pickle.dumps, deepcopy)]
            assert not wait(copies, 0.2).done
        assert wait(copies, 30).not_done == set()


def test_processes_save_into_one_folder_in_turn(tmp_path: Path) -> None:
    fitted().save(tmp_path / "m")
    savers = [start_saver(tmp_path / "m", 10) for _ in range(3)]
    stop = time.monotonic() + 120
    while any(saver.is_alive() for saver in savers) and time.monotonic() < stop:
        assert len(AttnKNNClassifier.load(tmp_path / "m").memory_) in range(40, 44)
    assert [saver.exitcode for saver in savers] == [0] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.lock", "m"]


def test_a_killed_save_leaves_the_earlier_or_the_later_model(tmp_path: Path) -> None:
    assert set(kill_runs("save", tmp_path, 5)) <= {"old", "new"}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_save_killed_between_two_renames(tmp_path: Path, replaced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where folders cannot be exchanged in one step, the earlier one is moved away first."""
    model, folder = fitted(), tmp_path / "m"
    monkeypatch.setattr(files, "_exchange", lambda first, second: False)
    model.save(folder)
    model.partial_fit([[0.0, 0.0]], [0]).save(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.lock", "m"]
    folder.rename(tmp_path / ".m.4567cdef.old")
    (tmp_path / ".m.0123abcd.draft").mkdir()
    (tmp_path / ".m.old").mkdir()  # not of ours
    if replaced:
        model.save(folder)
    assert len(AttnKNNClassifier.load(folder).memory_) == 41
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.lock", ".m.old", "m"]


def test_a_model_that_does_not_read_back_is_not_saved(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "m")
    model.partial_fit([[0.0, 0.0]], [0])

    def damage(draft: Path) -> None:
        (draft / "bank/z.npy").write_bytes(b"")

    with pytest.raises(ValueError, match="damaged index"):
        model.save(tmp_path / "m", damage)
    assert len(AttnKNNClassifier.load(tmp_path / "m").memory_) == 40


def test_the_lock_is_reentrant_in_a_thread_only(tmp_path: Path) -> None:
    def lock() -> None:
        with model_lock(tmp_path / "m", timeout=0):
            pass

    with ThreadPoolExecutor(1) as threads, model_lock(tmp_path / "m"):
        lock()
        with pytest.raises(LockedError, match="another process is changing it"):
            threads.submit(lock).result()
    lock()
