"""Abstention (risk and coverage) and conformal sets."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS, OURS, combined_p, holm, verdict
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, difference_cell, digits_of, fixed, interval, p_value, score_cell

TABLES: dict[str, tuple[str, ...]] = {
    "risk_coverage": ("method", "coverage", "risk"),
    "selective": ("method", "metric", "value", "low", "high"),
    "selective_paired": ("method", "baseline", "metric", "difference", "low", "high", "errors", "p", "test"),
    "conformal": (
        *("method", "kind", "alpha", "coverage", "low", "high"),
        *("size", "empty", "single", "worst_class", "always"),
    ),
}
ALPHA = 0.01  # level of the tests, adjusted for the number of baselines
_KINDS = {"split": "split", "class_conditional": "class-conditional"}
_AREAS = {"aurc": "AURC", "eaurc": "E-AURC"}


def _base(method: str) -> str:
    """A method of `joined_forms` without its calibrations."""
    return method.partition("/")[0].partition("_")[0]


def _cell(method: str) -> Cell:
    """The display name of a method of `joined_forms`."""
    return Cell("/".join(plots.method_name(form) for form in method.split("/")), method=_base(method))


def joined_forms(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """One table of all runs; a method is named with its calibrations, `/` between those that differ by seed."""
    rows = joined(runs, table)
    for column in {"method", "baseline"} & set(rows):
        names = rows.groupby(rows[column].map(_base))[column]
        rows[column] = names.transform(lambda forms: "/".join(sorted(set(forms))))
    return rows


def _means(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Means over seeds in the order of the rows, and `sd` of the first column of values."""
    values = [c for c in rows.columns if c not in ("dataset", "seed", *keys)]
    groups = rows.groupby(keys, sort=False)
    return groups[values].mean().assign(sd=groups[values[0]].std()).reset_index()


