"""Does learned attention pay? Computed from the paired comparisons, and free to come out "no".

One claim is one dataset, baseline and metric. The baselines are two: the strongest tuned kNN in that metric (the one
with the best mean score on the test rows, so the choice favours the opponent), and distance weighting with vector
scaling, the baseline to beat; where they are the same method the claim is made once.

Seeds share test rows, so their p values are not independent. They are combined as min(1, 2 · mean p), which holds
under any dependence (Vovk & Wang, 2020, "Combining p-values via averaging"); one seed keeps its p. The p values of
all claims shown are then adjusted by Holm's step-down method (1979), so that the chance of even one false "yes" or
"no" among them is below `alpha`, up to the choice of the strongest baseline, which makes "yes" harder and "no" a
little easier. A verdict also needs the same sign in every seed, and `FEWEST_ERRORS` errors: where hardly a test row is
wrong, NLL and ECE say how sure the methods are, and the sample cannot say whether they may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from attnknn.errors import require
from attnknn.plots import HIGHER_IS_BETTER

Verdict = Literal["yes", "no", "undecided"]
KNN_BASELINES = ("uniform", "distance", "distance_vector")
TO_BEAT = "distance_vector"
CLAIMED = ("nll", "accuracy", "ece")
FEWEST_ERRORS = 20  # test rows that either method gets wrong; with fewer a bootstrap has not seen what errors cost


@dataclass(frozen=True)
class Claim:
    """Attention against one baseline in one metric on one dataset.

    Attributes:
        roles: why this baseline: "best tuned", "to beat", or both.
        difference: mean over seeds of attention − baseline.
        sd: standard deviation of the difference over seeds; 0 for one seed.
        low, high: from the lowest to the highest end of the per-seed intervals.
        p: combined over seeds and adjusted by Holm's method.
        errors: test rows that either method gets wrong, in the seed that has fewest.
        verdict: does attention do better: yes, no (it does worse), undecided.
    """

    dataset: str
    baseline: str
    roles: tuple[str, ...]
    metric: str
    difference: float
    sd: float
    low: float
    high: float
    p: float
    errors: int
    verdict: Verdict


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given: max over the smaller ones of (m − rank) · p, at most 1."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * np.asarray(p)[order])
    return np.minimum(adjusted, 1.0).tolist()


def verdict(differences: Sequence[float], p: float, errors: int, metric: str, alpha: float) -> Verdict:
    """yes or no where p < alpha, errors are enough and all seeds' differences have one sign, undecided otherwise."""
    gains = np.asarray(differences) * (1 if metric in HIGHER_IS_BETTER else -1)
    if p >= alpha or errors < FEWEST_ERRORS or not ((gains > 0).all() or (gains < 0).all()):
        return "undecided"
    return "yes" if gains[0] > 0 else "no"


def strongest(paired: Sequence[Mapping[str, Any]], dataset: str, metric: str) -> str:
    """The kNN baseline that attention finds hardest to beat: the best mean score in this metric.

    A score is attention's minus the difference, so the differences alone order the baselines.
    """
    sign = 1 if metric in HIGHER_IS_BETTER else -1
    found: dict[str, list[float]] = {}
    for row in paired:
        if row["dataset"] == dataset and row["metric"] == metric and row["baseline"] in KNN_BASELINES:
            found.setdefault(row["baseline"], []).append(sign * row["difference"])
    require(bool(found), f"paired: {dataset} has no {metric} row against {' or '.join(KNN_BASELINES)}")
    # On a tie the claim is about the baseline to beat.
    return min(found, key=lambda name: (float(np.mean(found[name])), name != TO_BEAT))


