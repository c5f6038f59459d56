"""Test-time augmentation: the mean over several views of an image, for every method."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import over_runs
from attnknn.report.differences import Level, judged
from attnknn.report.plots import METHODS, METRICS
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import by_dataset, digits_of, finding_cells, fixed, method_cell

TABLES: dict[str, tuple[str, ...]] = {
    "tta": ("views", "method", "metric", "value", "low", "high"),
    "tta_alone": ("view", "method", "metric", "value", "without"),
    "tta_paired": (
        *("method", "baseline", "views", "baseline_views", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
}
SHOWN = ("nll", "ece")
COMPARED = ("attention", "attention_vector")  # compared with distance weighting under the same calibration
_PAIR = ["method", "baseline", "views", "baseline_views", "metric"]


def _curves(rows: pd.DataFrame, metric: str) -> bytes:
    """One metric of every method over the number of averaged views."""
    rows = rows[rows["metric"] == metric]
    lines = plots.method_lines(rows, "views", [m for m in METHODS if m in set(rows["method"])])
    return plots.line_plot(lines, METRICS[metric], "views averaged", ticks=sorted(rows["views"].unique()))


def _gains(rows: pd.DataFrame, metric: str, views: int) -> bytes:
    """Change of every method's metric with all views, with intervals."""
    rows = plots.by_method(rows[rows["metric"] == metric])
    return plots.forest_plot(rows, METRICS[metric], plots.better_side(metric, f"{views} views − 1"))


def _changes(rows: pd.DataFrame, gains: pd.DataFrame, views: int, digits: int) -> Table:
    """Every method with one view and with all."""
    value = rows.set_index(["views", "method", "metric"])["value"]
    lines: list[Row] = []
    for row in gains.to_dict("records"):
        method, metric = row["method"], row["metric"]
        scores = [fixed(value[n, method, metric], digits) for n in (1, views)]
        lines.append([METRICS[metric], method_cell(method), *scores, *finding_cells(row, digits)])
    head = ["metric", "method", "1 view", f"{views} views", "change", "p, Holm", "finding"]
    return Table(
        "changes", "All methods with the image alone and with the mean over all views", head, lines, folded=False
    )


def _against(rows: pd.DataFrame, digits: int) -> Table:
    """Attention minus distance weighting, with the same calibration and views."""
    lines: list[Row] = []
    for row in rows.to_dict("records"):
        names = method_cell(row["method"]), method_cell(row["baseline"]), str(row["views"]), METRICS[row["metric"]]
        lines.append([*names, *finding_cells(row, digits)])
    head = ["method", "against", "views", "metric", "difference", "p", "finding"]
    caption = "Attention less distance weighting, with the same views and calibration"
    note = "p is not adjusted; the finding, of NLL, is."
    return Table("against", caption, head, lines, note, folded=False)


def _alone(rows: pd.DataFrame, all_views: dict[Any, float], digits: int) -> Table:
    """Scores of each view alone, and its contribution to the mean over all views."""
    lines: list[Row] = []
    for (view, method), group in rows.groupby(["view", "method"], sort=False):
        scores = group.set_index("metric")[["value", "without"]].to_dict("index")
        cells = [fixed(scores[m]["value"], digits) for m in ("accuracy", *SHOWN)]
        added = [fixed(all_views[method, m] - scores[m]["without"], digits, True) for m in SHOWN]
        lines.append([str(view).replace("_", " "), method_cell(str(method)), *cells, *added])
    head = ["view", "method", "accuracy alone", "NLL alone", "ECE alone", "NLL added", "ECE added"]
    caption = (
        "Each view alone, and its contribution: the mean over all views less that over all others (below 0: better)"
    )
    return Table("views", caption, head, lines)


def _part(runs: Sequence[Run], level: Level) -> Part:
    digits, rows, keys = digits_of(runs), joined(runs, "tta"), ["view", "method", "metric"]
    scores = rows.groupby(["views", "method", "metric"], sort=False)["value"].mean().reset_index()
    alone = joined(runs, "tta_alone").groupby(keys, sort=False)[["value", "without"]].mean().reset_index()
    paired = over_runs(joined(runs, "tta_paired"), _PAIR)
    views = int(scores["views"].max())
    is_same = paired["method"] == paired["baseline"]
    gains = paired[is_same & paired["method"].isin(METHODS) & paired["metric"].isin(SHOWN)]
    for column, order in (("method", list(METHODS)), ("metric", SHOWN)):
        gains = gains.sort_values(column, key=lambda names, order=order: names.map(order.index), kind="stable")
    own = paired[~is_same & paired["method"].isin(COMPARED) & (paired["metric"] == "nll")]
    tests = judged(pd.concat([gains, own]), level)
    same = tests["method"] == tests["baseline"]
    against = paired[~is_same & paired["metric"].isin(SHOWN)].assign(finding=tests["finding"]).fillna({"finding": ""})
    pictures = [
        *((f"{METRICS[m]} over the number of views averaged", _curves(rows, m)) for m in SHOWN),
        *((f"change of {METRICS[m]} of every method with all views", _gains(gains, m, views)) for m in SHOWN),
    ]
    all_views = scores[scores["views"] == views].set_index(["method", "metric"])["value"].to_dict()
    tables = [
        _changes(scores, tests[same], views, digits),
        _against(against, digits),
        _alone(alone, all_views, digits),
    ]
    return Part(runs[0].dataset, pictures, tables)


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        name="tta",
        title="Test-time augmentation",
        question="Does the mean over several views of an image (itself, mirrored, shifted) improve probabilities, and "
        "more so for attention? Every method uses the same views; calibrations are refitted on the mean.",
        parts=by_dataset(runs, lambda group: _part(group, level), *TABLES),
        note="A mean of views is less confident than one view: uncalibrated, that lowers the ECE of an overconfident "
        "method and raises that of others. p is adjusted by Holm's method within a dataset.",
        command="dvc repro tta",
    )
