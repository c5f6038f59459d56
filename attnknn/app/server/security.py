"""Request checks: host and origin, body sizes, timeouts and the number of simultaneous requests.

A web page can make its visitor's browser send requests to 127.0.0.1. Therefore a request is answered only if its Host
names this server, which stops DNS rebinding, and if no other page sent it, by `Origin` and `Sec-Fetch-Site`. There is
no password: any client that can connect can read.
"""

import asyncio
import ipaddress
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attnknn.core.errors import InputError, require

IMAGE_BYTES = 8_000_000
JSON_BYTES = 1_000_000
IMAGE_PIXELS = 25_000_000
MAX_REQUESTS = 200  # concurrent; further ones get 503
MAX_IMAGE_BODIES, MAX_JSON_BODIES = 16, 16  # concurrent, in memory
_QUEUE_TIMEOUT, _BODY_TIMEOUT = 10.0, 20.0  # seconds to wait for one of these slots, and for a body to arrive
_MAX_ERROR = 600  # characters
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


class RequestError(InputError):
    """An `InputError` with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Json(Response):
    """JSON response in ASCII, so that lone surrogates can be sent; NaN is refused."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def error_response(error: Exception) -> Json:
    """Error as one line of JSON, without details of this machine."""
    if not isinstance(error, InputError):
        log.error("a request failed", exc_info=error)
        return Json({"error": "internal error; see the server's terminal"}, 500)
    line = str(error)
    line = line if len(line) <= _MAX_ERROR else line[: _MAX_ERROR - 1] + "…"
    return Json({"error": line}, error.status if isinstance(error, RequestError) else 400)


def host_filter(bound: str) -> Callable[[str], bool]:
    """Return a function that tells whether a Host header names a server that is bound to this address.

    A server bound to all addresses has the machine's name too, and any IP address: DNS rebinding needs a name.
    """
    names = {"localhost", "127.0.0.1", "::1", bound.strip("[]").lower()}
    any_address = bound in ("", "0.0.0.0", "::")
    if any_address:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def allowed(header: str) -> bool:
        if re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?", header) is None:
            return False
        try:
            name = urlsplit(f"//{header}").hostname or ""
            return name in names or (any_address and ipaddress.ip_address(name) is not None)
        except ValueError:
            return False

    return allowed


class SecurityMiddleware:
    """Refuse requests for other hosts, from other pages and beyond `MAX_REQUESTS`; add the security headers."""

    def __init__(self, app: ASGIApp, bound: str) -> None:
        self.app, self.allowed = app, host_filter(bound)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        error = self._check(scope)
        self._active += 1
        try:
            await (self.app if error is None else error_response(error))(scope, receive, send_with_headers)
        finally:
            self._active -= 1

    def _check(self, scope: Scope) -> RequestError | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.allowed(host):
            return RequestError(403, "unknown host name; open the address that the server printed")
        own = (f"http://{host}".lower(), f"https://{host}".lower())
        if origin is not None and scope["method"] != "GET" and origin.lower() not in own:
            return RequestError(403, "the request comes from another page; only this server's own page may send it")
        cross_site = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if cross_site and scope["path"].startswith("/api/"):
            return RequestError(403, "the request comes from another site; only this server's own page may send it")
        if self._active >= MAX_REQUESTS:
            return RequestError(503, "too many requests at once; try again in a moment")
        return None


@asynccontextmanager
async def read_body(request: Request, max_bytes: int, slots: asyncio.Semaphore) -> AsyncIterator[bytes]:
    """Yield the body of a request, holding a slot until the block ends.

    Raises:
        RequestError: it is too large, does not arrive in time, or no slot is free in time.
    """
    too_large = RequestError(413, f"larger than {max_bytes / 1e6:g} MB; send less")
    length = request.headers.get("content-length", "0")
    if re.fullmatch("[0-9]{1,15}", length) is None:
        raise RequestError(400, "Content-Length is not a number")
    if int(length) > max_bytes:
        raise too_large
    try:
        await asyncio.wait_for(slots.acquire(), _QUEUE_TIMEOUT)
    except TimeoutError:
        raise RequestError(503, "too many uploads at once; try again in a moment") from None
    try:
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > max_bytes:
                        raise too_large
                    body += chunk
        except TimeoutError:
            raise RequestError(408, "the upload did not arrive in time; send it again") from None
        except ClientDisconnect:
            raise RequestError(400, "the upload broke off; send it again") from None
        yield bytes(body)
    finally:
        slots.release()


def media_type(request: Request) -> str:
    """Content-Type of the body without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; raise InputError if the body is none."""
    require(bool(body.strip()), "the body is empty; send a JSON object")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # also invalid UTF-8, and numbers of thousands of digits
        raise InputError("the body is not valid JSON; send an object such as {…}") from None
    require(isinstance(value, dict), "the body is not a JSON object; send one such as {…}")
    return value
