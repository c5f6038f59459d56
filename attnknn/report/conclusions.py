"""Test the conclusions of the historic study on our runs: supported, contradicted, undecided or underpowered.

Every verdict is computed by a rule of rules.py; a conclusion whose table is missing is left out. p is not adjusted for
the number of conclusions. Data and encoder differ from the study's, so a verdict is on the general conclusion and does
not say whether the study's numbers were right.
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
        words, source: the study's words, shortened, and the document.
        verdict, numbers: by our runs.
    """

    name: str
    words: str
    source: str
    verdict: Finding
    numbers: str


# display name: (the study's words, shortened; document; rule)
_CONCLUSIONS: dict[str, tuple[str, str, Callable[[Sequence[Run], Level], rules.Outcome | None]]] = {
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
    """Every conclusion of the study that the runs of one dataset can test.

    Args:
        runs: the seeds of one dataset.
        level: of each conclusion by itself.
    """
    tested = []
    for name, (words, source, rule) in _CONCLUSIONS.items():
        outcome = rule(runs, level)
        if outcome is not None:
            tested.append(Conclusion(name, words, source, *outcome))
    return tested
