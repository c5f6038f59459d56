"""The server of the page: what it answers is what the classifier answers, and no input breaks it."""

import asyncio
import copy
import io
import json
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image
from starlette.testclient import TestClient
from typer.testing import CliRunner

from attnknn.app.cli import app as command_line
from attnknn.app.model.inputs import Batch
from attnknn.app.model.model import Model, model_lock
from attnknn.app.server import app as server_app
from attnknn.app.server import security, serve, session
from attnknn.app.server.app import create_app
from attnknn.app.server.lock import SharedLock
from attnknn.app.server.parse import parse_row
from attnknn.app.server.queries import MAX_KEPT
from attnknn.app.server.security import (
    IMAGE_BYTES,
    JSON_BYTES,
    MAX_IMAGE_BODIES,
    MAX_JSON_BODIES,
    MAX_REQUESTS,
    AllowedHosts,
)
from attnknn.core.errors import InputError
from attnknn.evaluation.metrics import scores
from server_fixtures import (
    HOSTILE,
    beside_model,
    picture_model,
    pictures,
    png,
    running,
    serving,
    table_model,
    vector_model,
)

HERE = "http://127.0.0.1:8000"
ROW = {"size": "0.9", "weight": "9.5", "<b>colour</b>": "red"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "table": table_model(folder / "table"),
        "images": picture_model(folder / "images"),
        "vectors": vector_model(folder / "vectors"),
    }


