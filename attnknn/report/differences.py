"""Differences over the runs of one dataset, with verdicts; p values adjusted within one experiment, or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnknn.evaluation.metrics import NORMAL_FROM
from attnknn.report.claims import FEWEST_ERRORS, holm, over_runs, smallest_p, verdict
from attnknn.report.plots import HIGHER_IS_BETTER

NOT_SHOWN, UNDERPOWERED, NO_GAIN = "no difference shown", "underpowered", "no gain that matters"
MARGIN = {"accuracy": 0.003, "nll": 0.01, "ece": 0.003}  # smallest gain that matters; .003 is the σ of 10,000 rows
_BETTER = {"yes": "better", "no": "worse"}


@dataclass(frozen=True)
class Level:
    """Significance level, and the resamples of the bootstrap."""

    alpha: float
    resamples: int


def too_few_errors(errors: int) -> str:
    """The reason for no verdict with so few errors; empty where they suffice."""
    return f"{errors} of {FEWEST_ERRORS} errors needed" if errors < FEWEST_ERRORS else ""


def attainable(p: Sequence[float], smallest: Sequence[float], alpha: float) -> list[bool]:
    """Whether each p, at the smallest value that its test can give, would be below alpha after Holm's adjustment."""
    return [holm([*p[:i], least, *p[i + 1 :]])[i] < alpha for i, least in enumerate(smallest)]


def _smallest(row: Any, resamples: int) -> float:
    """The smallest p that the test of a row can give; McNemar's test of accuracy is exact and needs no resamples."""
    counted = row["metric"] != "accuracy" and row["errors"] < NORMAL_FROM
    return smallest_p(len(row["per_run"]), resamples) if counted else 0.0


def judged(rows: pd.DataFrame, level: Level) -> pd.DataFrame:
    """The rows with p adjusted by Holm's method, `verdict` (is it better), and `finding`, the verdict in words.

    A finding is better, worse, `NOT_SHOWN`, or `UNDERPOWERED` with the reason: too few errors, or too few resamples
    for a p below alpha.

    Args:
        rows: metric, errors, p, per_run; see `over_runs`.
    """
    p, records = rows["p"].tolist(), rows.to_dict("records")
    smallest = [_smallest(row, level.resamples) for row in records]
    adjusted, verdicts, findings = holm(p), [], []
    for row, p_adjusted, powered in zip(records, adjusted, attainable(p, smallest, level.alpha), strict=True):
        word = verdict(row["per_run"], p_adjusted, row["errors"], row["metric"], level.alpha)
        reason = too_few_errors(int(row["errors"]))
        reason = reason or ("" if powered else f"{level.resamples:,} resamples for {len(p)} tests")
        undecided = f"{UNDERPOWERED} ({reason})" if reason else NOT_SHOWN
        verdicts.append(word)
        findings.append(_BETTER.get(word, undecided))
    return rows.assign(p=adjusted, verdict=verdicts, finding=findings)


def judge_one(paired: pd.DataFrame, level: Level) -> dict[str, Any]:
    """The difference of one comparison in one metric over runs, p not adjusted, with its finding.

    A finding is better, worse, `NO_GAIN` where the interval ends below `MARGIN`, underpowered or undecided.
    """
    row: dict[str, Any] = over_runs(paired, ["metric"]).to_dict("records")[0]  # type: ignore[assignment]
    metric, enough = row["metric"], row["errors"] >= FEWEST_ERRORS
    word = verdict(row["per_run"], row["p"], row["errors"], metric, level.alpha)
    largest_gain = row["high"] if metric in HIGHER_IS_BETTER else -row["low"]
    powered = enough and _smallest(row, level.resamples) < level.alpha
    otherwise = NO_GAIN if enough and largest_gain < MARGIN[metric] else "undecided" if powered else UNDERPOWERED
    return row | {"finding": _BETTER.get(word, otherwise)}


def gained_over_all(findings: Sequence[str]) -> str:
    """Whether there is a gain over every baseline: no with one loss, or where no gain over any is left."""
    if "worse" in findings or set(findings) == {NO_GAIN}:
        return "no"
    open_findings = set(findings) & {"undecided", UNDERPOWERED}
    return "yes" if set(findings) == {"better"} else UNDERPOWERED if open_findings == {UNDERPOWERED} else "undecided"
