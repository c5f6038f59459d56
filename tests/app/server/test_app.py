"""Routes: the page and its files; invalid addresses and queries are refused with one line."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from server_fixtures import HOSTILE, ROW, image_post, png, refused


def test_the_page_and_its_files(table: TestClient) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/static/answer.js", "text/javascript"),
        ("/static/page.css", "text/css"),
    ):
        reply = table.get(path)
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith(kind)
    page = table.get("/").text
    for text in ("://", "<script>", " style=", " onclick="):  # nothing from elsewhere, nothing inline
        assert text not in page


def test_about_the_model(table: TestClient, images: TestClient, vectors: TestClient) -> None:
    response = table.get("/api/model").json()
    assert (response["name"], response["kind"]) == ("tested", "table")
    assert set(response["classes"]) == {"apple", "melon", HOSTILE}
    columns = {column["name"]: column for column in response["columns"]}
    assert columns["size"]["kind"] == "number"
    assert columns["size"]["scale"] > 0
    assert set(columns["<b>colour</b>"]["values"]) == {"red", "green", HOSTILE}
    assert (response["can_save"], response["can_reset"]) == (False, True)
    assert response["cases"] > 30
    assert images.get("/api/model").json()["shape"] == [1, 8, 8]
    response = vectors.get("/api/model").json()
    assert (response["dim"], response["cases"], response["classes"]) == (5, 0, ["0", "1", "2"])


INVALID_PATHS = """
/static/../app.py /static/%2e%2e/app.py /static/..%2f..%2fapp.py /static//etc/passwd /../../etc/passwd
/api/picture/memory/..%2f..%2fmodel.json /api/picture/memory/../../model.json.png /api/picture/../memory.png
/api/memory/../model.json /api/memory/-1 /api/memory/1e3 /api/memory/٣ /api/memory/9999999999999999999
/api/case/99999999 /api/asked/.. /api/file/model.json /api/nothing /favicon.ico /%00
"""


@pytest.mark.parametrize("path", [*INVALID_PATHS.split(), "/api/memory/" + "9" * 6000])
def test_invalid_paths(table: TestClient, path: str) -> None:
    reply = table.get(path)
    assert reply.status_code == 404, reply.text
    assert set(reply.json()) == {"error"}
    assert len(reply.text) < 800


def test_invalid_methods_and_numbers(table: TestClient) -> None:
    for method, path in (("PUT", "/api/ask"), ("DELETE", "/api/memory/3"), ("GET", "/api/save"), ("POST", "/")):
        assert table.request(method, path).status_code in (404, 405)
    for shown in ("0", "65", "-1", "1.5", "x", "9" * 30):
        refused(table.get(f"/api/case/0?shown={shown}"), 400, "give")


BAD_PICTURES: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "one pixel": (lambda: png(np.zeros((1, 1), np.uint8)), 400, "1×1 pixels: too few"),
    "26 million pixels": (lambda: png(np.zeros((5000, 5200), bool)), 400, "at most 25 million are taken"),
    "200 million pixels": (lambda: png(np.zeros((10_000, 20_000), bool)), 400, "refused as too large"),
    "a text file named .jpg": (lambda: b"hello, this is no picture\n" * 50, 400, "no readable image"),
    "truncated": (lambda: png(np.random.default_rng(0).integers(0, 255, (90, 90), np.uint8))[:3000], 400, "no read"),
    "16 bits": (lambda: png(np.zeros((9, 9), np.uint16)), 400, "8 bits a channel"),
    "SVG": (lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>', 400, "no readable image"),
    "empty": (lambda: b"", 400, "the picture is empty"),
    "9 MB": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(9_000_000), 413, "larger than 8 MB"),
}


@pytest.mark.parametrize("name", BAD_PICTURES)
def test_bad_pictures(images: TestClient, name: str) -> None:
    data, status, message = BAD_PICTURES[name]
    refused(image_post(images, data(), "image/jpeg"), status, message)
    assert images.get("/api/case/0").status_code == 200


def ask(client: TestClient, body: bytes) -> Any:
    return client.post("/api/ask", content=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        *((body, "the body is empty") for body in (b"", b"   ")),
        *((body, "not valid JSON") for body in (b"{", b"\xff\xfe")),
        (b"[1, 2]", "not a JSON object"),
        (b'{"row":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not valid JSON"),
        (b'{"row": ' + b"9" * 5000 + b"}", "not valid JSON"),
        *((body, "give {") for body in (b"{}", b'{"row": {}, "vector": []}', b'{"path": "../../etc/passwd"}')),
        *((body, "row: give an object") for body in (b'{"row": {}}', b'{"row": [1, 2, 3]}')),
        (b'{"row": {"size": "1"}}', "no column 'weight', '<b>colour</b>'"),
        (b'{"vector": [1, 2]}', "does not read vectors"),
        (b'{"row": "' + b"x" * 1_100_000 + b'"}', "larger than 1 MB"),
    ],
)
def test_bad_bodies(table: TestClient, body: bytes, message: str) -> None:
    refused(ask(table, body), 413 if "larger" in message else 400, message)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("taste", "sweet", "unknown column 'taste'"),
        ("size", "big", "column 'size' is 'big'"),
        ("size", "inf", "infinite"),
        ("size", "1e300", "too large for float32"),
        ("size", float("inf"), "infinite"),
        ("size", ["1"], "not a string"),
        ("size", True, "not a string"),
        ("<b>colour</b>", "x" * 20_000, "20000 characters"),
        ("<b>colour</b>", "\ud800", "invalid Unicode"),
        ("\ud800", "1", "unknown column"),
        ("<b>colour</b>", "a\0b", "NUL"),
    ],
)
def test_bad_rows(table: TestClient, column: str, value: object, message: str) -> None:
    refused(ask(table, json.dumps({"row": ROW | {column: value}}).encode()), 400, message)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ("[1, 2, 3]", "3 numbers; this model was fitted on 5"),
        *((f"[1, 2, 3, 4, {x}]", "NaN or infinite") for x in ("NaN", "-Infinity", "1e400", 10**400)),
        ("[1, 2, 3, 4, 1e300]", "NaN, infinite, or values beyond"),
        *((f"[1, 2, 3, 4, {x}]", "not a number") for x in ('"5"', "true", "[5]")),
        ("{}", "a list of numbers"),
    ],
)
def test_bad_vectors(vectors: TestClient, vector: str, message: str) -> None:
    refused(ask(vectors, f'{{"vector": {vector}}}'.encode()), 400, message)


def test_queries_of_another_kind_than_the_model(table: TestClient, images: TestClient, vectors: TestClient) -> None:
    refused(image_post(table, png(np.zeros((9, 9), np.uint8))), 415, "not read pictures")
    refused(images.post("/api/ask", json={"vector": [1]}), 400, "send a picture's bytes")
    refused(images.post("/api/ask", json={"row": ROW}), 400, "send a picture's bytes")
    refused(vectors.post("/api/ask", json={"row": ROW}), 400, "send a vector of 5 numbers")
