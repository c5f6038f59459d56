"""k-ensemble, adaptive k and learned stopping, against the same method with a single k."""

from collections.abc import Sequence

import pandas as pd

from attnknn.report import plots
from attnknn.report.differences import judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.plots import METRICS, method_colour, method_name
from attnknn.report.results import OF_SEEDS, Run, joined, mean_over_runs
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import by_dataset, difference_cell, digits_of, fixed, method_cell, p_value, score_cell

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
    "Every variant is computed for every kNN method, with and without vector scaling; prototypes and the linear head "
    "have no k. The baselines are tuned on the val rows at each k; attention is one fitted head with fewer "
    "neighbours. The single k is that of the main comparison: tuned for the baselines, k_eval for attention. The "
    "historic rule takes a share of .3, .6 or all of the neighbours where the entropy of the method's own weights, "
    "over log k, is below .5, below 1, or not. That entropy is 1 only for equal weights, so uniform kNN always takes "
    "all, and a method with weights of its own at most .6 of them. Learned stopping is fitted on the fit rows, and "
    "the val rows may choose the single k instead. Adaptive k and learned stopping save votes, not search: their "
    "mean k counts the neighbours whose votes are used. p values are adjusted by Holm's method over all differences "
    "of a dataset; hollow points are not significant at .01."
)


def moves(paired: pd.DataFrame, level: Level) -> pd.DataFrame:
    """Differences of each variant from the single k, by method and metric, over seeds, judged together.

    Args:
        paired: rows of variant, method, metric, difference, low, high, errors, p: one per seed.

    Returns:
        variant, method, metric, and the columns of `differences.over_runs` and `differences.judged`.
    """
    return judged(over_runs(paired[paired["method"].isin(SHOWN)], ("variant", "method", "metric")), level)


def picture(tests: pd.DataFrame) -> bytes:
    """Differences of each variant from the single k with intervals, in NLL and in accuracy, by method.

    Args:
        tests: see `moves`.
    """
    by_key = {(row["variant"], row["method"], row["metric"]): row for row in tests.to_dict("records")}
    lines: list[tuple[str, str]] = []
    for variant in [v for v in VARIANTS if v in set(tests["variant"])]:
        lines += [(variant, ""), *((variant, m) for m in SHOWN if (variant, m, DRAWN[0]) in by_key)]
    names = [
        method_name(m).replace("-weighted kNN", "").replace(" scaling", "") if m else VARIANTS[v] for v, m in lines
    ]
    figure = plots.new_figure(3.4, 0.8 + 0.2 * len(lines))
    panels = figure.subplots(1, len(DRAWN), sharey=True)
    for axes, metric in zip(panels, DRAWN, strict=True):
        for y, (variant, method) in enumerate(lines):
            if not method:
                axes.axhspan(y - 0.5, y + 0.5, color="#f0f0f0", lw=0, zorder=1)
                continue
            row = by_key[variant, method, metric]
            plots.draw_estimate(axes, y, row, method_colour(method), hollow=row["verdict"] == "undecided")
        plots.title(axes, METRICS[metric], 9.5)
        plots.name_rows(axes, names, nbins=3)
        plots.mark_zero(axes, metric, "less single k")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.6g}".replace("-", "−"))
        axes.margins(x=0.12)
        axes.tick_params(axis="x", labelsize=7)
    return plots.as_png(figure)


def _tables(scores: pd.DataFrame, tests: pd.DataFrame, digits: int, seeds: int) -> list[Table]:
    means = mean_over_runs(scores, ["variant", "method", "metric"])
    by_key = dict(zip(means.index, means.to_dict("records"), strict=True))
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
            cells = difference_cell(row, DIGITS), p_value(row["p"]), row["finding"]
            differences.append([method_cell(row["method"]), METRICS[row["metric"]], *cells])
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
    """Scores of the mean of the predictions over seeds beside each seed's, where they share their test rows."""
    if OF_SEEDS not in run.tables:
        return []
    rows = [
        [row["source"], method_cell(row["method"]), METRICS.get(row["metric"], row["metric"]), score_cell(row, digits)]
        for row in run.tables[OF_SEEDS].to_dict("records")
    ]
    return [Table("seeds", "Mean of the predictions over seeds", ["predictions", "method", "metric", "score"], rows)]


def _part(runs: Sequence[Run], level: Level) -> Part:
    dataset, digits, tests = runs[0].dataset, digits_of(runs), moves(joined(runs, PAIRED), level)
    tables = _tables(joined(runs, SCORES), tests, digits, len(runs)) + of_seeds(runs[-1], digits)
    text = f"{dataset}: differences of k-ensemble, adaptive k and learned stopping from the single k"
    return Part(dataset, [(text, picture(tests))], tables)


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "ensemble",
        "More than one k",
        "Does it help to use more than one k? The mean of the answers at several k, the historic rule that takes fewer "
        "neighbours where the weights are concentrated, and a learned rule that stops as soon as the votes suffice, "
        "each for every kNN method and against the same method's single k.",
        by_dataset(runs, lambda group: _part(group, level), SCORES, PAIRED),
        NOTE,
        "dvc repro ensemble",
    )
