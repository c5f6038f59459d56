"""Plots shared by the sections: one colour per method everywhere; the same data gives the same bytes.

Every plot is a PNG at most 3.4 inches wide, so that the page can lay several out in a grid and one is readable on a
phone. matplotlib's object interface draws on Agg without a display.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnknn.core.figure import INK, SOFT, as_png, new_figure, style_axes
from attnknn.evaluation.method import Method

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
HIGHER_IS_BETTER = {"accuracy", "f1_macro", "balanced_accuracy", *SHOTS}


def method_name(method: str) -> str:
    """The display name of a method; an unknown one keeps its own."""
    if method in METHODS:
        return METHODS[method][0]
    parts = Method.parse(method)
    if parts.base in METHODS and parts.calibration in CALIBRATIONS:
        return f"{METHODS[parts.base][0]} + {CALIBRATIONS[parts.calibration]}"
    return method.replace("_", " ")


def method_colour(method: str) -> str:
    """The colour of a method in every plot; a calibrated method has that of its base."""
    base = method if method in METHODS else Method.parse(method).base
    return METHODS[base][1] if base in METHODS else "#444444"


def title(axes: "Axes", text: str, size: float = 10) -> None:
    axes.set_title(text, loc="left", size=size, weight="bold", color=INK)


def figure_title(figure: "Figure", text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", size=10, weight="bold", color=INK)


def legend_below(figure: "Figure", ncols: int = 2) -> None:
    figure.legend(loc="outside lower left", ncols=ncols, fontsize=7, frameon=False, handlelength=1.6, columnspacing=1)


def draw_estimate(
    axes: "Axes",
    y: float,
    row: Mapping[Any, Any],
    colour: str,
    key: str = "difference",
    hollow: bool = False,
    alpha: float = 1.0,
) -> None:
    """Draw `row[key]` as a point at height y with its interval."""
    axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=2, alpha=alpha, solid_capstyle="butt", zorder=2)
    face = "white" if hollow else colour
    axes.plot(row[key], y, "o", color=colour, mfc=face, ms=4.5, alpha=alpha, zorder=3)


def name_rows(axes: "Axes", names: Sequence[str], nbins: int = 4) -> None:
    """Label heights 0, 1, … from the top down, and finish the axes of estimates."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=nbins)
    style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelsize=7.5)


def mark_zero(axes: "Axes", metric: str, label: str) -> None:
    """A line at no difference, and an x label that says on which side the first method is better."""
    side = "right" if metric in HIGHER_IS_BETTER else "left"
    axes.axvline(0, color=INK, lw=0.8, zorder=1)
    axes.set_xlabel(f"{label}\n({side} of 0: better)")


def k_ticks(axes: "Axes", ks: Sequence[int]) -> None:
    """Label the swept k on a logarithmic axis, without those too close to their neighbours."""
    shown = [k for i, k in enumerate(ks) if i in (0, len(ks) - 1) or (k / ks[i - 1] > 1.3 and ks[-1] / k > 1.35)]
    axes.set_xticks(shown, [str(k) for k in shown])
    axes.minorticks_off()


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
    figure = new_figure(2.5, 3.1)
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
    return as_png(figure)


def differences(rows: "pd.DataFrame", metric: str) -> bytes:
    """Differences attention − baseline in one metric with intervals.

    Args:
        rows: baseline, difference, low, high: one row per baseline and seed.
    """
    baselines = list(dict.fromkeys(rows["baseline"]))
    figure = new_figure(3.4, 0.95 + 0.38 * len(baselines))
    axes = figure.subplots()
    for line, baseline in enumerate(baselines):
        seeds = rows[rows["baseline"] == baseline].to_dict("records")
        for i, row in enumerate(seeds):
            draw_estimate(axes, line + 0.14 * (i - (len(seeds) - 1) / 2), row, method_colour(baseline))
    name_rows(axes, [method_name(b) for b in baselines])
    title(axes, METRICS.get(metric, metric))
    mark_zero(axes, metric, "attention − baseline")
    return as_png(figure)


