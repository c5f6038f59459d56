"""What stands between a browser and the model: who may ask, how much, and how many at once.

A page on the web can make its visitor's browser send requests to 127.0.0.1. So a request is answered only if it names
this server as its host (a foreign name that was bound to this address does not), and none that another page made:
browsers say that in `Origin` and `Sec-Fetch-Site`. There is no password: who can open a connection can read.
"""

import asyncio
import ipaddress
import json
import logging
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attnknn.core.errors import InputError

IMAGE_BYTES = 8_000_000
JSON_BYTES = 1_000_000
IMAGE_PIXELS = 25_000_000
AT_ONCE = 200  # requests in work; more are told to come again
PICTURES, BODIES = 16, 16  # held in memory at once: pictures, and JSON, which need not wait for them
_WAIT, _READ = 10.0, 20.0  # seconds: for a place among these, and for a body to arrive
_LONGEST = 600  # characters of an error
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
log = logging.getLogger(__name__)


class Refusal(InputError):
    """An `InputError` with an HTTP status of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Json(Response):
    """JSON in ASCII, so that texts of any kind can be sent; NaN is refused."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Its bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def told(error: Exception) -> Json:
    """What a client is told of an error: one line, and nothing about this machine."""
    if isinstance(error, InputError):
        line = " ".join(str(error).split())
        line = line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
        return Json({"error": line}, error.status if isinstance(error, Refusal) else 400)
    log.error("a request failed", exc_info=error)
    return Json({"error": "something went wrong here; the terminal of the server says what"}, 500)


@dataclass(frozen=True)
class Hosts:
    """Names under which a server may be asked.

    Attributes:
        names: in lower case.
        digits: whether any address in digits is one too: a foreign name can be bound to this machine's address, but
            digits cannot.
    """

    names: frozenset[str]
    digits: bool

    @classmethod
    def of(cls, bound: str) -> Self:
        """Of a server that is bound to an address; one bound to all goes by the machine's name too."""
        local = {"localhost", "127.0.0.1", "::1"}
        if bound in ("", "0.0.0.0", "::"):
            return cls(frozenset(local | {socket.gethostname().lower(), socket.getfqdn().lower()}), True)
        return cls(frozenset(local | {bound.strip("[]").lower()}), False)

    def know(self, header: str) -> bool:
        """Whether a Host header names this server."""
        try:
            if re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?", header) is None:
                return False
            name = urlsplit(f"//{header}").hostname or ""
            if name in self.names:
                return True
            return self.digits and ipaddress.ip_address(name) is not None
        except ValueError:
            return False


class Guard:
    """Lets in what comes from this server's own page, or from no page at all, and so much of it at once."""

    def __init__(self, app: ASGIApp, bound: str) -> None:
        self.app = app
        self.hosts = Hosts.of(bound)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await told(refusal)(scope, receive, with_headers)
            return
        self._active += 1
        try:
            await self.app(scope, receive, with_headers)
        finally:
            self._active -= 1

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.hosts.know(host):
            return Refusal(403, "this server is not asked under that name; open it by the address that it printed")
        if origin is not None and scope["method"] != "GET" and not _same(origin, host):
            return Refusal(403, "the request comes from another page; only this server's own page may ask")
        foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if foreign and scope["path"].startswith("/api/"):
            return Refusal(403, "the request comes from another site; only this server's own page may ask")
        if self._active >= AT_ONCE:
            return Refusal(503, "too many requests at once; ask again in a moment")
        return None


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


class Bodies:
    """Reads bodies, so many at once, and none beyond its limit."""

    def __init__(self, at_once: int = BODIES) -> None:
        self._places = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def read(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """A body, which counts as held until the block ends.

        Raises:
            Refusal: it is larger, does not arrive, or too many are being read.
        """
        given = request.headers.get("content-length", "0")
        if not (given.isascii() and given.isdigit() and len(given) < 16):
            raise Refusal(400, "Content-Length is no number")
        if int(given) > most:
            raise _too_large(most)
        try:
            await asyncio.wait_for(self._places.acquire(), _WAIT)
        except TimeoutError:
            raise Refusal(503, "too many uploads at once; ask again in a moment") from None
        try:
            try:
                async with asyncio.timeout(_READ):
                    body = await _whole(request, most)
            except TimeoutError:
                raise Refusal(408, "the upload did not arrive in time; send it again") from None
            except ClientDisconnect:
                raise Refusal(400, "the upload broke off; send it again") from None
            yield body
        finally:
            self._places.release()


async def _whole(request: Request, most: int) -> bytes:
    held = bytearray()
    async for chunk in request.stream():
        if len(held) + len(chunk) > most:
            raise _too_large(most)
        held += chunk
    return bytes(held)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"larger than {most / 1e6:g} MB; send less")


def media_type(request: Request) -> str:
    """Of the body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parsed(body: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: it is none.
    """
    if not body.strip():
        raise InputError("the body is empty; send a JSON object")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # also bytes that are no UTF-8, and numbers of thousands of digits
        raise InputError("the body is no JSON that can be read; send an object such as {…}") from None
    if not isinstance(value, dict):
        raise InputError("the body is no JSON object; send one such as {…}")
    return value
