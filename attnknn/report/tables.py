"""Format scores and tests as table cells, and build the tables that several sections share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from attnknn.report.plots import HIGHER_IS_BETTER, METHODS, METRICS, SHOTS, method_name
from attnknn.report.results import Run, mean_over_runs
from attnknn.report.section import Cell, Part, Table


def by_dataset(runs: Sequence[Run], part: Callable[[Sequence[Run]], Part], *tables: str) -> list[Part]:
    """One part per dataset, in the order of the runs; runs that lack one of the tables are left out."""
    runs = [run for run in runs if all(name in run.tables for name in tables)]
    return [part([r for r in runs if r.dataset == name]) for name in dict.fromkeys(r.dataset for r in runs)]


def fixed(value: float, digits: int, sign: bool = False) -> str:
    """A number with fixed digits and a minus sign (−); what rounds to zero has no sign."""
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def p_value(p: float) -> str:
    """A p value as text."""
    return "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def interval(row: Mapping[Any, Any], digits: int, sign: bool = False) -> str:
    """`low … high` of a row; empty where the interval is NaN."""
    low, high = row["low"], row["high"]
    return f"{fixed(low, digits, sign)} … {fixed(high, digits, sign)}" if low == low else ""


def score_cell(row: Mapping[Any, Any], digits: int, seeds: int = 1) -> Cell:
    """A row's value with its standard deviation over several seeds, or the interval of one."""
    around = f"± {fixed(row['sd'], digits)}" if seeds > 1 else interval(row, digits)
    return Cell(fixed(row["value"], digits), around)


def difference_cell(row: Mapping[Any, Any], digits: int) -> Cell:
    """A row's difference with its interval."""
    return Cell(fixed(row["difference"], digits, True), interval(row, digits, True))


def finding_cells(row: Mapping[Any, Any], digits: int) -> list[str | Cell]:
    """A row's difference with its interval, p value and finding."""
    return [difference_cell(row, digits), p_value(row["p"]), row["finding"]]


def distinct(values: Iterable[Any]) -> str:
    """Every value once, sorted."""
    return "/".join(map(str, sorted(set(values))))


def digits_of(runs: Sequence[Run]) -> int:
    """Digits of scores: the standard error of an accuracy is above .0035 below 5,000 test rows."""
    return 4 if min(r.json["prepare"]["test"] for r in runs) >= 5000 else 3


def comparison(intervals: pd.DataFrame, digits: int, ends: bool = False) -> dict[str, dict[str, Cell]]:
    """Cells by method and metric of one dataset.

    Args:
        intervals: rows of seed, method, metric, value, low, high.
        ends: show the outer ends of several runs' intervals instead of their standard deviation, which is 0 for
            baselines where only the head is refitted.
    """
    runs = 1 if ends else intervals["seed"].nunique()
    scores = mean_over_runs(intervals, ["method", "metric"])
    table: dict[str, dict[str, Cell]] = {m: {} for m in in_order(set(intervals["method"]))}
    for metric in [m for m in (*METRICS, *SHOTS) if m in set(intervals["metric"])]:
        rows = scores.xs(metric, level="metric")
        best = rows["value"].max() if metric in HIGHER_IS_BETTER else rows["value"].min()
        for method, row in rows.iterrows():
            cell = score_cell(row.to_dict(), digits, runs)
            table[str(method)][metric] = Cell(cell.value, cell.around, bool(row["value"] == best))
    return table


def in_order(methods: Iterable[str]) -> list[str]:
    """Methods in the order of `plots.METHODS`, calibrated ones after them."""
    methods = set(methods)
    return [m for m in METHODS if m in methods] + sorted(methods - set(METHODS))


def arrow(metric: str) -> str:
    """A metric's name with its better direction."""
    return f"{METRICS.get(metric, metric)} {'↑' if metric in HIGHER_IS_BETTER else '↓'}"


def method_cell(method: str) -> Cell:
    """A method's name; the page adds its colour."""
    return Cell(method_name(method), method=method)


def comparison_table(intervals: pd.DataFrame, digits: int, note: str = "") -> Table:
    """All methods and metrics of one dataset; see `comparison`."""
    cells = comparison(intervals, digits)
    metrics = list(next(iter(cells.values())))
    rows = [[method_cell(method), *(row[m] for m in metrics)] for method, row in cells.items()]
    return Table("methods", "All methods on the test rows", ["method", *map(arrow, metrics)], rows, note, folded=False)
