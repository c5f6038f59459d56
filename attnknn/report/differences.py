"""The differences of one experiment, over runs and judged together: better, worse, not shown, or out of reach."""

from collections.abc import Sequence

import pandas as pd

from attnknn.evaluation.metrics import NORMAL_FROM
from attnknn.report.claims import combined_p, holm, smallest_p, verdict
from attnknn.report.gains import Level, few

NOT_SHOWN, OUT_OF_REACH = "no difference shown", "out of reach"


def over_runs(paired: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row for each of the keys' values: difference (mean) and sd over runs, low and high (the runs' furthest ends),
    errors (fewest), p (combined), and `moves`, the difference of every run."""
    found = paired.groupby(list(keys), sort=False).agg(
        difference=("difference", "mean"),
        sd=("difference", "std"),
        low=("low", "min"),
        high=("high", "max"),
        errors=("errors", "min"),
        p=("p", lambda p: combined_p(p.tolist())),
        moves=("difference", list),
    )
    return found.reset_index()


def reachable(p: Sequence[float], smallest: Sequence[float], alpha: float) -> list[bool]:
    """Whether each p, were it as small as its test can give, would be below alpha after Holm's adjustment among all."""
    return [holm([*p[:i], least, *p[i + 1 :]])[i] < alpha for i, least in enumerate(smallest)]


def judged(rows: pd.DataFrame, level: Level) -> pd.DataFrame:
    """The rows with p adjusted among them by Holm's method, `verdict` (is it better), and `finding`, that in words.

    A finding is better, worse, `NOT_SHOWN`, or `OUT_OF_REACH` and why: too few rows are wrong, or p is counted in too
    few resamples to get below alpha whatever the difference. Accuracy's test is exact and needs no resamples.

    Args:
        rows: metric, errors, p, moves; see `over_runs`.
    """
    p = rows["p"].tolist()
    counted = (rows["metric"] != "accuracy") & (rows["errors"] < NORMAL_FROM)
    least = (smallest_p(len(moves), level.resamples) for moves in rows["moves"])
    smallest = [own if few_rows else 0.0 for own, few_rows in zip(least, counted, strict=True)]
    adjusted = holm(p)
    verdicts, findings = [], []
    for row, own, reached in zip(rows.to_dict("records"), adjusted, reachable(p, smallest, level.alpha), strict=True):
        word = verdict(row["moves"], own, row["errors"], row["metric"], level.alpha)
        why = few(row["errors"]) or ("" if reached else f"{level.resamples:,} resamples for {len(p)} tests")
        left = f"{OUT_OF_REACH} ({why})" if why else NOT_SHOWN
        verdicts.append(word)
        findings.append({"yes": "better", "no": "worse"}.get(word, left))
    return rows.assign(p=adjusted, verdict=verdicts, finding=findings)
