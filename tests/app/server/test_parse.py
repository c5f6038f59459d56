"""Invalid pictures, rows and vectors are refused with one line."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from server_fixtures import ROW, image_post, png, refused

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


def post_bytes(client: TestClient, body: bytes) -> Any:
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
    refused(post_bytes(table, body), 413 if "larger" in message else 400, message)


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
    refused(post_bytes(table, json.dumps({"row": ROW | {column: value}}).encode()), 400, message)


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
    refused(post_bytes(vectors, f'{{"vector": {vector}}}'.encode()), 400, message)


def test_queries_of_another_kind_than_the_model(table: TestClient, images: TestClient, vectors: TestClient) -> None:
    refused(image_post(table, png(np.zeros((9, 9), np.uint8))), 415, "not read pictures")
    refused(images.post("/api/ask", json={"vector": [1]}), 400, "send a picture's bytes")
    refused(images.post("/api/ask", json={"row": ROW}), 400, "send a picture's bytes")
    refused(vectors.post("/api/ask", json={"row": ROW}), 400, "send a vector of 5 numbers")
