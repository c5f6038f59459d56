"""Hard queries: their share, the scores on them, and the effect of training weight on them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.evaluation.opponents import OURS
from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS, over_runs
from attnknn.report.differences import Level, judged
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import arrow, by_dataset, digits_of, finding_cells, score_cell

TABLES: dict[str, tuple[str, ...]] = {
    "hard": ("subset", "rows", "method", "metric", "value", "low", "high"),
    "hard_paired": (
        *("subset", "rows", "method", "baseline", "metric"),
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
_MAX_CLASSES = 12
Effects = dict[tuple[str, str], dict[str, Any]]


def _name(method: str) -> str:
    return _NAMES.get(method, plots.method_name(method))


def _order(methods: Sequence[str]) -> list[str]:
    """The order of `plots.METHODS`, each weighted variant after its base."""
    ordered = [m for m in plots.METHODS if m in methods]
    rest = {m: m.replace("_weighted", "").replace("_configured", "") for m in methods if m not in plots.METHODS}
    return [name for m in ordered for name in (m, *(v for v, base in rest.items() if base == m))]


def weight_effects(paired: pd.DataFrame, method: str, baseline: str, level: Level) -> Effects:
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
    """One metric of every method on the hard and on the easy rows."""
    rows = scores[(scores["subset"] != "all") | (scores["subset"].nunique() == 1)]
    rows = rows.sort_values("method", key=lambda names: names.map(_order(list(set(names))).index), kind="stable")
    base = rows["method"].str.replace("_weighted|_configured", "", regex=True)
    rows = rows.assign(
        label=rows["method"].map(_name),
        colour=base.map(plots.method_colour),
        group=rows["subset"] + " rows",
        hollow=~rows["method"].isin(list(plots.METHODS)),
    )
    return plots.forest_plot(rows, plots.METRICS[metric], plots.METRICS[metric], zero=None, key="value")


def effects_picture(effects: dict[str, Effects], metric: str) -> bytes:
    """The effect of weight on hard queries in one metric, by subset: attention and distance weighting."""
    rows = [
        {
            **effects[name][subset, metric],
            "label": name,
            "colour": plots.method_colour(method),
            "group": f"{subset} rows",
        }
        for subset in SUBSETS
        for name, (_, method) in list(_WEIGHTED.items())[:2]
        if (subset, metric) in effects[name]
    ]
    text = f"{plots.METRICS[metric]}: weighted − not"
    return plots.forest_plot(pd.DataFrame(rows), text, plots.better_side(metric, "difference"))


def classes_picture(shares: pd.DataFrame) -> bytes:
    """The share of each class's test rows that is hard, the largest first."""
    rows = shares.assign(share=100 * shares["hard"] / shares["rows"].clip(lower=1))
    rows = rows.sort_values("share", ascending=False, kind="stable").head(_MAX_CLASSES)
    names, colour = [str(name)[:18] for name in rows["class"]], plots.method_colour("distance")
    label = "hard test rows of the class (%)"
    return plots.bar_plot(names, rows["share"].tolist(), colour, "Hard queries by class", label, "%.0f %%")


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


def _effects_table(effects: dict[str, Effects], digits: int) -> Table:
    rows: list[Row] = []
    for name, tests in effects.items():
        if tests:
            rows.append([f"{name}, with weight − without"])
        for (subset, metric), row in tests.items():
            rows.append([subset, plots.METRICS[metric], *finding_cells(row, digits + 1)])
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
    effects = {name: weight_effects(joined(runs, "hard_paired"), *pair, level) for name, pair in _WEIGHTED.items()}
    test = shares[shares["part"] == "test"].groupby("class", sort=False)[["rows", "hard"]].sum().reset_index()
    main = effects["Attention"]["all", "nll"]
    pictures = [
        (f"{plots.METRICS[m]} on hard and easy rows", subsets_picture(scores[scores["metric"] == m], m))
        for m in ("nll", "accuracy")
    ]
    if main["errors"] >= FEWEST_ERRORS:
        pictures.append(("effect of weight on hard queries in NLL", effects_picture(effects, "nll")))
    if test["hard"].sum():
        pictures.append(("share of hard test rows by class", classes_picture(test)))
    first = _shares_table(shares[shares["seed"] == runs[0].seed])
    tables = [_effects_table(effects, digits), _scores_table(scores, digits), first]
    return Part(runs[0].dataset, pictures, tables, main["verdict"])


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "hard",
        "Hard queries",
        "A query is hard if at least half of its neighbours (hard.disagreement) is of another class. How does each "
        "method score on them, and does it pay to fit with more weight on them?",
        by_dataset(runs, lambda group: _part(group, level), "hard"),
        "Hard rows are selected by their true class, which no method knows, so the verdict is that of all test rows. "
        "Open circles are fitted or tuned with weight.",
        "dvc exp run -S +hard.weight=5.0",
    )
