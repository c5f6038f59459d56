"""The running server: concurrent requests, slow clients, few file descriptors."""

import asyncio
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from attnknn.app.model.model import Model
from attnknn.app.server import app as server_app
from attnknn.app.server import security, serve
from attnknn.app.server.app import create_app
from attnknn.core.errors import InputError
from command_line import refused
from server_fixtures import png, running, serving


async def request_status(port: int, head: str, body: bytes = b"") -> int:
    """Status of the response to raw bytes; 0 without a response."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer):
            writer.write(f"{head}\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            response = await reader.read(64)
            return int(response[9:12]) if response.startswith(b"HTTP/1.1 ") else 0
    except (OSError, ValueError):
        return 0


async def gather(requests: list[Awaitable[int]]) -> list[int]:
    return await asyncio.gather(*requests)


def status(port: int, head: str, body: bytes = b"") -> int:
    return asyncio.run(request_status(port, head, body))


def wait_for(condition: Callable[[], bool], seconds: float = 8) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_thousand_concurrent_requests(models: dict[str, Path]) -> None:
    noise = png(np.random.default_rng(0).integers(0, 255, (300, 300), dtype=np.uint8))  # 90 kB
    ask = "POST /api/ask HTTP/1.1\r\nContent-Type: image/png"
    with serving(models["images"]) as (port, process):
        server = psutil.Process(process.pid)
        assert status(port, ask, noise) == 200
        before, peak, done = server.memory_info().rss, 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.02):
                peak = max(peak, server.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        uploads = [request_status(port, ask, noise) for _ in range(800)]
        reads = [request_status(port, f"GET /api/case/{i % 20} HTTP/1.1") for i in range(200)]
        counts = Counter(asyncio.run(gather([*uploads, *reads])))
        done.set()
        watcher.join()
        assert set(counts) <= {200, 503}, counts
        assert counts[200] >= 100, counts
        assert peak - before < 150e6, f"{(peak - before) / 1e6:.0f} MB more"
        assert status(port, ask, noise) == 200
        assert status(port, "GET / HTTP/1.1") == 200

        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=10)
        assert process.returncode == 0
        assert output.strip() == "", "nothing is logged, also by Ctrl-C"


def test_silent_connections_are_closed(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "IDLE_TIMEOUT", 0.3)
    with running(create_app(Model.load(models["vectors"]))) as port:
        for sent in (b"", b"GET /api/mod"):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(sent)
                assert connection.recv(10) == b""
        assert status(port, "GET /api/model HTTP/1.1") == 200
        assert status(port, "NONSENSE") == 400


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_slow_request_heads_are_cut_off(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(serve, "IDLE_TIMEOUT", 0.5)
    with (
        running(create_app(Model.load(models["vectors"]))) as port,
        socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
    ):
        connection.sendall(first)
        response = b""
        while first and b"</html>" not in response:
            response += connection.recv(65536)
        connection.sendall(b"GET /api/model HTTP/1.1\r\nX: ")
        start = time.monotonic()

        def closed() -> bool:
            try:
                connection.sendall(b"x")
            except OSError:
                return True
            return False

        assert wait_for(closed, 4)
        assert time.monotonic() - start < 3


def test_clients_that_do_not_read_are_cut_off(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "READ_TIMEOUT", 1.5)
    monkeypatch.setattr(security, "MAX_REQUESTS", 3)
    get = b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(create_app(Model.load(models["vectors"]))) as port:
        connections = [socket.socket() for _ in range(3)]
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", port))
            connection.sendall(get * 400)
        assert wait_for(lambda: status(port, "GET / HTTP/1.1") == 503), "all slots are taken"
        assert wait_for(lambda: status(port, "GET / HTTP/1.1") == 200), "and released"
        for connection in connections:
            connection.close()


def test_slow_bodies_time_out(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < security._QUEUE_TIMEOUT <= 30
    assert 0 < security._BODY_TIMEOUT <= 60
    monkeypatch.setattr(security, "_BODY_TIMEOUT", 0.3)
    monkeypatch.setattr(security, "_QUEUE_TIMEOUT", 0.3)
    monkeypatch.setattr(server_app, "MAX_IMAGE_BODIES", 1)
    with running(create_app(Model.load(models["images"]))) as port:
        image, plain = (f"POST /api/ask HTTP/1.1\r\nContent-Type: {kind}" for kind in ("image/png", "application/json"))
        partial = f"{image}\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 99\r\n\r\n".encode() + b"\x89PNG"
        with socket.create_connection(("127.0.0.1", port), timeout=5) as slow:
            slow.sendall(partial)
            assert slow.recv(12) == b"HTTP/1.1 408"
        monkeypatch.setattr(security, "_BODY_TIMEOUT", 30)
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(partial)
            time.sleep(0.2)
            assert status(port, image, png(np.zeros((8, 8), np.uint8))) == 503, "the only slot for pictures is taken"
            assert status(port, plain, b"{}") == 400, "JSON has its own slots"


def test_addresses_that_cannot_be_bound(models: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: .* give another --host or --port"):
            serve.serve(models["vectors"], "127.0.0.1", port, False, False)
    with pytest.raises(InputError, match="port: 70000"):
        serve.bind("127.0.0.1", 70_000)
    with pytest.raises(InputError, match="no-such-host"):
        serve.bind("no-such-host.invalid", 0)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_missing_extra(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in [name for name in sys.modules if name.startswith(("attnknn.app.server.", f"{missing}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    line = refused("serve", models["vectors"])
    assert f"serve needs {missing}: pip install 'attnknn[serve]'" in line
