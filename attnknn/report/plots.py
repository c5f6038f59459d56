"""Plots shared by the sections: one colour per method everywhere; the same data gives the same bytes.

Every plot is a PNG at most 3.4 inches wide, so that the page can lay several out in a grid and one is readable on a
phone. matplotlib's object interface draws on Agg without a display.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnknn.core.figure import INK, SOFT, as_png, new_figure, style_axes
from attnknn.evaluation import metrics
from attnknn.evaluation.method import Method
from attnknn.evaluation.opponents import KNN, WITHOUT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# method: (display name, colour). The hues are distinct for colour-blind readers (Okabe & Ito, 2008).
METHODS = {
    "uniform": ("Uniform kNN", "#7f7f7f"),
    "distance": ("Distance-weighted kNN", "#0072b2"),
    "distance_vector": ("Distance + vector scaling", "#009e73"),
    "attention": ("Attention", "#d55e00"),
    "distance-folds": ("Distance-weighted kNN, mean over folds", "#66aad1"),
    "attention-folds": ("Attention, mean over folds", "#e89e66"),
    "prototypes": ("Prototypes alone", "#e69f00"),
    "linear": ("Linear head", "#b07aa1"),
    "linear_temperature": ("Linear head + temperature", "#8c564b"),
    "cnn": ("Plain network", "#e377c2"),
    "cnn_temperature": ("Plain network + temperature", "#bc5090"),
    "raw-uniform": ("kNN on the columns", "#a6a6a6"),
    "raw-distance": ("kNN on the columns, by distance", "#56b4e9"),
    "logistic": ("Logistic regression", "#9c755f"),
    "forest": ("Random forest", "#59a14f"),
    "boosting": ("Gradient boosting", "#117733"),
    "catboost": ("CatBoost", "#44aa99"),
    "xgboost": ("XGBoost", "#88ccee"),
}
ROLES = {KNN: ("Best kNN", "#0072b2"), WITHOUT: ("Best without neighbours", "#b07aa1")}  # of opponents
# calibration: display name. A calibrated method is named `<method>_<calibration>`.
CALIBRATIONS = {
    "temperature": "temperature",
    "vector": "vector scaling",
    "isotonic": "isotonic",
    "dirichlet": "Dirichlet",
    "prior": "class prior",
}
GROUPS = {
    "full": ("The whole head", "#d55e00"),
    "without": ("Without one part", "#0072b2"),
    "with": ("With one part more", "#56b4e9"),
    "alone": ("One part alone", "#009e73"),
    "retrieval": ("Retrieval head, one part changed", "#cc79a7"),
    "reference": ("For reference", "#7f7f7f"),
}
METRICS = {
    "accuracy": "Accuracy",
    "f1_macro": "Macro F1",
    "balanced_accuracy": "Balanced accuracy",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "ece_adaptive": "ECE, equal mass",
    "ece_classwise": "ECE, classwise",
}
# accuracies of the thirds of the classes by their rows in the bank
SHOTS = {"many": "Many-shot", "medium": "Medium-shot", "few": "Few-shot"}
HIGHER_IS_BETTER = {*metrics.HIGHER_IS_BETTER, *SHOTS}


def method_name(method: str) -> str:
    """The display name of a method; an unknown one keeps its own."""
    if method in METHODS or method in ROLES:
        return (METHODS | ROLES)[method][0]
    parts = Method.parse(method)
    if parts.base in METHODS and parts.calibration in CALIBRATIONS:
        return f"{METHODS[parts.base][0]} + {CALIBRATIONS[parts.calibration]}"
    return method.replace("_", " ")


def method_colour(method: str) -> str:
    """The colour of a method in every plot; a calibrated method has that of its base."""
    base = method if method in METHODS | ROLES else Method.parse(method).base
    return (METHODS | ROLES).get(base, ("", "#444444"))[1]


PAD = 3 / 72  # inches around a figure


@dataclass(frozen=True)
class Line:
    """A line of `line_plot`.

    Attributes:
        name: in the legend; not listed where empty.
        points: x, value, and low and high where there is a band; several rows of one x are averaged, and the band
            spans the outer ends of their intervals.
        marks: x of points drawn larger.
    """

    name: str
    colour: str
    points: "pd.DataFrame"
    marks: Collection[Any] = ()
    dashed: bool = False
    thin: bool = False


def fit(figure: "Figure", top: float, bottom: float) -> None:
    """Set the margins, in inches; those at the sides fit the tick labels.

    A constrained layout measures everything twice, which takes as long as drawing it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    width, height = figure.get_size_inches()
    figure.subplots_adjust(bottom=bottom / height, top=1 - top / height, hspace=0.099)  # ticks depend on the height
    renderer, beyond = FigureCanvasAgg(figure).get_renderer(), {"left": 0.0, "right": 0.0}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if box := axis.get_tightbbox(renderer):
                beyond["left"] = max(beyond["left"], axes.bbox.x0 - box.x0)
                beyond["right"] = max(beyond["right"], box.x1 - axes.bbox.x1)
    left, right = ((PAD + pixels / figure.dpi) / width for pixels in beyond.values())
    figure.subplots_adjust(left=left, right=1 - right)


