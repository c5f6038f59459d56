"""Plots and the table that the sections on modified banks (`noise`, `imbalance`) share."""

from collections.abc import Mapping, Sequence

import pandas as pd

from attnknn.report import plots
from attnknn.report.results import CLEAN, Run, all_conditions
from attnknn.report.section import Part, Row, Table
from attnknn.report.tables import comparison, digits_of, method_cell

METHODS = ("distance", "distance_vector", "attention", "prototypes", "linear_temperature")
Kinds = Mapping[str, float]  # first words of conditions → the number of the unmodified bank
_XLABELS = {0.0: "share of wrong labels in the bank", 1.0: "rarest class / largest class"}


def of_kind(intervals: pd.DataFrame, kind: str, unmodified: float) -> pd.DataFrame:
    """Scores under all conditions of one kind, with their `rate`, including clean; empty if there are none."""
    words = intervals["condition"].str.rpartition(" ")  # columns: kind, the space, rate
    rows = intervals[words[0] == kind]
    if rows.empty:
        return rows.assign(rate=pd.Series(dtype=float))
    rows = rows.assign(rate=words[2][rows.index].astype(float))
    return pd.concat([intervals[intervals["condition"] == CLEAN].assign(rate=unmodified), rows])


def curves(runs: Sequence[Run], kinds: Kinds, metrics: Sequence[str]) -> list[tuple[str, bytes]]:
    """Each metric over the rate, one plot per kind and metric."""
    intervals, drawn = all_conditions(runs, "intervals"), []
    for kind, unmodified in kinds.items():
        rows = of_kind(intervals, kind, unmodified)
        rates = sorted(rows["rate"].unique(), reverse=unmodified > 0)
        for metric in metrics if rates else ():
            scores = rows[rows["metric"] == metric]
            lines = plots.method_lines(scores, "rate", [m for m in METHODS if m in set(scores["method"])])
            png = plots.line_plot(lines, f"{plots.METRICS[metric]}, {kind}", _XLABELS[unmodified], ticks=rates)
            drawn.append((f"{plots.METRICS[metric]} under {kind}", png))
    return drawn


def table(runs: Sequence[Run], kinds: Kinds, metrics: Sequence[str]) -> Table:
    """Scores of the main methods under every condition."""
    rows: list[Row] = []
    intervals = all_conditions(runs, "intervals")
    for kind, unmodified in kinds.items():
        for condition, group in of_kind(intervals, kind, unmodified).groupby("condition", sort=False):
            if condition == CLEAN and rows:
                continue
            count = len(group[["seed", "repeat"]].drop_duplicates())
            rows.append([f"{condition}, {count} runs" if count > 1 else str(condition)])
            scores = group[group["method"].isin(METHODS) & group["metric"].isin(metrics)]
            for method, cells in comparison(scores, digits_of(runs), ends=True).items():
                rows.append([method_cell(method), *(cells.get(m, "") for m in metrics)])
    head = ["method", *({**plots.METRICS, **plots.SHOTS}[m] for m in metrics)]
    note = "Means over runs, each with a newly modified bank and a newly fitted head; outer ends of their intervals."
    return Table("conditions", "All conditions", head, rows, note)


def part(runs: Sequence[Run], kinds: Kinds, drawn: Sequence[str], metrics: Sequence[str]) -> Part:
    return Part(runs[0].dataset, curves(runs, kinds, drawn), [table(runs, kinds, metrics)])
