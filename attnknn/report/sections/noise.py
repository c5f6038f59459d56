"""Section on wrong labels in the bank."""

from collections.abc import Sequence

from attnknn.report.results import CONDITION_TABLES, Run
from attnknn.report.section import Section
from attnknn.report.sections.conditions import part
from attnknn.report.tables import by_dataset

TABLES = CONDITION_TABLES["noise"]
KINDS = {"noise": 0.0, "asymmetric noise": 0.0, "instance noise": 0.0}


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "noise",
        "Wrong labels in the bank",
        "A share of the bank's labels is wrong: any other class (noise), the next class (asymmetric), or the class "
        "that the row resembles (instance). Heads are refitted and baselines retuned on clean rows.",
        by_dataset(runs, lambda group: part(group, KINDS, ("nll", "accuracy"), ("accuracy", "nll", "ece")), "noise"),
        "Only the bank is modified; for encoders trained on wrong labels set train_corrupted.seeds=[42].",
        "dvc exp run -S 'noise.rates=[0.0,0.5]'",
    )
