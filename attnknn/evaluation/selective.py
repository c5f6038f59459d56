"""Selective classification: abstention below a confidence threshold, risk–coverage curves and the area under them.

Thresholds are chosen on validation rows and evaluated on test rows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import BASE, Table, bootstrap_test

OURS = "attention"
AREAS = ("aurc", "eaurc")
_CURVE_POINTS = 25


def percent(share: float) -> str:
    """Format a share in percent, without trailing zeros: .05 is "5"."""
    return f"{100 * share:g}"


def log_complement(probs: np.ndarray) -> np.ndarray:
    """ln(1 − p), float64 (N, C), of rows that sum to 1, precise also near p = 1.

    float32 has steps of 6e-8 below 1, which would order nearly certain rows by rounding errors. The top class's 1 − p
    is therefore the sum of the other probabilities, rounded to a relative precision of 1e-5.
    """
    probs, rows = np.asarray(probs, dtype=np.float64), np.arange(len(probs))
    top, rest = probs.argmax(1), 1 - probs
    others = probs.copy()
    others[rows, top] = 0
    rest[rows, top] = others.sum(1)
    return np.round(np.log(np.maximum(rest, np.finfo(np.float32).tiny)), 5)


def _ties(confidence: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order of descending confidence, and the first and last position of each run of ties in it."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    change = np.flatnonzero(ordered[1:] != ordered[:-1])
    return order, np.concatenate([[0], change + 1]), np.concatenate([change, [len(order) - 1]])


def aurc(confidence: np.ndarray, wrong: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Area under the risk–coverage curve and its excess over the best order of the same errors, of each resample.

        AURC = 1/N Σₙ rₙ,  rₙ = share of errors among the n most confident rows      (Geifman & El-Yaniv 2017)
        E-AURC = AURC − AURC of an order that has every error last                   (Geifman et al. 2019)

    With ties rₙ is the mean over their orders, so the order of rows does not matter. An error at position j counts in
    rⱼ, …, r_N with 1/n each, so AURC = 1/N Σ_errors (H_N − H_{j−1}) with harmonic numbers H, and the mean over a run
    of ties has a closed form.

    Args:
        confidence: (N,), higher is more certain.
        wrong: (N,) bool.
        counts: (N, R), how often each row is in each resample, N in all; None for the sample itself.

    Returns:
        (R, 2), both in [0, 1].
    """
    n, wrong = len(wrong), np.asarray(wrong, dtype=bool)
    counts = np.ones((n, 1), dtype=np.int32) if counts is None else counts
    order, starts, ends = _ties(np.asarray(confidence))
    errors_in = np.add.reduceat(wrong[order].astype(np.int64), starts)
    starts, ends, errors_in = starts[errors_in > 0], ends[errors_in > 0], errors_in[errors_in > 0]
    if not len(starts):
        return np.zeros((counts.shape[1], 2))
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
    sums = np.arange(n + 1) * (harmonic - 1)  # Σ_{k<n} H_k

    def share(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Mean of (H_N − H_{j−1})/N over before < j ≤ after; 0 for an empty range."""
        mean = (sums[after] - sums[before]) / np.maximum(after - before, 1)
        return np.where(after > before, (harmonic[n] - mean) / n, 0.0)

    covered = np.cumsum(counts[order], axis=0)  # (N, R)
    before = np.where(starts[:, None] > 0, covered[starts - 1], 0)  # (G, R), G runs of ties with errors
    firsts = np.concatenate([[0], np.cumsum(errors_in)[:-1]])
    errors = np.add.reduceat(counts[order[wrong[order]]], firsts, axis=0)  # (G, R)
    area = (errors * share(before, covered[ends])).sum(0)
    all_errors = errors.sum(0)
    best = all_errors * share(n - all_errors, np.full_like(all_errors, n))
    return np.stack([area, np.maximum(area - best, 0)], 1)


def risk_coverage(confidence: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Risk–coverage curve at ≤ 25 evenly spaced coverages: (coverage, risk), the mean over orders of ties.

    Args:
        confidence: (N,), higher is more certain.
        wrong: (N,) bool.
    """
    order, _, ends = _ties(np.asarray(confidence))
    errors = np.cumsum(np.asarray(wrong)[order])[ends]
    answered = np.unique(np.ceil(np.linspace(0, len(order), min(_CURVE_POINTS, len(order)) + 1)[1:]).astype(np.int64))
    return answered / len(order), np.interp(answered, [0, *ends + 1], [0, *errors]) / answered


def threshold(confidence: np.ndarray, wrong: np.ndarray, risk: float) -> float:
    """Lowest confidence threshold whose accepted rows have at most this share of errors; ∞ if there is none."""
    order, _, ends = _ties(np.asarray(confidence))
    allowed = np.cumsum(np.asarray(wrong)[order])[ends] <= risk * (ends + 1)
    return float(confidence[order][ends[allowed][-1]]) if allowed.any() else float("inf")


def best_forms(test: Predictions, val: Predictions) -> dict[str, str]:
    """For each method of `BASE`, the calibrated or uncalibrated form of lowest NLL on the val rows.

    Calibration changes the order of confidences, so methods are compared in their best form.

    Raises:
        InputError: attention is missing in test or val.
    """
    best: dict[str, tuple[float, str]] = {}
    for name, probs in zip(val.methods, val.probs, strict=True):
        base = Method.parse(name).base
        if name in test.methods and base in BASE:
            # Rounded, so that a calibration without effect ties with the uncalibrated form, which comes first.
            nll = round(metrics.scores(probs, val.y)["nll"], 6)
            if base not in best or nll < best[base][0]:
                best[base] = nll, name
    require(OURS in best, f"attention: not among the methods on test and val, which are {', '.join(best)}")
    return {base: best[base][1] for base in BASE if base in best}


def _rows(predictions: Predictions, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Confidence −ln(1 − max p) (N,), and whether the top class is wrong (N,)."""
    probs = np.asarray(predictions.probs[predictions.methods.index(method)])
    return -log_complement(probs).min(1), probs.argmax(1) != np.asarray(predictions.y)


def bootstrap_statistics(
    statistics: Mapping[str, Callable[[np.ndarray], np.ndarray]], rows: int, resamples: int, seed: int
) -> dict[str, np.ndarray]:
    """Values (R, W) of statistics, functions of counts (N, R), on the same bootstrap resamples."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    for counts in metrics.bootstrap_counts(rows, resamples, seed):
        by_row = np.ascontiguousarray(counts.T, dtype=np.int32)  # row order makes permuting rows fast
        for name, statistic in statistics.items():
            parts[name].append(statistic(by_row))
    return {name: np.concatenate(part) for name, part in parts.items()}


def paired_tests(
    names: Sequence[str],
    method: str,
    point: dict[str, np.ndarray],
    drawn: dict[str, np.ndarray],
    affected: dict[str, np.ndarray],
    confidence: float,
) -> Table:
    """Test one method against every other, as `paired_tests.bootstrap_test`.

    Args:
        names: of the W statistics.
        point: (W,) by method; drawn: (R, W) by method, bootstrap values whose differences are tested.
        affected: (N,) bool by method, the rows that a difference can come from.
    """
    return [
        bootstrap_test(
            (method, baseline),
            metric,
            float(point[method][i] - point[baseline][i]),
            drawn[method][:, i] - drawn[baseline][:, i],
            int((affected[method] | affected[baseline]).sum()),
            confidence,
        )
        for baseline in point
        if baseline != method
        for i, metric in enumerate(names)
    ]


def abstention(
    test: Predictions, val: Predictions, risks: Sequence[float], resamples: int, confidence: float, seed: int
) -> tuple[Table, Table, Table]:
    """Risk–coverage of the test rows under abstention below a confidence threshold, for the methods of `best_forms`.

    Intervals of AURC and E-AURC and the tests of attention against each other method are those of the paired bootstrap
    over test rows, centred on the sample. For each risk of r percent, `coverage_at_r` is the share of test rows that
    reach the lowest threshold with that risk on val rows, and `risk_at_r` the share of errors among them, left out
    where there are none; both with Wilson's interval.

    Returns:
        Curves: method, coverage, risk. Scores: method, metric, value, low, high. Tests: see `bootstrap_test`.

    Raises:
        InputError: attention is missing in test or val.
    """
    forms = best_forms(test, val)
    on_test = {name: _rows(test, name) for name in forms.values()}
    point = {name: aurc(*rows)[0] for name, rows in on_test.items()}  # (2,)
    statistics = {name: partial(aurc, *rows) for name, rows in on_test.items()}
    drawn = bootstrap_statistics(statistics, len(test.y), resamples, seed)  # (R, 2) each
    curves: Table = []
    scores: Table = []
    for name, (confidences, wrong) in on_test.items():
        drawn[name] += point[name] - drawn[name].mean(0)
        curve = zip(*risk_coverage(confidences, wrong), strict=True)
        curves += [{"method": name, "coverage": float(c), "risk": float(r)} for c, r in curve]
        values: dict[str, tuple[float, float, float]] = {}
        for i, metric in enumerate(AREAS):
            low, high = np.clip(metrics.interval(drawn[name][:, i], confidence), 0, 1)
            values[metric] = float(point[name][i]), float(low), float(high)
        for risk in risks:
            answered = confidences >= threshold(*_rows(val, name), risk)
            values[f"coverage_at_{percent(risk)}"] = float(answered.mean()), *metrics.wilson(answered, confidence)
            if answered.any():
                risk_values = wrong[answered]
                values[f"risk_at_{percent(risk)}"] = float(risk_values.mean()), *metrics.wilson(risk_values, confidence)
        for metric, (value, low, high) in values.items():
            scores.append({"method": name, "metric": metric, "value": value, "low": low, "high": high})
    errors = {name: wrong for name, (_, wrong) in on_test.items()}
    return curves, scores, paired_tests(AREAS, forms[OURS], point, drawn, errors, confidence)