def title(axes: "Axes", text: str, size: float = 10) -> None:
    axes.set_title(text, loc="left", size=size, weight="bold", color=INK)


def line_plot(
    lines: Sequence[Line], text: str, xlabel: str, ylabel: str = "", ticks: Sequence[Any] = (), zero: bool = False
) -> bytes:
    """Lines with bands.

    Args:
        ticks: values of x, drawn at equal distances; without any x is numeric.
        zero: whether the y axis begins at 0.
    """
    lines = [line for line in lines if len(line.points.dropna(subset=["value"]))]
    names = [line.name for line in lines if line.name]
    figure = new_figure(3.4, 2.5 + 0.17 * len(names) * (len(names) > 1), layout=None)
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
            style |= {"marker": "os^DvPX*<>"[i % 10], "ms": 4.5, "mfc": "white" if line.dashed else line.colour}
        axes.plot(x, means["value"], ls="--" if line.dashed else "-", label=line.name or None, **style)
        for position, mark in zip(x, means.index, strict=True):
            if mark in line.marks:
                axes.plot(position, means["value"][mark], "o", color=line.colour, mec="white", ms=8, zorder=6)
    if len(ticks):
        axes.set_xticks(range(len(ticks)), [tick if isinstance(tick, str) else f"{tick:g}" for tick in ticks])
        axes.set_xlim(-0.35, len(ticks) - 0.65)
    else:
        axes.locator_params(axis="x", integer=True)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if zero:
        axes.set_ylim(0, None)
    title(axes, text)
    style_axes(axes)
    below = 0.0
    if len(names) > 1:
        style = {"fontsize": 7.5, "frameon": False, "handlelength": 2.6, "borderaxespad": 0.4}
        legend = figure.legend(loc="lower left", **style)
        below = legend.get_window_extent().height / figure.dpi + 2 * PAD
    fit(figure, 0.231, 0.403 + below)
    return as_png(figure)


def forest_plot(
    rows: "pd.DataFrame", text: str, xlabel: str, zero: float | None = 0.0, key: str = "difference"
) -> bytes:
    """Estimates with intervals, a line per label.

    Args:
        rows: label, colour, `key`, low, high, from the top down; rows of one label share a line. With a column
            `group` each group has a heading, and points are hollow where a column `hollow` is true.
        zero: where a vertical line stands; None for none.
    """
    rows = rows.assign(group=rows.get("group", ""), hollow=rows.get("hollow", False))
    lines: dict[tuple[str, str], list[Any]] = {}  # by group and label; a heading has no label and no rows
    for group, members in rows.groupby("group", sort=False):
        lines |= {(str(group), ""): []} if group else {}
        for row in members.to_dict("records"):
            lines.setdefault((str(group), str(row["label"])), []).append(row)
    figure = new_figure(3.4, 0.95 + sum(0.19 + 0.06 * max(0, len(own) - 1) for own in lines.values()), layout=None)
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


