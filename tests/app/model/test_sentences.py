"""Predictions and counterfactuals as sentences and as a plot."""

import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_iris
from synthetic_models import FAST

from attnknn import AttnKNNClassifier
from attnknn.app.model.examples import Examples
from attnknn.app.model.explain_plot import plot_explanations
from attnknn.app.model.inputs import Vectors
from attnknn.app.model.model import Model
from attnknn.app.model.sentences import (
    describe_answer,
    describe_counterfactual,
    describe_decision,
    describe_nearest,
    describe_rest,
    percent,
)

KEPT = {"how": "relabel", "turned": False, "prediction": "a"}
ANSWER = {"prediction": "a", "confidence": 0.5, "abstains": False, "set": ["a", "b"], "null": {"of": "class shares"}}


def test_describe_answer() -> None:
    shares = {0: "0", 1e-5: "< 0.1", 0.004: "0.4", 0.5: "50", 0.996: "99.6", 0.99999: "> 99.9", 1: "100"}
    assert {p: percent(p) for p in shares} == {p: f"{text} %" for p, text in shares.items()}
    assert describe_answer(ANSWER) == "a (50 %); 90 % set: {a, b}"
    abstained = describe_answer({**ANSWER, "abstains": True, "set": []})
    assert abstained == "abstains; the likeliest is a (50 %); 90 % set: {}"
    parts = {"rest": {"count": 4, "weight": 0.2}, "null": {"of": "class means", "weight": 0.3}}
    assert describe_rest(parts) == "4 more neighbours weigh 20 %, class means 30 %"
    assert describe_rest({**parts, "rest": {"count": 0, "weight": 0}}) == "class means 30 %"


def test_describe_decision() -> None:
    null = {"of": "linear classifier", "weight": 0.4, "share": 0.25}
    line = "Votes for it: 75 % from neighbours, 25 % from the linear classifier."
    assert describe_decision({"null": null}) == line


def test_describe_nearest() -> None:
    nearest = {"distance": 2825.31, "usual": 7.0, "percentile": 99.89, "far": False}
    assert describe_nearest({"nearest": nearest}) == "Nearest neighbour at 2,825, percentile 99 of usual distances."
    far = "Far from the memory: nearest neighbour at 2,825, usually 7; do not rely on it."
    assert describe_nearest({"nearest": nearest | {"far": True}}) == far
    assert describe_nearest({"nearest": None}) == ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ids": [4]}, "Without neighbour #4 it would be b (60 %)."),
        ({}, "Without its 2 heaviest neighbours for a (#4, #5) it would be b (60 %)."),
        (
            {"turned": False, "prediction": "a"},
            "Even without its 2 heaviest neighbours for a (#4, #5) it would still be a (60 %).",
        ),
        ({"how": "relabel"}, "If its 2 heaviest neighbours for a (#4, #5) were b, it would be b (60 %)."),
        (KEPT, "Even if its 2 heaviest neighbours for a (#4, #5) were b, it would still be a (60 %)."),
        ({"ids": [], "turned": False}, "No neighbour votes for it."),
    ],
)
def test_describe_counterfactual(change: dict, expected: str) -> None:
    default = {"how": "forget", "turned": True, "ids": [4, 5], "label": "b", "prediction": "b", "confidence": 0.6}
    assert describe_counterfactual(ANSWER, {**default, **change}) == expected


def test_describe_counterfactual_of_a_refitted_classifier() -> None:
    change = {"how": "forget", "turned": True, "ids": [4], "label": "b", "prediction": "b", "confidence": 0.6}
    answer = ANSWER | {"null": {"of": "linear classifier"}}
    line = "Without neighbour #4, the linear classifier refitted, it would be b (60 %)."
    assert describe_counterfactual(answer, change) == line
    line = "If neighbour #4 were b, the linear classifier refitted, it would be b (60 %)."
    assert describe_counterfactual(answer, change | {"how": "relabel"}) == line


@pytest.mark.parametrize("kind", ["table", "pictures", "vectors"])
def test_plot_explanations(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "vectors":
        X, y = load_iris(return_X_y=True)
        model = Model(AttnKNNClassifier(**FAST, random_state=0).fit(X, y), Vectors(4), Examples())
        vectors, queries = X[:2], Examples()
    else:
        _, model, _ = request.getfixturevalue(kind)
        vectors, queries = model.cases.vectors[:2], model.cases.examples.take(np.arange(2))
    answers = model.answers(model.classifier.explain(vectors), 3)
    changes = model.counterfactuals(vectors)
    names = ["$a_1", "b" * 80]  # not mathtext
    png = plot_explanations(model, names, queries, answers, changes)
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
    assert (pixels < 128).mean() > 0.002
    assert png != plot_explanations(model, names, queries, answers[::-1], changes)
