"""Hard queries: their share, the scores on them, and the effect of training weight on them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS, OURS
from attnknn.report.differences import judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import arrow, by_dataset, difference_cell, digits_of, p_value, score_cell

TABLES: dict[str, tuple[str, ...]] = {
    "hard": ("subset", "rows", "method", "repeat", "metric", "value", "low", "high"),
    "hard_paired": (
        *("subset", "rows", "method", "repeat", "baseline", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
    "hard_share": ("part", "class", "rows", "hard"),
}
WEIGHTED = "attention_weighted"
SUBSETS = ("all", "hard", "easy")
_WEIGHTED = {
    "Attention": (WEIGHTED, OURS),
    "Distance-weighted kNN": ("distance_weighted", "distance"),
    "Distance + vector scaling": ("distance_weighted_vector", "distance_vector"),
}
_NAMES = {
    WEIGHTED: "Attention, hard weighted",
    "attention_configured": "Attention, as configured",
    "distance_weighted": "Distance, hard weighted",
    "distance_weighted_vector": "Distance, hard w. + vector",
}
_METRICS = ("accuracy", "nll", "ece")
_MOST_CLASSES = 12
_NOTHING = 1e-4  # a smaller difference is drawn as 0
Moves = dict[tuple[str, str], dict[str, Any]]


def _name(method: str) -> str:
    return _NAMES.get(method, plots.method_name(method))


def _colour(method: str) -> str:
    return plots.method_colour("attention" if method.startswith("attention") else method.replace("_weighted", ""))


def _order(methods: Sequence[str]) -> list[str]:
    """The order of `plots.METHODS`, each weighted variant after its base."""
    known = [m for m in plots.METHODS if m in methods]
    rest = {m: m.replace("_weighted", "").replace("_configured", "") for m in methods if m not in plots.METHODS}
    return [name for m in known for name in (m, *(v for v, base in rest.items() if base == m))]


def moves_of(paired: pd.DataFrame, method: str, baseline: str, level: Level) -> Moves:
    """A method minus a baseline over seeds and repeats; verdicts on all rows only, adjusted for the metrics.

    Hard rows are selected by their true classes, which the method does not know, so a gain on them alone has no
    verdict.

    Returns:
        By (subset, metric) the columns of `differences.over_runs` and, where the subset is "all", of
        `differences.judged`; elsewhere `verdict` and `finding` are empty.
    """
    tests = paired[(paired["method"] == method) & (paired["baseline"] == baseline)]
    if tests.empty:
        return {}
    rows = over_runs(tests, ("subset", "metric"))
    whole = rows["subset"] == "all"
    rows = pd.concat([judged(rows[whole], level), rows[~whole].assign(verdict="", finding="")])
    return {(row["subset"], row["metric"]): row for row in rows.to_dict("records")}  # type: ignore[misc]


def subsets_picture(scores: pd.DataFrame, metric: str) -> bytes:
    """One metric of every method on the hard rows and on the easy ones, side by side, each on its own scale.

    Args:
        scores: subset, method, value, low, high: one row per subset and method.
    """
    subsets = [s for s in ("hard", "easy") if s in set(scores["subset"])] or ["all"]
    methods = _order(list(dict.fromkeys(scores["method"])))
    figure = plots.new_figure(3.4, 0.8 + 0.2 * len(methods))
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    for axes, subset in zip(panels, subsets, strict=True):
        rows = scores[scores["subset"] == subset].set_index("method").to_dict("index")
        for y, method in enumerate(methods):
            plots.draw_estimate(axes, y, rows[method], _colour(method), "value", hollow=method not in plots.METHODS)
        axes.set_title(f"{subset} rows", loc="left", size=8.5, color=plots.INK)
        plots.name_rows(axes, [_name(m) for m in methods], nbins=3)
        axes.grid(axis="y", color="#eeeeee", lw=0.6)
        axes.set_axisbelow(True)
    plots.figure_title(figure, plots.METRICS[metric])
    return plots.as_png(figure)


def moves_picture(moves: dict[str, Moves], metric: str) -> bytes:
    """The effect of weight on hard queries in one metric, by subset: attention and distance weighting."""
    lines = [
        (subset, method, moves[name][subset, metric])
        for subset in SUBSETS
        for name, (_, method) in list(_WEIGHTED.items())[:2]
        if (subset, metric) in moves[name]
    ]
    figure = plots.new_figure(3.4, 0.85 + 0.22 * len(lines))
    axes = figure.subplots()
    for y, (subset, method, row) in enumerate(lines):
        plots.draw_estimate(axes, y, row, plots.method_colour(method), alpha=1.0 if subset == "all" else 0.55)
    plots.name_rows(axes, [f"{subset} rows, {method}" for subset, method, _ in lines])
    plots.mark_zero(axes, metric, "difference")
    if max(abs(x) for x in axes.get_xlim()) < _NOTHING:
        axes.set(xlim=(-_NOTHING, _NOTHING), xticks=[0])  # no axis for rounding
    plots.title(axes, f"{plots.METRICS[metric]}: weighted − not")
    return plots.as_png(figure)


def classes_picture(shares: pd.DataFrame) -> bytes:
    """The share of each class's test rows that is hard, the largest first.

    Args:
        shares: class, rows, hard.
    """
    rows = shares.assign(share=100 * shares["hard"] / shares["rows"].clip(lower=1))
    rows = rows.sort_values("share", ascending=False, kind="stable").head(_MOST_CLASSES).reset_index(drop=True)
    figure = plots.new_figure(3.4, 0.75 + 0.2 * len(rows))
    axes = figure.subplots()
    bars = axes.barh(rows.index, rows["share"], color=plots.method_colour("distance"), height=0.65)
    axes.bar_label(bars, fmt="%.0f %%", padding=3, size=7.5)
    plots.name_rows(axes, [str(name)[:18] for name in rows["class"]])
    axes.set_xlim(0, max(1.0, 1.15 * rows["share"].max()))
    plots.title(axes, "Hard queries by class")
    axes.set_xlabel("hard test rows of the class (%)")
    return plots.as_png(figure)


def _scores_table(scores: pd.DataFrame, digits: int) -> Table:
    """All methods by subset."""
    rows: list[Row] = []
    for subset in [s for s in SUBSETS if s in set(scores["subset"])]:
        group = scores[scores["subset"] == subset]
        rows.append([f"{subset}: {int(group['rows'].max()):,} rows"])
        cells = {(r["method"], r["metric"]): score_cell(r, digits) for r in group.to_dict("records")}
        for method in _order(list(dict.fromkeys(group["method"]))):
            rows.append([Cell(_name(method), method=method), *(cells[method, metric] for metric in _METRICS)])
    note = "Means over seeds and repeats, with the outer ends of their intervals."
    head = ["method", *map(arrow, _METRICS)]
    return Table("scores", "Every method on all, hard and easy test rows", head, rows, note)


def _moves_table(moves: dict[str, Moves], digits: int) -> Table:
    rows: list[Row] = []
    for name, tests in moves.items():
        if tests:
            rows.append([f"{name}, with weight − without"])
        for (subset, metric), row in tests.items():
            difference = difference_cell(row, digits + 1), p_value(row["p"]), row["finding"]
            rows.append([subset, plots.METRICS[metric], *difference])
    note = "p of all rows is adjusted for the three metrics (Holm); hard and easy rows have no verdict of their own."
    head = ["rows", "metric", "difference", "p", "finding"]
    return Table("weight", "Effect of training weight on hard queries", head, rows, note)


def _shares_table(shares: pd.DataFrame) -> Table:
    """Hard rows of each class in each part, and their sums."""
    parts = [p for p in ("fit", "val", "test") if p in set(shares["part"])]
    total = shares.groupby("part", sort=False)[["hard", "rows"]].sum().reset_index().assign(**{"class": "all"})
    counts = pd.concat([shares, total])
    table = {
        (name, part): f"{int(hard)} of {int(rows):,}"
        for name, part, hard, rows in counts[["class", "part", "hard", "rows"]].to_numpy()
    }
    rows = [[str(name), *(table[name, part] for part in parts)] for name in dict.fromkeys(counts["class"])]
    return Table("shares", "Hard rows of each class", ["class", *parts], rows, "Of the first seed.")


def _part(runs: Sequence[Run], level: Level) -> Part:
    digits, scores, shares = digits_of(runs), joined(runs, "hard"), joined(runs, "hard_share")
    keys = ["subset", "method", "metric"]
    rows = scores.groupby(keys, sort=False)["rows"].max()
    scores = mean_over_runs(scores, keys).assign(rows=rows).reset_index()
    moves = {name: moves_of(joined(runs, "hard_paired"), *pair, level) for name, pair in _WEIGHTED.items()}
    test = shares[shares["part"] == "test"].groupby("class", sort=False)[["rows", "hard"]].sum().reset_index()
    main = moves["Attention"]["all", "nll"]
    pictures = [
        (f"{plots.METRICS[m]} on hard and easy rows", subsets_picture(scores[scores["metric"] == m], m))
        for m in ("nll", "accuracy")
    ]
    if main["errors"] >= FEWEST_ERRORS:
        pictures.append(("effect of weight on hard queries in NLL", moves_picture(moves, "nll")))
    if test["hard"].sum():
        pictures.append(("share of hard test rows by class", classes_picture(test)))
    first = _shares_table(shares[shares["seed"] == runs[0].seed])
    tables = [_moves_table(moves, digits), _scores_table(scores, digits), first]
    return Part(runs[0].dataset, pictures, tables, main["verdict"])


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "hard",
        "Hard queries",
        "A query is hard if at least a set share of its neighbours, by default half (hard.disagreement), is of another "
        "class. How many are hard, how does each method score on them, and does it pay to fit with more weight on "
        "them? Everything else is equal, including seeds; distance weighting is tuned with the same weights.",
        by_dataset(runs, lambda group: _part(group, level), "hard"),
        "Hard rows are selected by their true class, which no method knows: a method that trusts its neighbours less "
        "looks better on them and loses on the easy rows. So the verdict is that of all test rows. Every head is "
        "stopped by the unweighted NLL on val. Open circles are fitted or tuned with weight. The hardest test rows are "
        "shown under “Examples and confusions”.",
        "dvc exp run -S hard.weight=5.0",
    )
