"""Scores and tests as cells and tables for people."""

from collections.abc import Callable, Sequence

import pandas as pd

from attnknn.report.plots import HIGHER_IS_BETTER, METHODS, METRICS, method_name
from attnknn.report.results import Run
from attnknn.report.section import Cell, Part, Table


def by_dataset(runs: Sequence[Run], part: Callable[[Sequence[Run]], Part]) -> list[Part]:
    """A part a dataset, in the order of the runs."""
    return [part([r for r in runs if r.dataset == name]) for name in dict.fromkeys(r.dataset for r in runs)]


def fixed(value: float, digits: int, sign: bool = False) -> str:
    """A number at fixed digits with a real minus sign; what rounds to zero has none."""
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def p_value(p: float) -> str:
    """A p value as people read it."""
    return "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def digits_for(rows: int) -> int:
    """Digits that the number of test rows can bear: the standard error of an accuracy is above .0035 below 5,000."""
    return 4 if rows >= 5000 else 3


def comparison(intervals: pd.DataFrame, digits: int, ends: bool = False) -> dict[str, dict[str, Cell]]:
    """Cells by method and metric of one dataset.

    Args:
        intervals: rows of seed, method, metric, value, low, high.
        ends: whether several runs show the furthest ends of their intervals. A baseline does not vary from run to run
            where only the head is another one, and the test rows that it was scored on are a sample all the same.
    """
    runs = 1 if ends else intervals["seed"].nunique()
    scores = intervals.groupby(["method", "metric"], sort=False).agg(
        value=("value", "mean"), sd=("value", "std"), low=("low", "min"), high=("high", "max")
    )
    present = set(intervals["method"])
    methods = [m for m in METHODS if m in present] + sorted(present - set(METHODS))
    table: dict[str, dict[str, Cell]] = {m: {} for m in methods}
    for metric in [m for m in METRICS if m in set(intervals["metric"])]:
        of_metric = scores.xs(metric, level="metric")
        top = of_metric["value"].max() if metric in HIGHER_IS_BETTER else of_metric["value"].min()
        for method, row in of_metric.iterrows():
            around = (
                f"± {fixed(row['sd'], digits)}"
                if runs > 1
                else f"{fixed(row['low'], digits)} … {fixed(row['high'], digits)}"
            )
            table[str(method)][metric] = Cell(fixed(row["value"], digits), around, bool(row["value"] == top))
    return table


def digits_of(runs: Sequence[Run]) -> int:
    """Digits that the test rows of these runs can bear."""
    return digits_for(min(r.json["prepare"]["test"] for r in runs))


def arrow(metric: str) -> str:
    """A metric's name with its better direction."""
    return f"{METRICS.get(metric, metric)} {'↑' if metric in HIGHER_IS_BETTER else '↓'}"


def method_cell(method: str) -> Cell:
    """A method's name, which the page gives its colour."""
    return Cell(method_name(method), method=method)


def comparison_table(intervals: pd.DataFrame, digits: int, note: str = "", folded: bool = False) -> Table:
    """Every method and metric of one dataset, as `comparison` gives them."""
    cells = comparison(intervals, digits)
    metrics = list(next(iter(cells.values())))
    rows = [[method_cell(method), *(row[m] for m in metrics)] for method, row in cells.items()]
    return Table("methods", "All methods on the test rows", ["method", *map(arrow, metrics)], rows, note, folded)


def paired_table(paired: pd.DataFrame, digits: int) -> Table:
    """Every paired comparison, p values as measured, a group a method.

    Args:
        paired: rows of seed, method, baseline, metric, difference, low, high, p, test.
    """
    rows: list[Sequence[str | Cell]] = []
    for method, of in paired.groupby("method", sort=False):
        rows.append([f"{method_name(str(method))} against"])
        for r in of.to_dict("records"):
            ends = " … ".join(fixed(r[end], digits + 1, True) for end in ("low", "high"))
            move = Cell(fixed(r["difference"], digits + 1, True), ends)
            names = method_cell(r["baseline"]), METRICS[r["metric"]]
            rows.append([*names, f"{r['seed']}", move, p_value(r["p"]), r["test"]])
    head = ["baseline", "metric", "seed", "difference", "p", "test"]
    return Table("paired", "All paired comparisons, p values as measured, not corrected", head, rows)
