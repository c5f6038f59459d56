"""Every method at each k, and all methods at their best k."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import ALPHA, OURS, TUNED, WITHOUT_NEIGHBOURS, best_on_validation, over_runs, verdict
from attnknn.report.differences import too_few_errors
from attnknn.report.plots import HIGHER_IS_BETTER, METRICS, method_name
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import (
    by_dataset,
    comparison,
    difference_cell,
    digits_of,
    distinct,
    method_cell,
    p_value,
    paired_table,
)

SWEPT, PAIRED = "k_sweep", "k_sweep_paired"
TABLES: dict[str, tuple[str, ...]] = {
    SWEPT: ("k", "sqrt_n", "method", "metric", "validation", "value", "low", "high"),
    PAIRED: (
        *("method", "k", "baseline", "baseline_k", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
}
KNN = ("uniform", "distance", "distance_vector", OURS)
DRAWN = ("nll", "accuracy")
NOTE = (
    "At each k baselines are retuned on val and attention is refitted; large dots are the k of the lowest NLL on val. "
    "The verdict compares attention with the best baseline on val, each with its own k and calibration."
)


def best_rows(swept: pd.DataFrame) -> pd.DataFrame:
    """The rows of each seed and method at the k of its lowest NLL on val, the lowest k on a tie."""
    nll = swept[swept["metric"] == "nll"].sort_values(["validation", "k"], kind="stable")
    chosen = nll.groupby(["seed", "method"], sort=False).head(1)[["seed", "method", "k"]]
    return swept.merge(chosen, on=["seed", "method", "k"])


def _compared(rows: pd.DataFrame, side: str) -> str:
    """The method on one side of paired rows, with its k; one per seed where they differ."""
    name = distinct(rows[side].map(method_name))
    ks = rows["k" if side == "method" else "baseline_k"].dropna().astype(int)
    return name if ks.empty else f"{name} at k = {distinct(ks)}"


def verdict_table(swept: pd.DataFrame, paired: pd.DataFrame, digits: int) -> tuple[Table, str]:
    """Attention at its best k against the best baseline on val at its best k, in NLL; table and verdict."""
    best = best_rows(swept)
    tests = paired[paired["metric"] == "nll"].assign(base=paired["baseline"].str.partition("_")[0])
    on_val = best.loc[best["metric"] == "nll", ["seed", "method", "validation"]].rename(columns={"method": "baseline"})
    rivals = tests.merge(on_val, on=["seed", "baseline"]).groupby("base", sort=False)["validation"].mean()
    rows = tests[tests["base"] == rivals.idxmin()]
    row: dict[Any, Any] = over_runs(rows, ["metric"]).to_dict("records")[0]
    answer = verdict(row["per_run"], row["p"], row["errors"], "nll", ALPHA)
    names = _compared(rows, "method"), _compared(rows, "baseline")
    line = [*names, difference_cell(row, digits + 1), p_value(row["p"]), answer, too_few_errors(row["errors"])]
    head = ["method", "best baseline on val", "difference in NLL", "p", "verdict", ""]
    return Table("verdict", "Attention at its best k against the best baseline", head, [line], folded=False), answer


def _without_neighbours(swept: pd.DataFrame) -> list[str]:
    """Prototypes and the linear head, if present, each with the calibration of its lowest NLL on val."""
    scores = swept[swept["metric"] == "nll"].groupby("method", sort=False)["validation"].mean().to_dict()
    return [best_on_validation(scores, "nll", [m]) for m in WITHOUT_NEIGHBOURS if m in scores]


def picture(swept: pd.DataFrame, metric: str) -> bytes:
    """One metric over k; large dots are the best k, dashed lines are methods without neighbours."""
    best, constant = best_rows(swept), _without_neighbours(swept)
    rows = swept[swept["metric"] == metric]
    chosen = {m: set(best.loc[best["method"] == m, "k"]) for m in KNN}
    lines = plots.method_lines(rows, "k", [m for m in KNN if m in set(rows["method"])], chosen)
    for line in plots.method_lines(rows.drop(columns=["low", "high"]), "k", constant):
        lines.append(replace(line, dashed=True, thin=True))
    text = f"{METRICS[metric]}, {'higher' if metric in HIGHER_IS_BETTER else 'lower'} is better"
    root = distinct(swept.loc[swept["sqrt_n"], "k"])
    return plots.line_plot(
        lines, text, f"neighbours k (√n: {root})" if root else "neighbours k", ticks=sorted(set(rows["k"]))
    )


def _lines(rows: pd.DataFrame, methods: Iterable[str], digits: int, ks: dict[str, str] | None = None) -> list[Row]:
    """Scores of the methods, after their k if known."""
    return [
        [method_cell(m), *([ks[m]] if ks is not None else []), *(cells.get(name, "–") for name in METRICS)]
        for m, cells in comparison(rows[rows["method"].isin(set(methods))], digits).items()
    ]


def _tables(swept: pd.DataFrame, paired: pd.DataFrame, digits: int) -> list[Table]:
    best = best_rows(swept)
    shown = {*KNN, *WITHOUT_NEIGHBOURS, *_without_neighbours(swept), *paired["method"], *paired["baseline"]}
    ks = {
        m: distinct(best.loc[best["method"] == m, "k"]) if m.partition("_")[0] in (*TUNED, OURS) else ""
        for m in set(best["method"])
    }
    by_k: list[Row] = []
    for k, rows in swept[swept["method"].isin(KNN)].groupby("k", sort=True):
        by_k.append([f"k = {k}{', √n' if rows['sqrt_n'].any() else ''}"])
        by_k += _lines(rows, KNN, digits)
    head = list(METRICS.values())
    return [
        Table("best", "All methods at their best k", ["method", "k", *head], _lines(best, shown, digits, ks)),
        Table("by_k", "All methods at each k", ["method", *head], by_k),
        paired_table(paired, digits),
    ]


def _part(runs: Sequence[Run]) -> Part:
    swept, paired, digits = joined(runs, SWEPT), joined(runs, PAIRED), digits_of(runs)
    table, answer = verdict_table(swept, paired, digits)
    drawn = [(f"{METRICS[m]} of every method over the number of neighbours", picture(swept, m)) for m in DRAWN]
    return Part(runs[0].dataset, drawn, [table, *_tables(swept, paired, digits)], answer)


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "k_sweep",
        "Number of neighbours",
        "Is attention better where every method has its best k?",
        by_dataset(runs, _part, SWEPT, PAIRED),
        NOTE,
        "dvc exp run -S 'k_sweep.ks=[1,10,50]'",
    )
