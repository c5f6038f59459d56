"""Adding, forgetting, saving and resetting by the server, also while clients read."""

import copy
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from file_limit import file_limit
from starlette.testclient import TestClient

from attnknn.app.model.model import Model
from attnknn.app.server import session
from attnknn.app.server.app import create_app
from attnknn.app.server.parse import parse_row
from attnknn.classifier.locking import model_lock
from server_fixtures import BASE_URL, HOSTILE, ROW, client_of, probabilities, refused


def test_adding_and_forgetting_are_partial_fit_and_forget(models: dict[str, Path]) -> None:
    table, model = client_of(models["table"]), Model.load(models["table"])
    query = table.post("/api/ask", json={"row": ROW}).json()
    added = table.post("/api/add", json={"query": query["query"], "label": HOSTILE}).json()
    x, classifier = model.input.vectors(parse_row(model.input, ROW)), copy.deepcopy(model.classifier)
    classifier.partial_fit(x, np.array([HOSTILE], dtype=classifier.classes_.dtype))
    assert added["id"] == classifier.memory_.ids[-1]
    changed = {"memory": len(classifier.memory_), "added": 1, "version": query["state"]["version"] + 1}
    assert added["state"] == query["state"] | changed
    after = table.get(f"/api/{query['query']}?shown=12").json()
    np.testing.assert_array_equal(probabilities(after, model), classifier.predict_proba(x)[0])
    nearest = min(after["answer"]["neighbours"], key=lambda neighbour: neighbour["distance"])
    assert (nearest["id"], nearest["example"]["columns"]) == (added["id"], ROW)

    ids = [neighbour["id"] for neighbour in after["answer"]["neighbours"]][:3]
    state = table.post("/api/forget", json={"ids": ids}).json()["state"]
    classifier.forget(ids)
    assert state["memory"] == len(classifier.memory_)
    assert state["added"] + state["forgotten"] == (4 if added["id"] not in ids else 2)
    after = table.get(f"/api/{query['query']}").json()
    np.testing.assert_array_equal(probabilities(after, model), classifier.predict_proba(x)[0])
    assert not set(ids) & {neighbour["id"] for neighbour in after["answer"]["neighbours"]}
    refused(table.get(f"/api/memory/{ids[0]}"), 404, "not in the memory")


def test_adding_a_test_case_with_a_picture(models: dict[str, Path]) -> None:
    images, model = client_of(models["images"]), Model.load(models["images"])
    row = images.post("/api/add", json={"query": "case/5", "label": "left"}).json()["id"]
    classifier = model.classifier.partial_fit(model.cases.vectors[5:6], np.array(["left"]))
    response = images.get("/api/case/6").json()
    np.testing.assert_array_equal(probabilities(response, model), classifier.predict_proba(model.cases.vectors[6:7])[0])
    assert images.get(f"/api/picture/memory/{row}.png").content == images.get("/api/picture/case/5.png").content
    calibration = images.get("/api/calibration").json()
    assert calibration["taken"] == 1
    assert calibration["before"]["rows"] == calibration["now"]["rows"] + 1
    images.post("/api/forget", json={"ids": [row]})
    undone = {"state": 0, "taken": 0, "before": None, "now": calibration["before"]}
    assert images.get("/api/calibration").json() | {"state": 0} == calibration | undone


def test_a_new_class_comes_and_goes(models: dict[str, Path]) -> None:
    client = client_of(models["table"])
    first = client.get("/api/model").json()
    added = client.post("/api/add", json={"query": "case/0", "label": "quince", "new_class": True}).json()
    about = client.get("/api/model").json()
    assert about["classes"] == sorted([*first["classes"], "quince"])
    assert added["state"]["model"] == about["state"]["model"] == first["state"]["model"] + 1
    answer = client.get("/api/case/0").json()["answer"]
    assert {entry["label"] for entry in answer["probabilities"]} == {*about["classes"]}
    client.post("/api/forget", json={"ids": [added["id"]]})
    assert client.get("/api/model").json()["classes"] == first["classes"]


def test_invalid_changes(table: TestClient) -> None:
    size = table.get("/api/model").json()["state"]["memory"]
    add, forget = ("/api/add", "/api/forget")
    no_ids = ([10**40], [-1], [True], [1.5], "all", [], list(range(5000)))
    for path, sent, status, words in [
        (add, {"query": "memory/3", "label": "apple"}, 409, "in the memory already"),
        (add, {"query": "case/3", "label": "pear"}, 400, "not a class of this model"),
        (add, {"query": "case/99999", "label": "apple"}, 404, "no test case 99999"),
        (add, {"query": "asked/none", "label": "apple"}, 404, "ask it again"),
        (add, {"query": "../../model.json", "label": "apple"}, 404, "a query is"),
        (add, {"query": "case/3", "label": "", "new_class": True}, 400, "give the new class a name"),
        (add, {"query": "case/3", "label": "pear", "new_class": 1}, 400, "give {"),
        (add, {"query": "case/3"}, 400, "give {"),
        (add, {"query": "case/3", "label": 3}, 400, "give {"),
        (forget, {"ids": [10**18]}, 400, "not in the memory"),
        *((forget, {"ids": ids}, 400, "a list of") for ids in no_ids),
        (forget, {"ids": list(range(size - 1))}, 400, "fewer than two rows would be left"),
        (forget, {}, 400, "give {"),
    ]:
        refused(table.post(path, json=sent), status, words)
    refused(table.post("/api/save", json={}), 403, "--allow-save")
    assert table.get("/api/model").json()["state"]["memory"] == size


