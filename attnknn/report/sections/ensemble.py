"""k-ensemble, adaptive k and learned stopping, against the same method with a single k."""

from collections.abc import Sequence

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import over_runs
from attnknn.report.differences import Level, judged
from attnknn.report.plots import METRICS
from attnknn.report.results import SEED_ENSEMBLE, Run, joined, mean_over_runs
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import by_dataset, digits_of, finding_cells, fixed, method_cell, score_cell

SCORES, PAIRED = "ensemble", "ensemble_paired"
TABLES: dict[str, tuple[str, ...]] = {
    SCORES: ("variant", "method", "metric", "value", "low", "high"),
    PAIRED: ("variant", "method", "baseline", "metric", "difference", "low", "high", "errors", "p", "test"),
}
VARIANTS = {
    "single": "Single k",
    "k_ensemble": "k-ensemble",
    "adaptive_k": "Adaptive k",
    "stopping": "Learned stopping",
}
SHOWN = ("uniform", "distance", "distance_vector", "attention")
DRAWN = ("nll", "accuracy")
DIGITS = 4  # of differences
NOTE = (
    "The baselines are tuned on val at each k; attention is one fitted head with fewer neighbours. Adaptive k and "
    "learned stopping save votes, not search; hollow points are not significant at .01 (Holm)."
)


def differences_from_single_k(paired: pd.DataFrame, level: Level) -> pd.DataFrame:
    """Differences of each variant from the single k, by method and metric, over seeds, judged together."""
    return judged(over_runs(paired[paired["method"].isin(SHOWN)], ("variant", "method", "metric")), level)


def picture(tests: pd.DataFrame, metric: str) -> bytes:
    """Differences of each variant from the single k in one metric, by method."""
    rows = plots.by_method(tests[tests["metric"] == metric])
    rows = rows.assign(group=rows["variant"].map(VARIANTS), hollow=rows["verdict"] == "undecided")
    return plots.forest_plot(rows, f"{METRICS[metric]} − that of the single k", plots.better_side(metric, "difference"))


def _tables(scores: pd.DataFrame, tests: pd.DataFrame, digits: int, seeds: int) -> list[Table]:
    means = mean_over_runs(scores, ["variant", "method", "metric"])
    by_key = means.to_dict("index")
    values: list[Row] = []
    for variant, name in VARIANTS.items():
        values.append([name])
        for method in dict.fromkeys(scores["method"]):
            mean_k = fixed(by_key[variant, method, "mean_k"]["value"], 1)
            cells = [score_cell(by_key[variant, method, m], digits, seeds) for m in ("accuracy", "nll", "ece")]
            values.append([method_cell(str(method)), mean_k, *cells])
    differences: list[Row] = []
    for variant, group in tests.groupby("variant", sort=False):
        differences.append([f"{VARIANTS[str(variant)]} − single k"])
        for row in group.to_dict("records"):
            differences.append([method_cell(row["method"]), METRICS[row["metric"]], *finding_cells(row, DIGITS)])
    around = "± standard deviation over seeds" if seeds > 1 else "intervals"
    head = ["method", "mean k", "accuracy", "NLL", "ECE"]
    return [
        Table("scores", f"Every kNN method in every variant, with {around}", head, values),
        Table(
            "differences",
            "Differences from the single k of the same method",
            ["method", "metric", "difference", "p, Holm", "finding"],
            differences,
            folded=False,
        ),
    ]


def of_seeds(run: Run, digits: int) -> list[Table]:
    """Scores of the predictions of each seed and of their mean, where the seeds share test rows."""
    if SEED_ENSEMBLE not in run.tables:
        return []
    rows = [
        [row["source"], method_cell(row["method"]), METRICS.get(row["metric"], row["metric"]), score_cell(row, digits)]
        for row in run.tables[SEED_ENSEMBLE].to_dict("records")
    ]
    return [Table("seeds", "Mean of the predictions over seeds", ["predictions", "method", "metric", "score"], rows)]


def _part(runs: Sequence[Run], level: Level) -> Part:
    dataset, digits, tests = runs[0].dataset, digits_of(runs), differences_from_single_k(joined(runs, PAIRED), level)
    tables = _tables(joined(runs, SCORES), tests, digits, len(runs)) + of_seeds(runs[-1], digits)
    drawn = [(f"differences in {METRICS[m]} from the single k", picture(tests, m)) for m in DRAWN]
    return Part(dataset, drawn, tables)


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "ensemble",
        "More than one k",
        "The mean of the answers at several k, the historic rule that takes fewer neighbours where the weights are "
        "concentrated, and a learned stopping rule, each against the same method's single k.",
        by_dataset(runs, lambda group: _part(group, level), SCORES, PAIRED),
        NOTE,
        "dvc repro ensemble",
    )
