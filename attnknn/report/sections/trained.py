"""Plots and tables that the sections on encoders trained on modified labels or classes share."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.differences import Level, judge_one
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Cell, Row, Table
from attnknn.report.tables import digits_of, finding_cells, score_cell

SCORES = ("condition", "variant", "method", "metric", "value", "low", "high")
_FITS = ("variant", "method", "baseline_variant", "baseline")
PAIRED = ("condition", *_FITS, "metric", "difference", "low", "high", "errors", "p")
Fit = tuple[str, str]  # variant, method
Drawn = tuple[str, str, bool]  # variant, method, whether dashed
Test = dict[str, Any] | None


def against(rows: pd.DataFrame, x: str, ticks: Sequence, lines: Mapping[Drawn, str], title: str, xlabel: str) -> bytes:
    """One metric of several variants and methods."""
    rows = rows.assign(x=rows[x])
    series = [
        plots.Line(
            *(name, plots.method_colour(method), rows[(rows["variant"] == variant) & (rows["method"] == method)]),
            dashed=dashed,
        )
        for (variant, method, dashed), name in lines.items()
    ]
    return plots.line_plot(series, title, xlabel, ticks=ticks)


def test(runs: Sequence[Run], level: Level, table: str, condition: str, fit: Fit, other: Fit, metric: str) -> Test:
    """The difference of the first from the other in a paired table; None without rows."""
    rows = joined(runs, table)
    for column, value in zip(("condition", "metric", *_FITS), (condition, metric, *fit, *other), strict=True):
        rows = rows[rows[column] == value]
    return None if rows.empty else judge_one(rows, level)


def test_cells(test: Test, digits: int) -> list[str | Cell]:
    """Difference, p and finding; empty cells without a test."""
    return ["", "", ""] if test is None else finding_cells(test, digits)


def scores_table(
    runs: Sequence[Run], table: str, labels: Mapping[str, str], metrics: Sequence[str], suffixes: Sequence[str]
) -> Table:
    """Scores of all methods by condition; each method's corrections below it.

    Args:
        labels: by variant, the heading of its rows. Each method occurs once under a label.
        suffixes: of corrections; empty for none.
    """
    rows, digits = joined(runs, table), digits_of(runs)
    rows = rows.assign(label=rows["variant"].map(labels))
    added = tuple(suffix for suffix in suffixes if suffix)
    lines: list[Row] = []
    for (condition, label), group in rows.groupby(["condition", "label"], sort=False):
        lines.append([f"{condition}, {label}"])
        means = mean_over_runs(group, ["method", "metric"])
        cells = {  # the standard deviation of one run is NaN
            key: score_cell(row, digits, 2 if row["sd"] == row["sd"] else 1)
            for key, row in means.to_dict("index").items()
        }
        present = list(dict.fromkeys(group["method"]))
        for base in [method for method in present if not method.endswith(added)]:
            for suffix in [suffix for suffix in suffixes if base + suffix in present]:
                scores = [cells.get((base + suffix, metric), "") for metric in metrics]
                lines.append([Cell(plots.method_name(base), method=base), suffix.strip("_"), *scores])
    names = {**plots.METRICS, **plots.SHOTS}
    return Table("scores", "All methods", ["method", "correction", *(names[m] for m in metrics)], lines)
