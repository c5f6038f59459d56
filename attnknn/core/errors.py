"""Errors that the user can fix, shown as one line without a traceback."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK_FULL_TEXT = re.compile(r"No space left|quota exceeded|os error (28|122|27)\b|\d+ requested and \d+ written")


class InputError(ValueError):
    """A value, file or setting that the user can fix; the message names it and the remedy, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class ChangedError(InputError):
    """Rows of a table are gone that another process forgot while they were read; loading again helps."""


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)


@contextmanager
def needs_extra(extra: str, use: str) -> Iterator[None]:
    """Turn a failed import of an optional package into an `InputError` that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise InputError(f"{use} needs {package}: pip install 'attnknn[{extra}]'") from None


def is_disk_full(error: Exception) -> bool:
    """Whether a file could not be written for want of space; safetensors and numpy say so in the message alone."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _DISK_FULL
    return not isinstance(error, InputError) and _DISK_FULL_TEXT.search(str(error)) is not None


def one_line(error: Exception) -> str | None:
    """Describe an error that the user can fix: what, where, what to do. None for any other."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory; give fewer rows at a time, or a smaller model"
    if isinstance(error, OSError) and error.errno != errno.EPIPE:  # EPIPE: the reader has closed the pipe
        remedy = "; free space there, or write elsewhere" if is_disk_full(error) else ""
        text = f"{error.filename or 'reading or writing a file'}: {error.strerror or error}{remedy}"
        return " ".join(text.split())
    return None
