"""Web application: routes and request handlers. Handlers work in threads, so that no request blocks others."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
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
from attnknn.app.server.parse import parse_picture, parse_row, parse_vector
from attnknn.app.server.security import (
    IMAGE_BYTES,
    JSON_BYTES,
    MAX_IMAGE_BODIES,
    MAX_JSON_BODIES,
    BodyReader,
    Json,
    RequestError,
    SecurityMiddleware,
    error_response,
    media_type,
    parse_json,
)
from attnknn.app.server.session import SHOWN, Session
from attnknn.core.errors import InputError, require

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html"),
    "/static/page.css": ("page.css", "text/css"),
    "/static/page.js": ("page.js", "text/javascript"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
_THREADS, _DECODERS = 4, 2  # decoding an image of 25 million pixels needs 200 MB
Handler = Callable[[Request], Awaitable[Response]]


def create_app(
    model: Model, *, name: str = "model", folder: Path | None = None, allow_save: bool = False, host: str = "127.0.0.1"
) -> Starlette:
    """Create the page of a model and its JSON interface.

    Args:
        name: title of the page.
        folder: where the model was loaded from, to reset and to save.
        allow_save: whether the page may write to the folder.
        host: address that the server is bound to; requests for other hosts are refused.
    """
    views = _Views(Session(model, folder, allow_save), name)
    files = {path: ((_PAGE / file).read_bytes(), kind) for path, (file, kind) in _FILES.items()}

    async def page(request: Request) -> Response:
        body, kind = files[request.url.path]
        return Response(body, media_type=kind)

    routes = [Route(path, page) for path in files]
    for method, paths in (("GET", _GET), ("POST", _POST)):
        routes += [Route(path, _catch_errors(getattr(views, view)), methods=[method]) for path, view in paths.items()]
    return Starlette(
        routes=routes,
        middleware=[Middleware(SecurityMiddleware, bound=host)],
        exception_handlers={HTTPException: _http_error},
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
    """Request handlers of a session, one for each path of `_GET` and `_POST`."""

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.image_bodies, self.json_bodies = BodyReader(MAX_IMAGE_BODIES), BodyReader(MAX_JSON_BODIES)
        self.threads, self.decoders = anyio.CapacityLimiter(_THREADS), anyio.CapacityLimiter(_DECODERS)

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return await run_sync(function, *args, limiter=self.threads)

    async def model(self, request: Request) -> Response:
        return Json({"name": self.name, "version": __version__, **await self._run(self.session.about)})

    async def calibration(self, request: Request) -> Response:
        return Json(await self._run(self.session.calibration))

    async def cases(self, request: Request) -> Response:
        params = request.query_params
        start, count = _parse_int(params.get("start", "0")), _parse_int(params.get("count", "50"))
        try:
            min_confidence = float(params.get("least", "0.8")[:20])
        except ValueError:
            raise InputError("least: not a number; give a confidence from 0 to 1") from None
        name, label = params.get("filter", "all"), params.get("label", "")
        return Json(await self._run(self.session.cases, name, label, start, count, min_confidence))

    async def change(self, request: Request) -> Response:
        return Json(await self._run(self.session.change, request.query_params.get("query", "")))

    async def picture(self, request: Request) -> Response:
        kind, file = request.path_params["kind"], request.path_params["file"]
        if not file.endswith(".png"):
            raise RequestError(404, "the name of a picture ends with .png")
        png = await self._run(self.session.picture, f"{kind}/{file.removesuffix('.png')}")
        return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})

    async def answer(self, request: Request) -> Response:
        name = f"{request.path_params['kind']}/{request.path_params['which']}"
        row = request.query_params.get("row")
        row_id = None if row is None else _parse_int(row)
        return Json(await self._run(self.session.answer, name, _shown(request), row_id))

    async def ask(self, request: Request) -> Response:
        shown = _shown(request)
        if media_type(request).startswith("image/"):
            async with self.image_bodies.read(request, IMAGE_BYTES) as data:
                return Json(await run_sync(self.session.ask, parse_picture, data, shown, limiter=self.decoders))
        async with self._json(request) as body:
            require(len(body) == 1 and set(body) <= {"row", "vector"}, 'give {"row": {…}} or {"vector": […]}')
            ((key, value),) = body.items()
            parse = parse_row if key == "row" else parse_vector
            return Json(await self._run(self.session.ask, parse, value, shown))

    async def add(self, request: Request) -> Response:
        async with self._json(request) as body:
            valid = set(body) == {"query", "label"} and all(isinstance(value, str) for value in body.values())
            require(valid, 'give {"query": "case/3", "label": "…"}')
            return Json(await self._run(self.session.add, body["query"], body["label"]))

    async def forget(self, request: Request) -> Response:
        async with self._json(request) as body:
            require(set(body) == {"ids"}, 'give {"ids": [3, 7]}')
            return Json(await self._run(self.session.forget, body["ids"]))

    async def reset(self, request: Request) -> Response:
        async with self._json(request):
            return Json(await self._run(self.session.reset))

    async def save(self, request: Request) -> Response:
        async with self._json(request):
            return Json(await self._run(self.session.save))

    @asynccontextmanager
    async def _json(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        # A page of another site can send a form without a preflight request, but no JSON.
        if media_type(request) != "application/json":
            raise RequestError(415, "send JSON, with Content-Type application/json")
        async with self.json_bodies.read(request, JSON_BYTES) as body:
            yield parse_json(body)


def _catch_errors(view: Handler) -> Handler:
    async def handler(request: Request) -> Response:
        try:
            return await view(request)
        except Exception as error:
            return error_response(error)

    return handler


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: "no such address", 405: "method not allowed at this address"}
    return Json({"error": messages.get(error.status_code, error.detail)}, error.status_code, headers=error.headers)


def _shown(request: Request) -> int:
    return _parse_int(request.query_params.get("shown", str(SHOWN)))


def _parse_int(text: str) -> int:
    require(re.fullmatch("[0-9]{1,9}", text) is not None, f"{text[:20]!r} is not a whole number; give one from 0")
    return int(text)
