"""Small tables over repeated splits."""

from collections.abc import Sequence

import pandas as pd

from attnknn.experiments.repeats import OURS
from attnknn.report import plots
from attnknn.report.claims import ALPHA, holm
from attnknn.report.results import SPLITS, SPLITS_PAIRED, Run
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import arrow, by_dataset, difference_cell, fixed, method_cell, p_value

DIGITS = 3
METRICS = ("accuracy", "nll", "ece")


def judged(paired: pd.DataFrame) -> pd.DataFrame:
    """The paired rows with p adjusted by Holm's method over all of them, and `verdict`: better, worse or ""."""
    rows = paired.assign(p=holm(paired["p"].tolist()))
    gains = rows["difference"].where(rows["metric"].isin(plots.HIGHER_IS_BETTER), -rows["difference"])
    word = gains.map(lambda gain: "better" if gain > 0 else "worse")
    return rows.assign(verdict=word.where(rows["p"] < ALPHA, ""))


def picture(scores: pd.DataFrame, metric: str) -> bytes:
    """Mean of every method over the splits, ± one standard deviation."""
    rows = plots.by_method(scores[scores["metric"] == metric])
    rows = rows.assign(low=(rows["value"] - rows["sd"]).clip(lower=0), high=rows["value"] + rows["sd"])
    if metric == "accuracy":
        rows["high"] = rows["high"].clip(upper=1)
    name = plots.METRICS[metric]
    return plots.forest_plot(rows, f"{name}: mean ± sd over splits", name, zero=None, key="value")


def _means(scores: pd.DataFrame) -> Table:
    cells: dict[str, list[Cell]] = {}
    for metric in METRICS:
        rows = scores[scores["metric"] == metric]
        best = rows["value"].max() if metric in plots.HIGHER_IS_BETTER else rows["value"].min()
        for row in rows.to_dict("records"):
            cell = Cell(fixed(row["value"], DIGITS), f"± {fixed(row['sd'], DIGITS)}", row["value"] == best)
            cells.setdefault(row["method"], []).append(cell)
    lines = [[method_cell(name), *row] for name, row in cells.items()]
    caption = f"All methods over {int(scores['splits'].max())} splits"
    note = "Mean ± standard deviation over splits. Best mean in bold, which is not a claim."
    return Table("means", caption, ["method", *map(arrow, METRICS)], lines, note, folded=False)


def _differences(rows: pd.DataFrame, method: str) -> Table:
    rows, name = rows[rows["method"] == method], plots.method_name(method)
    lines: list[Row] = []
    for metric in METRICS:
        lines.append([f"{plots.METRICS[metric]}, {name} −"])
        for row in rows[rows["metric"] == metric].to_dict("records"):
            difference = difference_cell(row, DIGITS), f"± {fixed(row['sd'], DIGITS)}", p_value(row["p"])
            lines.append([method_cell(row["baseline"]), *difference, row["verdict"]])
    columns = ["method", "difference", "sd", "p, Holm", "finding"]
    return Table(f"differences-{method}", f"{name} less each method", columns, lines)


def _part(runs: Sequence[Run]) -> Part:
    scores, rows = runs[-1].tables[SPLITS], judged(runs[-1].tables[SPLITS_PAIRED])
    drawn = [(f"{plots.METRICS[m]} over splits", picture(scores, m)) for m in ("accuracy", "nll")]
    ours = [method for method in OURS if method in set(rows["method"])]
    return Part(runs[0].dataset, drawn, [_means(scores), *(_differences(rows, method) for method in ours)])


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "splits",
        "Repeated splits",
        "Each split draws all parts again, retrains encoders, heads and peers, and is evaluated once on its own test "
        "rows.",
        by_dataset(runs, _part, SPLITS),
        "Intervals and p (Holm) are those of the corrected resampled t-test (Nadeau & Bengio 2003), because splits "
        "share most of their rows. The mean over folds averages the encoders of the cross-fit and the main one.",
        "dvc exp run -S 'splits.datasets=[winequality_red]'",
    )
