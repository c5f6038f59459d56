"""Does learned attention pay? Computed from the paired comparisons, and free to come out "no".

One claim is one setting (a dataset and a condition of its memory: clean, wrong labels, long tail), baseline and metric.
The baselines are: the best tuned kNN, uniform or distance-weighted; distance weighting with vector scaling, the
baseline to beat; and the best method without neighbours, which is class prototypes alone or the encoder's linear head.
Best is, bare or with a calibration, whichever has the best mean score in that metric on the validation rows. Where two
of them are the same method the claim is made once.

Seeds and repeats share test rows, so their p values are not independent. They are combined as min(1, 2 · mean p), which
holds under any dependence (Vovk & Wang, 2020, "Combining p-values via averaging"); a single one keeps its p. The p
values of all claims shown are then adjusted by Holm's step-down method (1979), so that the chance of even one false
"yes" or "no" among them is below `alpha`. The baselines are chosen without the test rows. A verdict also needs the same
sign in every run, and `FEWEST_ERRORS` errors: where hardly a test row is wrong, NLL and ECE say how sure the methods
are, and the sample cannot say whether they may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from attnknn.errors import InputError, require
from attnknn.metrics import NORMAL_FROM
from attnknn.plots import HIGHER_IS_BETTER

Verdict = Literal["yes", "no", "undecided"]
Setting = tuple[str, str]
OURS = "attention"
TUNED = ("uniform", "distance")
TO_BEAT = "distance_vector"
WITHOUT_NEIGHBOURS = ("prototypes", "linear")
CLAIMED = ("nll", "accuracy", "ece")
NAMES = {"nll": "NLL", "accuracy": "accuracy", "ece": "ECE"}
_NAMED = 4  # conditions, beyond which they are counted
FEWEST_ERRORS = 20  # test rows that either method gets wrong; with fewer a bootstrap has not seen what errors cost


@dataclass(frozen=True)
class Claim:
    """Attention against one baseline in one metric in one setting.

    Attributes:
        roles: why this baseline: "best tuned", "to beat", "without neighbours".
        difference: mean over runs (seeds and repeats) of attention − baseline.
        sd: standard deviation of the difference over runs; 0 for one run.
        low, high: from the lowest to the highest end of the runs' intervals.
        p: combined over runs and adjusted by Holm's method.
        errors: test rows that either method gets wrong, in the run that has fewest.
        verdict: does attention do better: yes, no (it does worse), undecided.
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
    verdict: Verdict

    @property
    def setting(self) -> Setting:
        return self.dataset, self.condition


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given: max over the smaller ones of (m − rank) · p, at most 1."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * np.asarray(p)[order])
    return np.minimum(adjusted, 1.0).tolist()


def combined_p(p: Sequence[float]) -> float:
    """One p value of several runs on the same test rows: min(1, 2 · mean p)."""
    return min(1.0, 2 * float(np.mean(p))) if len(p) > 1 else float(p[0])


def verdict(differences: Sequence[float], p: float, errors: int, metric: str, alpha: float) -> Verdict:
    """yes or no where p < alpha, errors are enough and all runs' differences have one sign, undecided otherwise."""
    gains = np.asarray(differences) * (1 if metric in HIGHER_IS_BETTER else -1)
    if p >= alpha or errors < FEWEST_ERRORS or not ((gains > 0).all() or (gains < 0).all()):
        return "undecided"
    return "yes" if gains[0] > 0 else "no"


def strongest(validation: pd.DataFrame, metric: str, bases: Sequence[str]) -> str:
    """The method with the best mean validation score in this metric among some, bare or with a calibration.

    Args:
        validation: rows of method, metric, value of one setting.
        bases: names of methods without a calibration.

    Raises:
        InputError: there is no such row.
    """
    of = validation[(validation["metric"] == metric) & validation["method"].str.partition("_")[0].isin(bases)]
    require(not of.empty, f"validation: no {metric} row of {' or '.join(bases)}; run `dvc repro`")
    means = of.groupby("method", sort=False)["value"].mean() * (-1 if metric in HIGHER_IS_BETTER else 1)
    # On a tie the claim is about the baseline to beat.
    return min(means.index, key=lambda name: (means[name], name != TO_BEAT))


