"""Adding, forgetting, saving and resetting are those of the model, also while others read."""

import copy
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from attnknn.app.model.model import Model, model_lock
from attnknn.app.server import session
from attnknn.app.server.app import create_app
from attnknn.app.server.parse import parse_row
from server_fixtures import (
    HERE,
    HOSTILE,
    ROW,
    client_of,
    probabilities,
    refused,
)


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