def client_of(path: Path, **options: Any) -> TestClient:
    model = Model.load(path)
    app = create_app(model, name="tried", folder=path, **options)
    return TestClient(app, base_url=HERE, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def table(models: dict[str, Path]) -> TestClient:
    return client_of(models["table"])


@pytest.fixture(scope="module")
def images(models: dict[str, Path]) -> TestClient:
    return client_of(models["images"])


@pytest.fixture(scope="module")
def vectors(models: dict[str, Path]) -> TestClient:
    return client_of(models["vectors"])


@pytest.fixture
def copied(models: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(models["table"], tmp_path / "model"))


def refused(reply: Any, status: int, words: str) -> None:
    """One clear line, and nothing about the machine."""
    assert reply.status_code == status, reply.text
    assert set(reply.json()) == {"error"}
    line = reply.json()["error"]
    assert words in line, line
    assert "\n" not in line
    assert "Traceback" not in line
    assert tempfile.gettempdir() not in line
    assert len(line) <= 600


def image_post(client: TestClient, data: bytes, kind: str = "image/png") -> Any:
    return client.post("/api/ask", content=data, headers={"Content-Type": kind})


def probabilities(response: dict[str, Any], model: Model) -> np.ndarray:
    p = {entry["label"]: entry["p"] for entry in response["answer"]["probabilities"]}
    return np.array([p[str(label)] for label in model.classifier.classes_])


# What is answered


def test_the_page_and_its_files(table: TestClient) -> None:
    for path, kind in (("/", "text/html"), ("/static/page.js", "text/javascript"), ("/static/page.css", "text/css")):
        reply = table.get(path)
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith(kind)
    page = table.get("/").text
    assert "://" not in page, "nothing is loaded from elsewhere"
    assert "<script>" not in page
    assert " style=" not in page
    assert " onclick=" not in page


def test_every_answer_has_the_headers_that_guard_it(table: TestClient) -> None:
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


def test_about_the_model(table: TestClient, images: TestClient, vectors: TestClient) -> None:
    response = table.get("/api/model").json()
    assert (response["name"], response["kind"]) == ("tried", "table")
    assert set(response["classes"]) == {"apple", "melon", HOSTILE}
    columns = {column["name"]: column for column in response["columns"]}
    assert columns["size"]["kind"] == "number"
    assert columns["size"]["scale"] > 0
    assert set(columns["<b>colour</b>"]["values"]) == {"red", "green", HOSTILE}
    assert not response["can_save"]
    assert response["can_reset"]
    assert response["cases"] > 30
    assert images.get("/api/model").json()["shape"] == [1, 8, 8]
    about = vectors.get("/api/model").json()
    assert (about["dim"], about["cases"], about["classes"]) == (5, 0, ["0", "1", "2"])


@pytest.mark.parametrize("kind", ["table", "images"])
def test_a_case_is_answered_as_the_classifier_does(models: dict[str, Path], kind: str) -> None:
    client, model = client_of(models[kind]), Model.load(models[kind])
    assert model.cases is not None
    for i in (0, 3, len(model.cases.labels) - 1):
        response = client.get(f"/api/case/{i}").json()
        expected = model.classifier.predict_proba(model.cases.vectors[i : i + 1])[0]
        np.testing.assert_array_equal(probabilities(response, model), expected)
        assert response["label"] == str(model.cases.labels[i])
        why = model.classifier.explain(model.cases.vectors[i : i + 1])
        heaviest = why.ids[0][np.argsort(-why.weights[0], kind="stable")][:8]
        assert [neighbour["id"] for neighbour in response["answer"]["neighbours"]] == heaviest.tolist()


def test_a_row_of_the_memory_is_asked_for_as_if_it_were_not_there(models: dict[str, Path], table: TestClient) -> None:
    model = Model.load(models["table"])
    response = table.get("/api/memory/7?shown=12").json()
    np.testing.assert_array_equal(probabilities(response, model), model.classifier.explain_rows([7]).probabilities[0])
    assert 7 not in [neighbour["id"] for neighbour in response["answer"]["neighbours"]]
    assert response["example"]["columns"] == model.examples.columns(7)
    (neighbour, *_) = response["answer"]["neighbours"]
    assert neighbour["example"]["columns"] == model.examples.columns(neighbour["id"])
    assert len(response["answer"]["neighbours"]) == 12
    assert response["answer"]["rest"]["count"] == 0


def test_rows_vectors_and_pictures_are_asked_for(
    models: dict[str, Path], table: TestClient, images: TestClient, vectors: TestClient
) -> None:
    model = Model.load(models["table"])
    response = table.post("/api/ask", json={"row": ROW | {"weight": " NA "}}).json()
    x = model.input.vectors(parse_row(model.input, ROW | {"weight": None}))
    np.testing.assert_array_equal(probabilities(response, model), model.classifier.predict_proba(x)[0])
    assert response["example"]["columns"] == ROW | {"weight": None}
    assert table.get(f"/api/{response['query']}").json()["answer"] == response["answer"]

    model = Model.load(models["vectors"])
    response = vectors.post("/api/ask", json={"vector": [1, 2.5, -1, 0, 3]}).json()
    expected = model.classifier.predict_proba(np.array([[1, 2.5, -1, 0, 3]]))[0]
    np.testing.assert_array_equal(probabilities(response, model), expected)
    np.testing.assert_allclose(response["example"]["vector"]["values"], [1, 2.5, -1, 0, 3], rtol=1e-4)
    assert response["label"] is None

    model = Model.load(models["images"])
    (image,), _ = pictures(1, seed=5)
    response = image_post(images, png(image[0])).json()
    x = model.input.vectors(Batch([""], image[None]))
    np.testing.assert_array_equal(probabilities(response, model), model.classifier.predict_proba(x)[0])
    seen = images.get(response["example"]["picture"])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(seen.content))), image[0])
    large = np.asarray(Image.fromarray(image[0]).resize((300, 500)).convert("RGB"))
    assert image_post(images, png(large), "image/unknown").status_code == 200


def test_vectors_are_sent_though_columns_stand_beside_them(tmp_path: Path) -> None:
    path = beside_model(tmp_path, 300)
    client, model = client_of(path), Model.load(path)
    assert model.cases is not None
    for name in ("case/3", "memory/5"):
        response = client.get(f"/api/{name}").json()
        sent, columns = response["example"]["vector"], response["example"]["columns"]
        assert (len(sent["values"]), len(sent["off"])) == (300, 256)
        assert columns["name"].startswith("thing")
        neighbour = response["answer"]["neighbours"][0]["example"]
        assert len(neighbour["vector"]["values"]) == 256
        assert neighbour["columns"]["name"].startswith("thing")
    np.testing.assert_allclose(client.get("/api/case/3").json()["example"]["vector"]["values"],
                               model.cases.vectors[3], rtol=1e-4)  # fmt: skip
    again = client.post("/api/ask", json={"vector": client.get("/api/case/3").json()["example"]["vector"]["values"]})
    first = client.get("/api/case/3").json()["answer"]
    assert again.json()["answer"]["confidence"] == pytest.approx(first["confidence"], abs=1e-3)
    done = client.post("/api/add", json={"query": again.json()["query"], "label": "yes"}).json()
    assert client.get(f"/api/memory/{done['id']}").status_code == 200


