"""Table of a reference (the configured encoder, the larger bank) against its alternatives."""

from collections.abc import Sequence

import pandas as pd

from attnknn.report.claims import over_runs
from attnknn.report.differences import Level, judged
from attnknn.report.plots import METRICS
from attnknn.report.section import Row, Table
from attnknn.report.tables import finding_cells, fixed, method_cell


def compared(rows: pd.DataFrame, reference: str, metrics: Sequence[str], level: Level) -> pd.DataFrame:
    """The differences reference − alternative of each alternative, method and metric; see `differences.judged`."""
    rows = rows[(rows["source"] != reference) & rows["metric"].isin(metrics)].drop(columns=["low", "high"])
    rows = rows.rename(columns={"difference_low": "low", "difference_high": "high"})
    return judged(over_runs(rows, ("source", "method", "metric")), level)


def sources_table(
    rows: pd.DataFrame, tests: pd.DataFrame, reference: str, names: dict[str, str], digits: int, caption: str
) -> Table:
    """Scores of the reference and each alternative, and their difference, grouped by method."""
    value = rows.groupby(["source", "method", "metric"], sort=False)["value"].mean()
    lines: list[Row] = []
    for method, group in tests.groupby("method", sort=False):
        lines.append([method_cell(str(method))])
        for row in group.to_dict("records"):
            scores = [fixed(value[source, method, row["metric"]], digits) for source in (row["source"], reference)]
            source = str(names.get(row["source"], row["source"]))
            lines.append([source, METRICS[row["metric"]], *scores, *finding_cells(row, digits + 1)])
    reference = names.get(reference, reference)
    head = ["", "metric", "score", reference, "difference", "p, Holm", "finding"]
    note = f"Differences are {reference} − the alternative; better means that {reference} is better."
    return Table("sources", caption, head, lines, note, folded=False)
