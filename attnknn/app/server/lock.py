"""A lock that readers share and writers have alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class SharedLock:
    """Many readers, or one writer; a writer that waits goes before readers that come after it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._readers = 0
        self._writers_waiting = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While others may read too. It must not be nested: a writer waiting in between would stop both."""
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
        """While nobody else reads or writes."""
        with self._changed:
            self._writers_waiting += 1
            self._changed.wait_for(lambda: not self._writing and not self._readers)
            self._writers_waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
