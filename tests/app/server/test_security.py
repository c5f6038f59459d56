"""Hosts, origins, headers and limits of requests."""

import socket
from itertools import product

import pytest
from starlette.testclient import TestClient

from attnknn.app.model.model import Model
from attnknn.app.server import security
from attnknn.app.server.security import host_filter
from server_fixtures import BASE_URL, ROW, image_post, refused

POST_PATHS = ("/api/ask", "/api/add", "/api/forget", "/api/reset", "/api/save")


def test_security_headers(table: TestClient) -> None:
    refusal = table.get("/", headers={"Host": "evil.example"})
    for reply in (table.get("/"), table.get("/api/model"), table.get("/api/nothing"), refusal):
        sent = dict(reply.headers)
        policy = dict(part.split(" ", 1) for part in sent.pop("content-security-policy").split("; "))
        assert policy == {
            "default-src": "'self'", "img-src": "'self' data: blob:", "object-src": "'none'", "base-uri": "'none'",
            "form-action": "'none'", "frame-ancestors": "'none'",
        }  # fmt: skip
        assert {name: value for name, value in sent.items() if not name.startswith("content-")} == {
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        }


UNKNOWN_HOSTS = """
evil.example evil.example:8000 127.0.0.1.evil.example 0.0.0.0 user@127.0.0.1 127.0.0.1:80@evil.example 127.0.0.1\\
127.0.0.1#evil 127.0.0.1/x 127.0.0.1?x 127.0.0.1:port 127.0.0.1:123456 [:: [::1
"""


@pytest.mark.parametrize("host", ["", *UNKNOWN_HOSTS.split()])
def test_unknown_hosts(table: TestClient, host: str) -> None:
    for path in ("/", "/api/model", "/api/picture/memory/1.png"):
        refused(table.get(path, headers={"Host": host}), 403, "unknown host name")


def test_allowed_hosts() -> None:
    for address, allowed, unknown in (
        ("127.0.0.1", ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"), "evil.example"),
        ("192.168.1.5", ("192.168.1.5:8000",), "192.168.1.6:8000"),
        ("0.0.0.0", ("10.1.2.3:8000",), "evil.example"),
        ("::", ("[fe80::1]:8000",), "evil.example"),
        ("", (socket.gethostname(),), "evil.example"),
    ):
        assert all(map(host_filter(address), allowed))
        assert not host_filter(address)(unknown)


def test_other_origins(table: TestClient) -> None:
    local = ("http://127.0.0.1:9000", "http://localhost:8000")
    for path, origin in product(POST_PATHS, ("http://evil.example", "null", *local, "file://", "http://[")):
        refused(table.post(path, json={}, headers={"Origin": origin}), 403, "from another page")


def test_cross_site_requests(table: TestClient) -> None:
    assert table.post("/api/ask", json={"row": ROW}, headers={"Origin": BASE_URL}).status_code == 200
    for site in ("cross-site", "same-site"):
        refused(table.get("/api/model", headers={"Sec-Fetch-Site": site}), 403, "from another site")
        assert table.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200  # a link to the page
    assert table.get("/api/model", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    reply = table.options("/api/ask", headers=headers)
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_content_types_of_html_forms(table: TestClient) -> None:
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")
    for path, kind in product(POST_PATHS, kinds):
        refused(table.post(path, content=b"{}", headers={"Content-Type": kind}), 415, "application/json")


def test_bodies_without_a_valid_length(images: TestClient) -> None:
    chunks = (bytes(100_000) for _ in range(1000))
    refused(image_post(images, chunks), 413, "larger than 8 MB")
    wrong = {"Content-Type": "application/json", "Content-Length": "many"}
    refused(images.post("/api/ask", content=b"{}", headers=wrong), 400, "Content-Length")


def test_internal_errors_reveal_nothing(table: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "answers", lambda *_: 1 / 0)
    refused(table.get("/api/case/0"), 500, "see the server's terminal")
    assert "ZeroDivision" not in table.get("/api/case/0").text


def test_limits_bound_the_memory_of_request_bodies() -> None:
    images = security.MAX_IMAGE_BODIES * security.IMAGE_BYTES
    assert images + security.MAX_JSON_BODIES * security.JSON_BYTES <= 150e6