def curves(seeds: list["pd.DataFrame"], lines: dict[str, str], best: list[dict[str, float]], **labels: Any) -> bytes:
    """Training curves over epochs: one line per seed, a dot at the epoch that was kept.

    Args:
        seeds: one table per seed with the column `epoch`; empty cells are skipped.
        lines: column → colour.
        best: for each seed, epoch and the value of the marked column, by its name.
        labels: title, ylabel.
    """
    figure = new_figure(3.4, 2.5)
    axes = figure.subplots()
    ends: list[tuple[float, str, str]] = []
    for column, colour in lines.items():
        last = []
        for table, mark in zip(seeds, best, strict=True):
            known = table[["epoch", column]].dropna()
            axes.plot(known["epoch"], known[column], color=colour, lw=1.3, alpha=0.9)
            if len(known):
                last.append(known[column].iloc[-1])
            if column in mark:
                axes.plot(mark["epoch"], mark[column], "o", color=colour, ms=5)
        if last:
            ends.append((sum(last) / len(last), column.replace("_", " "), colour))
    axes.set_xlabel("epoch")
    axes.set_ylabel(labels.get("ylabel", ""))
    title(axes, labels.get("title", ""))
    axes.locator_params(axis="x", integer=True)
    style_axes(axes)
    if len(ends) > 1:
        name_ends(axes, ends)
    return as_png(figure)


def name_ends(axes: "Axes", ends: list[tuple[float, str, str]]) -> None:
    """Write each line's (value, name, colour) at its right end, moved apart where two would overlap."""
    low, high = axes.get_ylim()
    step, floor = 0.09 * (high - low), float("-inf")
    for value, name, colour in sorted(ends):
        floor = max(value, floor + step)
        axes.annotate(name, (1.02, floor), xycoords=("axes fraction", "data"), color=colour, size=8.5, va="center")


def lines(
    rows: "pd.DataFrame", x: str, ticks: Sequence[Any], methods: Mapping[str, tuple[str, str, bool]], **labels: str
) -> bytes:
    """Values with intervals over equidistant ticks, one line per method.

    Args:
        rows: method, x, value, low, high; runs are averaged, bars reach to the outer ends of their intervals.
        x: column of the ticks.
        methods: method in `rows` → (legend, colour, whether dashed).
        labels: title, xlabel.
    """
    figure = new_figure(3.4, 2.5 + 0.17 * len(methods))
    axes = figure.subplots()
    for i, (method, (name, colour, dashed)) in enumerate(methods.items()):
        groups = rows[rows["method"] == method].groupby(x, sort=False)
        means = groups.agg(value=("value", "mean"), low=("low", "min"), high=("high", "max")).reindex(list(ticks))
        # Shifted, so that overlapping lines stay visible.
        positions = [tick + 0.03 * (i - (len(methods) - 1) / 2) for tick in range(len(ticks))]
        axes.vlines(positions, means["low"], means["high"], color=colour, lw=1, alpha=0.5)
        style: dict[str, Any] = {"ls": "--", "mfc": "white"} if dashed else {"ls": "-"}
        style |= {"color": colour, "marker": "os^DvPX*<>"[i % 10], "ms": 4.5, "lw": 1.5, "label": name}
        axes.plot(positions, means["value"], **style)
    axes.set_xticks(range(len(ticks)), [tick if isinstance(tick, str) else f"{tick:g}" for tick in ticks])
    axes.set_xlim(-0.35, len(ticks) - 0.65)
    title(axes, labels.get("title", ""))
    axes.set_xlabel(labels.get("xlabel", ""))
    figure.legend(loc="outside lower left", ncols=1, fontsize=7.5, frameon=False, handlelength=2.6)
    style_axes(axes)
    return as_png(figure)


def forest(rows: "pd.DataFrame", metric: str) -> bytes:
    """Differences of ablation variants from their references, with intervals, in groups.

    Args:
        rows: group, variant, reference, difference, low, high: one row per variant.
    """
    entries: list[tuple[str, Any]] = []
    for group in [g for g in GROUPS if g in set(rows["group"])]:
        members = rows[rows["group"] == group]
        references = list(dict.fromkeys(str(r).replace("_", " ") for r in members["reference"]))
        against = references[0] if len(references) == 1 else "see table"
        entries.append((f"{GROUPS[group][0]} − {against}", None))
        entries += [(str(row["variant"]).replace("_", " "), row) for _, row in members.iterrows()]
    figure = new_figure(3.4, 0.75 + 0.19 * len(entries))
    axes = figure.subplots()
    for y, (name, row) in enumerate(entries):
        if row is not None:
            draw_estimate(axes, y, row, GROUPS[row["group"]][1])
            continue
        axes.axhspan(y - 0.5, y + 0.5, color="#f0f0f0", lw=0, zorder=2)
        heading = {"xycoords": ("axes fraction", "data"), "size": 7, "va": "center", "weight": "bold", "zorder": 3}
        axes.annotate(name, (0.01, y), **heading).set_in_layout(False)  # else the layout narrows the axes for it
    name_rows(axes, [name if row is not None else "" for name, row in entries])
    title(axes, METRICS.get(metric, metric))
    mark_zero(axes, metric, "difference")
    return as_png(figure)
