"""Pictures of results: one colour per method everywhere, labels beside the lines, the same bytes for the same data.

Every function returns a PNG of at most 3.4 inches' width, so that a page can lay several out in a grid and one is
readable on a phone. matplotlib's object interface draws on Agg without a display.
"""

from typing import TYPE_CHECKING, Any

from attnknn.core.figure import INK, SOFT, as_png, new_figure, style_axes
from attnknn.evaluation.method import Method

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# method: (name that people read, colour). The hues stay apart for colour-blind readers (Okabe & Ito, 2008).
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
# calibration: name that people read. A method with one added is named `<method>_<calibration>`.
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
HIGHER_IS_BETTER = {"accuracy", "f1_macro", "balanced_accuracy"}


def method_name(method: str) -> str:
    """The name of a method that people read; an unknown one keeps its own."""
    if method in METHODS:
        return METHODS[method][0]
    parts = Method.parse(method)
    if parts.base in METHODS and parts.calibration in CALIBRATIONS:
        return f"{METHODS[parts.base][0]} + {CALIBRATIONS[parts.calibration]}"
    return method.replace("_", " ")


def method_colour(method: str) -> str:
    """The colour of a method in every picture; a calibration keeps that of what it is added to."""
    base = method if method in METHODS else Method.parse(method).base
    return METHODS[base][1] if base in METHODS else "#444444"


def reliability(bins: "pd.DataFrame", method: str) -> bytes:
    """Reliability diagram of one method, with the number of rows in each bin below it.

    Args:
        bins: rows of low, high, count, confidence, accuracy; bins of several seeds are pooled, and empty bins are
            left out. A point's area grows with its rows; the mean gap to the diagonal, weighted so, is the ECE.
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
    """Differences attention − baseline of one metric with their intervals; zero is no difference.

    Args:
        rows: baseline, difference, low, high: one row a baseline and seed; seeds lie under each other.
    """
    baselines = list(dict.fromkeys(rows["baseline"]))
    figure = new_figure(3.4, 0.95 + 0.38 * len(baselines))
    axes = figure.subplots()
    axes.axvline(0, color=INK, lw=0.8, zorder=1)
    for place, baseline in enumerate(baselines):
        seeds = rows[rows["baseline"] == baseline].reset_index(drop=True)
        for i, row in seeds.iterrows():
            y = place + (int(str(i)) - (len(seeds) - 1) / 2) * 0.14
            axes.plot([row["low"], row["high"]], [y, y], color=method_colour(baseline), lw=2, solid_capstyle="butt")
            axes.plot(row["difference"], y, "o", color=method_colour(baseline), ms=4.5)
    axes.set_yticks(range(len(baselines)), [method_name(b) for b in baselines])
    axes.set_ylim(len(baselines) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    side = "right" if metric in HIGHER_IS_BETTER else "left"
    axes.set_title(METRICS.get(metric, metric), loc="left", size=10, weight="bold", color=INK)
    axes.set_xlabel(f"attention − baseline\n({side} of 0: attention better)")
    style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return as_png(figure)


def curves(seeds: list["pd.DataFrame"], lines: dict[str, str], best: list[dict[str, float]], **labels: Any) -> bytes:
    """Training curves over epochs: one thin line a seed, its name at the end, the kept epoch marked by a dot.

    Args:
        seeds: one table a seed with the column `epoch`; empty cells are skipped.
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
                last.append((known["epoch"].iloc[-1], known[column].iloc[-1]))
            if column in mark:
                axes.plot(mark["epoch"], mark[column], "o", color=colour, ms=5)
        if last:
            ends.append((sum(v for _, v in last) / len(last), column.replace("_", " "), colour))
    axes.set_xlabel("epoch")
    axes.set_ylabel(labels.get("ylabel", ""))
    axes.set_title(labels.get("title", ""), loc="left", size=10, weight="bold", color=INK)
    axes.locator_params(axis="x", integer=True)
    style_axes(axes)
    if len(ends) > 1:
        name_ends(axes, ends)
    return as_png(figure)


