"""Answers as sentences and as a plot."""

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
from attnknn.app.model.sentences import describe_answer, describe_counterfactual, describe_rest, percent


def test_words() -> None:
    assert [percent(p) for p in (0, 1e-5, 0.004, 0.5, 0.996, 0.99999, 1)] == [
        "0 %", "< 0.1 %", "0.4 %", "50 %", "99.6 %", "> 99.9 %", "100 %",
    ]  # fmt: skip
    answer = {"prediction": "a", "confidence": 0.5, "abstains": False, "set": ["a", "b"]}
    assert describe_answer(answer) == "a (50 %); 90 % set: {a, b}"
    assert (
        describe_answer({**answer, "abstains": True, "set": []}) == "abstains; the likeliest is a (50 %); 90 % set: {}"
    )
    parts = {"rest": {"count": 4, "weight": 0.2}, "null": {"of": "class means", "weight": 0.3}}
    assert describe_rest(parts) == "4 more neighbours weigh 20 %, class means 30 %"
    assert describe_rest({**parts, "rest": {"count": 0, "weight": 0}}) == "class means 30 %"
    change = {"how": "forget", "turned": True, "ids": [4], "label": "b", "prediction": "b", "confidence": 0.6}
    assert describe_counterfactual(answer, change) == "Without neighbour #4 it would be b (60 %)."
    assert "its 2 heaviest neighbours for a (#4, #5)" in describe_counterfactual(answer, {**change, "ids": [4, 5]})
    relabel = {**change, "how": "relabel", "ids": [4, 5]}
    assert (
        describe_counterfactual(answer, relabel)
        == "If its 2 heaviest neighbours for a (#4, #5) were b, it would be b (60 %)."
    )
    assert describe_counterfactual(answer, {**relabel, "turned": False, "prediction": "a"}).startswith("Even if its 2")
    assert describe_counterfactual(answer, {**change, "ids": [], "turned": False}) == "No neighbour votes for it."


@pytest.mark.parametrize("kind", ["table", "pictures", "vectors"])
def test_an_explanation_is_drawn(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "vectors":
        X, y = load_iris(return_X_y=True)
        model = Model(AttnKNNClassifier(**FAST, random_state=0).fit(X, y), Vectors(4), Examples())
        vectors, queries = X[:2], Examples()
    else:
        _, model, _ = request.getfixturevalue(kind)
        vectors, queries = model.cases.vectors[:2], model.cases.examples.take(np.arange(2))
    answers = model.answers(model.classifier.explain(vectors), 3)
    changes = model.counterfactuals(vectors)
    names = ["$a_1", "b" * 80]  # no mathematics
    drawn = plot_explanations(model, names, queries, answers, changes)
    picture = np.asarray(Image.open(io.BytesIO(drawn)).convert("L"))
    assert (picture < 128).mean() > 0.002
    assert drawn != plot_explanations(model, names, queries, answers[::-1], changes)
