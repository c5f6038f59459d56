"""Invalid pictures, rows and vectors are refused in one line."""

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from server_fixtures import (
    ROW,
    image_post,
    png,
    refused,
)


def vast_png(width: int, height: int) -> bytes:
    """A small file of a large grey picture, all of it there."""
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, "PNG")
    return file.getvalue()


BAD_PICTURES: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "one pixel": (lambda: png(np.zeros((1, 1), np.uint8)), 400, "1×1 pixels: too few"),
    "26 million pixels": (lambda: vast_png(5200, 5000), 400, "at most 25 million are taken"),
    "200 million pixels": (lambda: vast_png(20_000, 10_000), 400, "refused as too large"),
    "a text file named .jpg": (lambda: b"hello, this is no picture\n" * 50, 400, "no readable image"),
    "half a picture": (
        lambda: png(np.random.default_rng(0).integers(0, 255, (90, 90), np.uint8))[:3000],
        400,
        "no read",
    ),
    "16 bits": (lambda: png(np.zeros((9, 9), np.uint16)), 400, "8 bits a channel"),
    "SVG": (lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>', 400, "no readable image"),
    "nothing": (lambda: b"", 400, "the picture is empty"),
    "9 MB": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(9_000_000), 413, "larger than 8 MB"),
}


@pytest.mark.parametrize("name", BAD_PICTURES)
def test_bad_pictures(images: TestClient, name: str) -> None:
    models, status, words = BAD_PICTURES[name]
    refused(image_post(images, models(), "image/jpeg"), status, words)
    assert images.get("/api/case/0").status_code == 200


def deep(n: int) -> bytes:
    return b'{"row":' + b"[" * n + b"]" * n + b"}"


BAD_ROWS: list[tuple[bytes, int, str]] = [
    (b"", 400, "the body is empty"),
    (b"   ", 400, "the body is empty"),
    (b"{", 400, "no JSON"),
    (b"\xff\xfe", 400, "no JSON"),
    (b"[1, 2]", 400, "no JSON object"),
    (deep(100_000), 400, "no JSON"),
    (b'{"row": ' + b"9" * 5000 + b"}", 400, "no JSON"),
    (b"{}", 400, "give {"),
    (b'{"row": {}, "vector": []}', 400, "give {"),
    (b'{"path": "../../etc/passwd"}', 400, "give {"),
    (b'{"row": {}}', 400, "row: give an object"),
    (b'{"row": [1, 2, 3]}', 400, "row: give an object"),
    (b'{"row": {"size": "1"}}', 400, "no column 'weight', '<b>colour</b>'"),
    (json.dumps({"row": ROW | {"taste": "sweet"}}).encode(), 400, "column 'taste' is none of the model's"),
    (json.dumps({"row": ROW | {"size": "big"}}).encode(), 400, "column 'size' is 'big', no number"),
    (json.dumps({"row": ROW | {"size": "inf"}}).encode(), 400, "infinite"),
    (json.dumps({"row": ROW | {"size": "1e300"}}).encode(), 400, "too large for float32"),
    (json.dumps({"row": ROW | {"size": float("inf")}}).encode(), 400, "infinite"),
    (json.dumps({"row": ROW | {"size": ["1"]}}).encode(), 400, "no text"),
    (json.dumps({"row": ROW | {"size": True}}).encode(), 400, "no text"),
    (json.dumps({"row": ROW | {"<b>colour</b>": "x" * 20_000}}).encode(), 400, "20000 characters"),
    (json.dumps({"row": ROW | {"<b>colour</b>": "\ud800"}}).encode(), 400, "no valid Unicode"),
    (json.dumps({"row": ROW | {"\ud800": "1"}}).encode(), 400, "is none of the model's"),
    (json.dumps({"row": ROW | {"<b>colour</b>": "a\0b"}}).encode(), 400, "NUL"),
    (b'{"vector": [1, 2]}', 400, "does not read vectors"),
    (b'{"row": "' + b"x" * 1_100_000 + b'"}', 413, "larger than 1 MB"),
]


@pytest.mark.parametrize(("body", "status", "words"), BAD_ROWS)
def test_bad_rows(table: TestClient, body: bytes, status: int, words: str) -> None:
    refused(table.post("/api/ask", content=body, headers={"Content-Type": "application/json"}), status, words)


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ("[1, 2, 3]", "3 numbers; this model was fitted on 5"),
        ("[1, 2, 3, 4, NaN]", "NaN or infinite"),
        ("[1, 2, 3, 4, -Infinity]", "NaN or infinite"),
        ("[1, 2, 3, 4, 1e400]", "NaN or infinite"),
        (f"[1, 2, 3, 4, {10**400}]", "NaN or infinite"),
        ("[1, 2, 3, 4, 1e300]", "NaN, infinite, or values beyond"),
        ('[1, 2, 3, 4, "5"]', "no number"),
        ("[1, 2, 3, 4, true]", "no number"),
        ("[1, 2, 3, 4, [5]]", "no number"),
        ("{}", "a list of numbers"),
    ],
)
def test_bad_vectors(vectors: TestClient, vector: str, words: str) -> None:
    sent = f'{{"vector": {vector}}}'.encode()
    refused(vectors.post("/api/ask", content=sent, headers={"Content-Type": "application/json"}), 400, words)


def test_what_another_kind_of_model_reads(table: TestClient, images: TestClient, vectors: TestClient) -> None:
    refused(image_post(table, png(np.zeros((9, 9), np.uint8))), 415, "not read pictures")
    refused(images.post("/api/ask", json={"vector": [1]}), 400, "send a picture's bytes")
    refused(images.post("/api/ask", json={"row": ROW}), 400, "send a picture's bytes")
    refused(vectors.post("/api/ask", json={"row": ROW}), 400, "send a vector of 5 numbers")
