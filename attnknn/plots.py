"""Pictures of results: one colour per method everywhere, labels beside the lines, the same bytes for the same data.

Every function returns a PNG of at most 3.4 inches' width, so that a page can lay several out in a grid and one is
readable on a phone. matplotlib's object interface draws on Agg without a display.
"""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# method: (name that people read, colour). The hues stay apart for colour-blind readers (Okabe & Ito, 2008).
METHODS = {
    "uniform": ("Uniform kNN", "#7f7f7f"),
    "distance": ("Distance-weighted kNN", "#0072b2"),
    "distance_vector": ("Distance + vector scaling", "#009e73"),
    "attention": ("Attention", "#d55e00"),
    "linear": ("Linear head", "#b07aa1"),
    "linear_temperature": ("Linear head + temperature", "#8c564b"),
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
_INK, _SOFT = "#222222", "#c8c8c8"


def method_name(method: str) -> str:
    """The name of a method that people read; an unknown one keeps its own."""
    return METHODS[method][0] if method in METHODS else method.replace("_", " ")


def method_colour(method: str) -> str:
    """The colour of a method in every picture."""
    return METHODS[method][1] if method in METHODS else "#444444"


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _tidy(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_SOFT)
    axes.tick_params(colors=_INK, labelsize=8, length=2, color=_SOFT)
    axes.xaxis.label.set(size=8.5, color=_INK)
    axes.yaxis.label.set(size=8.5, color=_INK)


def _png(figure: "Figure") -> bytes:
    # matplotlib writes its version into the file; without it the bytes depend on the picture alone.
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


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
    figure = _figure(2.5, 3.1)
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 1])
    top.plot([0, 1], [0, 1], color=_SOFT, lw=1, zorder=1)
    top.vlines(confidence, confidence, accuracy, color=colour, alpha=0.35, lw=3, zorder=2)
    top.plot(confidence, accuracy, color=colour, lw=0.8, alpha=0.6, zorder=3)
    top.scatter(confidence, accuracy, 6 + 60 * pooled["count"] / pooled["count"].max(), colour, lw=0, zorder=4)
    top.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="accuracy")
    top.set_title(method_name(method), loc="left", size=9, color=colour, weight="bold")
    widths = edges["high"] - edges["low"]
    below.bar(edges["low"], edges["count"], widths, align="edge", color=colour, alpha=0.7, edgecolor="white", lw=0.5)
    below.set(xlabel="confidence, top class", ylabel="rows")
    below.locator_params(axis="y", nbins=3)
    for axes in (top, below):
        _tidy(axes)
    return _png(figure)


def differences(rows: "pd.DataFrame", metric: str) -> bytes:
    """Differences attention − baseline of one metric with their intervals; zero is no difference.

    Args:
        rows: baseline, difference, low, high: one row a baseline and seed; seeds lie under each other.
    """
    baselines = list(dict.fromkeys(rows["baseline"]))
    figure = _figure(3.4, 0.95 + 0.38 * len(baselines))
    axes = figure.subplots()
    axes.axvline(0, color=_INK, lw=0.8, zorder=1)
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
    axes.set_title(METRICS.get(metric, metric), loc="left", size=10, weight="bold", color=_INK)
    axes.set_xlabel(f"attention − baseline\n({side} of 0: attention better)")
    _tidy(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return _png(figure)


def curves(seeds: list["pd.DataFrame"], lines: dict[str, str], best: list[dict[str, float]], **labels: Any) -> bytes:
    """Training curves over epochs: one thin line a seed, its name at the end, the kept epoch marked by a dot.

    Args:
        seeds: one table a seed with the column `epoch`; empty cells are skipped.
        lines: column → colour.
        best: for each seed, epoch and the value of the marked column, by its name.
        labels: title, ylabel.
    """
    figure = _figure(3.4, 2.5)
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
    axes.set_title(labels.get("title", ""), loc="left", size=10, weight="bold", color=_INK)
    axes.locator_params(axis="x", integer=True)
    _tidy(axes)
    if len(ends) > 1:
        _name_ends(axes, ends)
    return _png(figure)


def _name_ends(axes: "Axes", ends: list[tuple[float, str, str]]) -> None:
    """Write each line's name at its right end, moved apart where two would overlap."""
    low, high = axes.get_ylim()
    step, floor = 0.09 * (high - low), float("-inf")
    for value, name, colour in sorted(ends):
        floor = max(value, floor + step)
        axes.annotate(name, (1.02, floor), xycoords=("axes fraction", "data"), color=colour, size=8.5, va="center")