def name_ends(axes: "Axes", ends: list[tuple[float, str, str]]) -> None:
    """Write each line's name at its right end, moved apart where two would overlap."""
    low, high = axes.get_ylim()
    step, floor = 0.09 * (high - low), float("-inf")
    for value, name, colour in sorted(ends):
        floor = max(value, floor + step)
        axes.annotate(name, (1.02, floor), xycoords=("axes fraction", "data"), color=colour, size=8.5, va="center")


def against_rate(rows: "pd.DataFrame", metric: str, kind: str) -> bytes:
    """One metric of several methods against how much is wrong with the memory.

    Args:
        rows: method, rate, value, low, high: one row a method and rate; a bar spans low to high.
        kind: "long tail" or "step" (rate is the rarest class over the largest, drawn on a log scale that runs from
            balanced to rare), or a kind of noise (rate is the share of wrong labels).
    """
    figure = new_figure(3.4, 3.3)
    axes = figure.subplots()
    rates = sorted(rows["rate"].unique())
    tail = kind in ("long tail", "step")
    methods = [m for m in METHODS if m in set(rows["method"])]
    span = (max(rates) - min(rates)) or 1
    for i, (method, marker) in enumerate(zip(methods, "ovs^DPX*", strict=False)):
        line = rows[rows["method"] == method].sort_values("rate")
        # A little apart, so that the bars of methods that agree can be told apart.
        shift = i - (len(methods) - 1) / 2
        x = line["rate"] * 1.03**shift if tail else line["rate"] + 0.006 * span * shift
        ours = method == "attention"
        colour = method_colour(method)
        axes.vlines(x, line["low"], line["high"], color=colour, lw=1.2, alpha=0.6)
        axes.plot(
            x,
            line["value"],
            marker=marker,
            ms=4.5,
            color=colour,
            lw=2 if ours else 1.2,
            zorder=4 if ours else 3,
            label=method_name(method),
        )
    if tail:
        axes.set_xscale("log")
        axes.invert_xaxis()
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set_xlabel("rarest class / largest class" if tail else "share of wrong labels in the memory")
    title = f"{METRICS.get(metric, metric)}, {kind}"
    axes.set_title(title, loc="left", size=10, weight="bold", color=INK)
    figure.legend(loc="outside lower left", ncols=2, fontsize=7, frameon=False, handlelength=1.6, columnspacing=1)
    style_axes(axes)
    return as_png(figure)


def forest(rows: "pd.DataFrame", metric: str) -> bytes:
    """Differences of variants from what they are measured against, with intervals, in their groups.

    Args:
        rows: group, variant, reference, difference, low, high: one row a variant.
    """
    places: list[tuple[str, Any]] = []
    for group in [g for g in GROUPS if g in set(rows["group"])]:
        mine = rows[rows["group"] == group]
        references = list(dict.fromkeys(str(r).replace("_", " ") for r in mine["reference"]))
        against = references[0] if len(references) == 1 else "see table"
        places.append((f"{GROUPS[group][0]} − {against}", None))
        places += [(str(row["variant"]).replace("_", " "), row) for _, row in mine.iterrows()]
    figure = new_figure(3.4, 0.75 + 0.19 * len(places))
    axes = figure.subplots()
    axes.axvline(0, color=INK, lw=0.8, zorder=1)
    for y, (name, row) in enumerate(places):
        if row is None:
            axes.axhspan(y - 0.5, y + 0.5, color="#f0f0f0", lw=0, zorder=2)
            axes.annotate(
                name, (0.01, y), xycoords=("axes fraction", "data"), size=7, va="center", weight="bold", zorder=3
            )
            continue
        colour = GROUPS[row["group"]][1]
        axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=1.8, solid_capstyle="butt", zorder=2)
        axes.plot(row["difference"], y, "o", color=colour, ms=3.8, zorder=3)
    axes.set_yticks(range(len(places)), [name if row is not None else "" for name, row in places])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    side = "right" if metric in HIGHER_IS_BETTER else "left"
    axes.set_title(METRICS.get(metric, metric), loc="left", size=10, weight="bold", color=INK)
    axes.set_xlabel(f"difference ({side} of 0: better)")
    style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    return as_png(figure)
