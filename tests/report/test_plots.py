"""Plots: colours and layout of the drawn data."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnknn.report import plots
from attnknn.report.names import METHODS, method_colour, method_name

CURVE = pd.DataFrame({"x": [1, 2, 3], "value": [np.nan, np.nan, 0.9]})


def picture(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def count_pixels(png: bytes, colour: str) -> int:
    """Pixels of exactly one colour."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((picture(png) == rgb).all(2).sum())


def test_methods_have_distinct_colours() -> None:
    assert len({method_colour(m) for m in METHODS}) == len(METHODS)
    assert method_colour("attention_isotonic") == method_colour("attention")


def test_names_of_methods() -> None:
    names = {"attention_isotonic": "Attention + isotonic", "distance_vector": "Distance + vector scaling"}
    names |= {
        "some_thing": "some thing",
        "uniform/linear": "Uniform kNN / Linear head",
        "attention@5": "Attention, k 5",
    }
    assert {name: method_name(name) for name in names} == names


def test_lines_without_values_are_left_out() -> None:
    def draw(points: pd.DataFrame) -> bytes:
        return plots.line_plot([plots.Line("", "#ff0000", points, {3})], "", "epoch")

    assert count_pixels(draw(CURVE), "#ff0000") > 20
    assert count_pixels(draw(CURVE.assign(value=np.nan)), "#ff0000") == 0


def test_lines_average_runs_with_outer_band() -> None:
    runs = pd.DataFrame({"x": [1, 1, 2, 2], "value": [0.1, 0.3, 0.4, 0.6], "low": 0.0, "high": [0.5, 0.9, 0.8, 0.9]})
    pooled = pd.DataFrame({"x": [1, 2], "value": [0.2, 0.5], "low": 0.0, "high": [0.9, 0.9]})
    pngs = [plots.line_plot([plots.Line("", "#ff0000", rows)], "", "", ticks=[1, 2]) for rows in (runs, pooled)]
    assert pngs[0] == pngs[1]


def test_bar_plot() -> None:
    png = plots.bar_plot(["a", "b"], [1.0, 2.0], ["#ff0000", "#0000ff"], "", "")
    assert count_pixels(png, "#0000ff") > 1.5 * count_pixels(png, "#ff0000") > 100


def test_forest_plot_has_a_line_per_label_and_heading() -> None:
    row = {"difference": 0.1, "low": 0.0, "high": 0.2, "colour": "#ff0000"}
    tables = [
        pd.DataFrame([{**row, "label": label, "group": group} for group, label in names])
        for names in (["xa"], ["xa", "xb"], ["xa", "ya"])
    ]
    heights = [len(picture(plots.forest_plot(table, "", ""))) for table in tables]
    assert heights[1] - heights[0] == pytest.approx((heights[2] - heights[0]) / 2, abs=1)
    assert heights[1] > heights[0]
    assert count_pixels(plots.forest_plot(tables[0], "", ""), "#ff0000") > 50
