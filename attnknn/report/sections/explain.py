"""Examples with their neighbours, confusion of classes, and a t-SNE of the embeddings."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.evaluation.opponents import OURS
from attnknn.report import plots
from attnknn.report.gallery import cases_table, read_cases, shortened, small_png
from attnknn.report.results import Run, joined, read_csv
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import by_dataset

TABLES: dict[str, tuple[str, ...]] = {
    "confusion": ("method", "actual", "predicted", "count"),
}
_TSNE = ("x", "y", "actual", "predicted", "wrong")
# Okabe & Ito's hues and two greys; names are drawn too, so no class is identified by colour alone.
HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b", "#b2a100", "#7f7f7f", "#6a3d9a", "#444444")
_MAX_CLASSES = 12  # drawn with names


def confusion_picture(counts: pd.DataFrame, method: str) -> bytes:
    """Predictions per class in % of its rows; the diagonal is grey, so that errors stand out.

    Args:
        counts: actual, predicted, count; of more than 12 classes, those with the most errors are drawn.
    """
    classes = list(dict.fromkeys([*counts["actual"], *counts["predicted"]]))
    table = counts.pivot_table("count", "actual", "predicted", "sum").reindex(index=classes, columns=classes)
    table = table.fillna(0.0)
    share = 100 * table.div(table.sum(axis=1).clip(lower=1), axis=0)
    wrong = table.to_numpy() * (1 - np.eye(len(classes)))
    subset = ""
    if len(classes) > _MAX_CLASSES:
        subset = f"\n({_MAX_CLASSES} classes with the most errors)"
        worst = np.sort(np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:_MAX_CLASSES])
        classes, share = [classes[i] for i in worst], share.iloc[worst, worst]
    values, n = share.to_numpy(), len(classes)
    off = np.where(np.eye(n, dtype=bool), np.nan, values)
    size = min(3.4, max(2.4, 1.5 + 0.22 * n))
    figure = plots.new_figure(size, size + 0.1)
    axes = figure.subplots()
    axes.set_facecolor("#e4e4e4")
    top = max(1.0, float(np.nanmax(off, initial=0.0)))
    axes.imshow(np.ma.masked_invalid(off), cmap="Oranges", vmin=0, vmax=1.25 * top)
    for i in range(n):
        for j in range(n):
            if values[i, j] > 0:
                text = f"{values[i, j]:.0f}" if values[i, j] >= 9.95 or i == j else f"{values[i, j]:.1f}".lstrip("0")
                axes.text(j, i, text, ha="center", va="center", size=7 if n <= 6 else 5.8, color=plots.INK)
    names = [shortened(str(c), 10) for c in classes]
    axes.set_xticks(range(n), names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticks(range(n), names)
    axes.set(xlabel="predicted", ylabel="actual")
    text, colour = f"Confusion, % of each class{subset}", plots.method_colour(method)
    figure.suptitle(text, x=0.02, ha="left", size=9, weight="bold", color=colour)
    plots.style_axes(axes)
    axes.tick_params(labelsize=7, length=0)
    axes.spines[:].set_visible(False)
    return plots.as_png(figure)


def tsne_picture(points: pd.DataFrame) -> bytes:
    """Embeddings in the plane by class, labelled at the class medians; errors are crosses."""
    points = points.assign(actual=points["actual"].astype(str))
    classes = sorted(dict.fromkeys(points["actual"]))
    colours = {name: HUES[i % len(HUES)] for i, name in enumerate(classes)}
    figure = plots.new_figure(3.4, 3.3)
    axes = figure.subplots()
    size = 14 if len(points) < 500 else 5
    for name, colour in colours.items():
        rows = points[points["actual"] == name]
        axes.scatter(rows["x"], rows["y"], size, colour, lw=0, alpha=0.75)
        wrong = rows[rows["wrong"]]
        axes.scatter(wrong["x"], wrong["y"], 22, "white", marker="x", lw=2.6, zorder=4)
        axes.scatter(wrong["x"], wrong["y"], 20, colour, marker="x", lw=1.4, zorder=5)
    if len(classes) <= _MAX_CLASSES:
        from matplotlib.patheffects import withStroke

        style = {"textcoords": "offset points", "size": 8, "weight": "bold", "ha": "center", "va": "center"}
        style |= {"zorder": 6, "path_effects": [withStroke(linewidth=2.5, foreground="white")]}
        medians = points.groupby("actual")[["x", "y"]].median().sort_values("x", kind="stable")
        # From left to right at two heights, so that neighbouring names do not overlap.
        for i, (name, median) in enumerate(medians.iterrows()):
            position, offset = (median["x"], median["y"]), (0, 8 + 9 * (i % 2))
            axes.annotate(shortened(str(name), 12), position, offset, color=colours[str(name)], **style)
    plots.title(axes, f"t-SNE of {len(points):,} test rows (× wrong: {int(points['wrong'].sum())})", 9)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.12)
    axes.spines[:].set_color(plots.SOFT)
    return small_png(plots.as_png(figure))


def errors_table(runs: Sequence[Run]) -> Table:
    """Errors of attention, and how many of them distance weighting with vector scaling makes too."""
    rows = []
    for run in runs:
        table = run.tables["confusion"]
        ours = table[table["method"] == OURS]
        errors = int(ours.loc[ours["actual"] != ours["predicted"], "count"].sum())
        shared = run.json.get("explain", {}).get("distance_vector", {}).get("shared")
        rows.append(
            [str(run.seed), f"{int(ours['count'].sum()):,}", f"{errors:,}", "" if shared is None else f"{shared:g}"]
        )
    head = ["seed", "test rows", "errors", f"same error by {plots.method_name('distance_vector')}"]
    return Table("errors", "Errors of attention", head, rows, folded=False)


def _part(runs: Sequence[Run], folder: Path | None) -> Part:
    run, counts = runs[0], joined(runs, "confusion")
    item = f"{run.dataset}-{run.seed}"
    cases, pictures = read_cases(folder / "gallery" / item, item) if folder else ([], [])
    drawn = [("confusion matrix of attention", confusion_picture(counts[counts["method"] == OURS], OURS))]
    points = read_csv(folder / "gallery" / item / "tsne.csv", _TSNE) if folder else pd.DataFrame()
    if len(points):
        drawn.append(("t-SNE of the embeddings by class", tsne_picture(points)))
    tables = [errors_table(runs), *([cases_table(cases)] if cases else [])]
    return Part(run.dataset, [*drawn, *pictures], tables)


def section(runs: Sequence[Run], folder: Path | None) -> Section:
    """Examples with their neighbours, confusions, and a map of the embeddings.

    Args:
        folder: `gallery/<dataset>-<seed>` in it is read. None leaves the examples out.

    Raises:
        InputError: a gallery is missing or damaged.
    """
    return Section(
        "explain",
        "Examples and confusions",
        "Confident errors, uncertain answers, hard queries and confident right answers, with the neighbours of largest "
        "weight.",
        by_dataset(runs, lambda group: _part(group, folder), "confusion"),
        "Blue neighbours are of the query's own class, orange ones of another; below each is its weight, in brackets "
        "(or as a line across the bar) that of distance weighting. Examples are of the first seed.",
        "dvc exp run -S +explain.cases=8",
    )
