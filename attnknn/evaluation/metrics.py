"""Metrics, reliability diagrams, bootstrap intervals and paired tests on arrays.

Every metric is a function of sums over rows: `_row_terms` computes each row's terms (N, T), `_scores` the metrics from
their sums. A bootstrap resample is then one row of the product counts (R, N) @ terms (N, T), where counts are how often
each row was drawn; the same counts for two methods give the paired bootstrap.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

METRICS = ("accuracy", "f1_macro", "balanced_accuracy", "nll", "brier", "ece", "ece_adaptive", "ece_classwise")
HIGHER_IS_BETTER = ("accuracy", "f1_macro", "balanced_accuracy")
HIGHEST = {m: 2.0 if m == "brier" else 1.0 for m in METRICS if m != "nll"}  # upper bounds; the NLL has none
_CHUNK = 100  # resamples drawn at once
_COUNTABLE = 10  # least resamples on either side of 0 for a p value by counting
_MAX_TERMS = 2**26  # row terms that a bootstrap holds at once: 512 MiB


def _bins(confidence: np.ndarray, bins: int) -> np.ndarray:
    """Index of the equal-width bin of each value in [0, 1]: bin b is (b/bins, (b+1)/bins]; 0 is in bin 0."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def _mass_bins(confidence: np.ndarray, bins: int) -> np.ndarray:
    """Index of the equal-mass bin of each value, by its rank; equal values have the lowest of their ranks."""
    ordered = np.sort(confidence)
    return np.searchsorted(ordered, confidence, side="left") * bins // len(confidence)


