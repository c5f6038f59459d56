"""Whether a difference is a gain, ruled out, or open: over the runs of one dataset, from the paired tables.

A gain counts from p < alpha, one sign in all runs and `claims.FEWEST_ERRORS` wrong rows on (`claims.verdict`); it is
ruled out where as many rows are wrong and the interval ends below `MARGIN`. p is combined over runs. What stays open
because too few rows are wrong, or because the resamples cannot give a p below alpha, is called out of reach; where
intervals of single scores or a recalibrated ECE are read, so is what an interval that wide could not rule out even
around zero (`wide`).
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

Finding = Literal["supported", "contradicted", "undecided", "out of reach"]
MARGIN = {"accuracy": 0.003, "nll": 0.01, "ece": 0.003}  # a gain below it is none; .003 is the σ of 10,000 rows
RATE = (0.5, 2.0)  # an exponent known no better than this does not tell 1/k from 1/√k or 1/k²
FITS = 0.9  # share of the curve's movement from which on it counts as fitted


@dataclass(frozen=True)
class Level:
    """What a p value has to be below, and how many resamples it is counted in."""

    alpha: float
    resamples: int


@dataclass(frozen=True)
class Pair:
    """A difference over runs: its mean, the furthest ends of the intervals, p combined, and what the claims make of it.

    Attributes:
        p: None where the interval alone decides.
        better: yes, no (worse) or undecided, of the method against the baseline.
        ruled_out: whether a gain that matters is.
        unreachable: why no difference could have been decided, or ruled out; empty where one could.
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
        """Whether it is neither decided nor ruled out."""
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


def few(errors: int) -> str:
    """Why so few errors decide nothing; empty where they are enough."""
    return f"wrong rows: {errors} of the {FEWEST_ERRORS} needed" if errors < FEWEST_ERRORS else ""


def wide(width: float, limit: float, of: str = "intervals of single scores are") -> str:
    """Why an interval rules nothing out, even around no movement at all; empty where it is narrow enough."""
    return f"{of} wider than {limit:g}: {fixed(width, 4)}" if width >= limit else ""


def blurred(pair: Pair, metric: str) -> Pair:
    """The pair, out of reach if it is open and an interval of its half-width around zero rules no gain out either."""
    if not pair.open or pair.unreachable:
        return pair
    return replace(pair, unreachable=wide((pair.high - pair.low) / 2, MARGIN[metric], "half the interval is"))


def _rows(runs: Sequence[Run], table: str, **where: Any) -> pd.DataFrame:
    """The rows of a table with those values, over runs; empty without any."""
    rows = joined(runs, table)
    for column, value in where.items():
        if not rows.empty:
            rows = rows[rows[column] == value]
    return rows


def _ruled_out(word: str, low: float, high: float, metric: str, errors: int) -> bool:
    """Whether a gain that matters is: it is a loss, or open with enough errors and an interval below `MARGIN`."""
    most = high if metric in HIGHER_IS_BETTER else -low
    return word == "no" or (word == "undecided" and errors >= FEWEST_ERRORS and most < MARGIN[metric])


def pair_of(runs: Sequence[Run], table: str, metric: str, level: Level, **where: Any) -> Pair | None:
    """The rows of a paired table with those values, over runs; None without any."""
    rows = _rows(runs, table, metric=metric, **where)
    return None if rows.empty else as_pair(rows, metric, level)


def as_pair(rows: pd.DataFrame, metric: str, level: Level) -> Pair:
    """Rows of difference, low, high, errors and p, one a run."""
    p, errors = combined_p(rows["p"].tolist()), int(rows["errors"].min())
    word = verdict(rows["difference"].tolist(), p, errors, metric, level.alpha)
    low, high = float(rows["low"].min()), float(rows["high"].max())
    why = few(errors)
    # McNemar's test is exact, and with as many errors its p can be as small as any.
    if not why and metric != "accuracy" and errors < NORMAL_FROM:
        least = smallest_p(len(rows), level.resamples)
        why = f"no p below {p_value(least)} in {level.resamples:,} resamples" if least >= level.alpha else ""
    none = _ruled_out(word, low, high, metric, errors)
    return Pair(float(rows["difference"].mean()), low, high, p, word, none, why)


