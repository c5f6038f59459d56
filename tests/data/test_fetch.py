"""Fetching from a mirror, a path or the web: complete and verified, or not at all."""

import hashlib
import socket
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from attnknn.core.errors import InputError
from attnknn.data.fetch import base_name, fetch

DATA = b"sepal,petal\n5.1,1.4\n"
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def serve():
    """A function that serves with a handler on 127.0.0.1 and returns the base address."""
    servers = []

    def start(handler):
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class Folder(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Truncated(Folder):
    """Promises a hundred bytes and sends ten."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"0123456789")


@pytest.fixture
def dead_address():
    """An address that refuses connections."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def mirror(tmp_path):
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "iris.csv").write_bytes(DATA)
    return folder


def refused(*args, **kwargs) -> str:
    with pytest.raises(InputError) as error:
        fetch(*args, **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_directory_or_address_is_a_mirror_that_precedes_and_what_it_lacks_is_downloaded(
    mirror, tmp_path, serve, dead_address
):
    base, md5 = serve(partial(Folder, directory=str(mirror))), hashlib.md5(DATA).hexdigest()
    (mirror / "FashionMNIST").mkdir()
    (mirror / "FashionMNIST" / "iris.csv").write_bytes(b"shoes")
    for location, place, options, expected in (
        (f"{dead_address}/a/b/iris.csv", str(mirror), {"sha256": SHA256.upper()}, DATA),
        (f"{dead_address}/iris.csv", str(mirror), {"mirror_folder": "FashionMNIST"}, b"shoes"),
        (f"{dead_address}/iris.csv", str(mirror), {"mirror_folder": "MNIST"}, DATA),
        (f"{dead_address}/iris.csv", f"{base}/", {"sha256": SHA256}, DATA),
        (f"{base}/iris.csv?raw=1", "", {"md5": md5}, DATA),
        (f"{base}/iris.csv", str(tmp_path), {}, DATA),
    ):
        out = tmp_path / "raw" / "iris.csv"
        fetch(location, out, place, **options)
        assert out.read_bytes() == expected
        assert [path.name for path in out.parent.iterdir()] == ["iris.csv"]
        out.unlink()


def test_a_path_precedes_the_mirror_and_a_bare_name_is_either(mirror, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/iris.csv").write_bytes(b"mine")
    for folder, location, place, expected in (
        (mirror, "iris.csv", "", DATA),
        (tmp_path, "iris.csv", str(mirror), DATA),
        (tmp_path, "own/iris.csv", str(mirror), b"mine"),
        (tmp_path, "own/iris.csv", str(tmp_path), b"mine"),
    ):
        monkeypatch.chdir(folder)
        fetch(location, tmp_path / "out", place)
        assert (tmp_path / "out").read_bytes() == expected


def test_a_wrong_checksum_in_the_mirror_is_an_error(mirror, tmp_path, serve):
    good = serve(partial(Folder, directory=str(mirror)))
    bad, out = tmp_path / "bad", tmp_path / "iris.csv"
    bad.mkdir()
    (bad / "iris.csv").write_bytes(b"other")
    out.write_bytes(b"earlier")
    message = refused(f"{good}/iris.csv", out, str(bad), sha256=SHA256)
    for part in (str(bad / "iris.csv"), SHA256, hashlib.sha256(b"other").hexdigest(), "replace the file"):
        assert part in message
    assert out.read_bytes() == b"earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "iris.csv", "mirror"]


def test_offline_without_the_file_names_the_mirror_and_the_file(tmp_path, dead_address):
    message = refused(f"{dead_address}/x/adult.data", tmp_path / "out", str(tmp_path))
    for part in (f"{tmp_path}/adult.data", f"{dead_address}/x/adult.data", "put adult.data into", "ATTNKNN_MIRROR"):
        assert part in message
    assert "Max retries" not in message
    assert "Connection refused)" in message
    assert list(tmp_path.iterdir()) == []
    message = refused("iris.csv", tmp_path / "out", str(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in message
    assert "ATTNKNN_MIRROR" in message


def test_http_errors_timeouts_and_early_ends_leave_nothing(tmp_path, serve, monkeypatch):
    class Silent(Folder):
        def do_GET(self):
            stop.wait(5)

    stop = threading.Event()
    monkeypatch.setattr("attnknn.data.fetch._TIMEOUT", 0.1)
    for handler, reason in (
        (partial(Folder, directory=str(tmp_path)), "HTTP 404"),
        (Silent, "timed out"),
        (Truncated, "10 bytes read, 90 more expected"),
    ):
        assert reason in refused(f"{serve(handler)}/no.csv", tmp_path / "no.csv")
        assert list(tmp_path.iterdir()) == []
    stop.set()


@pytest.mark.parametrize(
    "location", ["file:///etc/hostname", "ftp://host/x.csv", "https://host/", "http://[::1/x", "a\0b", "..", ""]
)
def test_unsupported_locations(location, tmp_path):
    message = refused(location, tmp_path / "out")
    assert location in message or repr(location) in message
    assert "give" in message or "correct" in message


@pytest.mark.parametrize(
    "location", ["~nobody_of_that_name/x.csv", "http://a b/x.csv", "http://127.0.0.1:99999/x.csv", f"{'a' * 300}/x.csv"]
)
@pytest.mark.parametrize("mirror", ["", "http://[::1"])
def test_odd_locations(location, mirror, tmp_path):
    assert refused(location, tmp_path / "out", mirror).startswith("x.csv: not found at ")
    assert not (tmp_path / "out").exists()


def test_base_name():
    assert base_name("https://host/a/b%20c.csv?x=/y") == "b c.csv"
    assert base_name("data/archive.tar.xz") == "archive.tar.xz"
    with pytest.raises(InputError):
        base_name("https://host/a%2Fb/..%2F")