def _check(probs: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    probs, y = np.asarray(probs, dtype=np.float64), np.asarray(y)
    if probs.ndim != 2 or y.shape != probs.shape[:1] or len(y) == 0:
        raise ValueError(f"probs {probs.shape} and y {y.shape}: expected (N, C) and (N,) with N > 0")
    if not np.isfinite(probs).all() or probs.min() < 0 or np.abs(probs.sum(1) - 1).max() > 1e-4:
        raise ValueError("probs: rows must be finite, not negative, and sum to 1")
    if y.min() < 0 or y.max() >= probs.shape[1]:
        raise ValueError(f"y: values {y.min()} … {y.max()} for {probs.shape[1]} classes")
    if probs[np.arange(len(y)), y].min() <= 0:
        raise ValueError("probs: a true class has probability 0, so the NLL is infinite; give the method a prior mass")
    return probs, y


def _row_terms(probs: np.ndarray, y: np.ndarray, bins: int) -> np.ndarray:
    """Per-row terms (N, T), of whose sums `_scores` is a function.

    T = 3 [hit, NLL, Brier] + 3C [true c, predicted c, both] + 2·bins [gap by bin: equal-width, equal-mass]
      + C·bins [classwise gap].
    """
    n, c = probs.shape
    rows = np.arange(n)
    predicted, confidence = probs.argmax(1), probs.max(1)
    hit = (predicted == y).astype(np.float64)
    onehot = np.eye(c)[y]
    terms = np.zeros((n, 3 + 3 * c + 2 * bins + c * bins))
    terms[:, 0] = hit
    terms[:, 1] = -np.log(probs[rows, y])
    terms[:, 2] = ((probs - onehot) ** 2).sum(1)
    terms[rows, 3 + y] = 1
    terms[rows, 3 + c + predicted] = 1
    terms[rows, 3 + 2 * c + predicted] = hit
    gaps = 3 + 3 * c
    terms[rows, gaps + _bins(confidence, bins)] = confidence - hit
    terms[rows, gaps + bins + _mass_bins(confidence, bins)] = confidence - hit
    classwise = gaps + 2 * bins
    for k in range(c):
        terms[rows, classwise + k * bins + _bins(probs[:, k], bins)] = probs[:, k] - onehot[:, k]
    return terms


def _scores(sums: np.ndarray, n: int, c: int, bins: int) -> np.ndarray:
    """Scores (R, 8) in the order of `METRICS` from sums of row terms (R, T) over n rows.

    Macro F1 and balanced accuracy are means over the classes present in a resample.
    """
    true, predicted, both = (sums[:, 3 + i * c : 3 + (i + 1) * c] for i in range(3))
    gaps = np.abs(sums[:, 3 + 3 * c :]) / n
    with np.errstate(invalid="ignore"):
        recall = np.where(true > 0, both / true, np.nan)
        f1 = np.where(true + predicted > 0, 2 * both / (true + predicted), np.nan)
    return np.stack(
        [
            sums[:, 0] / n,
            np.nanmean(f1, axis=1),
            np.nanmean(recall, axis=1),
            sums[:, 1] / n,
            sums[:, 2] / n,
            gaps[:, :bins].sum(1),
            gaps[:, bins : 2 * bins].sum(1),
            gaps[:, 2 * bins :].sum(1) / c,
        ],
        axis=1,
    )


def scores(probs: np.ndarray, y: np.ndarray, bins: int = 15) -> dict[str, float]:
    """Compute all `METRICS` of one method.

    Accuracy, macro F1, balanced accuracy; NLL = −mean log p(y) in nats; Brier = mean Σ_c (p_c − 1[y = c])², in [0, 2];
    ECE = Σ_b |Σ_{i∈b} (conf_i − hit_i)| / N over equal-width bins of the top-class confidence (Guo et al. 2017);
    ece_adaptive the same over equal-mass bins (Nguyen & O'Connor 2015); ece_classwise the mean over classes of the
    ECE of p_c against 1[y = c] (Kull et al. 2019).

    Args:
        probs: (N, C), rows sum to 1.
        y: (N,) true classes.
        bins: number of bins of the calibration errors.

    Raises:
        ValueError: shapes disagree, rows are not distributions, or a true class has probability 0.
    """
    probs, y = _check(probs, y)
    n, c = probs.shape
    values = _scores(_row_terms(probs, y, bins).sum(0, keepdims=True), n, c, bins)[0]
    return dict(zip(METRICS, map(float, values), strict=True))


def bootstrap_counts(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Draw bootstrap resamples in chunks: counts (≤ 100, N) of how often each row is drawn."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        drawn = rng.integers(n, size=(size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _columns(c: int, bins: int, metric_names: Sequence[str]) -> np.ndarray:
    """Mask (T,) of the row terms that these metrics need."""
    gaps = 3 + 3 * c
    columns = {
        "accuracy": slice(0, 1),
        "nll": slice(1, 2),
        "brier": slice(2, 3),
        "f1_macro": slice(3, gaps),
        "balanced_accuracy": slice(3, gaps),
        "ece": slice(gaps, gaps + bins),
        "ece_adaptive": slice(gaps + bins, gaps + 2 * bins),
        "ece_classwise": slice(gaps + 2 * bins, None),
    }
    needed = np.zeros(gaps + 2 * bins + c * bins, dtype=bool)
    for metric in metric_names:
        needed[columns[metric]] = True
    return needed


def bootstrap(
    probs: np.ndarray, y: np.ndarray, bins: int, resamples: int, seed: int, metric_names: Sequence[str] = METRICS
) -> np.ndarray:
    """Metrics of bootstrap resamples of the rows; the same seed draws the same rows for every method.

    Args:
        probs: (M, N, C), M methods on the same rows.
        y: (N,).
        metric_names: out of `METRICS`; fewer take less time.

    Returns:
        (M, resamples, len(metric_names)).
    """
    n, c = probs.shape[1:]
    out = np.empty((len(probs), resamples, len(metric_names)))
    columns = [METRICS.index(metric) for metric in metric_names]
    needed = _columns(c, bins, metric_names)
    size = max(1, _MAX_TERMS // (n * int(needed.sum())))
    # Methods share a product; drawing the counts again for the next group is cheaper than holding all of them.
    for first in range(0, len(probs), size):
        terms = np.hstack([_row_terms(*_check(p, y), bins)[:, needed] for p in probs[first : first + size]])
        done = 0
        for counts in bootstrap_counts(n, resamples, seed):
            needed_sums = (counts @ terms).reshape(len(counts), -1, int(needed.sum()))
            sums = np.ones((len(counts), len(needed)))  # 1 in unneeded columns avoids divisions by 0
            for m in range(needed_sums.shape[1]):
                sums[:, needed] = needed_sums[:, m]
                out[first + m, done : done + len(counts)] = _scores(sums, n, c, bins)[:, columns]
            done += len(counts)
    return out


def interval(values: np.ndarray, confidence: float) -> tuple[float, float]:
    """Percentile interval of bootstrap values (R,)."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def wilson(hits: np.ndarray, confidence: float) -> tuple[float, float]:
    """Wilson's interval of an accuracy, hits (N,) bool; unlike the bootstrap's, its width is above 0 without errors."""
    from scipy.stats import binomtest

    interval = binomtest(int(hits.sum()), len(hits)).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def paired_p(differences: np.ndarray) -> float:
    """Two-sided p value of paired bootstrap differences d (R,) of bounded scores, such as the ECE.

        2·(min(#d≤0, #d≥0) + 1)/(R + 1),  or, with fewer than 10 of the R on one side,   2·Φ(−|mean d|/sd d)

    Counting gives no p below 2/(R + 1); beyond it the normal tail with the bootstrap's standard error is used (Efron &
    Tibshirani 1993, ch. 13).
    """
    fewest = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    counted = min(1.0, 2 * (fewest + 1) / (len(differences) + 1))
    deviation = float(differences.std())
    if fewest >= _COUNTABLE or deviation == 0:
        return counted
    return min(counted, math.erfc(abs(float(differences.mean())) / deviation / math.sqrt(2)))


def paired_t(differences: np.ndarray) -> float:
    """Two-sided p value of paired differences per row d (N,) whose mean may be 0, for unbounded scores such as the NLL.

        p = 2·P(T > √N·min(|x|, |x'|)),   x = mean d/sd d,   x' = x + γx²/3 + γ²x³/27 + γ/(6N)

    T has Student's distribution with ν = min(N − 1, 2N/(κ + 2)) degrees of freedom; γ, κ are the skewness and excess
    kurtosis of d. x' removes the effect of skewness on t (Hall 1992); ν is that of a variance of such tails. It
    resolves any p; a plain t test and the percentile bootstrap reject too often where few wrong rows cost much.
    """
    from scipy import stats

    n, deviation = len(differences), float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    if deviation == 0:
        return float(not differences.any())
    x, skew = float(differences.mean()) / deviation, float(stats.skew(differences))
    corrected = x + skew * x**2 / 3 + skew**2 * x**3 / 27 + skew / (6 * n)
    freedom = min(n - 1, 2 * n / max(2.0, float(stats.kurtosis(differences)) + 2))
    return float(2 * stats.t.sf(math.sqrt(n) * min(abs(x), abs(corrected)), freedom))


def repeated_t(differences: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """Interval of the mean of paired differences (R, N), R ≥ 2 repeats on the same N rows, and its p value.

        x̄ ± t_ν·√(a + b),   a = s²(means of rows)/N,   b = s²(means of repeats)/R,   ν by Satterthwaite

    Both other rows and other repeats would change the mean; what differs by both at once is in a and in b, so that the
    variance is never too small (Owen 2007). p is at least that of `paired_t` of the means of rows, for skewed losses.

    Returns:
        low, high, p.
    """
    from scipy import stats

    mean, of_rows, of_repeats = float(differences.mean()), differences.mean(0), differences.mean(1)
    a, b = (float(x.var(ddof=1)) / len(x) for x in (of_rows, of_repeats))
    if a + b == 0:
        return mean, mean, float(mean == 0)
    freedom = (a + b) ** 2 / (a**2 / (len(of_rows) - 1) + b**2 / (len(of_repeats) - 1))
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(a + b)
    p = float(2 * stats.t.sf(abs(mean) / math.sqrt(a + b), freedom))
    return mean - half, mean + half, max(p, paired_t(of_rows))


def mcnemar(hit_a: np.ndarray, hit_b: np.ndarray) -> float:
    """Exact two-sided McNemar test of equal accuracy on the same rows (N,) bool: binomial on the discordant rows."""
    from scipy.stats import binomtest

    only_a, only_b = int((hit_a & ~hit_b).sum()), int((hit_b & ~hit_a).sum())
    return 1.0 if only_a + only_b == 0 else float(binomtest(only_a, only_a + only_b).pvalue)


def reliability(probs: np.ndarray, y: np.ndarray, bins: int = 15) -> list[dict[str, Any]]:
    """Reliability diagram over equal-width bins of top-class confidence; the ECE is its count-weighted mean gap.

    Returns:
        Rows of low, high, count, confidence, accuracy; the last two are means over the bin, None where it is empty.
    """
    probs, y = _check(probs, y)
    confidence, hit = probs.max(1), probs.argmax(1) == y
    bin_idx = _bins(confidence, bins)
    count = np.bincount(bin_idx, minlength=bins)
    sums = {"confidence": np.bincount(bin_idx, confidence, bins), "accuracy": np.bincount(bin_idx, hit, bins)}
    return [
        {"low": b / bins, "high": (b + 1) / bins, "count": int(count[b])}
        | {name: float(total[b] / count[b]) if count[b] else None for name, total in sums.items()}
        for b in range(bins)
    ]


def shot_accuracy(probs: np.ndarray, y: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """Mean accuracy over the classes with many, medium and few bank rows (Liu et al. 2019).

    Classes in order of their counts, ties by number: the first and the last ⌊C/3⌋, at least one each, and the rest.
    Classes without a test row are left out, and so are groups without a class.

    Args:
        probs: (N, C).
        y: (N,) true classes.
        counts: (C,) bank rows of each class.
    """
    hits, sizes = (np.bincount(labels, minlength=len(counts)) for labels in (y[probs.argmax(1) == y], y))
    order = np.argsort(-np.asarray(counts), kind="stable")
    third = max(1, len(order) // 3)
    groups = {"many": order[:third], "medium": order[third:-third], "few": order[-third:]}
    groups = {name: group[sizes[group] > 0] for name, group in groups.items()}
    return {name: float((hits[group] / sizes[group]).mean()) for name, group in groups.items() if len(group)}


def oracle(labels: np.ndarray, y: np.ndarray, k: int) -> float:
    """Share of rows with a neighbour of their own class among the first k, the highest accuracy of any weights.

    Args:
        labels: (B, K) classes of the neighbours, nearest first; −1 for missing neighbours.
        y: (B,) true classes.

    Raises:
        ValueError: k is not in 1 … K.
    """
    if not 1 <= k <= labels.shape[1]:
        raise ValueError(f"k: {k} of {labels.shape[1]} neighbours")
    return float((np.asarray(labels)[:, :k] == np.asarray(y)[:, None]).any(1).mean())
