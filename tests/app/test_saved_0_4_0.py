"""A model saved by version 0.4.0 loads and predicts the same.

`model-0.4.0` was written by `attnknn fit iris-0.4.0.csv --target target`, the answers by `attnknn predict` and the
probabilities by `predict_proba`, all of version 0.4.0.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnknn.app.model.model import Model
from command_line import csv_rows

FOLDER = Path(__file__).parent
MODEL, INPUTS = FOLDER / "model-0.4.0", FOLDER / "iris-0.4.0.csv"


def test_probabilities() -> None:
    model = Model.load(MODEL)
    (batch,) = model.input.batches([str(INPUTS)])
    probs, percentiles, novelty = model.classifier.predict_with_novelty(model.input.vectors(batch))
    assert np.isnan(percentiles).all()
    assert np.isnan(novelty).all()
    with pytest.raises(ValueError, match="fit again"):
        model.classifier.predict(model.input.vectors(batch), reject=0.1)
    assert model.answers(model.classifier.explain(model.input.vectors(batch)[:1]))[0]["nearest"] is None
    # Computed in float32: another processor differs by 3e-8.
    np.testing.assert_allclose(probs, np.load(FOLDER / "iris-0.4.0-probabilities.npy"), rtol=0, atol=1e-6)


def test_output_of_predict() -> None:
    answers, expected = pd.DataFrame(csv_rows("predict", MODEL, INPUTS)), pd.read_csv(FOLDER / "iris-0.4.0-answers.csv")
    # The file of 0.4.0 names its input iris.csv.
    answers["input"] = answers["input"].str.replace("iris-0.4.0.csv", "iris.csv")
    answers["confidence"] = answers["confidence"].astype(float)
    # Six decimals; another processor may round the last one differently.
    pd.testing.assert_frame_equal(answers, expected, rtol=0, atol=1.1e-6)
