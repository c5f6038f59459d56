"""Whether a difference is a gain, ruled out, or open: over the runs of one dataset, from the paired tables.

A gain counts from p < alpha, one sign in all runs and `claims.FEWEST_ERRORS` wrong rows on (`claims.verdict`); it is
ruled out where as many rows are wrong and the interval ends below `MARGIN`. p is combined over runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from attnknn.plots import HIGHER_IS_BETTER
from attnknn.report.claims import FEWEST_ERRORS, combined_p, verdict
from attnknn.report.results import Run, joined
from attnknn.report.tables import fixed, p_value

Finding = Literal["supported", "contradicted", "undecided"]
MARGIN = {"accuracy": 0.003, "nll": 0.01, "ece": 0.003}  # a gain below it is none; .003 is the σ of 10,000 rows


@dataclass(frozen=True)
class Pair:
    """A difference over runs: its mean, the furthest ends of the intervals, p combined, and what the claims make of it.

    Attributes:
        better: yes, no (worse) or undecided, of the method against the baseline.
        enough: whether enough rows are wrong for the interval to mean something.
        ruled_out: whether a gain that matters is.
    """

    difference: float
    low: float
    high: float
    p: float
    better: str
    enough: bool
    ruled_out: bool

    def __str__(self) -> str:
        p = p_value(self.p)
        ends = f"{fixed(self.low, 4, True)} … {fixed(self.high, 4, True)}"
        return f"{fixed(self.difference, 4, True)} ({ends}, p {p if p.startswith('<') else '= ' + p})"


def pair_of(runs: Sequence[Run], table: str, metric: str, alpha: float, **where: Any) -> Pair | None:
    """The rows of a paired table with those values, over runs; None without any."""
    rows = joined(runs, table)
    if rows.empty:
        return None
    for column, value in {"metric": metric, **where}.items():
        rows = rows[rows[column] == value]
    if rows.empty:
        return None
    p, errors = combined_p(rows["p"].tolist()), int(rows["errors"].min())
    word = verdict(rows["difference"].tolist(), p, errors, metric, alpha)
    low, high, enough = float(rows["low"].min()), float(rows["high"].max()), errors >= FEWEST_ERRORS
    most = high if metric in HIGHER_IS_BETTER else -low
    none = word == "no" or (word == "undecided" and enough and most < MARGIN[metric])
    return Pair(float(rows["difference"].mean()), low, high, p, word, enough, none)


def scores_of(runs: Sequence[Run], table: str, metric: str, **where: Any) -> dict[str, tuple[float, float, float]]:
    """value, low and high of every method over runs: the mean and the furthest ends; empty without the table."""
    rows = joined(runs, table)
    for column, value in {"metric": metric, **where}.items():
        if not rows.empty:
            rows = rows[rows[column] == value]
    return {} if rows.empty else {str(name): mean_and_ends(of) for name, of in rows.groupby("method", sort=False)}


def mean_and_ends(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Mean value, lowest low and highest high."""
    return float(rows["value"].mean()), float(rows["low"].min()), float(rows["high"].max())


def gained(pairs: Collection[Pair]) -> Finding:
    """Of a claim of a gain in all pairs: contradicted where one is a loss, or every gain that matters is ruled out."""
    if all(pair.better == "yes" for pair in pairs):
        return "supported"
    lost = any(pair.better == "no" for pair in pairs)
    return "contradicted" if lost or all(pair.ruled_out for pair in pairs) else "undecided"


def nothing_gained(pairs: Collection[Pair]) -> Finding:
    """Of a claim that nothing is gained: contradicted by one gain, supported where every one is ruled out."""
    if any(pair.better == "yes" for pair in pairs):
        return "contradicted"
    return "supported" if all(pair.ruled_out for pair in pairs) else "undecided"
