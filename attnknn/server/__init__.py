"""A local page to explore neighbours: `serve` a model, or `create_app` for a server of your own.

Whatever comes from the browser is taken as hostile: see `safety`. The page in `page` is plain HTML, CSS and scripts.
"""

from pathlib import Path
from typing import Any

from attnknn.errors import InputError

__all__ = ["create_app", "serve"]

_EXTRA = ("starlette", "uvicorn")


def create_app(model: Any, **options: Any) -> Any:
    """A Starlette application over a `Model`; see `app.create_app`."""
    _check_extra()
    from attnknn.server.app import create_app as create

    return create(model, **options)


def serve(
    folder: Path, host: str = "127.0.0.1", port: int = 8000, open_browser: bool = False, allow_save: bool = False
) -> None:
    """Serve a saved model until Ctrl-C; see `run.serve`."""
    _check_extra()
    from attnknn.server.run import serve as run

    run(Path(folder), host, port, open_browser, allow_save)


def _check_extra() -> None:
    from importlib.util import find_spec

    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise InputError(f"serve needs {' and '.join(missing)}: pip install 'attnknn[serve]'")