def tested(paired: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    """Attention against each baseline over seeds: baseline, difference, low, high, p, adjusted (Holm), verdict."""
    tests = []
    for baseline, rows in paired[paired["metric"] == metric].groupby("baseline", sort=False):
        ends = {"difference": rows["difference"].mean(), "low": rows["low"].min(), "high": rows["high"].max()}
        tests.append({"baseline": str(baseline), **ends, "p": combined_p(rows["p"].tolist()), "rows": rows})
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        rows = test.pop("rows")
        word = verdict(rows["difference"].tolist(), p, int(rows["errors"].min()), metric, ALPHA)
        test |= {"adjusted": p, "verdict": word}
    return tests


def risk_picture(curves: pd.DataFrame) -> bytes:
    """Risk over coverage, one line per method.

    Args:
        curves: method, coverage, risk.
    """
    figure = plots.new_figure(3.4, 3.3)
    axes = figure.subplots()
    for method, line in curves.groupby("method", sort=False):
        base = _base(str(method))
        style: dict[str, Any] = {"color": plots.method_colour(base), "label": plots.method_name(base)}
        style |= {"lw": 2.2, "zorder": 4} if base == OURS else {"lw": 1.3, "zorder": 3}
        axes.plot(100 * line["coverage"], 100 * line["risk"], **style)
    axes.set(xlim=(0, 100), xlabel="rows answered, most confident first (%)", ylabel="errors among them (%)")
    axes.set_ylim(0, max(1.0, 1.05 * axes.get_ylim()[1]))
    plots.title(axes, "Risk over coverage")
    plots.legend_below(figure)
    plots.style_axes(axes)
    return plots.as_png(figure)


def sets_picture(sets: pd.DataFrame, alpha: float) -> bytes:
    """Measured coverage and mean size of conformal sets at one level, split filled and class-conditional hollow.

    Args:
        sets: method, kind, alpha, coverage, low, high, size.
    """
    rows = sets[sets["alpha"] == alpha]
    methods = list(dict.fromkeys(rows["method"]))
    figure = plots.new_figure(3.4, 1.1 + 0.34 * len(methods))
    left, right = figure.subplots(1, 2, sharey=True)
    left.axvline(100 * (1 - alpha), color=plots.INK, lw=0.8, ls=(0, (3, 2)), zorder=1)
    for row in rows.to_dict("records"):
        split, colour = row["kind"] == "split", plots.method_colour(_base(row["method"]))
        y = methods.index(row["method"]) + (-0.19 if split else 0.19)
        percent = {key: 100 * row[key] for key in ("low", "high", "coverage")}
        plots.draw_estimate(left, y, percent, colour, "coverage", hollow=not split)
        bar = right.barh(y, row["size"], 0.3, color=colour if split else "white", edgecolor=colour, lw=0.9)
        right.bar_label(bar, fmt="%.2f", padding=2, size=6.5)
    for axes, label in ((left, "holds the true\nclass (%)"), (right, "classes in it\n(mean)")):
        plots.name_rows(axes, [plots.method_name(_base(m)) for m in methods], nbins=3)
        axes.set_xlabel(label)
        axes.set_axisbelow(True)
    left.grid(axis="x", color="#eeeeee", lw=0.8)
    right.set_xlim(0, 1.4 * rows["size"].max())
    right.spines["bottom"].set_visible(False)
    right.set_xticks([])
    plots.figure_title(figure, f"Sets for {1 - alpha:.0%}: ● split, ○ class by class")
    return plots.as_png(figure)


def _scores_table(scores: pd.DataFrame, seeds: int, digits: int) -> Table:
    answered = [m for m in dict.fromkeys(scores["metric"]) if m.startswith("coverage_at_")]
    metrics = [*_AREAS, *(m for coverage in answered for m in (coverage, coverage.replace("coverage", "risk")))]
    cells = {(row["method"], row["metric"]): score_cell(row, digits, seeds) for row in scores.to_dict("records")}
    rows = [
        [_cell(method), *(cells.get((method, m), "no answer") for m in metrics)]
        for method in dict.fromkeys(scores["method"])
    ]
    head = [_AREAS.get(m, f"{m.partition('_')[0]} at {m.rpartition('_')[2]}%") for m in metrics]
    caption = "Risk and coverage: areas, and coverage and risk at thresholds chosen on val"
    return Table("scores", caption, ["method", *head], rows, folded=False)


def _tests_table(paired: pd.DataFrame, digits: int) -> Table:
    rows: list[Row] = []
    for metric in dict.fromkeys(paired["metric"]):
        name = _AREAS.get(metric, f"set size at {metric.rpartition('_')[2]}%")
        for test in tested(paired, metric):
            p = p_value(test["p"]), p_value(test["adjusted"])
            rows.append([name, _cell(test["baseline"]), difference_cell(test, digits), *p, test["verdict"]])
    head = ["metric", "than", "attention − it", "p", "p, Holm", "verdict"]
    return Table("tests", "Is attention better? Paired bootstrap", head, rows)


def _sets_table(sets: pd.DataFrame) -> Table:
    rows = [
        [
            _cell(row["method"]),
            _KINDS[row["kind"]],
            f"{1 - row['alpha']:.0%}",
            Cell(fixed(row["coverage"], 3), interval(row, 3)),
            "yes" if row["high"] >= 1 - row["alpha"] else "no",
            fixed(row["size"], 2),
            *(fixed(row[c], 3) for c in ("empty", "single", "worst_class")),
            f"{row['always']:g}",
        ]
        for row in sets.to_dict("records")
    ]
    head = ["method", "sets", "level", "coverage", "valid", "classes", "empty", "single", "worst class", "in every set"]
    note = "Valid: the interval of the coverage reaches the level. Empty sets make a mean below one class possible."
    return Table("sets", "Conformal sets, calibrated on val and measured on test", head, rows, note)


def _part(runs: Sequence[Run]) -> Part:
    scores = _means(joined_forms(runs, "selective"), ["method", "metric"])
    sets = _means(joined_forms(runs, "conformal"), ["method", "kind", "alpha"])
    curves = _means(joined_forms(runs, "risk_coverage"), ["method", "coverage"])
    digits = digits_of(runs)
    pictures = [("coverage and size of conformal sets, by method", sets_picture(sets, sets["alpha"].min()))]
    if curves["risk"].max() > 0:
        pictures.insert(0, ("errors among the answered rows over the share answered", risk_picture(curves)))
    tests = _tests_table(joined_forms(runs, "selective_paired"), digits)
    return Part(runs[0].dataset, pictures, [_scores_table(scores, len(runs), digits), tests, _sets_table(sets)])


def section(runs: Sequence[Run]) -> Section:
    return Section(
        name="selective",
        title="Abstention and conformal sets",
        question="Do confident answers have fewer errors, and do conformal sets have the coverage of their level? Rows "
        "below a top probability are not answered (risk–coverage; AURC is the mean risk over all coverages, lower is "
        "better), and conformal sets are calibrated on val rows, split and class by class. Each method has the "
        "calibration, or none, of its lowest NLL on val; pictures leave its name out.",
        parts=by_dataset(runs, _part, *TABLES),
        note="AURC falls with fewer errors and with less confident errors; E-AURC removes the first effect. Verdicts "
        f"need p < {ALPHA:g} after Holm's adjustment for the number of methods, and {FEWEST_ERRORS} errors. Val rows "
        "also tuned the methods, and cross-fitted ones come from other encoders, so conformal coverage is not "
        "guaranteed: use the measured one, with Wilson's interval.",
        command="dvc repro selective",
    )
