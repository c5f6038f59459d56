"""The web application: which address gives what. All work is done by threads, so that none waits for another's."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from attnknn import __version__
from attnknn.app.model.model import Model
from attnknn.app.server.security import (
    IMAGE_BYTES,
    JSON_BYTES,
    PICTURES,
    Bodies,
    Guard,
    Json,
    Refusal,
    media_type,
    parsed,
    told,
)
from attnknn.app.server.session import SHOWN, Explorer
from attnknn.core.errors import InputError, require

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html"),
    "/static/page.css": ("page.css", "text/css"),
    "/static/page.js": ("page.js", "text/javascript"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
_THREADS, _DECODING = 4, 2  # at work at once; a picture of 25 million pixels takes 200 MB while it is decoded
Handler = Callable[[Request], Awaitable[Response]]


def create_app(
    model: Model, *, name: str = "model", folder: Path | None = None, allow_save: bool = False, host: str = "127.0.0.1"
) -> Starlette:
    """A page and its JSON interface over a model.

    Args:
        name: what the page calls it.
        folder: where the model was read from, to go back to and to save to.
        allow_save: whether the page may write to the folder.
        host: that the server is bound to; requests that name another are refused.
    """
    views = _Views(Explorer(model, folder, allow_save), name)
    files = {path: ((_PAGE / file).read_bytes(), kind) for path, (file, kind) in _FILES.items()}

    async def page(request: Request) -> Response:
        body, kind = files[request.url.path]
        return Response(body, media_type=kind)

    routes = [Route(path, page) for path in files]
    routes += [Route(path, _answered(getattr(views, of))) for path, of in _GET.items()]
    routes += [Route(path, _answered(getattr(views, of)), methods=["POST"]) for path, of in _POST.items()]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, bound=host)],
        exception_handlers={HTTPException: _not_there},
    )


_GET = {
    "/api/model": "model",
    "/api/calibration": "calibration",
    "/api/cases": "cases",
    "/api/change": "change",
    "/api/picture/{kind}/{file}": "picture",
    "/api/{kind}/{which}": "answer",
}
_POST = {
    "/api/ask": "ask",
    "/api/add": "add",
    "/api/forget": "forget",
    "/api/reset": "reset",
    "/api/save": "save",
}


class _Views:
    """From requests to what `Explorer` does, and back."""

    def __init__(self, explorer: Explorer, name: str) -> None:
        self.explorer, self.name = explorer, name
        self.pictures, self.bodies = Bodies(PICTURES), Bodies()
        self.threads, self.decoding = anyio.CapacityLimiter(_THREADS), anyio.CapacityLimiter(_DECODING)

    async def _done(self, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await run_sync(partial(work, *args, **named), limiter=self.threads)

    async def model(self, request: Request) -> Response:
        return Json({"name": self.name, "version": __version__, **await self._done(self.explorer.about)})

    async def calibration(self, request: Request) -> Response:
        return Json(await self._done(self.explorer.calibration))

    async def cases(self, request: Request) -> Response:
        asked = request.query_params
        of, label = asked.get("filter", "all"), asked.get("label", "")
        start, count, least = (
            _whole(asked.get("start", "0")),
            _whole(asked.get("count", "50")),
            asked.get("least", "0.8"),
        )
        try:
            least = float(least[:20])
        except ValueError:
            raise InputError("least: no number; give a confidence from 0 to 1") from None
        return Json(await self._done(self.explorer.cases, of, label, start, count, least))

    async def change(self, request: Request) -> Response:
        return Json(await self._done(self.explorer.change, request.query_params.get("query", "")))

    async def picture(self, request: Request) -> Response:
        kind, file = request.path_params["kind"], request.path_params["file"]
        if not file.endswith(".png"):
            raise Refusal(404, "a picture is named ….png")
        name = f"{kind}/{file.removesuffix('.png')}"
        kept = {"Cache-Control": "private, max-age=3600"}
        return Response(await self._done(self.explorer.picture, name), media_type="image/png", headers=kept)

    async def answer(self, request: Request) -> Response:
        name = f"{request.path_params['kind']}/{request.path_params['which']}"
        row = request.query_params.get("row")
        also = None if row is None else _whole(row)
        return Json(await self._done(self.explorer.answer, name, _shown(request), also))

    async def ask(self, request: Request) -> Response:
        kind, shown = media_type(request), _shown(request)
        if kind.startswith("image/"):
            async with self.pictures.read(request, IMAGE_BYTES) as data:
                asked = partial(self.explorer.ask_picture, data, shown)
                return Json(await run_sync(asked, limiter=self.decoding))
        async with self._json(request) as sent:
            require(len(sent) == 1 and set(sent) <= {"row", "vector"}, 'give {"row": {…}} or {"vector": […]}')
            if "row" in sent:
                return Json(await self._done(self.explorer.ask_row, sent["row"], shown))
            return Json(await self._done(self.explorer.ask_vector, sent["vector"], shown))

    async def add(self, request: Request) -> Response:
        async with self._json(request) as sent:
            fits = set(sent) == {"query", "label"} and all(isinstance(value, str) for value in sent.values())
            require(fits, 'give {"query": "case/3", "label": "…"}')
            return Json(await self._done(self.explorer.add, sent["query"], sent["label"]))

    async def forget(self, request: Request) -> Response:
        async with self._json(request) as sent:
            require(set(sent) == {"ids"}, 'give {"ids": [3, 7]}')
            return Json(await self._done(self.explorer.forget, sent["ids"]))

    async def reset(self, request: Request) -> Response:
        async with self._json(request):
            return Json(await self._done(self.explorer.reset))

    async def save(self, request: Request) -> Response:
        async with self._json(request):
            return Json(await self._done(self.explorer.save))

    @asynccontextmanager
    async def _json(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        # A page of another site can send a form without being asked first, but no JSON.
        if media_type(request) != "application/json":
            raise Refusal(415, "send JSON, with Content-Type application/json")
        async with self.bodies.read(request, JSON_BYTES) as body:
            yield parsed(body)


def _answered(view: Handler) -> Handler:
    """The view, whose errors are told in one line of JSON."""

    async def answer(request: Request) -> Response:
        try:
            return await view(request)
        except Exception as error:
            return told(error)

    return answer


async def _not_there(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    line = {404: "there is nothing at this address", 405: "this address is not asked in that way"}
    return Json({"error": line.get(error.status_code, error.detail)}, error.status_code, headers=error.headers)


def _shown(request: Request) -> int:
    return _whole(request.query_params.get("shown", str(SHOWN)))


def _whole(text: str) -> int:
    require(re.fullmatch("[0-9]{1,9}", text) is not None, f"{text[:20]!r} is no whole number; give one from 0")
    return int(text)
