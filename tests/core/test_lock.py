"""The reader–writer lock."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from attnknn.core.lock import SharedLock


def test_readers_share_and_writers_exclude_each_other() -> None:
    lock, order = SharedLock(), []
    barrier = threading.Barrier(3)

    def read(_: int) -> None:
        with lock.reading():
            barrier.wait(5)  # breaks unless three hold the lock

    def write(i: int) -> bool:
        with lock.writing():
            order.append(i)
            time.sleep(0.01)
            return order[-1] == i

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(read, range(3)))
        assert list(threads.map(write, range(5))) == [True] * 5


def test_a_writer_that_is_interrupted_while_it_waits_stops_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = SharedLock()
    with monkeypatch.context() as patch, lock.reading(), pytest.raises(KeyboardInterrupt):
        patch.setattr(lock._changed, "wait_for", Mock(side_effect=KeyboardInterrupt))  # as Ctrl-C
        with lock.writing():
            pass
    reader = threading.Thread(target=lambda: lock.reading().__enter__(), daemon=True)
    reader.start()
    reader.join(5)
    assert not reader.is_alive()


def test_a_waiting_writer_precedes_later_readers() -> None:
    lock, order = SharedLock(), []

    def use(kind: str) -> None:
        with getattr(lock, kind)():
            order.append(kind)

    with ThreadPoolExecutor(2) as threads, lock.reading():
        for kind in ("writing", "reading"):
            threads.submit(use, kind)
            time.sleep(0.05)
        assert order == []
    assert order == ["writing", "reading"]