def test_named_vectors_are_asked_for_by_name_too(tmp_path: Path) -> None:
    client = client_of(vector_model(tmp_path, named=True))
    by_name = client.post("/api/ask", json={"row": dict(zip("edcba", map(str, range(5)), strict=True))}).json()
    by_place = client.post("/api/ask", json={"vector": [4, 3, 2, 1, 0]}).json()
    assert by_name["answer"] == by_place["answer"]
    refused(client.post("/api/ask", json={"row": dict.fromkeys("abcde", "x")}), 400, "column 'a' is 'x', no number")


def test_the_last_queries_are_kept_and_no_more(vectors: TestClient) -> None:
    names = [vectors.post("/api/ask", json={"vector": [i, 0, 0, 0, 0]}).json()["query"] for i in range(MAX_KEPT + 2)]
    refused(vectors.get(f"/api/{names[1]}"), 404, "ask it again")
    assert vectors.get(f"/api/{names[2]}").status_code == 200
    assert len(set(names)) == len(names)


def test_pictures_of_the_memory_and_of_cases(models: dict[str, Path], images: TestClient, table: TestClient) -> None:
    model = Model.load(models["images"])
    assert model.cases is not None
    assert model.examples.images is not None
    assert model.cases.examples.images is not None
    for address, expected in (
        ("/api/picture/memory/3.png", model.examples.images[3]),
        ("/api/picture/case/2.png", model.cases.examples.images[2]),
    ):
        reply = images.get(address)
        assert reply.headers["content-type"] == "image/png"
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(reply.content))), expected[0])
    refused(images.get("/api/picture/memory/3.jpg"), 404, "….png")
    refused(images.get("/api/picture/memory/999.png"), 404, "not in the memory")
    refused(table.get("/api/picture/memory/3.png"), 404, "no pictures")


def test_test_cases_are_filtered(models: dict[str, Path], table: TestClient, vectors: TestClient) -> None:
    model = Model.load(models["table"])
    assert model.cases is not None
    probs = model.classifier.predict_proba(model.cases.vectors)
    hit = model.classifier.classes_[probs.argmax(1)] == model.cases.labels
    assert 0 < (~hit).sum() < len(hit), "the test needs some of both"

    def listed(**params: Any) -> list[int]:
        page = table.get("/api/cases", params={"count": 100, **params}).json()
        return [case["case"] for case in page["cases"]]

    assert listed() == list(range(len(hit)))
    assert listed(filter="wrong") == np.flatnonzero(~hit).tolist()
    assert listed(filter="wrong", label=HOSTILE) == np.flatnonzero(~hit & (model.cases.labels == HOSTILE)).tolist()
    assert listed(filter="unsure") == np.argsort(probs.max(1), kind="stable").tolist()
    least = float(np.median(probs.max(1)[~hit]))
    surest = listed(filter="confident-wrong", least=least)
    assert set(surest) == set(np.flatnonzero(~hit & (probs.max(1) >= least)))
    assert np.diff(probs.max(1)[surest]).max(initial=0) <= 0
    assert listed(start=5, count=3) == [5, 6, 7]
    refused(table.get("/api/cases?filter=worst"), 400, "give one of all, wrong")
    refused(table.get("/api/cases?count=1000"), 400, "give 1 … 100")
    refused(table.get("/api/cases?start=-1"), 400, "no whole number")
    refused(table.get("/api/cases?least=much"), 400, "least")
    refused(table.get("/api/cases?least=nan"), 400, "least")
    refused(table.get("/api/cases?label=pear"), 400, "no class of this model")
    refused(vectors.get("/api/cases"), 404, "attnknn fit")
    assert vectors.get("/api/calibration").json()["now"] is None


