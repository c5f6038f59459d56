"""The reader–writer lock."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

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
