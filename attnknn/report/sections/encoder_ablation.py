"""Ablation of the encoder: variants with one part removed or added, against the configured encoder."""

from collections.abc import Sequence

import pandas as pd

from attnknn.evaluation.opponents import OURS
from attnknn.evaluation.paired_tests import BESIDE
from attnknn.report import plots
from attnknn.report.differences import Level
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section
from attnknn.report.sections.sources import compared, sources_table
from attnknn.report.tables import by_dataset, digits_of

NAME = "encoder_ablation"
TABLES: dict[str, tuple[str, ...]] = {NAME: BESIDE}
CONFIGURED = "configured"
METRICS = ("accuracy", "nll")


def picture(tests: pd.DataFrame, metric: str) -> bytes:
    """Configured encoder − each variant in one metric, for attention and distance weighting."""
    rows = tests[(tests["metric"] == metric) & tests["method"].isin((OURS, "distance"))]
    rows = plots.by_method(rows).assign(label=rows["source"])
    label = plots.better_side(metric, "red: attention, blue: distance")
    return plots.forest_plot(rows, f"{plots.METRICS[metric]}: configured − variant", label)


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows = joined(runs, NAME)
    tests = compared(rows, CONFIGURED, METRICS, level)
    drawn = [(f"encoder variants, {plots.METRICS[m]}", picture(tests, m)) for m in METRICS]
    table = sources_table(rows, tests, CONFIGURED, {}, digits_of(runs), "Variants of the encoder")
    return Part(runs[0].dataset, drawn, [table])


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        NAME,
        "Ablation of the encoder",
        "What do the parts of the encoder contribute? Each variant trains another encoder, with its own bank, head and "
        "tuned baselines; the rows are the same.",
        by_dataset(runs, lambda group: _part(group, level), NAME),
        "Differences are configured − variant. With a single seed the intervals do not include the variation between "
        "trainings.",
        "dvc exp run -S 'encoder_ablation.seeds=[42]'",
    )
