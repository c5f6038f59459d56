"""Rare classes in the bank."""

from collections.abc import Sequence

from attnknn.report.results import CONDITION_TABLES, Run
from attnknn.report.section import Section
from attnknn.report.sections.conditions import part
from attnknn.report.tables import by_dataset

TABLES = CONDITION_TABLES["imbalance"]
KINDS = {"long tail": 1.0, "step": 1.0}
METRICS = ("balanced_accuracy", "nll", "ece")


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "imbalance",
        "Rare classes in the bank",
        "Class sizes in the bank decrease exponentially (long tail), or half of the classes are rare (step); the "
        "rarest class has the stated share of the largest one's rows.",
        by_dataset(runs, lambda group: part(group, KINDS, ("nll", "balanced_accuracy"), METRICS), "imbalance"),
        "Only the bank is modified; for encoders trained on rare classes set train_corrupted.seeds=[42].",
        "dvc exp run -S 'imbalance.ratios=[0.1,0.01]'",
    )
