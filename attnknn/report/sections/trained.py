"""Plots and tables that the sections on encoders trained on modified labels or classes share."""

from collections.abc import Mapping, Sequence

import pandas as pd

from attnknn.report import plots
from attnknn.report.gains import Level, Pair, read_pair
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Cell, Row, Table
from attnknn.report.tables import difference_cell, digits_of, p_value, score_cell

SCORES = ("condition", "variant", "method", "metric", "value", "low", "high")
_WHO = ("variant", "method", "baseline_variant", "baseline")
PAIRED = ("condition", *_WHO, "metric", "difference", "low", "high", "errors", "p")
Who = tuple[str, str]  # variant, method
Line = tuple[str, str, bool]  # variant, method, whether dashed


def against(rows: pd.DataFrame, x: str, ticks: Sequence, lines: Mapping[Line, str], title: str, xlabel: str) -> bytes:
    """One metric of several variants and methods; see `plots.lines`.

    Args:
        rows: variant, method, x, value, low, high.
        lines: what is drawn, with the name in the legend.
    """
    rows = rows.assign(method=rows["variant"] + ":" + rows["method"])
    named = {f"{variant}:{m}": (name, plots.method_colour(m), dashed) for (variant, m, dashed), name in lines.items()}
    return plots.lines(rows, x, ticks, named, title=title, xlabel=xlabel)


def paired(
    runs: Sequence[Run], level: Level, table: str, condition: str, who: Who, other: Who, metric: str
) -> Pair | None:
    """The difference of the first from the other in a paired table; None without rows."""
    return read_pair(runs, table, metric, level, condition=condition, **dict(zip(_WHO, (*who, *other), strict=True)))


def word(pair: Pair) -> str:
    """`better`, `worse`, `no gain that matters`, `undecided` or `underpowered`."""
    if pair.open:
        return "underpowered" if pair.unreachable else "undecided"
    return {"yes": "better", "no": "worse"}.get(pair.better, "no gain that matters")


def pair_cells(pair: Pair | None, digits: int) -> list[str | Cell]:
    """Difference, p and finding; empty cells without a pair."""
    if pair is None:
        return ["", "", ""]
    return [difference_cell(vars(pair), digits), "–" if pair.p is None else p_value(pair.p), word(pair)]


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
        seeds = 1 + means["sd"].notna()  # the sd of one run is NaN
        cells = {
            key: score_cell(row, digits, n)
            for key, row, n in zip(means.index, means.to_dict("records"), seeds, strict=True)
        }
        present = list(dict.fromkeys(group["method"]))
        for base in [method for method in present if not method.endswith(added)]:
            for suffix in [suffix for suffix in suffixes if base + suffix in present]:
                scores = [cells.get((base + suffix, metric), "") for metric in metrics]
                lines.append([Cell(plots.method_name(base), method=base), suffix.strip("_"), *scores])
    names = {**plots.METRICS, **plots.SHOTS}
    return Table("scores", "All methods", ["method", "correction", *(names[m] for m in metrics)], lines)
