"""The server as a process: bound to an address, with limits, until Ctrl-C."""

import asyncio
import socket
import threading
import time
import webbrowser
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from attnknn.errors import InputError, require
from attnknn.model.model import Model
from attnknn.server.app import create_app

CONNECTIONS = 1500  # open at once, most of them idle; more are answered with 503
IDLE = 5  # seconds
_LOCAL = ("127.0.0.1", "::1", "localhost")


class Patient(H11Protocol):
    """HTTP that closes a connection on which nothing is asked; uvicorn's own waits for a first request forever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take data, and wait for the rest where it is not a whole request yet."""
        super().data_received(data)
        if self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()

    def _wait(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(IDLE, self.timeout_keep_alive_handler)


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
        limit_concurrency=CONNECTIONS,
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
        server = uvicorn.Server(settings(app))
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
    listening = socket.socket(family, kind)
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
