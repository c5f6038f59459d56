"""The reader–writer lock."""

import threading
import time

from attnknn.app.server.lock import SharedLock


def test_readers_share_and_writers_do_not() -> None:
    lock, seen, order = SharedLock(), [], []
    inside = threading.Barrier(3)

    def read() -> None:
        with lock.reading():
            inside.wait(5)  # three at once, or this breaks

    def write(name: int) -> None:
        with lock.writing():
            order.append(name)
            time.sleep(0.01)
            seen.append(order[-1] == name)

    for work in (
        [threading.Thread(target=read) for _ in range(3)],
        [threading.Thread(target=write, args=(i,)) for i in range(5)],
    ):
        for thread in work:
            thread.start()
        for thread in work:
            thread.join(5)
    assert seen == [True] * 5


def test_a_writer_goes_before_readers_that_come_later() -> None:
    lock, order = SharedLock(), []
    reading = lock.reading()
    reading.__enter__()

    def write() -> None:
        with lock.writing():
            order.append("write")

    def read() -> None:
        with lock.reading():
            order.append("read")

    writer, reader = threading.Thread(target=write), threading.Thread(target=read)
    writer.start()
    time.sleep(0.05)
    reader.start()
    time.sleep(0.05)
    assert order == []
    reading.__exit__(None, None, None)
    writer.join(5)
    reader.join(5)
    assert order == ["write", "read"]