def bar_plot(
    names: Sequence[str], values: Sequence[float], colours: Any, text: str, xlabel: str, fmt: str = "%.2f"
) -> bytes:
    """Horizontal bars with their values, from the top down."""
    figure = new_figure(3.4, 0.75 + 0.2 * len(names), layout=None)
    axes = figure.subplots()
    axes.bar_label(axes.barh(range(len(names)), values, 0.65, color=colours), fmt=fmt, padding=3, size=7.5)
    axes.set_xlim(0, 1.2 * max([*values, 1e-9]))
    return _finish_rows(figure, axes, names, text, xlabel)


def _finish_rows(figure: "Figure", axes: "Axes", names: Sequence[str], text: str, xlabel: str) -> bytes:
    """Label heights 0, 1, … from the top down, and render."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel(xlabel)
    style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    y = 1 - PAD / figure.get_figheight()
    figure.suptitle(text, x=0.01, y=y, ha="left", size=10, weight="bold", color=INK)
    fit(figure, 0.265, 0.403 + 0.165 * xlabel.count("\n"))
    return as_png(figure)


def better_side(metric: str, label: str) -> str:
    """An x label that says on which side of 0 the first method is better."""
    return f"{label}\n({'right' if metric in HIGHER_IS_BETTER else 'left'} of 0: better)"


def method_lines(
    rows: "pd.DataFrame", x: str, methods: Collection[str], marks: Mapping[str, Collection[Any]] | None = None
) -> list[Line]:
    """A line of each method in `rows` (method, x, value, low, high), in the order of `methods`."""
    return [
        Line(method_name(m), method_colour(m), rows[rows["method"] == m].assign(x=rows[x]), (marks or {}).get(m, ()))
        for m in methods
    ]


def by_method(rows: "pd.DataFrame", column: str = "method") -> "pd.DataFrame":
    """The rows with the label and the colour of the method in a column."""
    return rows.assign(label=rows[column].map(method_name), colour=rows[column].map(method_colour))


def reliability(bins: "pd.DataFrame", method: str) -> bytes:
    """Reliability diagram of one method, with the number of rows in each bin below it.

    Args:
        bins: rows of low, high, count, confidence, accuracy; bins of several seeds are pooled, and empty bins are
            left out. A point's area grows with its rows; the weighted mean gap to the diagonal is the ECE.
    """
    edges = bins.groupby(["low", "high"], sort=True)["count"].sum().reset_index()
    full = bins[bins["count"] > 0]
    weighted = full[["confidence", "accuracy"]].mul(full["count"], axis=0).assign(low=full["low"], count=full["count"])
    pooled = weighted.groupby("low", sort=True).sum()
    confidence, accuracy = pooled["confidence"] / pooled["count"], pooled["accuracy"] / pooled["count"]
    colour = method_colour(method)
    figure = new_figure(2.5, 3.1, layout=None)
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 1])
    top.plot([0, 1], [0, 1], color=SOFT, lw=1, zorder=1)
    top.vlines(confidence, confidence, accuracy, color=colour, alpha=0.35, lw=3, zorder=2)
    top.plot(confidence, accuracy, color=colour, lw=0.8, alpha=0.6, zorder=3)
    top.scatter(confidence, accuracy, 6 + 60 * pooled["count"] / pooled["count"].max(), colour, lw=0, zorder=4)
    top.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="accuracy")
    top.set_title(method_name(method), loc="left", size=8, color=colour, weight="bold")
    widths = edges["high"] - edges["low"]
    below.bar(edges["low"], edges["count"], widths, align="edge", color=colour, alpha=0.7, edgecolor="white", lw=0.5)
    below.set(xlabel="confidence, top class", ylabel="rows")
    below.locator_params(axis="y", nbins=3)
    for axes in (top, below):
        style_axes(axes)
    fit(figure, 0.213, 0.403)
    return as_png(figure)
