"""What the sections on encoders that were trained on wrong labels and on rare classes share."""

from collections.abc import Sequence

import pandas as pd

from attnknn import plots as pictures
from attnknn.report.claims import combined_p
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Table
from attnknn.report.tables import digits_of, fixed, p_value

SCORES = ("condition", "variant", "method", "metric", "value", "low", "high")
PAIRED = ("condition", "variant", "method", "baseline_variant", "baseline", "metric", "difference", "low", "high", "p")
ALPHA = 0.01
VARIANTS = {"plain": "labels as given", "cleaned": "cleaned labels", "cross_entropy": "cross-entropy alone"}
Line = tuple[str, str, str]  # variant, method, and how the line is drawn: "-" or "--"


def name_of(variant: str, method: str) -> str:
    """What a method in a variant is called, without what was added to its answers."""
    base = method.removesuffix("_forward").removesuffix("_prior")
    known = pictures.method_name(base)
    return known if variant == "cross_entropy" else f"{known}, {VARIANTS[variant]}"


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
    pictures.tidy(axes)
    return pictures.as_png(figure)


def value_of(runs: Sequence[Run], table: str, condition: str, who: tuple[str, str], metric: str) -> str:
    """The mean score over runs in words, with ± its deviation where there are several; "–" where there is none."""
    rows = joined(runs, table)
    at = (rows["condition"] == condition) & (rows["variant"] == who[0]) & (rows["method"] == who[1])
    found, digits = rows[at & (rows["metric"] == metric)]["value"], digits_of(runs)
    if found.empty:
        return "–"
    spread = f" ± {fixed(float(found.std()), digits)}" if len(found) > 1 else ""
    return fixed(float(found.mean()), digits) + spread


def difference(
    runs: Sequence[Run], table: str, condition: str, who: tuple[str, str], other: tuple[str, str], metric: str
) -> tuple[str, str]:
    """A difference with its interval and p, and what it says: `better`, `worse` or `no difference shown`."""
    rows = joined(runs, table)
    keys = dict(zip(("variant", "method", "baseline_variant", "baseline"), (*who, *other), strict=True))
    for column, value in {**keys, "condition": condition, "metric": metric}.items():
        rows = rows[rows[column] == value]
    if rows.empty:
        return "", "no difference shown"
    move, p, n = float(rows["difference"].mean()), combined_p(rows["p"].tolist()), digits_of(runs)
    same_sign = rows["difference"].gt(0).all() or rows["difference"].lt(0).all()
    better = (move > 0) == (metric in pictures.HIGHER_IS_BETTER)
    said = "no difference shown" if p >= ALPHA or not same_sign else "better" if better else "worse"
    ends = f"{fixed(rows['low'].min(), n, True)} … {fixed(rows['high'].max(), n, True)}"
    shown = "p " + p_value(p) if p < 0.001 else f"p = {p_value(p)}"
    return f"{fixed(move, n, True)} ({ends}; {shown})", said


def scores_table(runs: Sequence[Run], table: str, metrics: Sequence[str], suffixes: Sequence[str]) -> Table:
    """Every condition, variant and method with its scores; those of each suffix under each other."""
    rows, digits = joined(runs, table), digits_of(runs)
    names = {**pictures.METRICS, "many": "Many-shot", "medium": "Medium-shot", "few": "Few-shot"}
    added = tuple(suffix for suffix in suffixes if suffix)
    shown: list[Sequence[str | Cell]] = []
    for (condition, variant), of in rows.groupby(["condition", "variant"], sort=False):
        shown.append([f"{condition}: {VARIANTS[str(variant)]}"])
        cells = {key: _cell(found, digits) for key, found in of.groupby(["method", "metric"], sort=False)}
        present = list(dict.fromkeys(of["method"]))
        for base in [method for method in present if not method.endswith(added)]:
            for suffix in [suffix for suffix in suffixes if base + suffix in present]:
                scores = [cells.get((base + suffix, metric), "") for metric in metrics]
                shown.append([Cell(pictures.method_name(base), method=base), suffix.strip("_"), *scores])
    return Table("scores", "Every variant and method", ["method", "added", *(names[m] for m in metrics)], shown)


def _cell(found: pd.DataFrame, digits: int) -> Cell:
    value, low, high = float(found["value"].mean()), float(found["low"].min()), float(found["high"].max())
    around = f"{fixed(low, digits)} … {fixed(high, digits)}" if low == low else ""
    if len(found) > 1:
        around = f"± {fixed(float(found['value'].std()), digits)}"
    return Cell(fixed(value, digits), around)
