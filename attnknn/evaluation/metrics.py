"""Scores, calibration, intervals and paired tests: numpy in, numbers out.

Every score is a function of sums over rows. `_row_terms` gives each row's terms (N, T) and `_scores` turns their sums
into scores, so a bootstrap resample is one row of a matrix product: W (R, N) @ terms (N, T), W counting how often
each row was drawn. The same W for two methods gives the paired bootstrap.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

METRICS = (
    "accuracy",
    "f1_macro",
    "balanced_accuracy",
    "nll",
    "brier",
    "ece",
    "ece_adaptive",
    "ece_classwise",
)
HIGHEST = {m: 2.0 if m == "brier" else 1.0 for m in METRICS if m != "nll"}  # the NLL has no upper bound
NORMAL_FROM = 400  # wrong rows from which on the mean loss is as good as normal far out
_COUNTABLE = 10  # resamples on one side of 0 from which on a p value is counted
_HELD = 2**26  # numbers of row terms that a bootstrap holds at once: 512 MiB


def _bins(confidence: np.ndarray, bins: int) -> np.ndarray:
    """Number of the equal-width bin of each value in [0, 1]: bin b is (b/bins, (b+1)/bins], and 0 belongs to bin 0."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def _mass_bins(confidence: np.ndarray, bins: int) -> np.ndarray:
    """Number of the equal-mass bin of each value, by rank; equal values share the bin of the lowest of them."""
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
    """Per-row terms (N, T) whose sums are all that `_scores` needs.

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

    A class absent from a resample counts neither in macro F1 nor in balanced accuracy.
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
    """All scores of one method.

    accuracy, macro F1, balanced accuracy; NLL = −mean log p(y) in nats; Brier = mean Σ_c (p_c − 1[y = c])², in [0, 2];
    ECE = Σ_b |Σ_{i∈b} (conf_i − hit_i)| / N over equal-width bins of the top-class confidence (Guo et al. 2017);
    ece_adaptive the same over equal-mass bins (Nguyen & O'Connor 2015); ece_classwise the mean over classes of the
    ECE of p_c against 1[y = c] (Kull et al. 2019).

    Args:
        probs: (N, C), rows sum to 1.
        y: (N,) true classes.
        bins: number of calibration bins.

    Raises:
        ValueError: shapes disagree, rows are no distributions, or a true class has probability 0.
    """
    probs, y = _check(probs, y)
    n, c = probs.shape
    values = _scores(_row_terms(probs, y, bins).sum(0, keepdims=True), n, c, bins)[0]
    return dict(zip(METRICS, map(float, values), strict=True))


def _resamples(n: int, resamples: int, seed: int, chunk: int = 100) -> Iterator[np.ndarray]:
    """Bootstrap counts in chunks (≤ chunk, N): how often each row is drawn in each resample."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        drawn = rng.integers(n, size=(size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _columns(c: int, bins: int, metric_names: Sequence[str]) -> np.ndarray:
    """Which of the row terms some scores need: bool (T,)."""
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
    """Scores of bootstrap resamples of the rows, the same rows for every method that is given the same seed.

    Args:
        probs: (M, N, C), M methods on the same rows.
        y: (N,).
        metric_names: the scores, out of `METRICS`; fewer take less time.

    Returns:
        (M, resamples, len(metric_names)).
    """
    n, c = probs.shape[1:]
    out = np.empty((len(probs), resamples, len(metric_names)))
    places = [METRICS.index(metric) for metric in metric_names]
    needed = _columns(c, bins, metric_names)
    size = max(1, _HELD // (n * int(needed.sum())))
    # Drawing the same counts again for the next methods is cheaper than holding the counts or all terms.
    for first in range(0, len(probs), size):
        # Side by side, so that one product serves all methods.
        terms = np.hstack([_row_terms(*_check(p, y), bins)[:, needed] for p in probs[first : first + size]])
        done = 0
        for counts in _resamples(n, resamples, seed):
            terms_sums = (counts @ terms).reshape(len(counts), -1, int(needed.sum()))
            sums = np.ones((len(counts), len(needed)))  # what is not needed may be anything but a division by 0
            for m in range(terms_sums.shape[1]):
                sums[:, needed] = terms_sums[:, m]
                out[first + m, done : done + len(counts)] = _scores(sums, n, c, bins)[:, places]
            done += len(counts)
    return out


def interval(values: np.ndarray, confidence: float) -> tuple[float, float]:
    """Percentile interval of bootstrap values (R,)."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def wilson(hits: np.ndarray, confidence: float) -> tuple[float, float]:
    """Wilson's interval of an accuracy (N,) bool; unlike the bootstrap's, it has a width when every row is right."""
    from scipy.stats import binomtest

    interval = binomtest(int(hits.sum()), len(hits)).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def paired_p(differences: np.ndarray, errors: int) -> float:
    """Two-sided p of "no difference" from paired bootstrap differences d (R,).

        2·(min(#d≤0, #d≥0) + 1)/(R + 1),   or, where fewer than 10 of the R lie on one side,   2·Φ(−|mean d|/sd d)

    Counting alone can give no p below 2/(R + 1), too coarse for many claims; beyond what can be counted the tail is
    taken as normal, with the bootstrap's standard error (Efron & Tibshirani 1993, chapter 13). The loss of a few wrong
    rows is too skewed for that, so it needs 400 of them; with fewer, counting has the last word.

    Args:
        errors: rows that either method gets wrong.
    """
    fewest = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    counted = min(1.0, 2 * (fewest + 1) / (len(differences) + 1))
    deviation = float(differences.std())
    if fewest >= _COUNTABLE or errors < NORMAL_FROM or deviation == 0:
        return counted
    return min(counted, math.erfc(abs(float(differences.mean())) / deviation / math.sqrt(2)))


def mcnemar(hit_a: np.ndarray, hit_b: np.ndarray) -> float:
    """Exact two-sided McNemar test of equal accuracy on the same rows (N,) bool: binomial on the discordant rows."""
    from scipy.stats import binomtest

    only_a, only_b = int((hit_a & ~hit_b).sum()), int((hit_b & ~hit_a).sum())
    return 1.0 if only_a + only_b == 0 else float(binomtest(only_a, only_a + only_b).pvalue)


@dataclass(frozen=True)
class ReliabilityBin:
    """One bin of a reliability diagram; confidence and accuracy are its means, NaN where the bin is empty."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(probs: np.ndarray, y: np.ndarray, bins: int = 15) -> list[ReliabilityBin]:
    """The equal-width bins of top-class confidence that `ece` is the weighted gap of."""
    probs, y = _check(probs, y)
    confidence, hit = probs.max(1), probs.argmax(1) == y
    bin_of = _bins(confidence, bins)
    count = np.bincount(bin_of, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(bin_of, confidence, bins) / count
        accuracy = np.bincount(bin_of, hit, bins) / count
    return [
        ReliabilityBin(b / bins, (b + 1) / bins, int(count[b]), float(mean_confidence[b]), float(accuracy[b]))
        for b in range(bins)
    ]


def shot_accuracy(probs: np.ndarray, y: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """Mean accuracy over the classes that are `many`, `medium` and `few` in the bank (Liu et al. 2019).

    Classes in order of their counts, ties by number: the first and the last ⌊C/3⌋, at least one each, and the rest.
    Classes without a test row are left out, and so is a group without a class.

    Args:
        probs: (N, C).
        y: (N,) true classes.
        counts: (C,) bank rows of each class.
    """
    hits, sizes = (np.bincount(labels, minlength=len(counts)) for labels in (y[probs.argmax(1) == y], y))
    order = np.argsort(-np.asarray(counts), kind="stable")
    third = max(1, len(order) // 3)
    groups = {"many": order[:third], "medium": order[third:-third], "few": order[-third:]}
    known = {name: group[sizes[group] > 0] for name, group in groups.items()}
    return {name: float((hits[group] / sizes[group]).mean()) for name, group in known.items() if len(group)}


def oracle(labels: np.ndarray, y: np.ndarray, k: int) -> float:
    """Share of rows with a neighbour of their own class among the first k: what the best weights could get right.

    Args:
        labels: (B, K) classes of the neighbours, nearest first; −1 where there is none.
        y: (B,) true classes.

    Raises:
        ValueError: k is not in 1 … K.
    """
    if not 1 <= k <= labels.shape[1]:
        raise ValueError(f"k: {k} of {labels.shape[1]} neighbours")
    return float((np.asarray(labels)[:, :k] == np.asarray(y)[:, None]).any(1).mean())
