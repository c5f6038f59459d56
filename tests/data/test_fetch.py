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


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def refused(*args, **kwargs) -> str:
    with pytest.raises(InputError) as error:
        fetch(*args, **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_directory_mirror_precedes_the_address(mirror, tmp_path, dead_address):
    out = tmp_path / "raw" / "iris.csv"
    fetch(f"{dead_address}/a/b/iris.csv", out, str(mirror), sha256=SHA256.upper())
    assert out.read_bytes() == DATA
    assert [path.name for path in out.parent.iterdir()] == ["iris.csv"]


def test_mirror_folder_separates_files_of_one_name(mirror, tmp_path, dead_address):
    (mirror / "FashionMNIST").mkdir()
    (mirror / "FashionMNIST" / "iris.csv").write_bytes(b"shoes")
    fetch(f"{dead_address}/iris.csv", tmp_path / "out", str(mirror), mirror_folder="FashionMNIST")
    assert (tmp_path / "out").read_bytes() == b"shoes"
    fetch(f"{dead_address}/iris.csv", tmp_path / "out", str(mirror), mirror_folder="MNIST")
    assert (tmp_path / "out").read_bytes() == DATA


def test_a_mirror_is_an_address_too_and_what_it_lacks_is_downloaded(mirror, tmp_path, serve, dead_address, empty):
    base = serve(partial(Folder, directory=str(mirror)))
    fetch(f"{dead_address}/iris.csv", tmp_path / "0", f"{base}/", sha256=SHA256)
    fetch(f"{base}/iris.csv?raw=1", tmp_path / "1", md5=hashlib.md5(DATA).hexdigest())
    fetch(f"{base}/iris.csv", tmp_path / "2", str(empty))
    assert [(tmp_path / name).read_bytes() for name in "012"] == [DATA] * 3


def test_a_bare_name_is_a_path_and_a_name_in_the_mirror(mirror, tmp_path, monkeypatch):
    monkeypatch.chdir(mirror)
    fetch("iris.csv", tmp_path / "by_path")
    monkeypatch.chdir(tmp_path)
    fetch("iris.csv", tmp_path / "by_mirror", str(mirror))
    assert (tmp_path / "by_path").read_bytes() == (tmp_path / "by_mirror").read_bytes() == DATA


def test_an_existing_path_precedes_the_mirror(mirror, tmp_path):
    own = tmp_path / "own" / "data.csv"
    own.parent.mkdir()
    own.write_bytes(b"mine")
    for place in (mirror, tmp_path / "other mirror"):
        place.mkdir(exist_ok=True)
        (place / "data.csv").write_bytes(b"theirs")
        fetch(str(own), tmp_path / "out.csv", str(place))
        assert (tmp_path / "out.csv").read_bytes() == b"mine"


def test_a_wrong_checksum_in_the_mirror_is_an_error(mirror, tmp_path, serve):
    good = serve(partial(Folder, directory=str(mirror)))
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "iris.csv").write_bytes(b"other")
    out = tmp_path / "iris.csv"
    out.write_bytes(b"earlier")
    message = refused(f"{good}/iris.csv", out, str(bad), sha256=SHA256)
    for part in (str(bad / "iris.csv"), SHA256, hashlib.sha256(b"other").hexdigest(), "replace the file"):
        assert part in message
    assert out.read_bytes() == b"earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "iris.csv", "mirror"]


def test_offline_without_the_file_names_the_mirror_and_the_file(tmp_path, dead_address, empty):
    message = refused(f"{dead_address}/x/adult.data", tmp_path / "out", str(empty))
    for part in (f"{empty}/adult.data", f"{dead_address}/x/adult.data", "put adult.data into", "ATTNKNN_MIRROR"):
        assert part in message
    assert "Max retries" not in message
    assert "Connection refused)" in message
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    message = refused("iris.csv", tmp_path / "out", str(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in message
    assert "ATTNKNN_MIRROR" in message


def test_a_download_that_ends_early_leaves_nothing(tmp_path, serve):
    message = refused(f"{serve(Truncated)}/data.bin", tmp_path / "data.bin")
    assert "10 bytes read, 90 more expected" in message
    assert list(tmp_path.iterdir()) == []


def test_http_errors_and_timeouts(tmp_path, serve, monkeypatch):
    class Silent(Folder):
        def do_GET(self):
            stop.wait(5)

    stop = threading.Event()
    monkeypatch.setattr("attnknn.data.fetch._TIMEOUT", 0.1)
    assert "HTTP 404" in refused(f"{serve(partial(Folder, directory=str(tmp_path)))}/no.csv", tmp_path / "no.csv")
    assert "timed out" in refused(f"{serve(Silent)}/no.csv", tmp_path / "no.csv")
    stop.set()


@pytest.mark.parametrize(
    "location", ["file:///etc/hostname", "ftp://host/x.csv", "https://host/", "http://[::1/x", "a\0b", "..", ""]
)
def test_unsupported_locations(location, tmp_path):
    message = refused(location, tmp_path / "out")
    assert location in message or repr(location) in message
    assert "give" in message or "correct" in message


@pytest.mark.parametrize("location", ["~nobody_of_that_name/x.csv", "http://a b/x.csv", "http://127.0.0.1:99999/x.csv"])
@pytest.mark.parametrize("mirror", ["", "http://[::1"])
def test_odd_locations(location, mirror, tmp_path):
    assert refused(location, tmp_path / "out", mirror).startswith("x.csv: not found at ")
    assert not (tmp_path / "out").exists()


def test_base_name():
    assert base_name("https://host/a/b%20c.csv?x=/y") == "b c.csv"
    assert base_name("data/archive.tar.xz") == "archive.tar.xz"
    with pytest.raises(InputError):
        base_name("https://host/a%2Fb/..%2F")
