"""The server as a process: bound to an address, with limits, until Ctrl-C."""

import asyncio
import errno
import os
import socket
import threading
import time
import webbrowser
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from attnknn.app.model.model import Model
from attnknn.app.server.app import create_app
from attnknn.core.errors import InputError, require

CONNECTIONS = 1500  # at most; see `connections`
IDLE = 5  # seconds: for something to be asked, and for the head of a request from its first byte
READ = 20  # seconds, for a client to read what is held for it
SPARE = 64  # files that the process may open besides its connections
_LOCAL = ("127.0.0.1", "::1", "localhost")


class Patient(H11Protocol):
    """HTTP that closes a connection on which nothing is asked, or nothing read; uvicorn's own waits forever."""

    _head: float | None = None  # when that of the next request must be there, once it has begun
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take data, and wait for the rest where it is not a whole request yet."""
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:
            self._head = None
        if self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete):
            self._head = self._head or self.loop.time() + IDLE
            self._wait()

    def _wait(self) -> None:
        at = self._head or self.loop.time() + IDLE
        self.timeout_keep_alive_task = self.loop.call_at(at, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close, though the client may never read what is left for it."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(READ, self.transport.abort)

    def pause_writing(self) -> None:
        """Begin to wait until the client reads; whatever waits to be sent goes with the connection."""
        super().pause_writing()
        self._unread = self.loop.call_later(READ, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._unread is not None:
            self._unread.cancel()


class Door(socket.socket):
    """A socket that takes no connection where it would take the last files that the process may open."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Take one.

        Raises:
            OSError: none may be taken; asyncio tries again in a second, and clients wait in line.
        """
        lowest = os.dup(self.fileno())
        os.close(lowest)
        if lowest >= _files() - SPARE // 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class Server(uvicorn.Server):
    """Uvicorn that says nothing of connections that have to wait, and has read what a first request needs."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        asyncio.get_running_loop().set_exception_handler(_unless_full)
        import_module("anyio._backends._asyncio")  # anyio reads it when it is first asked to do something
        await super().startup(sockets)


def _unless_full(loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
    if getattr(told.get("exception"), "errno", None) != errno.EMFILE:
        loop.default_exception_handler(told)


def _files() -> int:
    """How many files the process may open; as many as connections need, where that is allowed."""
    try:
        import resource
    except ImportError:  # not on Windows
        return CONNECTIONS + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted, endless = CONNECTIONS + SPARE, resource.RLIM_INFINITY
    if soft == endless or soft >= wanted:
        return wanted if soft == endless else soft
    more = wanted if hard == endless else min(wanted, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
        return more
    return soft


def connections() -> int:
    """That may be open at once, most of them idle; more are answered with 503."""
    return max(min(CONNECTIONS, _files() - SPARE), 1)


def settings(app: object, **more: object) -> uvicorn.Config:
    """How uvicorn serves the application: limits on what is held and waited for, no log of requests."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=Patient,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections(),
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=2,
        **more,  # type: ignore[arg-type]
    )


def serve(folder: Path, host: str, port: int, open_browser: bool, allow_save: bool) -> None:
    """Serve a saved model until Ctrl-C.

    Args:
        host: address to bind to; any but 127.0.0.1 lets other machines in, and there is no password.
        port: 0 takes a free one.
        open_browser: whether to open the page.
        allow_save: whether the page may write the model back to `folder`.

    Raises:
        InputError: there is no model, or the address cannot be had.
    """
    model = Model.load(folder)
    name = folder.resolve().name
    with bound(host, port) as listening:
        app = create_app(model, name=name, folder=folder, allow_save=allow_save, host=host)
        number = listening.getsockname()[1]
        shown = {"": "localhost", "0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
        address = f"http://{f'[{shown}]' if ':' in shown else shown}:{number}/"
        print(f"{name} at {address}   (Ctrl-C ends it)", flush=True)
        if host not in _LOCAL:
            print("Whoever reaches this machine can see its training examples and change its memory.", flush=True)
        server = Server(settings(app))
        if open_browser:
            threading.Thread(target=_open, args=(server, address), daemon=True).start()
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            print()


def _open(server: uvicorn.Server, address: str) -> None:
    while not server.started and not server.should_exit:
        time.sleep(0.05)
    webbrowser.open(address)


def bound(host: str, port: int) -> socket.socket:
    require(0 <= port <= 65535, f"port: {port}; give one from 1 to 65535, or 0 for a free one")
    bare = host.strip("[]")
    try:
        ((family, kind, _, _, address), *_) = socket.getaddrinfo(
            bare or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise InputError(f"host: {host}: {error.strerror}; give an address of this machine") from None
    listening = Door(family, kind)
    try:
        if family == socket.AF_INET6 and bare == "::":
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise InputError(f"{host}:{port}: {error.strerror}; give another --host or --port") from None
    return listening
