"""Rare classes in the memory."""

from collections.abc import Sequence

from attnknn.report.results import UNDER, Run
from attnknn.report.section import Part, Section
from attnknn.report.sections.memory import curves, moves, table
from attnknn.report.tables import by_dataset

TABLES = UNDER["imbalance"]
KINDS = {"long tail": 1.0, "step": 1.0}
METRICS = ("balanced_accuracy", "f1_macro", "nll", "ece", "many", "medium", "few")


def _part(runs: Sequence[Run]) -> Part:
    words = moves(runs, "imbalance", KINDS)
    shown = curves(runs, KINDS, ("nll", "balanced_accuracy"))
    return Part(runs[0].dataset, words, shown, [table(runs, KINDS, METRICS)])


def section(runs: Sequence[Run]) -> Section:
    """Rare classes in the memory alone."""
    return Section(
        "imbalance",
        "Rare classes in the memory",
        "The memory's classes fall off exponentially (long tail), or half of them is rare (step); the rarest class has "
        "the given share of the largest one's rows. Encoder, queries and the rows that fit and tune stay as they are.",
        by_dataset([r for r in runs if "imbalance" in r.tables], _part),
        "Many, medium and few are thirds of the classes by their rows in the memory. Balanced accuracy is the mean "
        "over classes. An encoder that was trained on rare classes too is another question: "
        "imbalance.train_seeds=[42].",
        "dvc exp run -S 'imbalance.ratios=[0.1,0.01]'",
    )
