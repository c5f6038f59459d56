"""A memory that grows: what fit and val rows bring to it once everything is tuned, without any training."""

from collections.abc import Sequence
from typing import Any

from attnknn.evaluation.paired_tests import BESIDE
from attnknn.report import plots as pictures
from attnknn.report.claims import OURS
from attnknn.report.differences import judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, digits_of, fixed, method_cell, p_value

NAME = "grow"
TABLES: dict[str, tuple[str, ...]] = {NAME: BESIDE}
METRICS = ("accuracy", "nll", "ece")


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows, digits = joined(runs, NAME), digits_of(runs)
    scores = rows.groupby(["source", "method", "metric"], sort=False)["value"].mean()
    moved = rows[rows["source"] == "bank"].drop(columns=["source", "low", "high"])
    moved = moved.rename(columns={"difference_low": "low", "difference_high": "high"}).assign(repeat=0)
    found = judged(over_runs(moved, ("method", "metric")), level)
    sizes = runs[0].json["prepare"]
    more = sizes["fit"] + sizes["val"]
    own = found[found["method"] == OURS].set_index("metric")
    text = f"{more:,} more rows beside {sizes['bank']:,}. "
    said = []
    for metric, name in (("accuracy", "accuracy"), ("nll", "NLL")):
        row: Any = own.loc[metric]
        move = fixed(row["difference"], digits + 1, True)
        said.append(f"{name} {move} (p {p_value(row['p'])}, {row['finding']})")
    text += f"Attention: {'; '.join(said)}"
    made: list[Sequence[str | Cell]] = []
    for method in dict.fromkeys(found["method"]):
        made.append([method_cell(str(method))])
        for row in found[found["method"] == method].to_dict("records"):
            values = [fixed(scores[source, method, row["metric"]], digits) for source in ("bank", "grown")]
            ends = f"{fixed(row['low'], digits + 1, True)} … {fixed(row['high'], digits + 1, True)}"
            move = Cell(fixed(row["difference"], digits + 1, True), ends)
            made.append([pictures.METRICS[row["metric"]], *values, move, p_value(row["p"]), row["finding"]])
    head = ["metric", "bank", "with fit and val rows", "difference", "p, Holm", "finding"]
    return Part(runs[0].dataset, text + ".", (), [Table("memories", "Scores with either memory", head, made)])


def section(runs: Sequence[Run], level: Level) -> Section:
    """A memory that grows."""
    return Section(
        NAME,
        "A memory that grows",
        "New examples need no training here: they are put into the memory. Once everything is tuned, fit and val rows "
        "join it, and the same heads answer the test rows. Does it pay?",
        by_dataset([run for run in runs if NAME in run.tables], lambda of: _part(of, level)),
        "The encoder has seen the bank rows and not these. Nothing is tuned or fitted anew; differences are the larger "
        "memory less the bank alone.",
        "dvc repro grow",
    )
