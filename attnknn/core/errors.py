"""Errors that the user can fix; shown in one line, without a traceback."""


class InputError(ValueError):
    """A value, file or setting that the user can fix; the message says what, where and what to do."""


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)
