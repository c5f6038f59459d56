"""Differences over runs with verdicts, p values adjusted within one experiment."""

from collections.abc import Sequence

import pandas as pd

from attnknn.evaluation.metrics import NORMAL_FROM
from attnknn.report.claims import combined_p, holm, smallest_p, verdict
from attnknn.report.gains import Level, too_few_errors

NOT_SHOWN, UNDERPOWERED = "no difference shown", "underpowered"


def over_runs(paired: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """By keys: difference (mean) and sd over runs, low and high (outer ends), errors (fewest), p (combined), and
    `per_run`, the difference of every run."""
    groups = paired.groupby(list(keys), sort=False).agg(
        difference=("difference", "mean"),
        sd=("difference", "std"),
        low=("low", "min"),
        high=("high", "max"),
        errors=("errors", "min"),
        p=("p", lambda p: combined_p(p.tolist())),
        per_run=("difference", list),
    )
    return groups.reset_index()


def of_sources(rows: pd.DataFrame) -> pd.DataFrame:
    """The paired differences in a table of `side_by_side`, as columns difference, low, high."""
    rows = rows.drop(columns=["low", "high"])
    return rows.rename(columns={"difference_low": "low", "difference_high": "high"})


def attainable(p: Sequence[float], smallest: Sequence[float], alpha: float) -> list[bool]:
    """Whether each p, at the smallest value that its test can give, would be below alpha after Holm's adjustment."""
    return [holm([*p[:i], least, *p[i + 1 :]])[i] < alpha for i, least in enumerate(smallest)]


def judged(rows: pd.DataFrame, level: Level) -> pd.DataFrame:
    """The rows with p adjusted by Holm's method, `verdict` (is it better), and `finding`, the verdict in words.

    A finding is better, worse, `NOT_SHOWN`, or `UNDERPOWERED` with the reason: too few errors, or too few resamples
    for a p below alpha. McNemar's test of accuracy is exact and needs no resamples.

    Args:
        rows: metric, errors, p, per_run; see `over_runs`.
    """
    p = rows["p"].tolist()
    counted = (rows["metric"] != "accuracy") & (rows["errors"] < NORMAL_FROM)
    least = (smallest_p(len(runs), level.resamples) for runs in rows["per_run"])
    smallest = [own if by_count else 0.0 for own, by_count in zip(least, counted, strict=True)]
    adjusted, verdicts, findings = holm(p), [], []
    for row, own, powered in zip(rows.to_dict("records"), adjusted, attainable(p, smallest, level.alpha), strict=True):
        word = verdict(row["per_run"], own, row["errors"], row["metric"], level.alpha)
        reason = too_few_errors(int(row["errors"]))
        reason = reason or ("" if powered else f"{level.resamples:,} resamples for {len(p)} tests")
        undecided = f"{UNDERPOWERED} ({reason})" if reason else NOT_SHOWN
        verdicts.append(word)
        findings.append({"yes": "better", "no": "worse"}.get(word, undecided))
    return rows.assign(p=adjusted, verdict=verdicts, finding=findings)
