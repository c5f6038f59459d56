"""Errors that the user can fix, shown as one line without a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """A value, file or setting that the user can fix; the message names it and the remedy."""


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
