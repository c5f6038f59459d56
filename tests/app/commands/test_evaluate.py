"""`attnknn evaluate`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, log_loss
from synthetic_models import save_npy

from attnknn.app.model.model import Model
from command_line import csv_rows, json_lines, refused, succeeded


def test_scores_are_those_of_predictions(folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    y = np.repeat(["up", "down"], [70, 30])
    save_npy(tmp_path / "z.npy", rng.normal(size=(100, 3)) + 1.5 * (y == "up")[:, None])
    save_npy(tmp_path / "y.npy", y)
    inputs = folder / "vectors", tmp_path / "z.npy"
    (result,) = json_lines("evaluate", *inputs, "--rows", tmp_path / "y.npy", "--plot", tmp_path / "scores.png")
    rows = pd.DataFrame(csv_rows("predict", *inputs, "--probabilities", "--alpha", 0.1))
    label, metrics = rows["label"].to_numpy(str), result["metrics"]
    assert metrics["accuracy"]["value"] == pytest.approx((label == y).mean())
    assert metrics["balanced_accuracy"]["value"] == pytest.approx(balanced_accuracy_score(y, label))
    probs = rows[["p(down)", "p(up)"]].astype(float)
    assert metrics["nll"]["value"] == pytest.approx(log_loss(y, probs), abs=1e-4)
    assert all(m["low"] < m["value"] < m["high"] for m in metrics.values())
    assert all(m["low"] >= 0 and m["high"] <= 1 for name, m in metrics.items() if name not in ("nll", "brier"))
    assert result["classes"] == ["down", "up"]
    assert result["confusion"] == confusion_matrix(y, label).tolist()
    covered = [own in sets.split("|") for own, sets in zip(y, rows["set"], strict=True)]
    assert result["sets"]["coverage"] == pytest.approx(np.mean(covered))
    assert result["risk_coverage"][-1] == {"coverage": 1.0, "risk": pytest.approx((label != y).mean())}
    assert result["in_memory"] == 0
    assert Image.open(tmp_path / "scores.png").width > 1000


def test_text_names_errors_and_rows_of_the_memory(folder: Path) -> None:
    out = succeeded("evaluate", folder / "vectors", folder / "z.npy", "--rows", folder / "rows.csv", "--target", "way")
    assert out.startswith("80 rows; in brackets 95 % intervals\naccuracy")
    n = len(Model.load(folder / "vectors").memory)
    assert f"rows that are in the memory, and their own neighbours: {n}" in out


def test_stored_test_cases_have_the_scores_of_fit(folder: Path, tmp_path: Path) -> None:
    command = "fit", folder / "iris.csv", "--target", "target", "--test", 0.3, "--weights", "distance"
    fitted = json.loads(succeeded(*command, "-o", tmp_path / "model", "--json"))
    (result,) = json_lines("evaluate", tmp_path / "model")
    assert result["rows"] == fitted["test"]
    assert result["metrics"]["nll"]["value"] == pytest.approx(fitted["nll"])
    assert result["metrics"]["ece"]["value"] == pytest.approx(fitted["ece"])


def test_labels_of_pictures_are_their_folders(folder: Path) -> None:
    (result,) = json_lines("evaluate", folder / "pictures", folder / "images")
    sizes = [len(list(own.iterdir())) for own in sorted((folder / "images").iterdir())]
    assert np.sum(result["confusion"], 1).tolist() == sizes


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    z, model = folder / "z.npy", folder / "vectors"
    assert "labels: none given" in refused("evaluate", model, z)
    assert "--target: of labelled rows; name their file" in refused("evaluate", model, "--target", "way")
    assert "no column 'sort'" in refused("evaluate", folder / "table", folder / "iris.csv", "--target", "sort")
    save_npy(tmp_path / "few.npy", np.array(["up"] * 3))
    assert "3 labels for 80 rows" in refused("evaluate", model, z, "--rows", tmp_path / "few.npy")
    save_npy(tmp_path / "other.npy", np.array(["left"] * 80))
    assert "label left: not a class of this model" in refused("evaluate", model, z, "--rows", tmp_path / "other.npy")
    assert "give a .png file" in refused("evaluate", model, "--plot", tmp_path / "a.pdf")
    assert "would replace" in refused("evaluate", model, z, "--rows", z, "--plot", model / "a.png")
