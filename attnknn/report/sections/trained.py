"""What the sections on encoders that were trained on wrong labels and on rare classes share."""

from collections.abc import Mapping, Sequence

import pandas as pd

from attnknn.report import plots as pictures
from attnknn.report.gains import Level, Pair, pair_of
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Table
from attnknn.report.tables import digits_of, fixed, p_value

SCORES = ("condition", "variant", "method", "metric", "value", "low", "high")
_WHO = ("variant", "method", "baseline_variant", "baseline")
PAIRED = ("condition", *_WHO, "metric", "difference", "low", "high", "errors", "p")
Who = tuple[str, str]  # variant, method
Line = tuple[str, str, str]  # variant, method, and how the line is drawn: "-" or "--"


def against(rows: pd.DataFrame, x: str, lines: dict[Line, str], labels: dict[str, str]) -> bytes:
    """One metric of several lines over x, which is a column of numbers or of names in their order.

    Args:
        rows: variant, method, x, value, low, high; several runs are averaged, their bars reach to the furthest ends.
        lines: what is drawn, with the name in the legend.
        labels: title, xlabel.
    """
    ticks = list(dict.fromkeys(rows[x])) if rows[x].dtype == object else sorted(rows[x].unique())
    figure = pictures.new_figure(3.4, 2.5 + 0.17 * len(lines))
    axes = figure.subplots()
    for i, ((variant, method, style), name) in enumerate(lines.items()):
        mine = rows[(rows["variant"] == variant) & (rows["method"] == method)]
        of = mine.groupby(x, sort=False).agg(value=("value", "mean"), low=("low", "min"), high=("high", "max"))
        of = of.reindex(ticks)
        # A little apart, so that lines that agree can be told apart.
        at = [place + 0.03 * (i - (len(lines) - 1) / 2) for place in range(len(ticks))]
        colour = pictures.method_colour(method.removesuffix("_forward").removesuffix("_prior"))
        axes.vlines(at, of["low"], of["high"], color=colour, lw=1, alpha=0.5)
        full = "white" if style == "--" else colour
        axes.plot(at, of["value"], style, color=colour, marker="os^DvPX"[i % 7], ms=4.5, lw=1.5, mfc=full, label=name)
    axes.set_xticks(range(len(ticks)), [t if isinstance(t, str) else f"{t:g}" for t in ticks])
    axes.set_xlim(-0.35, len(ticks) - 0.65)
    axes.set_title(labels["title"], loc="left", size=10, weight="bold", color=pictures.INK)
    axes.set_xlabel(labels["xlabel"])
    figure.legend(loc="outside lower left", ncols=1, fontsize=7.5, frameon=False, handlelength=2.6)
    pictures.style_axes(axes)
    return pictures.as_png(figure)


def value_of(runs: Sequence[Run], table: str, condition: str, who: Who, metric: str) -> str:
    """The mean score over runs in words, with ± its deviation where there are several; "–" where there is none."""
    rows = joined(runs, table)
    at = (rows["condition"] == condition) & (rows["variant"] == who[0]) & (rows["method"] == who[1])
    found, digits = rows[at & (rows["metric"] == metric)]["value"], digits_of(runs)
    if found.empty:
        return "–"
    spread = f" ± {fixed(float(found.std()), digits)}" if len(found) > 1 else ""
    return fixed(float(found.mean()), digits) + spread


def paired(
    runs: Sequence[Run], level: Level, table: str, condition: str, who: Who, other: Who, metric: str
) -> Pair | None:
    """How far the first is from the other, by a paired table's rows; None without any."""
    return pair_of(runs, table, metric, level, condition=condition, **dict(zip(_WHO, (*who, *other), strict=True)))


def word(pair: Pair) -> str:
    """What a difference says: `better`, `worse`, `no gain that matters`, `undecided` or `out of reach`."""
    if pair.open:
        return "out of reach" if pair.unreachable else "undecided"
    return {"yes": "better", "no": "worse"}.get(pair.better, "no gain that matters")


def p_of(pair: Pair) -> str:
    """Its p in words."""
    p = p_value(pair.p) if pair.p is not None else "–"
    return f"p {p}" if p.startswith("<") else f"p = {p}"


def brief(pair: Pair, digits: int) -> str:
    """A difference with its p."""
    return f"{fixed(pair.difference, digits, True)} ({p_of(pair)})"


def scores_table(
    runs: Sequence[Run], table: str, labels: Mapping[str, str], metrics: Sequence[str], suffixes: Sequence[str]
) -> Table:
    """Every condition and method with its scores; those of each suffix under each other.

    Args:
        labels: by variant; what its rows stand under. Each method is there once under a label.
    """
    rows, digits = joined(runs, table), digits_of(runs)
    names = {**pictures.METRICS, "many": "Many-shot", "medium": "Medium-shot", "few": "Few-shot"}
    added = tuple(suffix for suffix in suffixes if suffix)
    shown: list[Sequence[str | Cell]] = []
    rows = rows.assign(label=rows["variant"].map(labels))
    for (condition, label), of in rows.groupby(["condition", "label"], sort=False):
        shown.append([f"{condition}, {label}"])
        cells = {key: _cell(found, digits) for key, found in of.groupby(["method", "metric"], sort=False)}
        present = list(dict.fromkeys(of["method"]))
        for base in [method for method in present if not method.endswith(added)]:
            for suffix in [suffix for suffix in suffixes if base + suffix in present]:
                scores = [cells.get((base + suffix, metric), "") for metric in metrics]
                shown.append([Cell(pictures.method_name(base), method=base), suffix.strip("_"), *scores])
    return Table("scores", "Every method", ["method", "added", *(names[m] for m in metrics)], shown)


def _cell(found: pd.DataFrame, digits: int) -> Cell:
    value, low, high = float(found["value"].mean()), float(found["low"].min()), float(found["high"].max())
    around = f"{fixed(low, digits)} … {fixed(high, digits)}" if low == low else ""
    if len(found) > 1:
        around = f"± {fixed(float(found['value'].std()), digits)}"
    return Cell(fixed(value, digits), around)
