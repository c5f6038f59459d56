"""The comparison of methods as numbers and as text: HTML cells, CSV, Markdown and LaTeX from one source."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from attnknn.plots import HIGHER_IS_BETTER, METHODS, METRICS, method_name

MAIN = ("accuracy", "f1_macro", "nll", "brier", "ece")


@dataclass(frozen=True)
class Cell:
    """A score over seeds: its mean, what lies around it, and whether no other method's mean is better.

    With one seed, `around` is the bootstrap interval; with several, ± the standard deviation over seeds.
    """

    value: str
    around: str
    best: bool


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


def comparison(intervals: pd.DataFrame, digits: int) -> dict[str, dict[str, Cell]]:
    """Cells by method and metric of one dataset.

    Args:
        intervals: rows of seed, method, metric, value, low, high.
    """
    seeds = intervals["seed"].nunique()
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
                if seeds > 1
                else f"{fixed(row['low'], digits)} … {fixed(row['high'], digits)}"
            )
            table[str(method)][metric] = Cell(fixed(row["value"], digits), around, bool(row["value"] == top))
    return table


def as_markdown(dataset: str, cells: dict[str, dict[str, Cell]], note: str, metrics: Sequence[str] = MAIN) -> str:
    """A Markdown table of one dataset under its name; best scores are bold."""
    lines = [f"### {dataset}", "", note, ""]
    lines.append("| method | " + " | ".join(METRICS[m] for m in metrics) + " |")
    lines.append("|---" * (len(metrics) + 1) + "|")
    for method, row in cells.items():
        shown = [
            f"**{c.value}** ({c.around})" if c.best else f"{c.value} ({c.around})" for c in map(row.get, metrics) if c
        ]
        lines.append(f"| {method_name(method)} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    for char in "&%#_{}":
        text = text.replace(char, "\\" + char)
    return text.replace("±", "$\\pm$").replace("−", "$-$").replace(" … ", ", ")


def as_tex(tables: dict[str, dict[str, dict[str, Cell]]], notes: dict[str, str], metrics: Sequence[str] = MAIN) -> str:
    """A booktabs table of all datasets; best scores are bold. Needs \\usepackage{booktabs}."""
    columns = len(metrics) + 1
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'l' * len(metrics)}}}",
        "\\toprule",
        " & ".join(["Method", *(METRICS[m] for m in metrics)]) + " \\\\",
    ]
    for dataset, cells in tables.items():
        title = f"\\texttt{{{_tex(dataset)}}}: {_tex(notes[dataset])}"
        lines += ["\\midrule", f"\\multicolumn{{{columns}}}{{l}}{{{title}}} \\\\"]
        for method, row in cells.items():
            shown = []
            for cell in (row[m] for m in metrics):
                value = f"\\textbf{{{_tex(cell.value)}}}" if cell.best else _tex(cell.value)
                around = _tex(cell.around) if cell.around.startswith("±") else f"[{_tex(cell.around)}]"
                shown.append(f"{value} {{\\scriptsize {around}}}")
            lines.append(" & ".join([_tex(method_name(method)), *shown]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"
