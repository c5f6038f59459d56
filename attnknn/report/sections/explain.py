"""Which neighbours decided, which classes are mistaken for which, and how the embeddings lie."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import OURS, holm
from attnknn.report.gallery import Case, cases_table, read_cases, shortened, small_png
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import by_dataset, p_value

TABLES: dict[str, tuple[str, ...]] = {
    "confusion": ("method", "actual", "predicted", "count"),
    "confusion_paired": ("actual", "predicted", "rows", "method", "count", "baseline", "baseline_count", "both", "p"),
    "tsne": ("x", "y", "actual", "predicted", "wrong"),
}
ALPHA = 0.01
# Okabe & Ito's hues and two greys; names stand beside the points, so no class is told by its colour alone.
HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b", "#b2a100", "#7f7f7f", "#6a3d9a", "#444444")
_MOST_CLASSES = 12  # drawn with names
_SHOWN_MISTAKES = 20


def confusion_picture(counts: pd.DataFrame, method: str) -> bytes:
    """What each class was taken for, in % of its rows; the diagonal is left grey, so that mistakes are seen.

    Args:
        counts: actual, predicted, count; of more than 12 classes, those with the most mistakes are drawn.
    """
    classes = list(dict.fromkeys([*counts["actual"], *counts["predicted"]]))
    table = counts.pivot_table("count", "actual", "predicted", "sum").reindex(index=classes, columns=classes)
    table = table.fillna(0.0)
    share = 100 * table.div(table.sum(axis=1).clip(lower=1), axis=0)
    wrong = table.to_numpy() * (1 - np.eye(len(classes)))
    many = len(classes) > _MOST_CLASSES
    if many:
        kept = np.sort(np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:_MOST_CLASSES])
        classes, share = [classes[i] for i in kept], share.iloc[kept, kept]
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
    some = f"\n({n} classes of most mistakes)" if many else ""
    figure.suptitle(
        f"Confusion, % of each class{some}", x=0.02, ha="left", size=9, weight="bold", color=plots.method_colour(method)
    )
    plots.style_axes(axes)
    axes.tick_params(labelsize=7, length=0)
    axes.spines[:].set_visible(False)
    return plots.as_png(figure)


def tsne_picture(points: pd.DataFrame) -> bytes:
    """Embeddings in the plane by class, its name at its middle; wrong answers are crossed.

    Args:
        points: x, y, actual, wrong.
    """
    classes = sorted(dict.fromkeys(points["actual"].astype(str)))
    figure = plots.new_figure(3.4, 3.3)
    axes = figure.subplots()
    size = 14 if len(points) < 500 else 5
    for i, name in enumerate(classes):
        of = points[points["actual"].astype(str) == name]
        colour = HUES[i % len(HUES)]
        axes.scatter(of["x"], of["y"], size, colour, lw=0, alpha=0.75)
        wrong = of[of["wrong"]]
        axes.scatter(wrong["x"], wrong["y"], 22, "white", marker="x", lw=2.6, zorder=4)
        axes.scatter(wrong["x"], wrong["y"], 20, colour, marker="x", lw=1.4, zorder=5)
    if len(classes) <= _MOST_CLASSES:
        from matplotlib.patheffects import withStroke

        middles = points.assign(actual=points["actual"].astype(str)).groupby("actual")[["x", "y"]].median()
        # From left to right at two heights, so that names of neighbours do not meet.
        for turn, (name, at) in enumerate(middles.sort_values("x", kind="stable").iterrows()):
            i = classes.index(str(name))
            axes.annotate(
                shortened(str(name), 12),
                (at["x"], at["y"]),
                (0, 8 + 9 * (turn % 2)),
                textcoords="offset points",
                size=8,
                weight="bold",
                ha="center",
                va="center",
                color=HUES[i % len(HUES)],
                zorder=6,
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )
    wrong = int(points["wrong"].sum())
    axes.set_title(
        f"t-SNE of {len(points):,} test rows (× wrong: {wrong})", loc="left", size=9, weight="bold", color=plots.INK
    )
    axes.set(xticks=[], yticks=[])
    axes.margins(0.12)
    axes.spines[:].set_color(plots.SOFT)
    return small_png(plots.as_png(figure))


def mistakes_table(paired: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    """The most frequent mistakes, attention's beside the baseline's, p adjusted for all of them (Holm).

    Args:
        paired: of one seed, rows of the table `confusion_paired`.
    """
    found = paired.assign(adjusted=holm(paired["p"].tolist()))
    rows = [
        [
            f"{row['actual']} → {row['predicted']}",
            f"{row['count']} of {row['rows']:,}",
            str(row["baseline_count"]),
            str(row["both"]),
            p_value(float(row["adjusted"])),
        ]
        for _, row in found.head(_SHOWN_MISTAKES).iterrows()
    ]
    baseline = plots.method_name(str(found["baseline"].iloc[0]))
    head = ["actual → predicted", "attention", baseline, "both, the same rows", "p"]
    note = f"McNemar's exact test, adjusted for all {len(found)} mistakes (Holm)."
    return Table("mistakes", "The most frequent mistakes", head, rows, note), found


def sentence(runs: Sequence[Run], mistakes: pd.DataFrame | None, cases: Sequence[Case]) -> str:
    """How many test rows attention gets wrong, which mistake leads, and what its surest errors rest on."""
    counts = joined(runs, "confusion")
    ours = counts[counts["method"] == OURS]
    rows, errors = int(ours["count"].sum()), int(ours.loc[ours["actual"] != ours["predicted"], "count"].sum())
    over = f" over {len(runs)} seeds" if len(runs) > 1 else ""
    if not errors:
        return f"Attention gets none of {rows:,} test rows{over} wrong."
    text = f"Attention gets {errors:,} of {rows:,} test rows{over} wrong."
    shared = [r.json["explain"]["distance_vector"] for r in runs if "distance_vector" in r.json.get("explain", {})]
    if shared:
        same = sum(s["shared"] for s in shared)
        text += (
            f" {same / errors:.0%} of these errors {plots.method_name('distance_vector')} makes too, with the same "
            "wrong class."
        )
    if mistakes is not None and mistakes["count"].max() > 0:
        first = mistakes.iloc[0]
        text += (
            f" The most frequent: {first['actual']} answered as {first['predicted']} ({first['count']}, and "
            f"{first['baseline_count']} with {plots.method_name(str(first['baseline']))})."
        )
        told = mistakes[mistakes["adjusted"] < ALPHA]
        if len(told):
            named = [
                f"{r['actual']} → {r['predicted']} ({r['count']} against {r['baseline_count']}, "
                f"p {p_value(float(r['adjusted']))})"
                for _, r in told.head(3).iterrows()
            ]
            number = "One mistake differs" if len(told) == 1 else f"{len(told)} mistakes differ"
            text += f" {number} in frequency between the two: {', '.join(named)}."
        else:
            text += " No single mistake is shown to be more frequent with one of the two."
    wrong = [c for c in cases if c["kind"] == "wrong"]
    if wrong:
        misled = sum(case["disagreement"] >= 0.5 for case in wrong)
        text += f" {misled} of its {len(wrong)} surest errors lie where at least half of the neighbours mislead."
    return text


def _part(runs: Sequence[Run], folder: Path | None) -> Part:
    run = runs[0]
    item = f"{run.dataset}-{run.seed}"
    cases, pictures = read_cases(folder / "gallery" / item, item) if folder else ([], [])
    counts = joined(runs, "confusion")
    drawn = [("confusion matrix of attention", confusion_picture(counts[counts["method"] == OURS], OURS))]
    if "tsne" in run.tables:
        drawn.append(("t-SNE of the embeddings by class", tsne_picture(run.tables["tsne"])))
    tables, mistakes = [cases_table(cases)] if cases else [], None
    if "confusion_paired" in run.tables:
        table, mistakes = mistakes_table(run.tables["confusion_paired"])
        tables.insert(0, table)
    text = sentence(runs, mistakes, cases)
    if len(runs) > 1:
        text += f" Examples, tests and t-SNE are those of seed {run.seed}."
    return Part(run.dataset, text, [*drawn, *pictures], tables)


def section(runs: Sequence[Run], folder: Path | None) -> Section:
    """Examples with the neighbours that decided, mistakes, and a map of the embeddings.

    Args:
        folder: of the plots; its `gallery/<dataset>-<seed>` is read, which DVC holds. None leaves the examples out.

    Raises:
        InputError: a gallery is missing or damaged.
    """
    mine = [r for r in runs if "confusion" in r.tables]
    return Section(
        "explain",
        "Which examples decided",
        "A query is answered by its neighbours. Here are the surest errors, the most uncertain answers, the hardest "
        "queries (most neighbours of another class) and the surest right answers, with the neighbours that weigh most; "
        "which class is taken for which; and how the embeddings lie.",
        by_dataset(mine, lambda of: _part(of, folder)),
        "Blue neighbours are of the query's own class, orange ones of another. Under each its weight, in brackets "
        "(or as a line across the bar) the one that tuned distance weighting gives it. Weights, the rest and “no "
        "neighbour” sum to 1. Numbers in tables are standardised, in standard deviations from the bank's mean. A t-SNE "
        "keeps close what is close; distances between clusters, their sizes and their densities in it mean nothing.",
        "dvc exp run -S explain.cases=8",
    )
