"""Every method at each k, and all methods at their best k."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from attnknn.evaluation.method import Method
from attnknn.evaluation.opponents import COLUMNS, KNN, OURS, ROLES
from attnknn.evaluation.paired_tests import TESTED
from attnknn.report import plots
from attnknn.report.claims import ALPHA, over_runs, verdict
from attnknn.report.differences import too_few_errors
from attnknn.report.plots import HIGHER_IS_BETTER, METRICS, method_name
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import by_dataset, comparison, difference_cell, digits_of, distinct, method_cell, p_value

SWEPT, PAIRED = "k_sweep", "k_sweep_paired"
TABLES: dict[str, tuple[str, ...]] = {
    SWEPT: ("k", "sqrt_n", "method", "metric", "validation", "value", "low", "high"),
    PAIRED: COLUMNS,
}
METHODS = ("uniform", "distance", "distance_vector", OURS)
DRAWN = ("nll", "accuracy")
NOTE = (
    "At each k baselines are retuned on val and attention is refitted; large dots are the k of the lowest NLL on val. "
    "The verdict compares attention with the best kNN on val, each with its own k and calibration."
)


def best_rows(swept: pd.DataFrame) -> pd.DataFrame:
    """The rows of each seed and method at the k of its lowest NLL on val, the lowest k on a tie."""
    nll = swept[swept["metric"] == "nll"].sort_values(["validation", "k"], kind="stable")
    chosen = nll.groupby(["seed", "method"], sort=False).head(1)[["seed", "method", "k"]]
    return swept.merge(chosen, on=["seed", "method", "k"])


def _compared(rows: pd.DataFrame) -> str:
    """The method of these rows with its k; one per seed where they differ."""
    parts = rows["method"].map(Method.parse)
    names = distinct(method_name(str(replace(part, k=None))) for part in parts)
    ks = distinct(part.k for part in parts if part.k)
    return f"{names} at k = {ks}" if ks else names


def verdict_table(paired: pd.DataFrame, digits: int) -> tuple[Table, str]:
    """Attention against the best opponents, all at their best k, in NLL; table, and verdict against kNN."""
    nll = paired[paired["metric"] == "nll"].drop(columns=["low", "high"])
    nll = nll.rename(columns={"difference_low": "low", "difference_high": "high"})
    lines: list[Row] = []
    answers = {}
    for role in ROLES:
        rows = nll[nll["role"] == role]
        row: dict[Any, Any] = over_runs(rows, ["metric"]).to_dict("records")[0]
        answers[role] = verdict(row["per_run"], row["p"], row["errors"], "nll", ALPHA)
        names = _compared(nll[nll["role"] == OURS]), _compared(rows)
        numbers = difference_cell(row, digits + 1), p_value(row["p"])
        lines.append([*names, *numbers, answers[role], too_few_errors(int(row["errors"]))])
    head = ["method", "best opponent on val", "difference in NLL", "p", "verdict", ""]
    return Table("verdict", "All methods at their best k", head, lines, folded=False), answers[KNN]


def picture(swept: pd.DataFrame, metric: str) -> bytes:
    """One metric over k; large dots are the best k."""
    best, rows = best_rows(swept), swept[swept["metric"] == metric]
    chosen = {m: set(best.loc[best["method"] == m, "k"]) for m in METHODS}
    lines = plots.method_lines(rows, "k", [m for m in METHODS if m in set(rows["method"])], chosen)
    text = f"{METRICS[metric]}, {'higher' if metric in HIGHER_IS_BETTER else 'lower'} is better"
    root = distinct(swept.loc[swept["sqrt_n"], "k"])
    return plots.line_plot(
        lines, text, f"neighbours k (√n: {root})" if root else "neighbours k", ticks=sorted(set(rows["k"]))
    )


def _lines(rows: pd.DataFrame, digits: int, ks: dict[str, str] | None = None) -> list[Row]:
    """Scores of the methods, after their k if known."""
    return [
        [method_cell(m), *([ks[m]] if ks is not None else []), *(cells.get(name, "–") for name in TESTED)]
        for m, cells in comparison(rows, digits).items()
    ]


def _part(runs: Sequence[Run]) -> Part:
    swept, digits = joined(runs, SWEPT), digits_of(runs)
    table, answer = verdict_table(joined(runs, PAIRED), digits)
    drawn = [(f"{METRICS[m]} of every method over the number of neighbours", picture(swept, m)) for m in DRAWN]
    best = best_rows(swept)
    ks = {m: distinct(best.loc[best["method"] == m, "k"]) for m in METHODS}
    by_k: list[Row] = []
    for k, rows in swept.groupby("k", sort=True):
        by_k.append([f"k = {k}{', √n' if rows['sqrt_n'].any() else ''}"])
        by_k += _lines(rows, digits)
    head = [METRICS[name] for name in TESTED]
    tables = [
        Table("best", "All methods at their best k", ["method", "k", *head], _lines(best, digits, ks)),
        Table("by_k", "All methods at each k", ["method", *head], by_k),
    ]
    return Part(runs[0].dataset, drawn, [table, *tables], answer)


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "k_sweep",
        "Number of neighbours",
        "Is attention better where every method has its best k?",
        by_dataset(runs, _part, SWEPT, PAIRED),
        NOTE,
        "dvc exp run -S 'k_sweep.ks=[1,10,50]'",
    )
