"""Wrong labels in the memory."""

from collections.abc import Sequence

from attnknn.report.results import UNDER, Run
from attnknn.report.section import Part, Section
from attnknn.report.sections.memory import curves, moves, table
from attnknn.report.tables import by_dataset

TABLES = UNDER["noise"]
KINDS = {"noise": 0.0, "asymmetric noise": 0.0, "instance noise": 0.0}


def _part(runs: Sequence[Run]) -> Part:
    words = moves(runs, "noise", KINDS)
    return Part(
        runs[0].dataset,
        words,
        curves(runs, KINDS, ("nll", "accuracy")),
        [table(runs, KINDS, ("accuracy", "nll", "ece"))],
    )


def section(runs: Sequence[Run]) -> Section:
    """Wrong labels in the memory alone."""
    return Section(
        "noise",
        "Wrong labels in the memory",
        "A share of the memory's labels is wrong: any other class (noise), the next class (asymmetric), or the class "
        "that the row itself resembles, near the borders first (instance). Encoder, queries and the rows that fit and "
        "tune stay clean; heads are fitted and baselines tuned anew.",
        by_dataset([r for r in runs if "noise" in r.tables], _part),
        "This is the memory alone. An encoder that was trained on wrong labels too is another question: "
        "noise.train_seeds=[42]. Asymmetric noise ends below one half, where the wrong label becomes the right one.",
        "dvc exp run -S 'noise.rates=[0.0,0.5]'",
    )
