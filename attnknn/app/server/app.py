"""Web application: routes and request handlers. Handlers work in threads, so that no request blocks others."""

import asyncio
import re
from collections.abc import Callable
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

from attnknn.app.model.model import Model
from attnknn.app.server.parse import parse_picture, parse_row, parse_vector
from attnknn.app.server.security import (
    IMAGE_BYTES,
    JSON_BYTES,
    MAX_IMAGE_BODIES,
    MAX_JSON_BODIES,
    Json,
    RequestError,
    SecurityMiddleware,
    error_response,
    media_type,
    parse_json,
    read_body,
)
from attnknn.app.server.session import SHOWN, Session
from attnknn.core.errors import InputError, require

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_THREADS, _DECODERS = 4, 2  # decoding an image of 25 million pixels needs 200 MB


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
    session = Session(model, name, folder, allow_save)
    files = {path.name: path.read_bytes() for path in _PAGE.iterdir()}
    image_slots, json_slots = asyncio.Semaphore(MAX_IMAGE_BODIES), asyncio.Semaphore(MAX_JSON_BODIES)
    threads, decoders = anyio.CapacityLimiter(_THREADS), anyio.CapacityLimiter(_DECODERS)

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise HTTPException(404)
        return Response(files[name], media_type=_TYPES[Path(name).suffix])

    def route(method: str, path: str, view: Callable[..., Any]) -> Route:
        async def handler(request: Request) -> Response:
            try:
                if method == "GET":
                    result = await run_sync(view, session, request, limiter=threads)
                elif path == "/api/ask" and media_type(request).startswith("image/"):
                    async with read_body(request, IMAGE_BYTES, image_slots) as data:
                        result = await run_sync(session.ask, parse_picture, data, _shown(request), limiter=decoders)
                # A page of another site can send a form without a preflight request, but no JSON.
                elif media_type(request) != "application/json":
                    raise RequestError(415, "send JSON, with Content-Type application/json")
                else:
                    async with read_body(request, JSON_BYTES, json_slots) as data:
                        result = await run_sync(view, session, request, parse_json(data), limiter=threads)
                return result if isinstance(result, Response) else Json(result)
            except Exception as error:
                return error_response(error)

        return Route(path, handler, methods=[method])

    return Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", page),
            *(route("GET", path, view) for path, view in _GET.items()),
            *(route("POST", path, view) for path, view in _POST.items()),
        ],
        middleware=[Middleware(SecurityMiddleware, bound=host)],
        exception_handlers={HTTPException: _http_error},
    )


def _cases(session: Session, request: Request) -> dict[str, Any]:
    params = request.query_params
    start, count = _parse_int(params.get("start", "0")), _parse_int(params.get("count", "50"))
    try:
        min_confidence = float(params.get("least", "0.8")[:20])
    except ValueError:
        raise InputError("least: not a number; give a confidence from 0 to 1") from None
    return session.cases(params.get("filter", "all"), params.get("label", ""), start, count, min_confidence)


def _issues(session: Session, request: Request) -> dict[str, Any]:
    params = request.query_params
    return session.issues(_parse_int(params.get("start", "0")), _parse_int(params.get("count", "50")))


def _decisions(session: Session, _: Request) -> Response:
    headers = {"Content-Disposition": 'attachment; filename="decisions.csv"'}
    return Response(session.decisions().encode("utf-8", "replace"), media_type="text/csv", headers=headers)


def _decide(session: Session, _: Request, body: dict[str, Any]) -> dict[str, Any]:
    require(set(body) == {"id", "decision", "label"}, 'give {"id": 3, "decision": "relabel", "label": "…"}')
    return session.decide(body["id"], body["decision"], body["label"])


def _picture(session: Session, request: Request) -> Response:
    name = "{kind}/{file}".format(**request.path_params)
    if not name.endswith(".png"):
        raise RequestError(404, "the name of a picture ends with .png")
    png = session.picture(name.removesuffix(".png"))
    return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


def _answer(session: Session, request: Request) -> dict[str, Any]:
    row = request.query_params.get("row")
    row_id = None if row is None else _parse_int(row)
    return session.answer("{kind}/{which}".format(**request.path_params), _shown(request), row_id)


def _ask(session: Session, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    require(len(body) == 1 and set(body) <= {"row", "vector"}, 'give {"row": {…}} or {"vector": […]}')
    ((key, value),) = body.items()
    return session.ask(parse_row if key == "row" else parse_vector, value, _shown(request))


def _add(session: Session, _: Request, body: dict[str, Any]) -> dict[str, Any]:
    new_class = body.pop("new_class", False)
    valid = set(body) == {"query", "label"} and all(isinstance(value, str) for value in body.values())
    require(valid and isinstance(new_class, bool), 'give {"query": "case/3", "label": "…"}, and "new_class": true')
    return session.add(body["query"], body["label"], new_class)


def _forget(session: Session, _: Request, body: dict[str, Any]) -> dict[str, Any]:
    require(set(body) == {"ids"}, 'give {"ids": [3, 7]}')
    return session.forget(body["ids"])


_GET: dict[str, Callable[..., Any]] = {
    "/api/model": lambda session, _: session.about(),
    "/api/calibration": lambda session, _: session.calibration(),
    "/api/cases": _cases,
    "/api/issues": _issues,
    "/api/decisions.csv": _decisions,
    "/api/change": lambda session, request: session.change(request.query_params.get("query", "")),
    "/api/picture/{kind}/{file}": _picture,
    "/api/{kind}/{which}": _answer,
}
_POST: dict[str, Callable[..., Any]] = {
    "/api/ask": _ask,
    "/api/add": _add,
    "/api/forget": _forget,
    "/api/decide": _decide,
    "/api/apply": lambda session, *_: session.apply_decisions(),
    "/api/reset": lambda session, *_: session.reset(),
    "/api/save": lambda session, *_: session.save(),
}


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: "no such address", 405: "method not allowed at this address"}
    return Json({"error": messages.get(error.status_code, error.detail)}, error.status_code, headers=error.headers)


def _shown(request: Request) -> int:
    return _parse_int(request.query_params.get("shown", str(SHOWN)))


def _parse_int(text: str) -> int:
    require(re.fullmatch("[0-9]{1,9}", text) is not None, f"{text[:20]!r} is not a whole number; give one from 0")
    return int(text)
