"""Plots and the table that the sections on modified banks (`noise`, `imbalance`) share."""

from collections.abc import Mapping, Sequence

import pandas as pd

from attnknn.evaluation.opponents import OURS, ROLES
from attnknn.report import plots
from attnknn.report.results import CLEAN, Run, all_conditions
from attnknn.report.section import Part, Row, Table
from attnknn.report.tables import comparison, digits_of, method_cell

Kinds = Mapping[str, float]  # first words of conditions → the number of the unmodified bank
_XLABELS = {0.0: "share of wrong labels in the bank", 1.0: "rarest class / largest class"}


def of_kind(rows: pd.DataFrame, kind: str, unmodified: float) -> pd.DataFrame:
    """Scores of attention and its opponents under all conditions of one kind, with their `rate`, including clean."""
    rows = rows[rows["role"] != ""]
    words = rows["condition"].str.rpartition(" ")  # columns: kind, the space, rate
    own = words[0] == kind
    if not own.any():
        return rows[own].assign(rate=pd.Series(dtype=float))
    modified = rows[own].assign(rate=words[2][own].astype(float))
    return pd.concat([rows[rows["condition"] == CLEAN].assign(rate=unmodified), modified])


def curves(runs: Sequence[Run], kinds: Kinds, metrics: Sequence[str]) -> list[tuple[str, bytes]]:
    """Each metric over the rate, one plot per kind and metric."""
    intervals, drawn = all_conditions(runs), []
    for kind, unmodified in kinds.items():
        rows = of_kind(intervals, kind, unmodified)
        rates = sorted(rows["rate"].unique(), reverse=unmodified > 0)
        for metric in metrics if rates else ():
            scores = rows[rows["metric"] == metric].assign(method=rows["role"])
            lines = plots.method_lines(scores, "rate", [OURS, *ROLES])
            png = plots.line_plot(lines, f"{plots.METRICS[metric]}, {kind}", _XLABELS[unmodified], ticks=rates)
            drawn.append((f"{plots.METRICS[metric]} under {kind}", png))
    return drawn


def table(runs: Sequence[Run], kinds: Kinds, metrics: Sequence[str]) -> Table:
    """Scores of attention and its opponents under every condition."""
    rows: list[Row] = []
    intervals = all_conditions(runs)
    for kind, unmodified in kinds.items():
        for condition, group in of_kind(intervals, kind, unmodified).groupby("condition", sort=False):
            if condition == CLEAN and rows:
                continue
            rows.append([str(condition)])
            scores = group[group["metric"].isin(metrics)].assign(method=group["role"])
            for role, cells in comparison(scores, digits_of(runs), ends=True).items():
                rows.append([method_cell(role), *(cells.get(m, "") for m in metrics)])
    head = ["method", *(plots.METRICS[m] for m in metrics)]
    note = "Opponents are chosen on validation rows under each condition. Means over banks and heads; outer ends of "
    return Table("conditions", "All conditions", head, rows, note + "their intervals.")


def part(runs: Sequence[Run], kinds: Kinds, drawn: Sequence[str], metrics: Sequence[str]) -> Part:
    return Part(runs[0].dataset, curves(runs, kinds, drawn), [table(runs, kinds, metrics)])