def test_calibration_is_that_of_the_metrics(models: dict[str, Path], table: TestClient) -> None:
    model = Model.load(models["table"])
    assert model.cases is not None
    probs = model.classifier.predict_proba(model.cases.vectors)
    expected = scores(probs, np.searchsorted(model.classifier.classes_, model.cases.labels))
    now = table.get("/api/calibration").json()["now"]
    assert {name: now[name] for name in ("accuracy", "nll", "ece")} == {
        name: expected[name] for name in ("accuracy", "nll", "ece")
    }
    assert sum(bin_["count"] for bin_ in now["bins"]) == now["rows"] == len(probs)
    assert now["low"] < now["accuracy"] < now["high"]


def test_what_would_change_an_answer(models: dict[str, Path], table: TestClient) -> None:
    model = Model.load(models["table"])
    assert model.cases is not None
    response = table.get("/api/change?query=case/4").json()
    (expected,) = model.counterfactuals(model.cases.vectors[4:5])
    assert response["ids"] == expected["ids"]
    assert response["prediction"] == str(expected["prediction"])
    (expected,) = model.counterfactuals(ids=[9])
    assert table.get("/api/change?query=memory/9").json()["ids"] == expected["ids"]
    refused(table.get("/api/change"), 404, "a query is case/…")


# Changing


def test_adding_and_forgetting_are_partial_fit_and_forget(models: dict[str, Path]) -> None:
    table, model = client_of(models["table"]), Model.load(models["table"])
    query = table.post("/api/ask", json={"row": ROW}).json()
    done = table.post("/api/add", json={"query": query["query"], "label": HOSTILE}).json()
    batch = parse_row(model.input, ROW)
    classifier = copy.deepcopy(model.classifier)
    classifier.partial_fit(model.input.vectors(batch), np.array([HOSTILE], dtype=classifier.classes_.dtype))
    assert done["id"] == classifier.memory_.ids[-1]
    changed = {"memory": len(classifier.memory_), "added": 1, "version": query["state"]["version"] + 1}
    assert done["state"] == query["state"] | changed
    after = table.get(f"/api/{query['query']}?shown=12").json()
    expected = classifier.predict_proba(model.input.vectors(batch))[0]
    np.testing.assert_array_equal(probabilities(after, model), expected)
    nearest = min(after["answer"]["neighbours"], key=lambda neighbour: neighbour["distance"])
    assert (nearest["id"], nearest["example"]["columns"]) == (done["id"], ROW)

    gone = [neighbour["id"] for neighbour in after["answer"]["neighbours"]][:3]
    state = table.post("/api/forget", json={"ids": gone}).json()["state"]
    classifier.forget(gone)
    assert state["memory"] == len(classifier.memory_)
    assert state["added"] + state["forgotten"] == (4 if done["id"] not in gone else 2)
    after = table.get(f"/api/{query['query']}").json()
    np.testing.assert_array_equal(probabilities(after, model), classifier.predict_proba(model.input.vectors(batch))[0])
    assert not set(gone) & {neighbour["id"] for neighbour in after["answer"]["neighbours"]}
    refused(table.get(f"/api/memory/{gone[0]}"), 404, "not in the memory")


def test_test_cases_and_pictures_are_added(models: dict[str, Path]) -> None:
    images, model = client_of(models["images"]), Model.load(models["images"])
    assert model.cases is not None
    done = images.post("/api/add", json={"query": "case/5", "label": "left"}).json()
    classifier = model.classifier.partial_fit(model.cases.vectors[5:6], np.array(["left"]))
    response = images.get("/api/case/6").json()
    np.testing.assert_array_equal(probabilities(response, model), classifier.predict_proba(model.cases.vectors[6:7])[0])
    same = [images.get(f"/api/picture/{name}.png").content for name in (f"memory/{done['id']}", "case/5")]
    assert same[0] == same[1]
    calibration = images.get("/api/calibration").json()
    assert calibration["taken"] == 1
    assert calibration["before"]["rows"] == calibration["now"]["rows"]
    images.post("/api/forget", json={"ids": [done["id"]]})
    assert images.get("/api/calibration").json() | {"state": 0} == calibration | {
        "state": 0, "taken": 0, "before": None, "now": calibration["before"],
    }  # fmt: skip


