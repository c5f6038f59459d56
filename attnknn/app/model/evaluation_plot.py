"""Draw the reliability, the confusion matrix and the risk–coverage curve of a model as a PNG."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binomtest

from attnknn.core.figure import INK, SOFT, as_png, new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CLASSES = 20  # at most, those with the most errors
_BLUE = "#2f6f9f"


def plot_evaluation(result: dict[str, Any]) -> bytes:
    """Draw the result of `evaluation.evaluate_model`."""
    figure = new_figure(10.5, 3.6)
    calibration, errors, selection = figure.subplots(1, 3)
    _plot_reliability(calibration, result["reliability"], result["metrics"]["ece"]["value"])
    _plot_confusion(errors, np.array(result["confusion"]), list(map(str, result["classes"])))
    points = result["risk_coverage"]
    selection.plot([p["coverage"] for p in points], [p["risk"] for p in points], color=_BLUE)
    style_axes(selection)
    highest = max(p["risk"] for p in points)
    selection.set(xlabel="share of rows answered, most confident first", ylabel="errors among them", xlim=(0, 1.02))
    selection.set_ylim(0, 1.1 * highest or 1)
    selection.set_title("risk–coverage", size=9, color=INK)
    return as_png(figure)


def _plot_reliability(axes: "Axes", bins: list[dict[str, Any]], ece: float) -> None:
    axes.plot([0, 1], [0, 1], color=SOFT, lw=1)
    total = sum(b["count"] for b in bins)
    for b in bins:
        if b["count"]:
            ends = binomtest(round(b["accuracy"] * b["count"]), b["count"]).proportion_ci(method="wilson")
            axes.plot([b["confidence"]] * 2, [ends.low, ends.high], color=_BLUE, lw=1, alpha=0.5)
            axes.scatter(b["confidence"], b["accuracy"], s=8 + 90 * b["count"] / total, color=_BLUE)  # area by rows
    style_axes(axes)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_title(f"reliability, ECE {ece:.3f}", size=9, color=INK)


def _plot_confusion(axes: "Axes", counts: np.ndarray, names: list[str]) -> None:
    wrong = counts.sum(0) + counts.sum(1) - 2 * np.diag(counts)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:_CLASSES])
    part = counts[np.ix_(shown, shown)]
    share = part / np.maximum(counts[shown].sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    size = 8 if len(shown) <= 10 else 5
    labels = [names[i] if len(names[i]) <= 10 else names[i][:9] + "…" for i in shown]
    axes.set_xticks(range(len(shown)), labels, rotation=90, size=size, parse_math=False)
    axes.set_yticks(range(len(shown)), labels, size=size, parse_math=False)
    for a, b in np.argwhere(part):
        axes.text(
            b,
            a,
            f"{part[a, b]:,}",
            ha="center",
            va="center",
            size=size - 1,
            color="white" if share[a, b] > 0.5 else INK,
        )
    axes.spines[:].set_color(SOFT)
    axes.tick_params(length=0)
    axes.set(xlabel="predicted", ylabel="actual")
    few = len(shown) < len(names)
    axes.set_title(f"{len(shown)} classes with the most errors" if few else "confusion", size=9, color=INK)
