"""`attnknn explain`."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnknn.app.model.model import Model
from command_line import json_lines, succeeded


def test_json_table_and_plot(folder: Path, tmp_path: Path) -> None:
    model = Model.load(folder / "table")
    explanations = json_lines("explain", folder / "table", folder / "iris.csv")
    assert len(explanations) == 5
    (batch,) = model.input.batches([str(folder / "iris.csv")])
    expected = model.classifier.explain(model.input.vectors(batch)[:5])
    for i, explanation in enumerate(explanations):
        heaviest = expected.ids[i, expected.weights[i].argmax()]
        assert explanation["neighbours"][0]["id"] == heaviest
        assert explanation["neighbours"][0]["row"] == model.rows_of([heaviest])[0]
        assert explanation["row"]["petal width (cm)"] == batch.values["petal width (cm)"].iloc[i]
    flags = ("--first", 1, "--shown", 2, "-o", tmp_path / "why.png")
    lines = succeeded("explain", folder / "table", folder / "iris.csv", *flags).splitlines()
    assert lines[0].startswith("iris.csv line 2: ")
    assert lines[1].split() == ["query", *(f"#{n['id']}" for n in explanations[0]["neighbours"][:2])]
    assert any(line.startswith("petal width (cm)") for line in lines)
    assert "it would be" in lines[-2]
    assert Image.open(tmp_path / "why.png").width > 500
    assert "t" in succeeded("explain", folder / "vectors", folder / "z.npy", "--first", 1)


def test_markup_in_data_is_escaped(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(40) % 9, "[red]c[/red]": ["[bold]", "=cmd"] * 20, "y": ["[/]", "b"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeeded("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m", "--weights", "uniform", "-k", 3)
    out = succeeded("explain", tmp_path / "m", tmp_path / "t.csv", "--first", 1)
    assert all(text in out for text in ("[red]c[/red]", "[bold]", "[/]"))


def test_rows_of_several_files(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "iris.csv", dtype=str)
    for i, columns in enumerate((list(frame), list(frame)[::-1])):  # in any order
        frame.iloc[i : i + 1][columns].to_csv(tmp_path / f"{i}.csv", index=False)
    split = json_lines("explain", folder / "table", tmp_path / "0.csv", tmp_path / "1.csv")
    whole = json_lines("explain", folder / "table", folder / "iris.csv")
    for i, (line, expected) in enumerate(zip(split, whole[:2], strict=True)):
        assert (line["input"], line["row"]) == (f"{i}.csv line 2", expected["row"])
        assert line["confidence"] == pytest.approx(expected["confidence"])
