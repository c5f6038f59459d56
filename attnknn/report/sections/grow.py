"""A bank that also holds the fit and val rows, added after tuning, without retraining."""

from collections.abc import Sequence

from attnknn.evaluation.paired_tests import BESIDE
from attnknn.report.differences import Level
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section
from attnknn.report.sections.sources import compared, sources_table
from attnknn.report.tables import by_dataset, digits_of

NAME = "grow"
TABLES: dict[str, tuple[str, ...]] = {NAME: BESIDE}
METRICS = ("accuracy", "nll", "ece")


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows, sizes = joined(runs, NAME), runs[0].json["prepare"]
    names = {"bank": "bank", "grown": "bank + fit + val"}
    caption = f"{sizes['bank']:,} bank rows, and {sizes['fit'] + sizes['val']:,} fit and val rows added"
    table = sources_table(rows, compared(rows, "grown", METRICS, level), "grown", names, digits_of(runs), caption)
    return Part(runs[0].dataset, (), [table])


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        NAME,
        "A larger bank",
        "New examples need no training: they are added to the bank. After tuning, fit and val rows are added, and the "
        "same heads answer the test rows. Does it pay?",
        by_dataset(runs, lambda group: _part(group, level), NAME),
        "The encoder was trained on the bank rows and not on these. Nothing is retuned or refitted.",
        "dvc repro grow",
    )
