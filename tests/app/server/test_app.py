"""Routes: the page, its files, and invalid addresses."""

import pytest
from starlette.testclient import TestClient

from server_fixtures import HOSTILE, refused


def test_the_page_and_its_files(table: TestClient) -> None:
    for path, kind in (("/", "text/html"), ("/static/page.js", "text/javascript"), ("/static/page.css", "text/css")):
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
