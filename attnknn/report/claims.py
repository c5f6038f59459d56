"""Claims: attention against the best kNN baseline and the best classifier without neighbours, chosen on val rows.

A claim compares NLL, accuracy or ECE on one dataset under one condition of the bank. p values are combined over seeds
and Holm-adjusted in two families, the clean bank and the modified ones. A verdict also needs the same sign in every
seed, and `FEWEST_ERRORS` errors: with fewer, NLL and ECE depend on a handful of rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from attnknn.evaluation.metrics import HIGHER_IS_BETTER
from attnknn.evaluation.opponents import KNN, ROLES
from attnknn.evaluation.paired_tests import combined_p
from attnknn.report.results import CLEAN

Verdict = Literal["yes", "no", "undecided"]
Setting = tuple[str, str]
METRICS = ("nll", "accuracy", "ece")
ALPHA = 0.01  # significance level, adjusted within each family of tests
FEWEST_ERRORS = 20  # test rows that either method gets wrong; with fewer a bootstrap is unreliable


@dataclass(frozen=True)
class Claim:
    """Attention against one opponent in one metric in one setting.

    Attributes:
        role: of the opponent, one of `ROLES`.
        method: the opponent, by seed where they differ.
        difference: mean over seeds of attention − opponent.
        low, high: outer ends of the seeds' intervals.
        p: combined over seeds and adjusted by Holm's method within its family.
        errors: test rows that either method gets wrong, in the seed that has fewest.
        verdict: whether attention is better: yes, no (it is worse), undecided.
    """

    dataset: str
    condition: str
    role: str
    method: str
    metric: str
    difference: float
    low: float
    high: float
    p: float
    errors: int
    seeds: int
    verdict: Verdict

    @property
    def setting(self) -> Setting:
        return self.dataset, self.condition

    @property
    def finding(self) -> str:
        """The verdict in words."""
        if self.errors < FEWEST_ERRORS:
            return f"no verdict: {self.errors} error{'s' * (self.errors != 1)}"
        return {"yes": "better", "no": "worse", "undecided": "no significant difference"}[self.verdict]

    @property
    def primary(self) -> bool:
        """Whether it belongs to the family of the clean bank."""
        return self.condition == CLEAN


def holm(p: Sequence[float] | np.ndarray) -> list[float]:
    """Holm's adjusted p values, in the same order: max over the smaller ones of (m − rank) · p, at most 1."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * np.asarray(p)[order])
    return np.minimum(adjusted, 1.0).tolist()


def smallest_p(runs: int, resamples: int) -> float:
    """The smallest combined p of a bootstrap by counting, below `NORMAL_FROM` errors: 2/(resamples + 1) for one run,
    twice that for several (see `attnknn.evaluation.metrics.paired_p`)."""
    return combined_p([2 / (resamples + 1)] * runs)


def verdict(differences: Sequence[float], p: float, errors: int, metric: str, alpha: float) -> Verdict:
    """yes or no where p < alpha, errors suffice and all runs' differences have one sign; else undecided."""
    gains = np.asarray(differences) * (1 if metric in HIGHER_IS_BETTER else -1)
    if p >= alpha or errors < FEWEST_ERRORS or not ((gains > 0).all() or (gains < 0).all()):
        return "undecided"
    return "yes" if gains[0] > 0 else "no"


def over_runs(paired: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Paired comparisons over runs, one row per value of the keys.

    Returns:
        The keys; difference (mean) and sd over runs, low and high (outer ends), errors (fewest), p (combined), runs,
        and `per_run`, the difference of every run.
    """
    groups = paired.groupby(list(keys), sort=False).agg(
        difference=("difference", "mean"),
        sd=("difference", "std"),
        low=("low", "min"),
        high=("high", "max"),
        errors=("errors", "min"),
        p=("p", lambda p: combined_p(p.tolist())),
        runs=("p", "size"),
        per_run=("difference", list),
    )
    return groups.reset_index()


def claims(rows: pd.DataFrame, alpha: float = ALPHA) -> list[Claim]:
    """All claims of rows of dataset, condition, seed and `opponents.COLUMNS`: by setting, in the order of the rows; by
    role; and by metric.

    Args:
        alpha: family-wise error rate within each family of claims.
    """
    settings = list(dict.fromkeys(zip(rows["dataset"], rows["condition"], strict=True)))
    rows = rows[rows["role"].isin(list(ROLES)) & rows["metric"].isin(METRICS)]
    rows = rows.drop(columns=["low", "high"]).rename(columns={"difference_low": "low", "difference_high": "high"})
    keys = ["dataset", "condition", "role", "metric"]
    tested = over_runs(rows, keys)
    tested["method"] = rows.groupby(keys, sort=False)["method"].agg(lambda m: "/".join(m.unique())).to_numpy()
    for _, family in tested.groupby(tested["condition"] == CLEAN):
        tested.loc[family.index, "p"] = holm(family["p"].tolist())
    result = [
        Claim(
            **{key: row[key] for key in (*keys, "method", "difference", "low", "high", "p")},
            errors=int(row["errors"]),
            seeds=row["runs"],
            verdict=verdict(row["per_run"], row["p"], row["errors"], row["metric"], alpha),
        )
        for row in tested.to_dict("records")
    ]
    order = {role: i for i, role in enumerate(ROLES)}
    return sorted(result, key=lambda c: (settings.index(c.setting), order[c.role], METRICS.index(c.metric)))


def setting_verdicts(claims: Sequence[Claim]) -> dict[Setting, Verdict]:
    """The verdict of every setting against the best kNN baseline, in the order of the claims.

    yes: lower NLL, and no metric is worse. no: worse NLL or accuracy. undecided: everything else.
    """
    verdicts: dict[Setting, Verdict] = {}
    for setting in dict.fromkeys(c.setting for c in claims):
        against = [c for c in claims if c.setting == setting and c.role == KNN]
        lost = {c.metric for c in against if c.verdict == "no"}
        won = all(c.verdict == "yes" for c in against if c.metric == "nll")
        verdicts[setting] = "no" if lost & {"nll", "accuracy"} else "yes" if won and not lost else "undecided"
    return verdicts
