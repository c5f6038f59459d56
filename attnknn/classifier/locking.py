"""Lock a model's folder, and read it while other processes may replace it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from attnknn.core.errors import InputError
from attnknn.core.files import leftovers, make_folder, recover

T = TypeVar("T")


class LockedError(InputError):
    """Another process holds the lock of a model."""


@contextmanager
def model_lock(folder: Path, timeout: float = 60) -> Iterator[None]:
    """Hold the lock of a model's folder, under which every process and thread changes it. Reentrant in a thread.

    Raises:
        LockedError: the lock was held elsewhere for `timeout` seconds.
    """
    from filelock import FileLock, Timeout

    folder = folder.resolve()
    make_folder(folder.parent)
    path = folder.with_name(f".{folder.name}.lock")
    path.touch()  # fails at once where FileLock would try again and again
    lock = FileLock(path, is_singleton=True)
    try:
        lock.acquire(timeout)
    except Timeout:
        raise LockedError(f"{folder}: another process is changing it; try again") from None
    try:
        yield
    finally:
        lock.release()


def read_consistently(folder: Path, read: Callable[[], T], retries: int = 20) -> T:
    """Call `read`, again if another process replaced the folder meanwhile, so that files of two models never mix.

    Recovers first from a save that was killed.
    """
    recover_unlocked(folder)
    before = file_identity(folder)
    try:
        result = read()
        if not retries or file_identity(folder) == before:
            return result
    except (InputError, OSError):
        if not retries or (before is not None and file_identity(folder) == before):
            raise
    time.sleep(0.01)
    # No folder at first: a save may be between moving the old one away and moving the new one in.
    return read_consistently(folder, read, 0 if before is None else retries - 1)


def recover_unlocked(folder: Path) -> None:
    """Recover from a save that was killed, unless another process holds the lock."""
    if leftovers(folder.resolve()):
        with suppress(LockedError, OSError), model_lock(folder, timeout=0):
            recover(folder.resolve())


def file_identity(path: Path) -> tuple[int, int] | None:
    """Inode and modification time of a file or folder; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