def claims(paired: pd.DataFrame, validation: pd.DataFrame, alpha: float = 0.01) -> list[Claim]:
    """Every claim that the paired rows allow, in the order of the settings.

    Args:
        paired: rows of dataset, condition, seed, repeat, method, baseline, metric, difference (method − baseline),
            low, high, errors, p.
        validation: rows of dataset, condition, seed, repeat, method, metric, value: scores on the validation rows.
        alpha: the chance that is allowed of any false verdict among all claims.

    Raises:
        InputError: a setting lacks the rows of a claim.
    """
    drafts: list[tuple[dict[str, Any], list[float]]] = []
    scores = dict(iter(validation.groupby(["dataset", "condition"], sort=False)))
    for (dataset, condition), of_setting in paired[paired["method"] == OURS].groupby(
        ["dataset", "condition"], sort=False
    ):
        where = f"{dataset}, {condition}"
        if (dataset, condition) not in scores:
            raise InputError(f"validation: {where} has no row; run `dvc repro`")
        tested = dict(iter(of_setting.groupby(["metric", "baseline"], sort=False)))
        for metric in CLAIMED:
            known = scores[dataset, condition]
            known = known[known["method"].isin(of_setting["baseline"])]
            roles = {
                "best tuned": strongest(known, metric, TUNED),
                "to beat": TO_BEAT,
                "without neighbours": strongest(known, metric, WITHOUT_NEIGHBOURS),
            }
            for baseline in dict.fromkeys(roles.values()):
                if (metric, baseline) not in tested:
                    raise InputError(f"paired: {where} has no {metric} row against {baseline}; run `dvc repro`")
                rows = tested[metric, baseline]
                numbers = {
                    "dataset": dataset,
                    "condition": condition,
                    "baseline": baseline,
                    "roles": tuple(role for role, name in roles.items() if name == baseline),
                    "metric": metric,
                    "difference": float(rows["difference"].mean()),
                    "sd": float(rows["difference"].std()) if len(rows) > 1 else 0.0,
                    "low": float(rows["low"].min()),
                    "high": float(rows["high"].max()),
                    "errors": int(rows["errors"].min()),
                    "runs": len(rows),
                    "p": combined_p(rows["p"].tolist()),
                }
                drafts.append((numbers, rows["difference"].tolist()))
    adjusted = holm([draft["p"] for draft, _ in drafts])
    return [
        Claim(**{**draft, "p": p, "verdict": verdict(moves, p, draft["errors"], draft["metric"], alpha)})
        for (draft, moves), p in zip(drafts, adjusted, strict=True)
    ]


def _of_neighbours(claim: Claim) -> bool:
    """Whether its baseline is a kNN."""
    return "without neighbours" not in claim.roles


def answer(of_setting: Sequence[Claim]) -> Verdict:
    """Does attention pay here, against the kNN baselines?

    yes: its NLL is lower than both kNN baselines', and nothing claimed against them is worse. no: it is worse in NLL or
    accuracy against either. undecided: everything else. Methods without neighbours are another question; see `beyond`.
    """
    of_setting = [c for c in of_setting if _of_neighbours(c)]
    nll = [c.verdict for c in of_setting if c.metric == "nll"]
    if any(c.verdict == "no" for c in of_setting if c.metric in ("nll", "accuracy")):
        return "no"
    lost = any(c.verdict == "no" for c in of_setting)
    return "yes" if nll and all(v == "yes" for v in nll) and not lost else "undecided"


def answers(found: Sequence[Claim]) -> dict[Setting, Verdict]:
    """The answer of every setting, in their order."""
    return {s: answer([c for c in found if c.setting == s]) for s in dict.fromkeys(c.setting for c in found)}


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """One answer for several settings: no where any is no, yes where all are yes."""
    return "no" if "no" in verdicts else "yes" if set(verdicts) == {"yes"} else "undecided"


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _places(settings: Sequence[Setting], all_of: Sequence[Setting]) -> str:
    """Settings by dataset; up to four conditions are named where a dataset has several and not all are meant."""
    words = []
    for dataset in dict.fromkeys(d for d, _ in settings):
        mine = [condition for d, condition in settings if d == dataset]
        total = sum(d == dataset for d, _ in all_of)
        named = ", ".join(mine) if len(mine) <= _NAMED else f"{len(mine)} of {total} conditions"
        shown = "" if total == 1 else " (all conditions)" if len(mine) == total else f" ({named})"
        words.append(dataset + shown)
    return _list(words)


