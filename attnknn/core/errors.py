"""What the user can mend is told in one line; everything else keeps its traceback."""


class InputError(ValueError):
    """A value, file or setting that the user can mend; the message says what, where and what to do."""


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)
