"""Claims: is attention better than each baseline? Verdicts from paired comparisons, adjusted for multiplicity.

A claim is one setting (a dataset and a condition of its bank: clean, wrong labels, long tail), baseline and metric. The
baselines are: the best tuned kNN, uniform or distance-weighted; distance weighting with vector scaling, the baseline to
beat; the best classifier without neighbours, class prototypes or the encoder's linear head; on tables, the best of the
other classifiers; and, where it was scored, the plain network: the same backbone trained to classify, the upper bound.

Best is the best mean score in that metric on the validation rows, with or without calibration. Where two baselines are
the same method the claim is made once.

Seeds and repeats share test rows, so their p values are not independent. They are combined as min(1, 2 · mean p), which
holds under any dependence (Vovk & Wang, 2020, "Combining p-values via averaging"); a single one keeps its p.

There are two families of claims, adjusted separately by Holm's step-down method (1979): the primary ones on the clean
bank, and those on modified banks. In either the probability of one false "yes" or "no" is below `alpha`. Baselines are
chosen without the test rows. A verdict also needs the same sign in every run, and `FEWEST_ERRORS` errors: with fewer,
NLL and ECE depend on a handful of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from attnknn.core.errors import InputError, require
from attnknn.evaluation.paired_tests import PEERS
from attnknn.report.plots import HIGHER_IS_BETTER
from attnknn.report.results import CLEAN

Verdict = Literal["yes", "no", "undecided"]
Setting = tuple[str, str]
OURS = "attention"
TUNED = ("uniform", "distance")
TO_BEAT = "distance_vector"
WITHOUT_NEIGHBOURS = ("prototypes", "linear")
PLAIN = ("cnn",)
CLAIMED = ("nll", "accuracy", "ece")
ALPHA = 0.01  # significance level, adjusted within each family of tests
FEWEST_ERRORS = 20  # test rows that either method gets wrong; with fewer a bootstrap is unreliable


@dataclass(frozen=True)
class Claim:
    """Attention against one baseline in one metric in one setting.

    Attributes:
        roles: of the baseline: "best tuned", "to beat", "without neighbours", "plain network", "other classifiers".
        difference: mean over runs (seeds and repeats) of attention − baseline.
        sd: standard deviation of the difference over runs; 0 for one run.
        low, high: outer ends of the runs' intervals.
        p: combined over runs and adjusted by Holm's method within its family.
        errors: test rows that either method gets wrong, in the run that has fewest.
        runs, seeds: numbers of each; every seed has its own encoder, repeats share it.
        verdict: whether attention is better: yes, no (it is worse), undecided.
    """

    dataset: str
    condition: str
    baseline: str
    roles: tuple[str, ...]
    metric: str
    difference: float
    sd: float
    low: float
    high: float
    p: float
    errors: int
    runs: int
    seeds: int
    verdict: Verdict

    @property
    def setting(self) -> Setting:
        return self.dataset, self.condition

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


def combined_p(p: Sequence[float]) -> float:
    """One p value of several runs on the same test rows: min(1, 2 · mean p)."""
    return min(1.0, 2 * float(np.mean(p))) if len(p) > 1 else float(p[0])


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


def best_on_validation(scores: Mapping[Any, float], metric: str, bases: Sequence[str]) -> str:
    """The method of these bases, calibrated or not, with the best validation score; the baseline to beat on a tie.

    Args:
        scores: mean over runs of each method's score in this metric on the validation rows.
        bases: names of methods without a calibration.

    Raises:
        InputError: there is no such method.
    """
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    candidates = {name: sign * score for name, score in scores.items() if name.partition("_")[0] in bases}
    require(bool(candidates), f"validation: no {metric} row of {' or '.join(bases)}; run `dvc repro`")
    return min(candidates, key=lambda name: (candidates[name], name != TO_BEAT))


def claims(paired: pd.DataFrame, validation: pd.DataFrame, alpha: float = ALPHA) -> list[Claim]:
    """All claims of the paired rows, in the order of the settings.

    Args:
        paired: rows of dataset, condition, seed, repeat, method, baseline, metric, difference (method − baseline),
            low, high, errors, p.
        validation: rows of dataset, condition, seed, repeat, method, metric, value: scores on the validation rows.
        alpha: family-wise error rate within each family of claims.

    Raises:
        InputError: a setting lacks the rows of a claim.
    """
    keys = ["dataset", "condition", "metric", "baseline"]
    paired = paired[(paired["method"] == OURS) & paired["metric"].isin(CLAIMED)]
    tests: dict[Setting, dict[tuple[str, str], dict[Any, Any]]] = {}
    seeds = paired.groupby(keys)["seed"].nunique()
    for row in over_runs(paired, keys).to_dict("records"):
        tests.setdefault((row["dataset"], row["condition"]), {})[row["metric"], row["baseline"]] = row
    scores: dict[Setting, dict[str, dict[str, float]]] = {}
    means = validation.groupby(["dataset", "condition", "metric", "method"], sort=False)["value"].mean()
    for (dataset, condition, metric, method), value in means.items():  # type: ignore[misc]
        scores.setdefault((dataset, condition), {}).setdefault(metric, {})[method] = value
    drafts: list[tuple[dict[str, Any], list[float]]] = []
    for setting, tested in tests.items():
        where = ", ".join(setting)
        require(setting in scores, f"validation: {where} has no row; run `dvc repro`")
        baselines = {baseline for _, baseline in tested}
        for metric in CLAIMED:
            on_val = {name: score for name, score in scores[setting].get(metric, {}).items() if name in baselines}
            roles = {
                "best tuned": best_on_validation(on_val, metric, TUNED),
                "to beat": TO_BEAT,
                "without neighbours": best_on_validation(on_val, metric, WITHOUT_NEIGHBOURS),
            }
            for role, bases in (("plain network", PLAIN), ("other classifiers", PEERS)):
                if any(name.partition("_")[0] in bases for name in on_val):
                    roles[role] = best_on_validation(on_val, metric, bases)
            for baseline in dict.fromkeys(roles.values()):
                if (metric, baseline) not in tested:
                    raise InputError(f"paired: {where} has no {metric} row against {baseline}; run `dvc repro`")
                row = tested[metric, baseline]
                numbers = {key: row[key] for key in (*keys, "difference", "low", "high", "errors", "runs", "p")}
                numbers["roles"] = tuple(role for role, name in roles.items() if name == baseline)
                numbers["sd"] = row["sd"] if row["runs"] > 1 else 0.0
                numbers["seeds"] = int(seeds[*setting, metric, baseline])
                drafts.append((numbers, row["per_run"]))
    p = np.array([draft["p"] for draft, _ in drafts])
    primary = np.array([draft["condition"] == CLEAN for draft, _ in drafts], dtype=bool)
    for family in (primary, ~primary):
        p[family] = holm(p[family])
    return [
        Claim(**{**draft, "p": p, "verdict": verdict(per_run, p, draft["errors"], draft["metric"], alpha)})
        for (draft, per_run), p in zip(drafts, p.tolist(), strict=True)
    ]


def setting_verdicts(claims: Sequence[Claim]) -> dict[Setting, Verdict]:
    """The verdict of every setting against the kNN baselines, in the order of the claims.

    yes: lower NLL than both kNN baselines, and no metric is worse. no: worse NLL or accuracy than either. undecided:
    everything else.
    """
    verdicts: dict[Setting, Verdict] = {}
    for setting in dict.fromkeys(c.setting for c in claims):
        against = [c for c in claims if c.setting == setting and {"best tuned", "to beat"} & set(c.roles)]
        lost = {c.metric for c in against if c.verdict == "no"}
        won = all(c.verdict == "yes" for c in against if c.metric == "nll")
        verdicts[setting] = "no" if lost & {"nll", "accuracy"} else "yes" if won and not lost else "undecided"
    return verdicts


def combined_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict for several settings: no where any is no, yes where all are yes."""
    return "no" if "no" in verdicts else "yes" if set(verdicts) == {"yes"} else "undecided"