def test_what_cannot_be_added_or_forgotten(table: TestClient) -> None:
    size = table.get("/api/model").json()["state"]["memory"]
    add, forget = ("/api/add", "/api/forget")
    for path, sent, status, words in [
        (add, {"query": "memory/3", "label": "apple"}, 409, "in the memory already"),
        (add, {"query": "case/3", "label": "pear"}, 400, "no class of this model"),
        (add, {"query": "case/99999", "label": "apple"}, 404, "no test case 99999"),
        (add, {"query": "asked/none", "label": "apple"}, 404, "ask it again"),
        (add, {"query": "../../model.json", "label": "apple"}, 404, "a query is"),
        (add, {"query": "case/3"}, 400, "give {"),
        (add, {"query": "case/3", "label": 3}, 400, "give {"),
        (forget, {"ids": [10**18]}, 400, "not in the memory"),
        (forget, {"ids": [10**40]}, 400, "a list of"),
        (forget, {"ids": [-1]}, 400, "a list of"),
        (forget, {"ids": [True]}, 400, "a list of"),
        (forget, {"ids": [1.5]}, 400, "a list of"),
        (forget, {"ids": "all"}, 400, "a list of"),
        (forget, {"ids": []}, 400, "a list of"),
        (forget, {"ids": list(range(5000))}, 400, "a list of"),
        (forget, {"ids": list(range(size - 1))}, 400, "fewer than two rows would be left"),
        (forget, {}, 400, "give {"),
    ]:
        refused(table.post(path, json=sent), status, words)
    refused(table.post("/api/save", json={}), 403, "--allow-save")
    assert table.get("/api/model").json()["state"]["memory"] == size


def test_changes_are_taken_back_and_saved(copied: Path) -> None:
    client = client_of(copied, allow_save=True)
    model = Model.load(copied)
    assert model.cases is not None
    first = client.get("/api/case/1").json()
    client.post("/api/forget", json={"ids": [neighbour["id"] for neighbour in first["answer"]["neighbours"]]})
    assert client.get("/api/case/1").json()["answer"] != first["answer"]
    state = client.post("/api/reset", json={}).json()["state"]
    assert state == first["state"] | {"version": 3, "model": 2}
    again = client.get("/api/case/1").json()
    assert again["answer"] == first["answer"]
    assert again["example"] == first["example"]

    row = client.post("/api/add", json={"query": "case/0", "label": "melon"}).json()["id"]
    client.post("/api/forget", json={"ids": [4]})
    before = client.get("/api/memory/8").json()["answer"]
    state = client.post("/api/save", json={}).json()["state"]
    assert (state["added"], state["forgotten"]) == (0, 0)
    saved = Model.load(copied)
    assert row in saved.classifier.memory_.ids
    assert 4 not in saved.classifier.memory_.ids
    assert saved.cases is not None
    np.testing.assert_array_equal(saved.cases.vectors, model.cases.vectors[1:], "a case in memory is no test case")
    again = client_of(copied)
    assert again.get("/api/memory/8").json()["answer"] == before
    assert again.get("/api/calibration").json()["now"] == client.get("/api/calibration").json()["now"]


def test_another_model_answers_nothing_that_was_asked_of_the_one_before(copied: Path, models: dict[str, Path]) -> None:
    client = client_of(copied, allow_save=True)
    name = client.post("/api/ask", json={"row": ROW}).json()["query"]
    client.post("/api/add", json={"query": name, "label": "apple"})
    assert client.get(f"/api/{name}").status_code == 200
    client.post("/api/save", json={})
    refused(client.get(f"/api/{name}"), 404, "ask it again")
    name = client.post("/api/ask", json={"row": ROW}).json()["query"]
    shutil.rmtree(copied)
    shutil.copytree(models["images"], copied)
    assert client.post("/api/reset", json={}).json()["state"]["model"] == 3
    for path in (f"/api/{name}", f"/api/picture/{name}.png", f"/api/change?query={name}"):
        refused(client.get(path), 404, "ask it again")
    refused(client.post("/api/add", json={"query": name, "label": "left"}), 404, "ask it again")


