"""Classify a difference over the runs of one dataset: a gain, ruled out, undecided or underpowered.

A gain needs p < alpha, one sign in all runs and `claims.FEWEST_ERRORS` errors (`claims.verdict`). It is ruled out with
as many errors and an interval that ends below `MARGIN`. p is combined over runs. An undecided difference is
underpowered where errors are too few or the resamples cannot give a p below alpha; for intervals of single scores and
a recalibrated ECE also where the interval is too wide to rule a gain out even around zero (`too_wide`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from attnknn.evaluation.metrics import NORMAL_FROM
from attnknn.report.claims import FEWEST_ERRORS, combined_p, smallest_p, verdict
from attnknn.report.plots import HIGHER_IS_BETTER
from attnknn.report.results import Run, joined
from attnknn.report.tables import fixed, p_value

Finding = Literal["supported", "contradicted", "undecided", "underpowered"]
MARGIN = {"accuracy": 0.003, "nll": 0.01, "ece": 0.003}  # smallest gain that matters; .003 is the σ of 10,000 rows
RATE = (0.5, 2.0)  # an exponent's interval beyond these does not distinguish 1/k from 1/√k or 1/k²
FITS = 0.9  # smallest R² of a fitted curve


@dataclass(frozen=True)
class Level:
    """Significance level, and the resamples of the bootstrap."""

    alpha: float
    resamples: int


@dataclass(frozen=True)
class Pair:
    """A difference over runs: mean, outer ends of the intervals, combined p, and its classification.

    Attributes:
        p: None where the interval alone decides.
        better: whether the method is better than the baseline: yes, no (worse) or undecided.
        ruled_out: whether a gain of `MARGIN` is ruled out.
        unreachable: why no verdict was possible; empty where one was.
    """

    difference: float
    low: float
    high: float
    p: float | None
    better: str
    ruled_out: bool
    unreachable: str

    @property
    def open(self) -> bool:
        """Neither decided nor ruled out."""
        return self.better == "undecided" and not self.ruled_out

    @property
    def ends(self) -> str:
        return f"{fixed(self.low, 4, True)} … {fixed(self.high, 4, True)}"

    def __str__(self) -> str:
        ends = self.ends
        if self.p is not None:
            p = p_value(self.p)
            ends += f", p {p if p.startswith('<') else '= ' + p}"
        why = f"; {self.unreachable}" if self.open and self.unreachable else ""
        return f"{fixed(self.difference, 4, True)} ({ends}{why})"


def too_few_errors(errors: int) -> str:
    """The reason for no verdict with so few errors; empty where they suffice."""
    return f"{errors} of {FEWEST_ERRORS} errors needed" if errors < FEWEST_ERRORS else ""


def too_wide(width: float, limit: float, subject: str = "intervals of single scores are") -> str:
    """The reason why an interval of this width rules nothing out; empty where it is narrow enough."""
    return f"{subject} wider than {limit:g}: {fixed(width, 4)}" if width >= limit else ""


def limited_by_width(pair: Pair, metric: str) -> Pair:
    """The pair, underpowered if it is open and its interval would not rule out a gain around zero either."""
    if not pair.open or pair.unreachable:
        return pair
    return replace(pair, unreachable=too_wide((pair.high - pair.low) / 2, MARGIN[metric], "half the interval is"))


def _rows(runs: Sequence[Run], table: str, **where: Any) -> pd.DataFrame:
    """The rows of a table with these column values, over runs; empty without any."""
    rows = joined(runs, table)
    for column, value in where.items():
        if not rows.empty:
            rows = rows[rows[column] == value]
    return rows


def _ruled_out(word: str, low: float, high: float, metric: str, errors: int) -> bool:
    """Whether a gain that matters is excluded: a loss, or undecided with enough errors and a gain below `MARGIN`."""
    most = high if metric in HIGHER_IS_BETTER else -low
    return word == "no" or (word == "undecided" and errors >= FEWEST_ERRORS and most < MARGIN[metric])


def read_pair(runs: Sequence[Run], table: str, metric: str, level: Level, **where: Any) -> Pair | None:
    """The difference in the rows of a paired table with these column values; None without any."""
    rows = _rows(runs, table, metric=metric, **where)
    return None if rows.empty else as_pair(rows, metric, level)


def as_pair(rows: pd.DataFrame, metric: str, level: Level) -> Pair:
    """The difference in rows of difference, low, high, errors and p, one per run."""
    p, errors = combined_p(rows["p"].tolist()), int(rows["errors"].min())
    word = verdict(rows["difference"].tolist(), p, errors, metric, level.alpha)
    low, high = float(rows["low"].min()), float(rows["high"].max())
    why = too_few_errors(errors)
    # McNemar's test is exact, and from NORMAL_FROM errors on p is not counted in resamples.
    if not why and metric != "accuracy" and errors < NORMAL_FROM:
        least = smallest_p(len(rows), level.resamples)
        why = f"no p below {p_value(least)} in {level.resamples:,} resamples" if least >= level.alpha else ""
    none = _ruled_out(word, low, high, metric, errors)
    return Pair(float(rows["difference"].mean()), low, high, p, word, none, why)


def read_change(runs: Sequence[Run], table: str, metric: str, conditions: tuple[str, str], **where: Any) -> Pair | None:
    """The change of a paired difference between two conditions; None where either has no row (see `change`)."""
    first, second = (_rows(runs, table, metric=metric, condition=name, **where) for name in conditions)
    return None if first.empty or second.empty else change(first, second, metric)


def change(first: pd.DataFrame, second: pd.DataFrame, metric: str) -> Pair:
    """A difference of differences.

        d = d₂ − d₁,   low = low₂ − high₁,   high = high₂ − low₁

    Both are measured on the same test rows, so they are dependent in a way that the tables do not hold. The widths of
    their intervals are added: sd(d₂ − d₁) ≤ sd d₁ + sd d₂ for any dependence, so the interval is conservative. It
    decides without a p value. Over runs the outer ends count.

    Args:
        first, second: rows of difference, low, high, errors, one per run.
    """
    errors = int(min(first["errors"].min(), second["errors"].min()))
    low = float(second["low"].min() - first["high"].max())
    high = float(second["high"].max() - first["low"].min())
    least, most = (low, high) if metric in HIGHER_IS_BETTER else (-high, -low)
    word = "undecided" if errors < FEWEST_ERRORS else "yes" if least > 0 else "no" if most < 0 else "undecided"
    none = _ruled_out(word, low, high, metric, errors)
    moved = float(second["difference"].mean() - first["difference"].mean())
    return limited_by_width(Pair(moved, low, high, None, word, none, too_few_errors(errors)), metric)


def read_scores(runs: Sequence[Run], table: str, metric: str, **where: Any) -> dict[str, tuple[float, float, float]]:
    """value, low and high of every method over runs (see `mean_and_ends`); empty without the table."""
    rows = _rows(runs, table, metric=metric, **where)
    return {} if rows.empty else {str(name): mean_and_ends(group) for name, group in rows.groupby("method", sort=False)}


def mean_and_ends(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Mean value, lowest low and highest high."""
    return float(rows["value"].mean()), float(rows["low"].min()), float(rows["high"].max())


