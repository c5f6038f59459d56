"""The running server: many requests at once, slow clients, few file descriptors."""

import asyncio
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from attnknn.app.cli import app as command_line
from attnknn.app.model.model import Model
from attnknn.app.server import app as server_app
from attnknn.app.server import security, serve
from attnknn.app.server.app import create_app
from attnknn.core.errors import InputError
from server_fixtures import (
    png,
    running,
    serving,
)


async def request_status(port: int, head: str, body: bytes = b"") -> int:
    """Status of the answer to raw bytes; 0 where there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return 0
    try:
        writer.write(f"{head}\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        writer.write(body)
        answer = await reader.read(64)
        return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
    except (OSError, ValueError):
        return 0
    finally:
        writer.close()


def until(true: Callable[[], bool], seconds: float = 8) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_thousand_at_once(models: dict[str, Path]) -> None:
    """Each is answered or told to come again, memory stays what it was, and the service goes on."""
    noise = png(np.random.default_rng(0).integers(0, 255, (300, 300), dtype=np.uint8))  # 90 kB
    ask = "POST /api/ask HTTP/1.1\r\nContent-Type: image/png"
    with serving(models["images"]) as (port, process):
        watched = psutil.Process(process.pid)
        assert asyncio.run(request_status(port, ask, noise)) == 200
        before, most, done = watched.memory_info().rss, 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.02):
                most = max(most, watched.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()

        async def storm() -> list[int]:
            uploads = [request_status(port, ask, noise) for _ in range(800)]
            reads = [request_status(port, f"GET /api/case/{i % 20} HTTP/1.1") for i in range(200)]
            return await asyncio.gather(*uploads, *reads)

        statuses = Counter(asyncio.run(storm()))
        done.set()
        watcher.join()
        assert set(statuses) <= {200, 503}, statuses
        assert statuses[200] >= 100, statuses
        assert most - before < 150e6, f"{(most - before) / 1e6:.0f} MB more"
        assert asyncio.run(request_status(port, ask, noise)) == 200
        assert asyncio.run(request_status(port, "GET / HTTP/1.1")) == 200

        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=10)
        assert process.returncode == 0
        assert output.strip() == "", "Ctrl-C ends quietly, and nothing was logged"


def test_silent_connections_are_closed(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "IDLE_TIMEOUT", 0.3)
    with running(create_app(Model.load(models["vectors"]))) as port:
        silent, half = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
        half.sendall(b"GET /api/mod")
        for connection in (silent, half):
            connection.settimeout(5)
            assert connection.recv(10) == b""
            connection.close()
        assert asyncio.run(request_status(port, "GET /api/model HTTP/1.1")) == 200
        assert asyncio.run(request_status(port, "NONSENSE")) == 400


def test_who_drips_the_head_of_a_request_is_cut_off(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "IDLE_TIMEOUT", 0.5)
    with running(create_app(Model.load(models["vectors"]))) as port:
        for first in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as dripping:
                dripping.settimeout(5)
                if first:
                    dripping.sendall(first)
                    held = b""
                    while b"</html>" not in held:
                        held += dripping.recv(65536)
                dripping.sendall(b"GET /api/model HTTP/1.1\r\nX: ")
                began = time.monotonic()

                def gone(connection: socket.socket = dripping) -> bool:
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return True
                    return False

                assert until(gone, 4)
                assert time.monotonic() - began < 3


def test_who_does_not_read_is_cut_off(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "READ_TIMEOUT", 1.5)
    monkeypatch.setattr(security, "MAX_REQUESTS", 3)
    get = b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(create_app(Model.load(models["vectors"]))) as port:
        deaf = [socket.socket() for _ in range(3)]
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", port))
            connection.sendall(get * 400)
        assert until(lambda: asyncio.run(request_status(port, "GET / HTTP/1.1")) == 503), "they hold every place"
        assert until(lambda: asyncio.run(request_status(port, "GET / HTTP/1.1")) == 200), "and not for ever"
        for connection in deaf:
            connection.close()


def test_a_body_that_does_not_arrive_is_told(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < security._QUEUE_TIMEOUT <= 30
    assert 0 < security._BODY_TIMEOUT <= 60
    monkeypatch.setattr(security, "_BODY_TIMEOUT", 0.3)
    monkeypatch.setattr(security, "_QUEUE_TIMEOUT", 0.3)
    monkeypatch.setattr(server_app, "MAX_IMAGE_BODIES", 1)
    with running(create_app(Model.load(models["images"]))) as port:
        head = (
            f"POST /api/ask HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 99\r\nContent-Type: image/png\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.settimeout(5)
            slow.sendall(head.encode() + b"\x89PNG")
            assert slow.recv(12) == b"HTTP/1.1 408"
        monkeypatch.setattr(security, "_BODY_TIMEOUT", 30)
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(head.encode() + b"\x89PNG")
            time.sleep(0.2)
            picture = png(np.zeros((8, 8), np.uint8))
            image, plain = (
                "POST /api/ask HTTP/1.1\r\nContent-Type: " + kind for kind in ("image/png", "application/json")
            )
            assert asyncio.run(request_status(port, image, picture)) == 503, "the one place for pictures is held"
            assert asyncio.run(request_status(port, plain, b"{}")) == 400, "JSON has its own"


def test_few_files_are_few_connections_and_no_faults(models: dict[str, Path]) -> None:
    pytest.importorskip("resource")
    with serving(models["vectors"], files=256) as (port, process):

        async def storm() -> list[int]:
            return await asyncio.gather(*(request_status(port, "GET /api/memory/3 HTTP/1.1") for _ in range(600)))

        statuses = Counter(asyncio.run(storm()))
        assert set(statuses) <= {200, 503}, statuses
        assert until(lambda: asyncio.run(request_status(port, "GET /api/memory/3 HTTP/1.1")) == 200)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=10)
        assert output.strip() == "", "no tracebacks"


def test_as_many_files_as_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    now = {"limits": (256, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: now["limits"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: now.update(limits=limits))
    assert serve.connection_limit() == serve.MAX_CONNECTIONS
    assert now["limits"] == (serve.MAX_CONNECTIONS + serve.SPARE_FILES, 4096)
    now["limits"] = (256, 512)
    assert serve.connection_limit() == 512 - serve.SPARE_FILES

    def refuse(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    now["limits"] = (256, 4096)
    assert serve.connection_limit() == 256 - serve.SPARE_FILES
    now["limits"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert serve.connection_limit() == serve.MAX_CONNECTIONS


def test_an_address_that_cannot_be_had_is_one_line(models: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: .* give another --host or --port"):
            serve.serve(models["vectors"], "127.0.0.1", port, False, False)
    with pytest.raises(InputError, match="port: 70000"):
        serve.bind("127.0.0.1", 70_000)
    with pytest.raises(InputError, match="no-such-host"):
        serve.bind("no-such-host.invalid", 0)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_one_line_says_what_to_install(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(("attnknn.app.server.", f"{missing}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = CliRunner().invoke(command_line, ["serve", str(models["vectors"])])
    assert done.exit_code == 2
    assert f"serve needs {missing}: pip install 'attnknn[serve]'" in done.stderr
