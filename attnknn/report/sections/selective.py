"""Abstention (risk and coverage) and conformal sets."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import ALPHA, FEWEST_ERRORS, holm, over_runs, verdict
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
    rows = over_runs(paired[paired["metric"] == metric], ["baseline"])
    return [  # type: ignore[return-value]
        {**row, "adjusted": p, "verdict": verdict(row["per_run"], p, row["errors"], metric, ALPHA)}
        for row, p in zip(rows.to_dict("records"), holm(rows["p"].tolist()), strict=True)
    ]


def risk_picture(curves: pd.DataFrame) -> bytes:
    """Risk over coverage, one line per method."""
    rows = pd.DataFrame(
        {"method": curves["method"].map(_base), "x": 100 * curves["coverage"], "value": 100 * curves["risk"]}
    )
    lines = plots.method_lines(rows, "x", list(dict.fromkeys(rows["method"])))
    xlabel, ylabel = "rows answered, most confident first (%)", "errors among them (%)"
    return plots.line_plot(lines, "Risk over coverage", xlabel, ylabel, zero=True)


def sets_pictures(sets: pd.DataFrame, alpha: float) -> list[tuple[str, bytes]]:
    """Measured coverage and mean size of split conformal sets (filled) and class-conditional ones (hollow)."""
    rows, level = sets[sets["alpha"] == alpha], f"sets for {1 - alpha:.0%}"
    coverage = plots.by_method(rows.assign(method=rows["method"].map(_base)))
    coverage = coverage.assign(hollow=coverage["kind"] != "split")
    split = rows[rows["kind"] == "split"]
    names = [plots.method_name(_base(m)) for m in split["method"]]
    colours = [plots.method_colour(_base(m)) for m in split["method"]]
    text, label = f"Coverage, {level}", "● split, ○ class by class"
    holds = plots.forest_plot(coverage, text, label, zero=1 - alpha, key="coverage")
    size = plots.bar_plot(names, split["size"].tolist(), colours, f"Size, split {level}", "classes in it (mean)")
    return [("coverage of conformal sets, by method", holds), ("size of conformal sets, by method", size)]


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
    pictures = sets_pictures(sets, sets["alpha"].min())
    if curves["risk"].max() > 0:
        pictures.insert(0, ("errors among the answered rows over the share answered", risk_picture(curves)))
    tests = _tests_table(joined_forms(runs, "selective_paired"), digits)
    return Part(runs[0].dataset, pictures, [_scores_table(scores, len(runs), digits), tests, _sets_table(sets)])


def section(runs: Sequence[Run]) -> Section:
    return Section(
        name="selective",
        title="Abstention and conformal sets",
        question="Do confident answers have fewer errors, and do conformal sets have the coverage of their level? Each "
        "method has the calibration, or none, of its lowest NLL on val; pictures leave its name out.",
        parts=by_dataset(runs, _part, *TABLES),
        note="AURC is the mean risk over all coverages, lower is better; E-AURC removes the effect of accuracy. "
        f"Verdicts need p < {ALPHA:g} (Holm) and {FEWEST_ERRORS} errors; use the measured coverage.",
        command="dvc repro evaluate",
    )
