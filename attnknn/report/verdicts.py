"""One rule for every comparison: better, worse, no significant difference, or no verdict for want of errors.

A claim compares attention with the best kNN baseline or the best classifier without neighbours, chosen on val rows, in
NLL, accuracy or ECE on one dataset under one condition of the bank. p values are combined over seeds and adjusted by
Holm's method within each question: what is compared with what, in which score, on which dataset; under all conditions.
A verdict needs p < `ALPHA`, one sign in all seeds, and `FEWEST_ERRORS` errors: with fewer, NLL and ECE depend on a
handful of rows, and the comparison joins no family.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnknn.evaluation.opponents import BEST, OURS, ROLES
from attnknn.evaluation.paired_tests import combined_p
from attnknn.report.names import HIGHER_IS_BETTER
from attnknn.report.results import CLEAN, FEWEST_ERRORS, Run, all_conditions, differences

BETTER, WORSE, SAME = "better", "worse", "no significant difference"
CLAIMED = ("nll", "accuracy", "ece")
ALPHA = 0.01  # significance level, adjusted within each family of tests


def holm(p: Sequence[float] | np.ndarray) -> list[float]:
    """Holm's adjusted p values, in the same order: max over the smaller ones of (m − rank) · p, at most 1."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * np.asarray(p)[order])
    return np.minimum(adjusted, 1.0).tolist()


def too_few(errors: float) -> str:
    """What stands for a verdict where there are few errors."""
    return f"no verdict: {errors:g} error{'s' * (errors != 1)}"


def verdict(differences: Sequence[float], p: float, errors: float, metric: str) -> str:
    """The verdict on a method − another, from the differences of all runs, the adjusted p, and the fewest errors."""
    if errors < FEWEST_ERRORS:
        return too_few(errors)
    gains = np.asarray(differences) * (1 if metric in HIGHER_IS_BETTER else -1)
    if p >= ALPHA or not ((gains > 0).all() or (gains < 0).all()):
        return SAME
    return BETTER if gains[0] > 0 else WORSE


def over_runs(paired: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Paired comparisons over runs, one row per value of the keys.

    Returns:
        The keys; difference (mean), low and high (outer ends), errors (fewest), p (combined), digits, runs, and
        `per_run`, the difference of every run.
    """
    paired = paired.assign(errors=paired.get("errors", np.inf))
    groups = paired.groupby(list(keys), sort=False).agg(
        difference=("difference", "mean"),
        low=("low", "min"),
        high=("high", "max"),
        errors=("errors", "min"),
        p=("p", lambda p: combined_p(p.tolist())),
        digits=("digits", "first"),
        runs=("p", "size"),
        per_run=("difference", list),
    )
    return groups.reset_index()


def judged(paired: pd.DataFrame, keys: Sequence[str], family: Sequence[str] = ("dataset", "metric")) -> pd.DataFrame:
    """`over_runs` with p adjusted by Holm's method within each family, the family's size, and `verdict`.

    Comparisons with fewer than `FEWEST_ERRORS` have no p (NaN) and are in no family (size 0).

    Args:
        keys: of one comparison; `metric` among them.
        family: keys whose values separate the families.
    """
    rows = over_runs(paired, keys).assign(family=0)
    rows["p"] = rows["p"].where(rows["errors"] >= FEWEST_ERRORS)
    for _, own in rows[rows["p"].notna()].groupby(list(family)):
        rows.loc[own.index, "p"] = holm(own["p"].tolist())
        rows.loc[own.index, "family"] = len(own)
    rows["verdict"] = [
        verdict(*row) for row in zip(rows["per_run"], rows["p"], rows["errors"], rows["metric"], strict=True)
    ]
    return rows


def every_claim(runs: Sequence[Run]) -> pd.DataFrame:
    """`claims` of attention and of the best attention, which are separate questions; told apart by `ours`."""
    parts = [claims(all_conditions(runs, ours)).assign(ours=ours) for ours in (OURS, BEST)]
    return pd.concat(parts, ignore_index=True)


def claims(rows: pd.DataFrame) -> pd.DataFrame:
    """All claims of `results.all_conditions`: dataset, condition, role, metric, and the columns of `judged`.

    `method` names the opponent, by seed where they differ; `clean` tells whether the bank is unmodified.
    """
    rows = differences(rows[rows["role"].isin(list(ROLES)) & rows["metric"].isin(CLAIMED)])
    rows = rows.assign(clean=rows["condition"] == CLEAN)
    keys = ["clean", "dataset", "condition", "role", "metric"]
    result = judged(rows, keys, ["dataset", "role", "metric"])
    result["method"] = rows.groupby(keys, sort=False)["method"].agg(lambda m: "/".join(m.unique())).to_numpy()
    order = {name: i for i, name in enumerate((*ROLES, *CLAIMED))}
    settings = {key: i for i, key in enumerate(dict.fromkeys(zip(rows["dataset"], rows["condition"], strict=True)))}
    place = [(settings[r.dataset, r.condition], order[r.role], order[r.metric]) for r in result.itertuples()]  # type: ignore[index]
    return result.iloc[sorted(range(len(result)), key=place.__getitem__)].reset_index(drop=True)