def test_a_row_is_shown_though_it_weighs_little(table: TestClient) -> None:
    every = table.get("/api/case/3?shown=64").json()["answer"]
    last = every["neighbours"][-1]
    few = table.get(f"/api/case/3?shown=2&row={last['id']}").json()["answer"]
    assert few["neighbours"] == [*every["neighbours"][:2], last]
    assert few["rest"]["count"] == len(every["neighbours"]) - 3
    assert few["rest"]["weight"] == pytest.approx(
        sum(neighbour["weight"] for neighbour in every["neighbours"][2:-1]), abs=1e-6
    )
    plain = table.get("/api/case/3?shown=2").json()["answer"]
    for row in (every["neighbours"][0]["id"], 99999):  # shown already, or no neighbour
        assert table.get(f"/api/case/3?shown=2&row={row}").json()["answer"] == plain
    refused(table.get("/api/case/3?row=x"), 400, "no whole number")


def test_what_another_process_changed_is_not_written_over(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LOCK_TIMEOUT", 0.1)
    client = client_of(copied, allow_save=True)
    client.post("/api/forget", json={"ids": [1]})
    with model_lock(copied, timeout=0):
        refused(client.post("/api/save", json={}), 409, "another process is changing")
    time.sleep(0.01)  # a clock's tick
    Model.load(copied).save(copied)
    refused(client.post("/api/save", json={}), 409, "has been changed since it was read")
    client.post("/api/reset", json={})
    client.post("/api/forget", json={"ids": [1]})
    assert client.post("/api/save", json={}).status_code == 200
    shutil.rmtree(copied)
    refused(client.post("/api/reset", json={}), 409, "the server's terminal says why")
    assert client.get("/api/case/0").status_code == 200


def test_a_model_without_a_folder_is_neither_reset_nor_saved(models: dict[str, Path]) -> None:
    client = TestClient(create_app(Model.load(models["vectors"]), allow_save=True), base_url=HERE)
    refused(client.post("/api/reset", json={}), 409, "not read from a folder")
    refused(client.post("/api/save", json={}), 403, "not allowed")


# Who may ask


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "",
        "[::",
        "0.0.0.0",
        "user@127.0.0.1",
        "127.0.0.1:80@evil.example",
        "127.0.0.1\\",
        "127.0.0.1#evil",
        "127.0.0.1/x",
        "127.0.0.1?x",
        "127.0.0.1:port",
        "127.0.0.1:123456",
        "[::1",
    ],
)
def test_only_its_own_names_are_answered(table: TestClient, host: str) -> None:
    for path in ("/", "/api/model", "/api/picture/memory/1.png"):
        refused(table.get(path, headers={"Host": host}), 403, "this server has another name")


def test_its_own_names() -> None:
    for header in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"):
        assert AllowedHosts.for_address("127.0.0.1").allow(header)
    assert AllowedHosts.for_address("192.168.1.5").allow("192.168.1.5:8000")
    assert not AllowedHosts.for_address("192.168.1.5").allow("192.168.1.6:8000")
    assert AllowedHosts.for_address("0.0.0.0").allow("10.1.2.3:8000")
    assert AllowedHosts.for_address("::").allow("[fe80::1]:8000")
    assert AllowedHosts.for_address("").allow(socket.gethostname())
    assert not AllowedHosts.for_address("0.0.0.0").allow("evil.example")


def test_other_pages_are_refused(table: TestClient) -> None:
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:9000",
        "http://localhost:8000",
        "file://",
        "http://[",
    ):
        for path in ("/api/ask", "/api/add", "/api/forget", "/api/reset", "/api/save"):
            refused(table.post(path, json={}, headers={"Origin": origin}), 403, "from another page")
    assert table.post("/api/ask", json={"row": ROW}, headers={"Origin": HERE}).status_code == 200
    for site in ("cross-site", "same-site"):
        refused(table.get("/api/model", headers={"Sec-Fetch-Site": site}), 403, "from another site")
        assert table.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200  # a link to the page may be followed
    assert table.get("/api/model", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    reply = table.options(
        "/api/ask", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_is_refused(table: TestClient, kind: str) -> None:
    for path in ("/api/ask", "/api/add", "/api/forget", "/api/reset", "/api/save"):
        refused(table.post(path, content=b"{}", headers={"Content-Type": kind}), 415, "application/json")


# What breaks others


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


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2f..%2fapp.py",
        "/static//etc/passwd",
        "/../../etc/passwd",
        "/api/picture/memory/..%2f..%2fmodel.json",
        "/api/picture/memory/../../model.json.png",
        "/api/picture/../memory.png",
        "/api/memory/../model.json",
        "/api/memory/-1",
        "/api/memory/1e3",
        "/api/memory/٣",
        "/api/memory/" + "9" * 19,
        "/api/memory/" + "9" * 6000,
        "/api/case/99999999",
        "/api/asked/..",
        "/api/file/model.json",
        "/api/nothing",
        "/favicon.ico",
        "/%00",
    ],
)
def test_paths_lead_nowhere(table: TestClient, path: str) -> None:
    reply = table.get(path)
    assert reply.status_code == 404, reply.text
    assert set(reply.json()) == {"error"}
    assert len(reply.text) < 800