def test_reset_and_save(copied: Path) -> None:
    client, cases = client_of(copied, allow_save=True), Model.load(copied).cases
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
    np.testing.assert_array_equal(saved.cases.vectors, cases.vectors[1:], "an added case is not a test case")
    reloaded = client_of(copied)
    assert reloaded.get("/api/memory/8").json()["answer"] == before
    assert reloaded.get("/api/calibration").json()["now"] == client.get("/api/calibration").json()["now"]


def test_queries_of_an_earlier_model_are_unknown(copied: Path, models: dict[str, Path]) -> None:
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


def test_changes_by_another_process_are_not_overwritten(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LOCK_TIMEOUT", 0.1)
    client = client_of(copied, allow_save=True)
    client.post("/api/forget", json={"ids": [1]})
    with model_lock(copied, timeout=0):
        refused(client.post("/api/save", json={}), 409, "another process is changing")
    time.sleep(0.01)  # resolution of modification times
    Model.load(copied).save(copied)
    refused(client.post("/api/save", json={}), 409, "was changed since it was loaded")
    client.post("/api/reset", json={})
    client.post("/api/forget", json={"ids": [1]})
    assert client.post("/api/save", json={}).status_code == 200
    for path in ("/api/save", "/api/reset"):  # as a killed writer leaves it where folders cannot be exchanged
        copied.rename(copied.with_name(f".{copied.name}.0123abcd.old"))
        client.post("/api/forget", json={"ids": [2 + len(path)]})
        assert client.post(path, json={}).status_code == client.post("/api/save", json={}).status_code == 200
    shutil.rmtree(copied)
    refused(client.post("/api/reset", json={}), 409, "see the server's terminal")
    assert client.get("/api/case/0").status_code == 200


def test_a_full_disk_while_saving(copied: Path) -> None:
    client, before = client_of(copied, allow_save=True), Model.load(copied).classifier.memory_.ids
    client.post("/api/forget", json={"ids": [3]})
    with file_limit(1000):
        refused(client.post("/api/save", json={}), 507, "the changes are still here")
    np.testing.assert_array_equal(Model.load(copied).classifier.memory_.ids, before)
    assert client.post("/api/save", json={}).status_code == 200
    assert len(Model.load(copied).classifier.memory_) == len(before) - 1


def test_a_model_without_a_folder_cannot_be_reset_or_saved(models: dict[str, Path]) -> None:
    client = TestClient(create_app(Model.load(models["vectors"]), allow_save=True), base_url=BASE_URL)
    refused(client.post("/api/reset", json={}), 409, "not loaded from a folder")
    refused(client.post("/api/save", json={}), 403, "not allowed")


def test_reads_during_changes(models: dict[str, Path]) -> None:
    """Every answer is of the memory before or after a change."""
    with client_of(models["table"]) as client, ThreadPoolExecutor(4) as readers:

        def read(_: int) -> list[str]:
            replies = [client.get(f"/api/case/{i}") for i in range(15)]
            return [reply.text for reply in replies if reply.status_code != 200]

        errors = readers.map(read, range(4))
        for i in range(12):
            assert client.post("/api/forget", json={"ids": [i]}).status_code == 200
            client.post("/api/add", json={"query": f"case/{i}", "label": "apple"})
        assert list(errors) == [[]] * 4


@pytest.mark.parametrize("kind", ["table", "images"])
def test_test_cases_in_the_memory_are_not_scored_however_they_came_in(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(models[kind], tmp_path / "m"))
    model = Model.load(folder)
    cases = model.cases
    assert not model.cases_in_memory().any()
    n, rows = len(cases.labels), np.array([1, 4])
    model.add_vectors(cases.vectors[rows], cases.examples.take(rows), cases.labels[rows])
    model.save(folder)
    client = client_of(folder, allow_save=True)
    calibration, listed = client.get("/api/calibration").json(), client.get("/api/cases?count=100").json()
    assert (calibration["taken"], calibration["now"]["rows"], listed["of"]) == (2, n - 2, n - 2)
    assert not {1, 4} & {case["case"] for case in listed["cases"]}
    client.post("/api/add", json={"query": "case/0", "label": str(cases.labels[0])})
    assert client.get("/api/calibration").json()["taken"] == 3
    client.post("/api/forget", json={"ids": [int(model.classifier.memory_.ids[-1])]})
    assert client.get("/api/calibration").json()["taken"] == 2
    client.post("/api/save", json={})
    np.testing.assert_array_equal(Model.load(folder).cases.vectors, np.delete(cases.vectors, [0, 1], axis=0))


def test_a_page_without_held_out_cases(copied: Path) -> None:
    model = Model.load(copied)
    model.add_vectors(model.cases.vectors, model.cases.examples, model.cases.labels)
    model.save(copied)
    client = client_of(copied, allow_save=True)
    assert client.get("/api/calibration").json()["now"] is None
    assert client.get("/api/cases").json() | {"cases": [], "total": 0, "of": 0} == client.get("/api/cases").json()
    assert client.post("/api/save", json={}).status_code == 200
    assert Model.load(copied).cases is None
