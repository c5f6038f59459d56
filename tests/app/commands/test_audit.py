"""`attnknn audit`, of data and of models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_models import save_npy

from command_line import refused, succeeded

WRONG = [3, 60, 130]  # rows whose label is changed


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """iris.csv in which three labels are wrong."""
    from sklearn.datasets import load_iris

    iris: Any = load_iris(as_frame=True)
    frame = iris.data.assign(kind=iris.target_names[iris.target])
    frame.loc[WRONG, "kind"] = ["virginica", "setosa", "setosa"]
    path = tmp_path_factory.mktemp("audit") / "iris.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_table_and_a_model_of_it(flowers: Path, tmp_path: Path) -> None:
    output = tmp_path / "issues.csv"
    out = succeeded("audit", flowers, "--target", "kind", "-o", output, "--top", 3)
    assert "of 150 labels are probably wrong; expected number of wrong labels" in out
    frame = pd.read_csv(output, index_col="row")
    assert len(frame) == 150
    lines = [f"iris.csv line {row + 2}" for row in WRONG]
    assert set(frame["label_quality"].nsmallest(3).index) == set(lines)
    assert all(line in out for line in lines)
    assert set(frame.loc[lines, "contradicted_by"]) < set(frame.index)
    assert "exists" in refused("audit", flowers, "--target", "kind", "-o", output)
    succeeded("fit", flowers, "--target", "kind", "-o", tmp_path / "m", "--test", 0)
    answer = json.loads(succeeded("audit", tmp_path / "m", "--top", 3, "--json"))
    assert {issue["id"] for issue in answer["issues"]} == set(WRONG)
    assert answer["flagged"] >= 2
    assert answer["wrong_low"] <= answer["wrong"] <= answer["wrong_high"]
    assert answer["pairs"][0]["flagged"] >= 1


def test_vectors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], 60)
    z = save_npy(tmp_path / "z.npy", rng.normal(size=(120, 3)) + 6 * (y == "b")[:, None])
    y[5] = "b"
    out = succeeded("audit", z, "--rows", save_npy(tmp_path / "y.npy", y), "--top", 1)
    assert "z.npy row 5" in out


def test_bad_input_is_one_line(flowers: Path, tmp_path: Path) -> None:
    succeeded("fit", flowers, "--target", "kind", "-o", tmp_path / "m", "--weights", "uniform")
    for line, *command in (
        ("no label column", flowers),
        ("no such file", tmp_path / "none.csv", "--target", "kind"),
        ("give a .csv file", flowers, "--target", "kind", "-o", tmp_path / "issues.txt"),
        ("give 0 or more", flowers, "--target", "kind", "--top", -1),
        ("--target, --metric: of labelled rows", tmp_path / "m", "--target", "kind", "--metric", "cosine"),
        ("would replace", flowers, "--target", "kind", "-o", flowers, "--force"),
    ):
        assert line in refused("audit", *command)