def test_other_methods_and_numbers_are_refused(table: TestClient) -> None:
    for method, path in (("PUT", "/api/ask"), ("DELETE", "/api/memory/3"), ("GET", "/api/save"), ("POST", "/")):
        assert table.request(method, path).status_code in (404, 405)
    for shown in ("0", "65", "-1", "1.5", "x", "9" * 30):
        refused(table.get(f"/api/case/0?shown={shown}"), 400, "give")


def test_a_body_without_a_length_is_stopped_where_it_is_too_large(images: TestClient) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield bytes(100_000)

    headers = {"Content-Type": "image/png"}
    refused(images.post("/api/ask", content=chunks(), headers=headers), 413, "larger than 8 MB")
    wrong = {"Content-Type": "application/json", "Content-Length": "many"}
    refused(images.post("/api/ask", content=b"{}", headers=wrong), 400, "Content-Length")


def test_a_fault_of_ours_tells_the_client_nothing(table: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "answers", lambda *_: 1 / 0)
    refused(table.get("/api/case/0"), 500, "the terminal of the server says what")
    assert "ZeroDivision" not in table.get("/api/case/0").text


def test_readers_share_and_writers_do_not() -> None:
    lock, seen, order = SharedLock(), [], []
    inside = threading.Barrier(3)

    def read() -> None:
        with lock.reading():
            inside.wait(5)  # three at once, or this breaks

    def write(name: int) -> None:
        with lock.writing():
            order.append(name)
            time.sleep(0.01)
            seen.append(order[-1] == name)

    for work in (
        [threading.Thread(target=read) for _ in range(3)],
        [threading.Thread(target=write, args=(i,)) for i in range(5)],
    ):
        for thread in work:
            thread.start()
        for thread in work:
            thread.join(5)
    assert seen == [True] * 5


def test_a_writer_goes_before_readers_that_come_later() -> None:
    lock, order = SharedLock(), []
    reading = lock.reading()
    reading.__enter__()

    def write() -> None:
        with lock.writing():
            order.append("write")

    def read() -> None:
        with lock.reading():
            order.append("read")

    writer, reader = threading.Thread(target=write), threading.Thread(target=read)
    writer.start()
    time.sleep(0.05)
    reader.start()
    time.sleep(0.05)
    assert order == []
    reading.__exit__(None, None, None)
    writer.join(5)
    reader.join(5)
    assert order == ["write", "read"]


def test_many_ask_while_one_changes(models: dict[str, Path]) -> None:
    """No answer is of a memory that is half changed: a forgotten row and its label go together."""
    client = client_of(models["table"])
    client.__enter__()
    faults: list[str] = []

    def ask() -> None:
        for i in range(15):
            reply = client.get(f"/api/case/{i}")
            if reply.status_code != 200:
                faults.append(reply.text)

    readers = [threading.Thread(target=ask) for _ in range(4)]
    for reader in readers:
        reader.start()
    for i in range(12):
        assert client.post("/api/forget", json={"ids": [i]}).status_code == 200
        client.post("/api/add", json={"query": f"case/{i}", "label": "apple"})
    for reader in readers:
        reader.join(30)
    client.__exit__(None, None, None)
    assert faults == []


# The server itself


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


def until(true: Callable[[], bool], seconds: float = 8) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


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


def test_limits_hold_little_memory() -> None:
    """What clients can make the server hold at once: bodies, and pictures while they are decoded."""
    assert MAX_IMAGE_BODIES * IMAGE_BYTES + MAX_JSON_BODIES * JSON_BYTES <= 150e6
    assert MAX_REQUESTS < serve.MAX_CONNECTIONS