def headline(found: Mapping[Setting, Verdict]) -> list[str]:
    """The answer in one to three sentences; where attention does not win comes first."""
    named = {kind: [s for s, v in found.items() if v == kind] for kind in ("no", "undecided", "yes")}
    lines = []
    if named["no"]:
        where = _places(named["no"], list(found))
        lines.append(f"Learned attention does not pay on {where}: its NLL or accuracy is worse than a baseline's.")
    if named["undecided"]:
        lines.append(f"Learned attention does not clearly win on {_places(named['undecided'], list(found))}.")
    if named["yes"]:
        lines.append(
            f"Learned attention pays on {_places(named['yes'], list(found))}: its NLL is lower than the best tuned "
            "kNN's and than that of distance weighting with vector scaling, and nothing claimed against these is worse."
        )
    return lines


def out_of_reach(found: Sequence[Claim], resamples: int, alpha: float = 0.01) -> list[str]:
    """Where no difference in NLL could have been decided, and why, in none to two sentences.

    Fewer than `FEWEST_ERRORS` errors decide nothing. Below `NORMAL_FROM` errors p is at least 2/(resamples + 1), twice
    that where runs are combined, and Holm multiplies the smallest of all by the number of claims.
    """
    settings = list(dict.fromkeys(c.setting for c in found))
    nll = {s: [c for c in found if c.setting == s and c.metric == "nll" and _of_neighbours(c)] for s in settings}

    def coarse(c: Claim) -> bool:
        smallest = len(found) * 2 / (resamples + 1) * (2 if c.runs > 1 else 1)
        return c.errors < NORMAL_FROM and smallest >= alpha and c.verdict == "undecided"

    few = [s for s in settings if all(c.errors < FEWEST_ERRORS for c in nll[s])]
    counted = [s for s in settings if s not in few and all(c.errors < FEWEST_ERRORS or coarse(c) for c in nll[s])]
    lines = []
    if few:
        lines.append(
            f"Fewer than {FEWEST_ERRORS} test rows are wrong on {_places(few, settings)}: too few for a verdict."
        )
    if counted:
        where = _places(counted, settings)
        lines.append(
            f"Fewer than {NORMAL_FROM} are wrong on {where}: there {resamples:,} resamples are too "
            f"coarse for a verdict on NLL among {len(found)} claims, whatever the difference."
        )
    return lines


def beyond(found: Sequence[Claim]) -> str:
    """Do neighbours add anything to what does without them? In words, by NLL."""
    mine = [c for c in found if "without neighbours" in c.roles and c.metric == "nll"]
    words = {"no": "worse", "undecided": "not clearly different", "yes": "better"}
    parts = [
        f"{word} on {_places([c.setting for c in mine if c.verdict == kind], [c.setting for c in mine])}"
        for kind, word in words.items()
        if any(c.verdict == kind for c in mine)
    ]
    return (
        "Against the best classifier without neighbours, which is class prototypes alone or the encoder's linear head, "
        f"calibrated where that is better, its NLL is {'; '.join(parts)}."
    )


def sentence(of_setting: Sequence[Claim]) -> str:
    """What was found in one setting, in words: better, worse and undecided metrics against each baseline."""
    words = {"yes": "better", "no": "worse"}
    roles = {
        "best tuned": "the best tuned kNN",
        "to beat": "distance weighting + vector scaling",
        "without neighbours": "the best without neighbours",
    }
    found: dict[str, list[str]] = {}
    for role, name in roles.items():
        mine = [c for c in of_setting if role in c.roles]
        if not mine:
            continue
        parts = [
            f"{word} in {_list([NAMES[c.metric] for c in mine if c.verdict == kind])}"
            for kind, word in words.items()
            if any(c.verdict == kind for c in mine)
        ]
        open_ = [NAMES[c.metric] for c in mine if c.verdict == "undecided"]
        if open_:
            parts.append(f"undecided in {_list(open_)}")
        found.setdefault(", ".join(parts), []).append(name)
    return " ".join(f"Against {_list(who)}: {what}." for what, who in found.items())
