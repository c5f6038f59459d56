"""A model saved by version 0.4.0 loads and predicts the same.

`model-0.4.0` was written by `attnknn fit iris-0.4.0.csv --target target`, the answers by `attnknn predict` and the
probabilities by `predict_proba`, all of version 0.4.0.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from attnknn.app.cli import app
from attnknn.app.model.model import Model

FOLDER = Path(__file__).parent
MODEL, INPUTS = FOLDER / "model-0.4.0", FOLDER / "iris-0.4.0.csv"


def test_probabilities() -> None:
    model = Model.load(MODEL)
    (batch,) = model.input.batches([str(INPUTS)])
    probs = model.classifier.predict_proba(model.input.vectors(batch))
    np.testing.assert_allclose(probs, np.load(FOLDER / "iris-0.4.0-probabilities.npy"), rtol=0, atol=1e-9)


def test_output_of_predict(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["predict", str(MODEL), str(INPUTS), "-o", str(tmp_path / "answers.csv")])
    assert result.exit_code == 0, result.output
    answers, expected = (pd.read_csv(path) for path in (tmp_path / "answers.csv", FOLDER / "iris-0.4.0-answers.csv"))
    # The file of 0.4.0 names its input iris.csv.
    assert answers["input"].str.replace("iris-0.4.0.csv", "iris.csv").tolist() == expected["input"].tolist()
    assert answers["label"].tolist() == expected["label"].tolist()
    # Six decimals; another processor may round the last one differently.
    assert answers["confidence"].tolist() == pytest.approx(expected["confidence"].tolist(), rel=0, abs=1.1e-6)
    assert list(answers.columns) == list(expected.columns)
