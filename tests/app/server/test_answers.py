"""Answers, test cases and counterfactuals are those of the classifier."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from attnknn.app.model.inputs import Batch
from attnknn.app.model.model import Model
from attnknn.app.server.parse import parse_row
from attnknn.app.server.queries import MAX_KEPT
from attnknn.evaluation.metrics import scores
from server_fixtures import (
    HOSTILE,
    ROW,
    beside_model,
    client_of,
    image_post,
    pictures,
    png,
    probabilities,
    refused,
    vector_model,
)


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
