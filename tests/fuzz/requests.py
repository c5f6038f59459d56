"""Requests to the page's server: methods, paths, queries, headers, JSON and pictures."""

import json
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from starlette.testclient import TestClient

from attnknn.app.model.model import Model
from attnknn.app.server.app import _GET, _POST, create_app
from tests.fuzz.judge import Judge
from tests.fuzz.mutate import TEXTS, VALUES, damage, replace_value
from tests.fuzz.pictures import picture_bytes
from tests.fuzz.runner import MODELS

_BODIES: list[Any] = [
    {"row": {"size": "0.9", "weight": "9.5", "<b>colour</b>": "red"}}, {"vector": [0.5] * 5}, {"ids": [3, 7]}, {},
    {"query": "case/3", "label": "apple"}, {"query": "asked/1", "label": "left"}, {"query": "row/3", "label": "1"},
]  # fmt: skip
_QUERIES = ["case/3", "row/3", "memory/3", "asked/1", "ask/1", "case/999999999"]
_HEADERS = {
    "Host": ["127.0.0.1", "localhost:8000", "evil.example", "[::1]", "[", "a b", ""],
    "Origin": ["http://127.0.0.1:8000", "null", "http://evil.example", "http://[", "x" * 5000],
    "Sec-Fetch-Site": ["same-origin", "cross-site", "?"],
    "Content-Length": ["0", "-1", "9" * 30, "x", "100000000"],
    "Content-Type": ["application/json", "application/json; charset=x", "image/png", "text/plain", "", "multipart/x"],
    "Content-Encoding": ["gzip", "br"],
}


def _url(rng: Random) -> str:
    path = rng.choice([*_GET, *_POST, "/", "/static/page.js", "/static/../app.py", "/api", "/none"])
    kind, _, which = rng.choice([*_QUERIES, f"row/{quote(rng.choice(TEXTS)[:99], safe='')}"]).partition("/")
    path = path.format(kind=kind, which=which, file=f"{which}{rng.choice(['.png', '.png', '.jpg'])}")
    keys = rng.sample(["start", "count", "least", "filter", "label", "query", "shown", "row"], rng.choice([0, 1, 3]))
    values = ["0", "3", "0.5", "all", "wrong", "apple", *_QUERIES, *(text[:2000] for text in TEXTS)]
    return f"{path}?{urlencode({key: rng.choice(values) for key in keys})}"


def _content(rng: Random) -> dict[str, Any]:
    body = rng.choice(_BODIES)
    body = rng.choice([body, replace_value(rng, body), replace_value(rng, body), rng.choice(VALUES)])
    data, kind = json.dumps(body).encode(), "application/json"
    if rng.random() < 0.2:
        data, kind = picture_bytes(rng), "image/png"
    data = damage(rng, data) if rng.random() < 0.15 else data * 1_000_000 if rng.random() < 0.01 else data
    name = rng.choice(list(_HEADERS))
    other = {name: rng.choice(_HEADERS[name])} if rng.random() < 0.2 else {}
    return {"content": data[:20_000_000], "headers": {"Content-Type": kind} | other}


def run(rng: Random, judge: Judge) -> None:
    """Send requests to the server of a model."""
    folder = judge.model(rng.choice(MODELS))
    app = create_app(Model.load(folder), name="m", folder=folder, allow_save=rng.random() < 0.7)
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        for _ in range(rng.choice([1, 4, 8])):
            url = _url(rng)
            post = url.partition("?")[0] in _POST or rng.random() < 0.05
            method = rng.choice(["PUT", "DELETE", "OPTIONS", "HEAD"]) if rng.random() < 0.03 else ["GET", "POST"][post]
            content, writes = _content(rng) if post else {}, [folder] if "/save" in url else []
            reply = judge.request(client, method, url, writes=writes, **content)
            if reply is None or method == "HEAD" or "json" not in reply.headers["content-type"]:
                continue
            if '"probabilities"' in reply.text:
                answer = reply.json().get("answer") or reply.json()
                judge.probabilities([entry["p"] for entry in answer["probabilities"]])
