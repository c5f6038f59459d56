"""Review of the memory's labels by the server: audit, decisions, and what they change."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from attnknn.app.model.model import Model
from attnknn.app.server.label_review import LabelReview
from server_fixtures import HOSTILE, client_of, refused


def decide(client: TestClient, row_id: object, decision: object, label: object = "") -> object:
    return client.post("/api/decide", json={"id": row_id, "decision": decision, "label": label})


def test_issues_are_those_of_audit(clients: dict[str, TestClient], loaded: dict[str, Model]) -> None:
    for kind in ("table", "images"):
        model = loaded[kind]
        frame = model.classifier.audit().sort_values("label_quality", kind="stable")
        page = LabelReview(model).page(model, 2, 5, str)
        assert [issue["id"] for issue in page["issues"]] == frame.index[2:7].tolist()
        assert [issue["given"] for issue in page["issues"]] == frame["given_label"].astype(str)[2:7].tolist()
        np.testing.assert_allclose([issue["quality"] for issue in page["issues"]], frame["label_quality"][2:7])
        assert (page["rows"], page["flagged"], page["left"]) == (len(frame), *[frame["is_label_issue"].sum()] * 2)
        assert page["wrong"] == pytest.approx((1 - frame["label_quality"]).sum())
        (issue,) = clients[kind].get("/api/issues?count=1").json()["issues"]
        example = clients[kind].get(f"/api/memory/{issue['id']}").json()["example"]
        assert issue["example"].keys() == example.keys()


def test_decisions_change_the_memory_when_they_are_applied(copied: Path) -> None:
    client, model = client_of(copied, allow_save=True), Model.load(copied)
    issues = client.get("/api/issues?count=4").json()["issues"]
    kept, forgotten, moved, undone = (issue["id"] for issue in issues)
    for _ in range(2):  # the later decision counts
        decide(client, kept, "keep")
        decide(client, forgotten, "forget")
        decide(client, moved, "forget")
        decide(client, moved, "relabel", HOSTILE)
        decide(client, undone, "forget")
        assert decide(client, undone, "").json()["decided"] == 3
    page = client.get("/api/issues?count=4").json()
    decisions = [(issue["decision"], issue["label"]) for issue in page["issues"]]
    assert decisions == [("keep", ""), ("forget", ""), ("relabel", HOSTILE), ("", "")]
    assert page["state"]["version"] == 1, "nothing has changed yet"

    table = pd.read_csv(io.StringIO(client.get("/api/decisions.csv").text), keep_default_na=False)
    assert table["id"].tolist() == [kept, forgotten, moved]
    assert table["given_label"].tolist() == [issue["given"] for issue in issues[:3]]
    done = client.post("/api/apply", json={}).json()
    assert {name: done[name] for name in ("keep", "relabel", "forget")} == {"keep": 1, "relabel": 1, "forget": 1}
    page = client.get("/api/issues?count=1").json()
    assert (page["issues"][0]["id"], page["decided"], page["total"]) == (undone, 0, page["rows"] - 3)
    assert client.post("/api/save", json={}).status_code == 200
    saved = Model.load(copied)
    model.apply_decisions(list(zip(table["id"], table["decision"], table["label"], strict=True)))
    np.testing.assert_array_equal(saved.memory.ids, model.memory.ids)
    np.testing.assert_array_equal(saved.memory.y, model.memory.y)
    pd.testing.assert_frame_equal(saved.examples.table, model.examples.table)
    rows = saved.cases.vectors
    np.testing.assert_array_equal(saved.classifier.predict_proba(rows), model.classifier.predict_proba(rows))


def test_rows_that_are_gone_are_left_out(copied: Path) -> None:
    client = client_of(copied)
    first, second = (issue["id"] for issue in client.get("/api/issues?count=2").json()["issues"])
    decide(client, first, "forget")
    client.post("/api/forget", json={"ids": [first]})
    assert client.get("/api/issues?count=1").json()["issues"][0]["id"] == second
    added = client.post("/api/add", json={"query": "case/0", "label": HOSTILE}).json()["id"]
    refused(decide(client, added, "keep"), 404, "added after the audit")
    assert client.post("/api/apply", json={}).json()["forget"] == 0
    client.post("/api/reset", json={})
    assert client.get("/api/issues?count=1").json()["issues"][0]["id"] == first


def test_bad_input_is_one_line_and_changes_nothing(copied: Path) -> None:
    client = client_of(copied)
    row = client.get("/api/issues?count=1").json()["issues"][0]["id"]
    for body, line in (
        ({"id": row}, "give {"),
        ({"id": row, "decision": "drop", "label": ""}, "give keep, relabel, forget"),
        ({"id": row, "decision": ["keep"], "label": ""}, "give keep, relabel, forget"),
        ({"id": row, "decision": "keep", "label": 3}, "give a text"),
        ({"id": row, "decision": "relabel", "label": "pear"}, "not a class of this model"),
        ({"id": str(row), "decision": "keep", "label": ""}, "give the id of a row"),
        ({"id": True, "decision": "keep", "label": ""}, "give the id of a row"),
        ({"id": 10**30, "decision": "keep", "label": ""}, "not in the memory"),
        ({"id": -1, "decision": "keep", "label": ""}, "not in the memory"),
    ):
        refused(client.post("/api/decide", json=body), 400, line)
    refused(client.get("/api/issues?count=0"), 400, "give 1 … 100")
    refused(client.get("/api/issues?start=x"), 400, "not a whole number")
    assert client.get("/api/issues?count=1").json()["decided"] == 0

    rows = client.get("/api/issues?count=100").json()["total"]
    for start in range(0, rows, 100):
        for issue in client.get(f"/api/issues?start={start}&count=100").json()["issues"]:
            decide(client, issue["id"], "forget")
    refused(client.post("/api/apply", json={}), 400, "keep at least two")
    assert client.get("/api/issues?count=1").json()["decided"] == rows, "decisions are kept"
