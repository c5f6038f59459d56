"""Run the server: bind an address and serve until Ctrl-C, with timeouts."""

import asyncio
import socket
import threading
import webbrowser
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from attnknn.app.model.model import Model
from attnknn.app.server.app import create_app
from attnknn.core.errors import InputError, require

IDLE_TIMEOUT = 5  # seconds without a request, and for the head of a request from its first byte
READ_TIMEOUT = 20  # seconds for a client to read the buffered response


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 with timeouts for clients that send no complete request or do not read the response.

    Uvicorn's own timeout starts after the first response, and stops at the first byte of a request.
    """

    _head_deadline: float | None = None  # of the current request
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_idle_timer()

    def data_received(self, data: bytes) -> None:
        """Handle data; keep the idle timer running until the head of a request is complete."""
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:
            self._head_deadline = None
        if self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete):
            self._head_deadline = self._head_deadline or self.loop.time() + IDLE_TIMEOUT
            self._start_idle_timer()

    def _start_idle_timer(self) -> None:
        deadline = self._head_deadline or self.loop.time() + IDLE_TIMEOUT
        self.timeout_keep_alive_task = self.loop.call_at(deadline, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection; abort it if the client does not read the rest."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(READ_TIMEOUT, self.transport.abort)

    def pause_writing(self) -> None:
        """Start the read timer; the buffer is full until the client reads."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._read_timer is not None:
            self._read_timer.cancel()


def create_server(app: object) -> uvicorn.Server:
    """Uvicorn with timeouts, without an access log; `SecurityMiddleware` limits the number of requests."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=TimeoutProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_TIMEOUT,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(folder: Path, host: str, port: int, open_browser: bool, allow_save: bool) -> None:
    """Serve a saved model until Ctrl-C.

    Args:
        host: address to bind to; any but 127.0.0.1 lets other machines connect, without a password.
        port: 0 selects a free one.
        open_browser: whether to open the page.
        allow_save: whether the page may write the model back to `folder`.

    Raises:
        InputError: the folder does not hold a model, or the address cannot be bound.
    """
    model, name = Model.load(folder), folder.resolve().name
    with bind(host, port) as listening:
        server = create_server(create_app(model, name=name, folder=folder, allow_save=allow_save, host=host))
        host_name = "localhost" if host in ("", "0.0.0.0", "::") else host
        address = f"http://{f'[{host_name}]' if ':' in host_name else host_name}:{listening.getsockname()[1]}/"
        print(f"{name} at {address}   (Ctrl-C ends it)", flush=True)
        if host not in ("127.0.0.1", "::1", "localhost"):
            print("Any machine that can connect can read the training examples and change the memory.", flush=True)
        if open_browser:  # the socket listens already; the first request waits for the server
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            print()


def bind(host: str, port: int) -> socket.socket:
    """Create a listening socket; raise InputError if the address cannot be bound."""
    require(0 <= port <= 65535, f"port: {port}; give one from 1 to 65535, or 0 for a free one")
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        return socket.create_server((bare, port), family=family, backlog=1024, dualstack_ipv6=bare == "::")
    except OSError as error:
        reason = str(error.strerror).partition(" (while attempting")[0]
        raise InputError(f"{host}:{port}: {reason}; give another --host or --port") from None
