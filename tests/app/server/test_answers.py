"""Predictions, test cases and counterfactuals of the server are those of the classifier."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from attnknn.app.model.inputs import Batch
from attnknn.app.model.model import Model
from attnknn.app.server.parse import parse_row
from attnknn.app.server.queries import MAX_RECENT
from attnknn.evaluation.metrics import scores
from server_fixtures import HOSTILE, ROW, image_post, pictures, png, probabilities, refused

Loaded, Clients = dict[str, Model], dict[str, TestClient]


@pytest.mark.parametrize("kind", ["table", "images"])
def test_test_cases(clients: Clients, loaded: Loaded, kind: str) -> None:
    client, model = clients[kind], loaded[kind]
    for i in (0, 3, len(model.cases.labels) - 1):
        response = client.get(f"/api/case/{i}").json()
        expected = model.classifier.predict_proba(model.cases.vectors[i : i + 1])[0]
        np.testing.assert_array_equal(probabilities(response, model), expected)
        assert response["label"] == str(model.cases.labels[i])
        explanation = model.classifier.explain(model.cases.vectors[i : i + 1])
        heaviest = explanation.ids[0][np.argsort(-explanation.weights[0], kind="stable")][:8].tolist()
        nearest = [explanation.ids[0, 0]] if explanation.ids[0, 0] not in heaviest else []
        assert [neighbour["id"] for neighbour in response["answer"]["neighbours"]] == heaviest + nearest


def test_rows_of_the_memory_are_explained_leave_one_out(loaded: Loaded, table: TestClient) -> None:
    model = loaded["table"]
    response = table.get("/api/memory/7?shown=12").json()
    np.testing.assert_array_equal(probabilities(response, model), model.classifier.explain_rows([7]).probabilities[0])
    assert 7 not in [neighbour["id"] for neighbour in response["answer"]["neighbours"]]
    assert response["example"]["columns"] == model.examples.columns(7)
    (neighbour, *_) = response["answer"]["neighbours"]
    assert neighbour["example"]["columns"] == model.examples.columns(neighbour["id"])
    assert len(response["answer"]["neighbours"]) == 12
    assert response["answer"]["rest"]["count"] == 0


def test_query_by_row(loaded: Loaded, table: TestClient) -> None:
    model = loaded["table"]
    response = table.post("/api/ask", json={"row": ROW | {"weight": " NA "}}).json()
    x = model.input.vectors(parse_row(model.input, ROW | {"weight": None}))
    np.testing.assert_array_equal(probabilities(response, model), model.classifier.predict_proba(x)[0])
    assert response["example"]["columns"] == ROW | {"weight": None}
    assert table.get(f"/api/{response['query']}").json()["answer"] == response["answer"]


def test_query_by_vector(loaded: Loaded, vectors: TestClient) -> None:
    model = loaded["vectors"]
    response = vectors.post("/api/ask", json={"vector": [1, 2.5, -1, 0, 3]}).json()
    expected = model.classifier.predict_proba(np.array([[1, 2.5, -1, 0, 3]]))[0]
    np.testing.assert_array_equal(probabilities(response, model), expected)
    np.testing.assert_allclose(response["example"]["vector"]["values"], [1, 2.5, -1, 0, 3], rtol=1e-4)
    assert response["label"] is None
    assert not response["answer"]["nearest"]["far"]
    far = vectors.post("/api/ask", json={"vector": [1000] * 5}).json()["answer"]
    assert far["nearest"]["far"]
    assert far["nearest"]["percentile"] == 100
    assert far["nearest"]["distance"] > 50 * far["nearest"]["usual"]
    assert far["set"] == list(map(str, model.classifier.classes_))


def pixels(reply: Any) -> np.ndarray:
    assert reply.headers["content-type"] == "image/png"
    return np.asarray(Image.open(io.BytesIO(reply.content)))


def test_pictures(loaded: Loaded, images: TestClient, table: TestClient) -> None:
    model = loaded["images"]
    (image,), _ = pictures(1, seed=5)
    response = image_post(images, png(image[0])).json()
    x = model.input.vectors(Batch([""], image[None]))
    np.testing.assert_array_equal(probabilities(response, model), model.classifier.predict_proba(x)[0])
    large = np.asarray(Image.fromarray(image[0]).resize((300, 500)).convert("RGB"))
    assert image_post(images, png(large), "image/unknown").status_code == 200
    for path, expected in (
        (response["example"]["picture"], image),
        ("/api/picture/memory/3.png", model.examples.images[3]),
        ("/api/picture/case/2.png", model.cases.examples.images[2]),
    ):
        np.testing.assert_array_equal(pixels(images.get(path)), expected[0])
    refused(images.get("/api/picture/memory/3.jpg"), 404, "ends with .png")
    refused(images.get("/api/picture/memory/999.png"), 404, "not in the memory")
    refused(table.get("/api/picture/memory/3.png"), 404, "no pictures")


def test_vectors_with_columns_beside_them(clients: Clients, loaded: Loaded) -> None:
    client, model = clients["long"], loaded["long"]
    for name in ("memory/5", "case/3"):
        response = client.get(f"/api/{name}").json()
        vector, columns = response["example"]["vector"], response["example"]["columns"]
        assert (len(vector["values"]), len(vector["off"])) == (300, 256)
        assert columns["name"].startswith("thing")
        neighbour = response["answer"]["neighbours"][0]["example"]
        assert len(neighbour["vector"]["values"]) == 256
        assert neighbour["columns"]["name"].startswith("thing")
    np.testing.assert_allclose(vector["values"], model.cases.vectors[3], rtol=1e-4)
    sent = client.post("/api/ask", json={"vector": vector["values"]}).json()
    assert sent["answer"]["confidence"] == pytest.approx(response["answer"]["confidence"], abs=1e-3)
    added = client.post("/api/add", json={"query": sent["query"], "label": "yes"}).json()
    assert client.get(f"/api/memory/{added['id']}").status_code == 200


def test_query_by_names_of_a_vector(clients: Clients) -> None:
    client = clients["named"]
    by_name = client.post("/api/ask", json={"row": dict(zip("edcba", map(str, range(5)), strict=True))}).json()
    by_position = client.post("/api/ask", json={"vector": [4, 3, 2, 1, 0]}).json()
    assert by_name["answer"] == by_position["answer"]
    refused(client.post("/api/ask", json={"row": dict.fromkeys("abcde", "x")}), 400, "column 'a' is 'x', not a number")


def test_a_limited_number_of_queries_is_stored(vectors: TestClient) -> None:
    names = [vectors.post("/api/ask", json={"vector": [i, 0, 0, 0, 0]}).json()["query"] for i in range(MAX_RECENT + 2)]
    refused(vectors.get(f"/api/{names[1]}"), 404, "ask it again")
    assert vectors.get(f"/api/{names[2]}").status_code == 200
    assert len(set(names)) == len(names)


def test_a_neighbour_of_small_weight_is_listed_on_request(table: TestClient) -> None:
    neighbours = table.get("/api/case/3?shown=64").json()["answer"]["neighbours"]
    nearest = min(neighbours, key=lambda n: n["distance"])
    answer = table.get(f"/api/case/3?shown=2&row={neighbours[-1]['id']}").json()["answer"]
    kept = [n for i, n in enumerate(neighbours) if i < 2 or n in (nearest, neighbours[-1])]
    assert answer["neighbours"] == kept
    assert answer["rest"]["count"] == len(neighbours) - len(kept)
    rest = [n["weight"] for n in neighbours if n not in kept]
    assert answer["rest"]["weight"] == pytest.approx(sum(rest), abs=1e-6)
    default = table.get("/api/case/3?shown=2").json()["answer"]
    for row in (neighbours[0]["id"], 99999):  # listed already, or not a neighbour
        assert table.get(f"/api/case/3?shown=2&row={row}").json()["answer"] == default
    refused(table.get("/api/case/3?row=x"), 400, "not a whole number")


def test_the_nearest_neighbour_is_listed_whatever_its_weight(table: TestClient) -> None:
    for case in range(8):
        answer = table.get(f"/api/case/{case}?shown=1").json()["answer"]
        assert min(one["distance"] for one in answer["neighbours"]) == pytest.approx(answer["nearest"]["distance"])
        assert len(answer["neighbours"]) <= 2


def test_filters_of_test_cases(loaded: Loaded, table: TestClient, vectors: TestClient) -> None:
    model = loaded["table"]
    probs = model.classifier.predict_proba(model.cases.vectors)
    confidence, wrong = probs.max(1), model.classifier.classes_[probs.argmax(1)] != model.cases.labels
    assert 0 < wrong.sum() < len(wrong), "the test needs errors and hits"

    def listed(**params: Any) -> list[int]:
        page = table.get("/api/cases", params={"count": 100, **params}).json()
        return [case["case"] for case in page["cases"]]

    assert listed() == list(range(len(wrong)))
    assert listed(filter="wrong") == np.flatnonzero(wrong).tolist()
    assert listed(filter="wrong", label=HOSTILE) == np.flatnonzero(wrong & (model.cases.labels == HOSTILE)).tolist()
    assert listed(filter="unsure") == np.argsort(confidence, kind="stable").tolist()
    least = float(np.median(confidence[wrong]))
    confident = listed(filter="confident-wrong", least=least)
    assert set(confident) == set(np.flatnonzero(wrong & (confidence >= least)))
    assert np.diff(confidence[confident]).max(initial=0) <= 0
    assert listed(start=5, count=3) == [5, 6, 7]
    for query, message in (
        ("filter=worst", "give one of all, wrong"),
        ("count=1000", "give 1 … 100"),
        ("start=-1", "not a whole number"),
        ("least=much", "least"),
        ("least=nan", "least"),
        ("label=pear", "not a class of this model"),
    ):
        refused(table.get(f"/api/cases?{query}"), 400, message)
    refused(vectors.get("/api/cases"), 404, "attnknn fit")
    assert vectors.get("/api/calibration").json()["now"] is None


def test_calibration_on_the_test_cases(loaded: Loaded, table: TestClient) -> None:
    model = loaded["table"]
    probs = model.classifier.predict_proba(model.cases.vectors)
    expected = scores(probs, np.searchsorted(model.classifier.classes_, model.cases.labels))
    now = table.get("/api/calibration").json()["now"]
    assert now == now | {name: expected[name] for name in ("accuracy", "nll", "ece")}
    assert sum(bin_["count"] for bin_ in now["bins"]) == now["rows"] == len(probs)
    assert now["low"] < now["accuracy"] < now["high"]


def test_counterfactuals(loaded: Loaded, table: TestClient) -> None:
    model = loaded["table"]
    response = table.get("/api/change?query=case/4").json()
    (expected,) = model.counterfactuals(model.cases.vectors[4:5])
    assert (response["ids"], response["prediction"]) == (expected["ids"], str(expected["prediction"]))
    (expected,) = model.counterfactuals(ids=[9])
    assert table.get("/api/change?query=memory/9").json()["ids"] == expected["ids"]
    refused(table.get("/api/change"), 404, "a query is case/…")
