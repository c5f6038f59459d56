"""The three plots of the report: lines with bands, a forest of intervals, bars. The same data gives the same bytes.

Every plot is 3.4 inches wide, so that the page can lay several out in a row and one is readable on a phone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnknn.core.figure import INK, as_png, new_figure, style_axes
from attnknn.report.names import HIGHER_IS_BETTER, method_colour, method_name
from attnknn.report.verdicts import BETTER, WORSE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PAD = 3.4, 3 / 72  # inches: of a figure, and around it


@dataclass(frozen=True)
class Line:
    """A line of `line_plot`.

    Attributes:
        name: in the legend; not listed where empty.
        points: x, value, and low and high where there is a band; several rows of one x are averaged, and the band
            spans the outer ends of their intervals.
        marks: x of points drawn larger.
        thin: drawn without points.
    """

    name: str
    colour: str
    points: "pd.DataFrame"
    marks: Collection[Any] = ()
    dashed: bool = False
    thin: bool = False


def _finish(figure: "Figure", axes: "Axes", text: str, top: float, bottom: float) -> bytes:
    """Set title, style and margins, and render; the margins at the sides fit the tick labels.

    A constrained layout measures everything twice, which takes as long as drawing it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    style_axes(axes)
    width, height = figure.get_size_inches()
    figure.suptitle(text, x=0.01, y=1 - PAD / height, ha="left", size=10, weight="bold", color=INK)
    figure.subplots_adjust(bottom=bottom / height, top=1 - top / height)  # first: the ticks depend on the height
    renderer, left, right = FigureCanvasAgg(figure).get_renderer(), 0.0, 0.0
    for axis in (axes.xaxis, axes.yaxis):
        if box := axis.get_tightbbox(renderer):
            left, right = max(left, axes.bbox.x0 - box.x0), max(right, box.x1 - axes.bbox.x1)
    left, right = ((PAD + pixels / figure.dpi) / width for pixels in (left, right))
    figure.subplots_adjust(left=left, right=1 - right)
    return as_png(figure)


def line_plot(
    lines: Sequence[Line],
    text: str,
    xlabel: str,
    ylabel: str = "",
    ticks: Sequence[Any] = (),
    zero: bool = False,
    legend: bool = True,
) -> bytes:
    """Lines with bands.

    Args:
        ticks: values of x, drawn at equal distances; without any x is numeric.
        zero: whether the y axis begins at 0.
    """
    lines = [line for line in lines if len(line.points.dropna(subset=["value"]))]
    names = [line.name for line in lines if line.name and legend]
    figure = new_figure(WIDTH, 1.9 + 0.17 * len(names) * (len(names) > 1), layout=None)
    axes = figure.subplots()
    for i, line in enumerate(lines):
        columns = {"value": "mean", "low": "min", "high": "max"}
        finite = line.points.dropna(subset=["value"])
        means = finite.groupby("x", sort=False).agg({c: how for c, how in columns.items() if c in finite})
        means = means.reindex(list(ticks)) if len(ticks) else means
        x = range(len(ticks)) if len(ticks) else means.index
        if "low" in means:
            axes.fill_between(x, means["low"], means["high"], color=line.colour, alpha=0.13, lw=0, zorder=1)
        style: dict[str, Any] = {"color": line.colour, "lw": 0.8 if line.thin else 1.6, "zorder": 2 if line.thin else 4}
        if len(ticks) and not line.thin:
            style |= {"marker": "os^DvPX*<>"[i % 10], "ms": 4.5}
        axes.plot(x, means["value"], ls="--" if line.dashed else "-", label=line.name or None, **style)
        for position, mark in zip(x, means.index, strict=True):
            if mark in line.marks:
                axes.plot(position, means["value"][mark], "o", color=line.colour, mec="white", ms=8, zorder=6)
    if len(ticks):
        axes.set_xticks(range(len(ticks)), [tick if isinstance(tick, str) else f"{tick:g}" for tick in ticks])
        axes.set_xlim(-0.35, len(ticks) - 0.65)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if zero:
        axes.set_ylim(0, None)
    below = 0.0
    if len(names) > 1:
        box = figure.legend(loc="lower left", fontsize=7.5, frameon=False, handlelength=2.6, borderaxespad=0.4)
        below = box.get_window_extent().height / figure.dpi + 2 * PAD
    return _finish(figure, axes, text, 0.265, 0.403 + below)