def _without_verdict(pairs: Collection[Pair]) -> Finding:
    """Underpowered where no open difference could have been decided."""
    still = [pair for pair in pairs if pair.open]
    return "underpowered" if still and all(pair.unreachable for pair in still) else "undecided"


def gained(pairs: Collection[Pair]) -> Finding:
    """A claimed gain in all pairs: contradicted by one loss, or where every gain that matters is ruled out."""
    if all(pair.better == "yes" for pair in pairs):
        return "supported"
    lost = any(pair.better == "no" for pair in pairs)
    return "contradicted" if lost or all(pair.ruled_out for pair in pairs) else _without_verdict(pairs)


def nothing_gained(pairs: Collection[Pair]) -> Finding:
    """A claim of no gain: contradicted by one gain, supported where every one is ruled out."""
    if any(pair.better == "yes" for pair in pairs):
        return "contradicted"
    return "supported" if all(pair.ruled_out for pair in pairs) else _without_verdict(pairs)


def gained_over_each(metrics: Collection[Collection[Pair]]) -> Finding:
    """A claimed gain over every baseline, in at least one metric.

    Supported where one metric has a gain over each and none a loss; contradicted where in every metric a gain over
    some baseline is ruled out.

    Args:
        metrics: for each metric the pairs with all baselines.
    """
    pairs = [pair for group in metrics for pair in group]
    gain = any(all(pair.better == "yes" for pair in group) for group in metrics)
    if gain and not any(pair.better == "no" for pair in pairs):
        return "supported"
    ruled_out = all(any(pair.ruled_out for pair in group) for group in metrics)
    return "contradicted" if ruled_out else _without_verdict(pairs)


def rate_verdict(b: tuple[float, float], c: tuple[float, float], r2: float, errors: int) -> Finding:
    """Whether the error falls as b/k towards its limit.

    Args:
        b, c: intervals of a + b·k^(−c).
        r2: coefficient of determination of the fit.
        errors: wrong test rows at the k that has most.
    """
    if errors < FEWEST_ERRORS:
        return "undecided"
    if b[1] < 0 or (b[0] > 0 and not c[0] <= 1 <= c[1]):
        return "contradicted"
    narrow = RATE[0] <= c[0] <= 1 <= c[1] <= RATE[1]
    return "supported" if b[0] > 0 and narrow and r2 >= FITS else "undecided"
