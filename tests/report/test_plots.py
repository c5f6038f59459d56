import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnknn.report import plots

BINS = pd.DataFrame(
    {
        "method": "attention",
        "low": [0.0, 0.5],
        "high": [0.5, 1.0],
        "count": [0, 10],
        "confidence": [np.nan, 0.9],
        "accuracy": [np.nan, 0.8],
    }
)
CURVE = pd.DataFrame({"epoch": [1, 2, 3], "loss": [3.0, 2.0, 1.0], "val_accuracy": [np.nan, np.nan, 0.9]})


def picture(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def ink(png: bytes, colour: str) -> int:
    """Pixels of exactly one colour."""
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((picture(png) == wanted).all(2).sum())


def test_the_same_data_gives_the_same_bytes() -> None:
    assert plots.reliability(BINS, "attention") == plots.reliability(BINS.copy(), "attention")


def test_bins_of_seeds_are_pooled_by_their_counts() -> None:
    """10 rows at (.9, .8) beside 30 at (.7, .4) are 40 at (.75, .5)."""
    other = BINS.assign(count=[0, 30], confidence=[np.nan, 0.7], accuracy=[np.nan, 0.4])
    pooled = BINS.assign(count=[0, 40], confidence=[np.nan, 0.75], accuracy=[np.nan, 0.5])
    both = plots.reliability(pd.concat([BINS, other]), "attention")
    np.testing.assert_array_equal(picture(both), picture(plots.reliability(pooled, "attention")))


@pytest.mark.parametrize("method", list(plots.METHODS))
def test_a_method_has_its_own_colour(method: str) -> None:
    png = plots.reliability(BINS, method)
    counts = {m: ink(png, plots.method_colour(m)) for m in plots.METHODS}
    own = counts.pop(method)
    # The edges of black letters on white hold a few pixels of any grey.
    assert own > 20 * max(1, *counts.values())


def test_only_a_line_with_values_is_drawn() -> None:
    line = {"val_accuracy": "#ff0000"}
    assert ink(plots.curves([CURVE], line, [{"epoch": 3, "val_accuracy": 0.9}]), "#ff0000") > 20
    nothing = CURVE.assign(val_accuracy=np.nan)
    assert ink(plots.curves([nothing], line, [{"epoch": 3}]), "#ff0000") == 0


def test_differences_grow_by_baseline_and_not_by_seed() -> None:
    row = {"difference": -0.1, "low": -0.2, "high": 0.0}
    one = pd.DataFrame([{"baseline": "uniform", **row}])
    two = pd.DataFrame([{"baseline": b, **row} for b in ("uniform", "distance")])
    heights = [len(picture(plots.differences(t, "nll"))) for t in (one, pd.concat([one, one]), two)]
    assert heights[0] == heights[1] < heights[2]


def test_a_calibration_is_named_and_coloured_after_what_it_is_added_to() -> None:
    assert plots.method_name("attention_isotonic") == "Attention + isotonic"
    assert plots.method_colour("attention_isotonic") == plots.method_colour("attention")
    assert plots.method_name("distance_vector") == "Distance + vector scaling"
    assert plots.method_name("some_thing") == "some thing"


@pytest.mark.parametrize(("kind", "rates"), [("noise", [0.0, 0.3]), ("long tail", [1.0, 0.01])])
def test_only_methods_with_values_are_drawn_against_a_rate(kind: str, rates: list[float]) -> None:
    rows = [
        {"method": m, "rate": r, "value": 0.3 + r, "low": 0.2 + r, "high": 0.4 + r}
        for m in ("attention", "distance")
        for r in rates
    ]
    lines = {m: (plots.method_name(m), plots.method_colour(m), False) for m in ("attention", "distance")}
    png = plots.lines(pd.DataFrame(rows), "rate", rates, lines, title=kind)
    drawn = {m for m in plots.METHODS if ink(png, plots.method_colour(m)) > 100}
    assert drawn == {"attention", "distance"}


def test_a_forest_has_a_line_for_each_group_and_variant() -> None:
    row = {"reference": "full", "difference": 0.1, "low": 0.0, "high": 0.2}
    one = pd.DataFrame([{"group": "without", "variant": "null", **row}])
    two = pd.DataFrame([*one.to_dict("records"), {"group": "without", "variant": "dropout", **row}])
    three = pd.DataFrame([*one.to_dict("records"), {"group": "alone", "variant": "null", **row}])
    heights = [len(picture(plots.forest(table, "nll"))) for table in (one, two, three)]
    assert heights[1] - heights[0] == pytest.approx((heights[2] - heights[0]) / 2, abs=1)
    assert [ink(plots.forest(three, "nll"), plots.GROUPS[g][1]) > 100 for g in ("without", "alone", "full")] == [
        True,
        True,
        False,
    ]
