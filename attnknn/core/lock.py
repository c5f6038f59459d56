"""A reader–writer lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class SharedLock:
    """Many readers or one writer; a waiting writer goes before later readers. A copy is a lock of its own."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._readers = 0
        self._writers_waiting = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Share the lock with other readers. Not reentrant: a waiting writer would deadlock."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._writers_waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock exclusively."""
        with self._changed:
            self._writers_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
                self._writing = True
            finally:  # Ctrl-C too
                self._writers_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()