def forest_plot(
    rows: "pd.DataFrame", text: str, xlabel: str, zero: float | None = 0.0, key: str = "difference"
) -> bytes:
    """Estimates with intervals, a line per label.

    Args:
        rows: label, colour, `key`, low, high, from the top down; rows of one label share a line. With a column
            `group` each group has a heading; with a column `verdict` points are filled where it is better or worse.
        zero: where a vertical line stands; None for none.
    """
    hollow = False
    if "verdict" in rows:
        hollow, xlabel = ~rows["verdict"].isin((BETTER, WORSE)), f"{xlabel}\nfilled: significant"
    rows = rows.assign(group=rows.get("group", ""), hollow=hollow)
    lines: dict[tuple[str, str], list[Any]] = {}  # by group and label; a heading has no label and no rows
    for group, members in rows.groupby("group", sort=False):
        lines |= {(str(group), ""): []} if group else {}
        for row in members.to_dict("records"):
            lines.setdefault((str(group), str(row["label"])), []).append(row)
    figure = new_figure(WIDTH, 0.8 + sum(0.155 + 0.045 * max(0, len(own) - 1) for own in lines.values()), layout=None)
    axes = figure.subplots()
    points: dict[tuple[str, bool], list[tuple[float, float]]] = {}  # by style: fewer artists are drawn faster
    for y, ((group, _), own) in enumerate(lines.items()):
        for i, row in enumerate(own):
            height = y + (0.7 / len(own)) * (i - (len(own) - 1) / 2)
            axes.plot([row["low"], row["high"]], [height, height], color=row["colour"], lw=2, solid_capstyle="butt")
            points.setdefault((row["colour"], bool(row["hollow"])), []).append((row[key], height))
        if not own:
            axes.axhspan(y - 0.5, y + 0.5, color="#f0f0f0", lw=0, zorder=2)
            heading = {"xycoords": ("axes fraction", "data"), "size": 7, "va": "center", "weight": "bold", "zorder": 3}
            axes.annotate(group, (0.01, y), **heading).set_in_layout(False)  # else the layout narrows the axes for it
    for (colour, hollow), positions in points.items():
        axes.plot(*zip(*positions, strict=True), "o", color=colour, mfc="white" if hollow else colour, ms=4.5, zorder=3)
    if zero is not None:
        axes.axvline(zero, color=INK, lw=0.8, zorder=1)
    return _finish_rows(figure, axes, [label for _, label in lines], text, xlabel)


def bar_plot(names: Sequence[str], values: Sequence[float], colours: Any, text: str, xlabel: str) -> bytes:
    """Horizontal bars with their values, from the top down."""
    figure = new_figure(WIDTH, 0.75 + 0.17 * len(names), layout=None)
    axes = figure.subplots()
    axes.bar_label(axes.barh(range(len(names)), values, 0.65, color=colours), fmt="%.3g", padding=3, size=7.5)
    axes.set_xlim(0, 1.2 * max([*values, 1e-9]))
    return _finish_rows(figure, axes, names, text, xlabel)


def _finish_rows(figure: "Figure", axes: "Axes", names: Sequence[str], text: str, xlabel: str) -> bytes:
    """Label heights 0, 1, … from the top down, and render."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=3)
    axes.set_xlabel(xlabel)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return _finish(figure, axes, text, 0.265, 0.403 + 0.165 * xlabel.count("\n"))


def better_side(metric: str, label: str) -> str:
    """An x label that says on which side of 0 the first method is better."""
    return f"{label}\n{'right' if metric in HIGHER_IS_BETTER else 'left'} of 0: better"


def method_lines(
    rows: "pd.DataFrame", x: str, methods: Collection[str], marks: Mapping[str, Collection[Any]] | None = None
) -> list[Line]:
    """A line of each method in `rows` (method, x, value, low, high), in the order of `methods`."""
    return [
        Line(method_name(m), method_colour(m), rows[rows["method"] == m].assign(x=rows[x]), (marks or {}).get(m, ()))
        for m in methods
        if m in set(rows["method"])
    ]


def by_method(rows: "pd.DataFrame", column: str = "method") -> "pd.DataFrame":
    """The rows with the label and the colour of the method in a column."""
    return rows.assign(label=rows[column].map(method_name), colour=rows[column].map(method_colour))
