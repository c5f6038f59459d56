"""Ablation of the attention head: parts removed, added, and alone."""

from collections.abc import Sequence

import pandas as pd

from attnknn.evaluation.paired_tests import combined_p
from attnknn.report import plots
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import by_dataset, difference_cell, digits_of, fixed, p_value

TABLES = {
    "ablation": (
        *("variant", "group", "metric", "validation", "value"),
        *("reference", "difference", "low", "high", "p"),
    )
}


def ablated(rows: pd.DataFrame) -> pd.DataFrame:
    """The variants of the ablation over their runs, one row per variant and metric.

    Args:
        rows: seed, group, variant, metric, validation, value, reference, difference, low, high, p.

    Returns:
        group, variant, metric, runs, validation, value and difference (means), low and high (outer ends), p (combined
        over runs, not adjusted), reference; groups in the order of `plots.GROUPS`.
    """
    means = rows.groupby(["group", "variant", "metric"], sort=False).agg(
        reference=("reference", "first"),
        runs=("value", "size"),
        validation=("validation", "mean"),
        value=("value", "mean"),
        difference=("difference", "mean"),
        low=("low", "min"),
        high=("high", "max"),
        p=("p", lambda p: combined_p(p.tolist())),
    )
    order = {group: i for i, group in enumerate(plots.GROUPS)}
    return means.reset_index().sort_values("group", key=lambda g: g.map(order), kind="stable", ignore_index=True)


def parts_table(ablated: pd.DataFrame, digits: int) -> Table:
    """All variants with their differences, in groups."""
    rows: list[Row] = []
    for group, members in ablated.groupby("group", sort=False):
        rows.append([plots.GROUPS[str(group)][0]])
        for variant, scores in members.groupby("variant", sort=False):
            by_metric = {r["metric"]: r for r in scores.to_dict("records")}
            reference = str(scores["reference"].iloc[0])
            itself = variant == reference
            line = [str(variant).replace("_", " "), "" if itself else reference.replace("_", " ")]
            line.append(fixed(by_metric["nll"]["validation"], digits))
            for row in (by_metric["nll"], by_metric["accuracy"]):
                difference = ("", "") if itself else (difference_cell(row, digits + 1), p_value(row["p"]))
                line += [fixed(row["value"], digits), *difference]
            rows.append([*line, fixed(by_metric["ece"]["value"], digits)])
    head = ["variant", "against", "NLL on val ↓", "NLL ↓", "difference", "p", "accuracy ↑", "difference", "p", "ECE ↓"]
    return Table("ablation", "All variants of the head", head, rows)


def picture(rows: pd.DataFrame, metric: str) -> bytes:
    """Differences of the variants from their references in one metric, in groups."""
    rows = rows[(rows["group"] != "full") & (rows["metric"] == metric)]
    rows = rows.assign(
        label=rows["variant"].str.replace("_", " "),
        colour=[plots.GROUPS[group][1] for group in rows["group"]],
        group=[plots.GROUPS[group][0] for group in rows["group"]],
    )
    return plots.forest_plot(
        rows, f"{plots.METRICS[metric]} − that of the reference", plots.better_side(metric, "difference")
    )


def _part(runs: Sequence[Run]) -> Part:
    rows = ablated(joined(runs, "ablation"))
    drawn = [(f"ablation, {plots.METRICS[m]}", picture(rows, m)) for m in ("nll", "accuracy")]
    return Part(runs[0].dataset, drawn, [parts_table(rows, digits_of(runs))])


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "ablation",
        "Ablation of the attention head",
        "Each part is removed from the head, added to it, and used alone; the historic form and a retrieval head are "
        "shown for reference.",
        by_dataset(runs, _part, "ablation"),
        "Choose parts by the NLL on val; p values are not adjusted and do not include the variation between fits. "
        "Compare variants fitted on the main embeddings alone with full, without folds.",
        "dvc repro ablation",
    )
