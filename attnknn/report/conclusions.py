"""What the historic study concluded, held against our numbers: supported, contradicted, undecided or out of reach.

Every verdict is computed from the tables of a dataset's runs, by a rule of rules.py; a conclusion whose table is not
there is left out. p is not adjusted for the number of conclusions. The data and encoder are not the study's, so a
verdict is on what was concluded in general, and never says whether their numbers were right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from attnknn.report import rules
from attnknn.report.gains import Finding, Level
from attnknn.report.results import Run


@dataclass(frozen=True)
class Conclusion:
    """One conclusion of the study on one dataset.

    Attributes:
        name: in a few words.
        words, source: the study's words, shortened, and where they stand.
        verdict, numbers: what our numbers say of it, and which.
    """

    name: str
    words: str
    source: str
    verdict: Finding
    numbers: str


# name for people: (the study's words, shortened; where they stand; the rule)
_CONCLUSIONS: dict[str, tuple[str, str, Callable[[Sequence[Run], Level], rules.Said | None]]] = {
    "attention outperforms in accuracy": (
        "Attention outperforms uniform and distance weighting.",
        "notebook 2, key finding 2",
        rules.outperforms,
    ),
    "a learned temperature calibrates": (
        "A learned temperature improves calibration: lower ECE.",
        "notebook 2, key finding 3",
        rules.temperature,
    ),
    "attention alone gives nothing": (
        "Attention alone gives nothing over distance weighting.",
        "write-up V, VI",
        rules.nothing_alone,
    ),
    "TTA calibrates": (
        "Test-time augmentation gives the calibration: ECE falls by 78 %.",
        "write-up II, experiment 5",
        rules.views,
    ),
    "the k-ensemble gives nothing": (
        "Averaging k 5, 10 and 20 improves nothing.",
        "write-up II, experiment 5",
        rules.ensemble,
    ),
    "any k will do": ("Accuracy is stable over k from 1 to 50.", "write-up III", rules.any_k),
    "error O(1/k)": (
        "The error is O(1/k): it falls with k.",
        "notebook, theory links; notebook 2, key finding 5",
        rules.inverse_k,
    ),
    "kNN is robust to label noise": (
        "All kNN methods are robust to 30 % wrong labels in the memory: about 98 % of the accuracy is kept.",
        "write-up III",
        partial(rules.robust, table="noise", condition=rules.NOISY),
    ),
    "attention adds robustness": (
        "Attention provides robustness to label noise.",
        "notebook 2, key finding 4; the write-up takes it back",
        rules.adds_robustness,
    ),
    "kNN is robust to a long tail": (
        "All kNN methods are robust to a long tail of 1:100 in the memory.",
        "write-up III",
        partial(rules.robust, table="imbalance", condition="long tail 0.01"),
    ),
    "the gap to the network is fundamental": (
        "A gap of 5 to 9 points to the network is fundamental to kNN.",
        "write-up III, VI, X",
        rules.gap,
    ),
    "below 1 ms": ("Attention adds less than 1 ms a query.", "write-up VII", rules.overhead),
}


def conclusions(runs: Sequence[Run], level: Level) -> list[Conclusion]:
    """Every conclusion of the study that the runs of one dataset can say something of.

    Args:
        runs: the seeds of one dataset.
        level: of each by itself.
    """
    found = []
    for name, (words, source, rule) in _CONCLUSIONS.items():
        said = rule(runs, level)
        if said is not None:
            found.append(Conclusion(name, words, source, *said))
    return found