def claims(paired: Sequence[Mapping[str, Any]], alpha: float = 0.01) -> list[Claim]:
    """Every claim that the paired rows allow, in the order of the datasets.

    Args:
        paired: rows of dataset, seed, baseline, metric, difference (attention − baseline), low, high, errors, p.
        alpha: the chance that is allowed of any false verdict among all claims.

    Raises:
        InputError: a dataset lacks the rows of a claim.
    """
    drafts: list[tuple[dict[str, Any], list[float]]] = []
    for dataset in dict.fromkeys(row["dataset"] for row in paired):
        for metric in CLAIMED:
            best = strongest(paired, dataset, metric)
            for baseline in dict.fromkeys((best, TO_BEAT)):
                where = {"dataset": dataset, "baseline": baseline, "metric": metric}
                rows = [row for row in paired if all(row[key] == value for key, value in where.items())]
                require(bool(rows), f"paired: {dataset} has no {metric} row against {baseline}; run `dvc repro`")
                roles = [r for r, b in (("best tuned", best), ("to beat", TO_BEAT)) if b == baseline]
                moves = [float(row["difference"]) for row in rows]
                mean_p = float(np.mean([row["p"] for row in rows]))
                numbers = {
                    "roles": tuple(roles),
                    "difference": float(np.mean(moves)),
                    "sd": float(np.std(moves, ddof=1)) if len(moves) > 1 else 0.0,
                    "low": float(min(row["low"] for row in rows)),
                    "high": float(max(row["high"] for row in rows)),
                    "errors": min(int(row["errors"]) for row in rows),
                    "p": min(1.0, 2 * mean_p) if len(rows) > 1 else mean_p,
                }
                drafts.append(({**where, **numbers}, moves))
    adjusted = holm([draft["p"] for draft, _ in drafts])
    return [
        Claim(**{**draft, "p": p, "verdict": verdict(moves, p, draft["errors"], draft["metric"], alpha)})
        for (draft, moves), p in zip(drafts, adjusted, strict=True)
    ]


def answer(of_dataset: Sequence[Claim]) -> Verdict:
    """Does attention pay on this dataset?

    yes: its NLL is lower than both baselines', and nothing claimed is worse. no: it is worse in NLL or accuracy
    against either. undecided: everything else.
    """
    nll = [c.verdict for c in of_dataset if c.metric == "nll"]
    if any(c.verdict == "no" for c in of_dataset if c.metric in ("nll", "accuracy")):
        return "no"
    lost = any(c.verdict == "no" for c in of_dataset)
    return "yes" if nll and all(v == "yes" for v in nll) and not lost else "undecided"


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def headline(answers: Mapping[str, Verdict]) -> str:
    """The answer in one or two sentences; where attention does not win comes first."""
    named = {kind: [d for d, v in answers.items() if v == kind] for kind in ("no", "undecided", "yes")}
    lines = []
    if named["no"]:
        where = _list(named["no"])
        lines.append(f"Learned attention does not pay on {where}: its NLL or accuracy is worse than a baseline's.")
    if named["undecided"]:
        lines.append(f"Learned attention does not clearly win on {_list(named['undecided'])}.")
    if named["yes"]:
        lines.append(
            f"Learned attention pays on {_list(named['yes'])}: its NLL is lower than the best tuned kNN's "
            "and than that of distance weighting with vector scaling, and nothing claimed is worse."
        )
    return " ".join(lines)


def sentence(of_dataset: Sequence[Claim]) -> str:
    """What was found on one dataset, in words: better, worse and undecided metrics against each baseline."""
    words = {"yes": "better", "no": "worse"}
    names = {"nll": "NLL", "accuracy": "accuracy", "ece": "ECE"}
    found: dict[str, list[str]] = {}
    for role, name in (("best tuned", "the best tuned kNN"), ("to beat", "distance weighting + vector scaling")):
        mine = [c for c in of_dataset if role in c.roles]
        parts = [
            f"{word} in {_list([names[c.metric] for c in mine if c.verdict == kind])}"
            for kind, word in words.items()
            if any(c.verdict == kind for c in mine)
        ]
        open_ = [names[c.metric] for c in mine if c.verdict == "undecided"]
        if open_:
            parts.append(f"undecided in {_list(open_)}")
        found.setdefault(", ".join(parts), []).append(name)
    return " ".join(f"Against {' and against '.join(who)}: {what}." for what, who in found.items())
