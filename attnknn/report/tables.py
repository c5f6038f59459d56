"""Tables of texts, built from scores and tests, and written as HTML (by the page), Markdown, CSV and LaTeX."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnknn.report.names import HIGHER_IS_BETTER, LOWER_IS_BETTER, METHODS, arrow, method_name, metric_name


@dataclass(frozen=True)
class Cell:
    """A number or name as text.

    Attributes:
        around: an interval or a standard deviation, or empty.
        best: whether no other value in the comparison is better.
        method: the method that the cell names, or empty; the page adds its colour.
    """

    value: str
    around: str = ""
    best: bool = False
    method: str = ""

    def __str__(self) -> str:
        if "(" in self.around:
            return f"{self.value}: {self.around}"
        return f"{self.value} ({self.around})" if self.around else self.value


Row = Sequence[str | Cell]


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        name: file name, unique in its section.
        head, rows: all rows are as long as the head; a row of one cell is the heading of a group of rows.
        folded: whether the page shows the caption only until the reader opens it.
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Row]
    folded: bool = True


@dataclass(frozen=True)
class Section:
    """One experiment on all datasets.

    Attributes:
        text: at most two sentences.
        figures: (caption, PNG).
        verdicts: of the main comparisons: a table for each figure, beside it, or one beside all.
        html: of examples, already escaped.
        command: repeats the experiment.
    """

    name: str
    title: str
    text: str
    figures: Sequence[tuple[str, bytes]]
    tables: Sequence[Table]
    command: str = ""
    html: str = ""
    verdicts: Sequence[Table] = ()


def fixed(value: float, digits: int, sign: bool = False) -> str:
    """A number with fixed digits and a minus sign (−); what rounds to zero has no sign, and NaN is empty."""
    if value != value:
        return ""
    text = f"{value:{'+' if sign else ''}z.{digits}f}"
    return text.lstrip("+" * (float(text) == 0)).replace("-", "−")


def short(value: float) -> str:
    """A number in three significant digits, without an exponent; NaN is empty."""
    return "" if value != value else f"{float(f'{value:.3g}'):,.10g}".replace("-", "−")


def p_value(p: float) -> str:
    """A p value as text; NaN is empty."""
    return "" if p != p else "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def interval(row: Mapping[Any, Any], digits: int, sign: bool = False) -> str:
    """`low … high` of a row; empty where the interval is NaN."""
    low, high = row["low"], row["high"]
    return f"{fixed(low, digits, sign)} … {fixed(high, digits, sign)}" if low == low else ""


def method_cell(method: str) -> Cell:
    return Cell(method_name(method), method=method)


def difference_cell(row: Mapping[Any, Any]) -> Cell:
    digits = row["digits"] + 1
    return Cell(fixed(row["difference"], digits, True), interval(row, digits, True))


def in_order(rows: pd.DataFrame, column: str = "method") -> pd.DataFrame:
    """Rows in the order of `METHODS`, others as they come after them."""
    order = {name: i for i, name in enumerate(METHODS)}
    return rows.sort_values(column, key=lambda names: names.map(order).fillna(len(order)), kind="stable")


def judged_table(name: str, caption: str, tests: pd.DataFrame, compared: Sequence[str]) -> Table:
    """Judged comparisons: the columns `compared`, metric, difference with interval, p, family, errors, verdict."""
    shown = [c for c in compared if c != "metric"]
    rows = [
        [
            *(method_cell(row[c]) if c in ("method", "baseline") else str(row[c]) for c in shown),
            *([metric_name(row["metric"])] if "metric" in compared else []),
            difference_cell(row),
            p_value(row["p"]),
            f"{row['family']}",
            *([f"{row['errors']:g}"] if "errors" in compared else []),
            row["verdict"],
        ]
        for row in tests.to_dict("records")
    ]
    head = [*("against" if c == "baseline" else c for c in shown), *(["metric"] if "metric" in compared else [])]
    head += ["difference", "p", "family", *(["errors"] if "errors" in compared else []), "verdict"]
    return Table(name, caption, head, rows)


def verdict_cell(row: Mapping[Any, Any]) -> Cell:
    """The verdict on a judged comparison, with its difference and, where it was tested, p and errors."""
    numbers = [str(difference_cell(row))]
    if row["p"] == row["p"]:
        numbers += [f"p {p_value(row['p'])}", *([f"{row['errors']:g} errors"] if math.isfinite(row["errors"]) else [])]
    return Cell(row["verdict"], ", ".join(numbers))


def verdicts_table(caption: str, tests: pd.DataFrame, compared: Sequence[str]) -> list[Table]:
    """Judged comparisons in two columns, `compared` and the verdict; [] of none.

    One dataset is named in the caption, several have headings.
    """
    rows: list[Row] = []
    datasets = list(dict.fromkeys(tests["dataset"]))
    for dataset in datasets:
        rows += [[str(dataset)]] if len(datasets) > 1 else []
        for row in tests[tests["dataset"] == dataset].to_dict("records"):
            names = [method_name(row[c]) if c in ("method", "baseline") else metric_name(str(row[c])) for c in compared]
            rows.append([", ".join(names), verdict_cell(row)])
    if len(datasets) == 1:
        caption = f"{datasets[0]}: {caption}"
    return [Table("verdicts", caption, [caption, "verdict"], rows)] if rows else []


def scores_table(name: str, caption: str, rows: pd.DataFrame, keys: Sequence[str], metrics: Sequence[str]) -> Table:
    """Mean of each metric over runs, with its standard deviation over several runs or the interval of one.

    Args:
        rows: dataset, digits, the keys, metric, value, low, high.
        keys: the last names the line, the others its group; of the lines with most runs in a group the best value is
            marked.
    """
    rows = rows[rows["metric"].isin(metrics)]
    groups = rows.groupby(["dataset", *keys, "metric"], sort=False)
    means = groups.agg(
        value=("value", "mean"),
        sd=("value", "std"),
        low=("low", "min"),
        high=("high", "max"),
        digits=("digits", "first"),
    )
    if "sd" in rows:
        means["sd"] = groups["sd"].mean()
    by_key = means.to_dict("index")
    lines: list[Row] = []
    for key, group in in_order(rows, keys[-1]).groupby(["dataset", *keys[:-1]], sort=False):
        lines.append([", ".join(str(k) for k in key if str(k))])  # type: ignore[union-attr]
        own = group.groupby(["metric", keys[-1]])["value"].agg(["mean", "size"])
        own = own.loc[own["size"] == own["size"].max(), "mean"].groupby("metric")
        best = {m: v for m, v in own.max().items() if m in HIGHER_IS_BETTER}
        best |= {m: v for m, v in own.min().items() if m in LOWER_IS_BETTER}
        for last in dict.fromkeys(group[keys[-1]]):
            line: list[str | Cell] = [method_cell(last) if keys[-1] == "method" else str(last)]
            for m in metrics:
                row = by_key.get((*key, last, m))  # type: ignore[misc]
                if row is None:
                    line.append("")
                    continue
                digits = row["digits"]
                around = f"± {fixed(row['sd'], digits)}" if row["sd"] == row["sd"] else interval(row, digits)
                line.append(Cell(fixed(row["value"], digits), around, row["value"] == best.get(m)))
            lines.append(line)
    return Table(name, caption, [keys[-1], *map(arrow, metrics)], lines)


def _flat(table: Table) -> tuple[list[str], list[list[str]]]:
    """Head and rows, with group headings moved into a first column."""
    if all(len(row) == len(table.head) for row in table.rows):
        return list(table.head), [[str(cell) for cell in row] for row in table.rows]
    rows, group = [], ""
    for row in table.rows:
        if len(row) == 1:
            group = str(row[0])
        else:
            rows.append([group, *map(str, row)])
    return ["group", *table.head], rows


def as_frame(table: Table) -> pd.DataFrame:
    """The table's texts, group headings as a first column `group`."""
    head, rows = _flat(table)
    return pd.DataFrame(rows, columns=pd.Index(head))


def as_markdown(table: Table) -> str:
    """The table in Markdown: best values are bold; a group's heading stands in its first row."""
    head, lines = _flat(table)
    rows, previous = [], None
    cells = iter([row for row in table.rows if len(row) > 1 or len(table.head) == 1])
    for line in lines:
        shown = [
            f"**{c.value}**{str(c).removeprefix(c.value)}" if isinstance(c, Cell) and c.best else str(c)
            for c in next(cells)
        ]
        if len(line) > len(shown):
            shown = [line[0] if line[0] != previous else "", *shown]
            previous = line[0]
        rows.append(shown)
    safe = [[text.replace("|", "\\|") for text in row] for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe) + "\n"


def as_tex(table: Table) -> str:
    """The table in LaTeX, with its caption. Needs \\usepackage{booktabs}."""
    return as_frame(table).to_latex(index=False, escape=True, caption=table.caption, label=f"tab:{table.name}")