def change_of(runs: Sequence[Run], table: str, metric: str, conditions: tuple[str, str], **where: Any) -> Pair | None:
    """How far a paired difference moves from one condition to another; None where either has no row (see `change`)."""
    first, second = (_rows(runs, table, metric=metric, condition=name, **where) for name in conditions)
    return None if first.empty or second.empty else change(first, second, metric)


def change(first: pd.DataFrame, second: pd.DataFrame, metric: str) -> Pair:
    """A difference of differences.

        d = d₂ − d₁,   low = low₂ − high₁,   high = high₂ − low₁

    Both are measured on the same test rows, so they depend on each other in a way that the tables do not hold. The
    widths of their intervals are added: sd(d₂ − d₁) ≤ sd d₁ + sd d₂ whatever that dependence is, so the interval is
    never too narrow, and wider than it need be. It decides by itself, without p. Over runs the furthest ends count.

    Args:
        first, second: rows of difference, low, high, errors, one a run.
    """
    errors = int(min(first["errors"].min(), second["errors"].min()))
    low = float(second["low"].min() - first["high"].max())
    high = float(second["high"].max() - first["low"].min())
    least, most = (low, high) if metric in HIGHER_IS_BETTER else (-high, -low)
    word = "undecided" if errors < FEWEST_ERRORS else "yes" if least > 0 else "no" if most < 0 else "undecided"
    none = _ruled_out(word, low, high, metric, errors)
    moved = float(second["difference"].mean() - first["difference"].mean())
    return blurred(Pair(moved, low, high, None, word, none, few(errors)), metric)


def scores_of(runs: Sequence[Run], table: str, metric: str, **where: Any) -> dict[str, tuple[float, float, float]]:
    """value, low and high of every method over runs: the mean and the furthest ends; empty without the table."""
    rows = _rows(runs, table, metric=metric, **where)
    return {} if rows.empty else {str(name): mean_and_ends(of) for name, of in rows.groupby("method", sort=False)}


def mean_and_ends(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Mean value, lowest low and highest high."""
    return float(rows["value"].mean()), float(rows["low"].min()), float(rows["high"].max())


def _left(pairs: Collection[Pair]) -> Finding:
    """Out of reach where nothing that is open could have been decided."""
    still = [pair for pair in pairs if pair.open]
    return "out of reach" if still and all(pair.unreachable for pair in still) else "undecided"


def gained(pairs: Collection[Pair]) -> Finding:
    """Of a claim of a gain in all pairs: contradicted where one is a loss, or every gain that matters is ruled out."""
    if all(pair.better == "yes" for pair in pairs):
        return "supported"
    lost = any(pair.better == "no" for pair in pairs)
    return "contradicted" if lost or all(pair.ruled_out for pair in pairs) else _left(pairs)


def nothing_gained(pairs: Collection[Pair]) -> Finding:
    """Of a claim that nothing is gained: contradicted by one gain, supported where every one is ruled out."""
    if any(pair.better == "yes" for pair in pairs):
        return "contradicted"
    return "supported" if all(pair.ruled_out for pair in pairs) else _left(pairs)


def gained_over_each(metrics: Collection[Collection[Pair]]) -> Finding:
    """Of a claim of a gain over every baseline, in some metric.

    Supported where one metric has a gain over each and none a loss; contradicted where in every metric there is a
    baseline over which a gain that matters is ruled out.

    Args:
        metrics: of each metric the pairs with all baselines.
    """
    pairs = [pair for of in metrics for pair in of]
    gain = any(all(pair.better == "yes" for pair in of) for of in metrics)
    if gain and not any(pair.better == "no" for pair in pairs):
        return "supported"
    return "contradicted" if all(any(pair.ruled_out for pair in of) for of in metrics) else _left(pairs)


def rate_verdict(b: tuple[float, float], c: tuple[float, float], r2: float, errors: int) -> Finding:
    """Does the error fall as b/k towards its limit?

    Args:
        b, c: intervals of a + b·k^(−c).
        r2: share of the movement that the curve fits.
        errors: wrong test rows at the k that has most.
    """
    if errors < FEWEST_ERRORS:
        return "undecided"
    if b[1] < 0 or (b[0] > 0 and not c[0] <= 1 <= c[1]):
        return "contradicted"
    told = RATE[0] <= c[0] <= 1 <= c[1] <= RATE[1]
    return "supported" if b[0] > 0 and told and r2 >= FITS else "undecided"
