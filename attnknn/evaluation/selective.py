"""Answering only when sure: abstention by confidence, its risk–coverage curve and what lies under it.

Thresholds are chosen on validation rows; test rows judge them and choose nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import BASE, Table

OURS = "attention"
AREAS = ("aurc", "eaurc")
_ROUNDING = 1e-6  # of areas made of float32 probabilities; a smaller difference is none


def percent(share: float) -> str:
    """A share in percent, as short as it can be: .05 is "5"."""
    return f"{100 * share:g}"


def doubt(probs: np.ndarray) -> np.ndarray:
    """ln(1 − p), float64 (N, C), of rows that sum to 1: what is left for the other classes, precise also near p = 1.

    float32 has steps of 6e-8 below 1, and after a unanimous vote nothing but rounding is left between rows. The small
    probabilities hold what the large one has lost, so 1 − max p is their sum; what differs by less than 1e-5 of it is
    equal.
    """
    probs, rows = np.asarray(probs, dtype=np.float64), np.arange(len(probs))
    top, rest = probs.argmax(1), 1 - probs
    others = probs.copy()
    others[rows, top] = 0
    rest[rows, top] = others.sum(1)
    return np.round(np.log(np.maximum(rest, np.finfo(np.float32).tiny)), 5)


def _ties(confidence: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows from sure to unsure, and where among them each run of equal confidence starts and ends (inclusive)."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    change = np.flatnonzero(ordered[1:] != ordered[:-1])
    return order, np.concatenate([[0], change + 1]), np.concatenate([change, [len(order) - 1]])


def aurc(confidence: np.ndarray, wrong: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Area under the risk–coverage curve, and its excess over the best order of the same errors, of each resample.

        AURC = 1/N Σₙ rₙ,  rₙ = share of errors among the n most confident rows      (Geifman & El-Yaniv 2017)
        E-AURC = AURC − AURC of an order that has every error last                   (Geifman et al. 2019)

    Rows of equal confidence have no order: rₙ is its mean over all of theirs, so the order of rows changes nothing. An
    error at place j counts in rⱼ, …, r_N, with 1/n each, so AURC = 1/N Σ_errors (H_N − H_{j−1}), H harmonic numbers:
    only errors need a look, and for m rows of equal confidence ΣH has a closed form.

    Args:
        confidence: (N,), higher is surer.
        wrong: (N,) bool.
        counts: (N, R), how often each row is in each resample, N in all; once each if left out.

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
    sums = np.arange(n + 1) * (harmonic - 1)  # Σ H_k over k < n

    def share(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Mean of (H_N − H_{j−1})/N over the places before < j ≤ after; 0 where there is none."""
        mean = (sums[after] - sums[before]) / np.maximum(after - before, 1)
        return np.where(after > before, (harmonic[n] - mean) / n, 0.0)

    seen = np.cumsum(counts[order], axis=0)  # (N, R)
    before = np.where(starts[:, None] > 0, seen[starts - 1], 0)  # (G, R), G the runs with errors
    firsts = np.concatenate([[0], np.cumsum(errors_in)[:-1]])
    errors = np.add.reduceat(counts[order[wrong[order]]], firsts, axis=0)  # (G, R)
    area = (errors * share(before, seen[ends])).sum(0)
    all_errors = errors.sum(0)
    best = all_errors * share(n - all_errors, np.full_like(all_errors, n))
    return np.stack([area, np.maximum(area - best, 0)], 1)


def risk_coverage(confidence: np.ndarray, wrong: np.ndarray, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """The risk–coverage curve at ≤ `points` even coverages: (coverage, risk), the mean risk over orders of ties.

    Args:
        confidence: (N,), higher is surer.
        wrong: (N,) bool.
    """
    order, _, ends = _ties(np.asarray(confidence))
    errors = np.cumsum(np.asarray(wrong)[order])[ends]
    answered = np.unique(np.ceil(np.linspace(0, len(order), min(points, len(order)) + 1)[1:]).astype(np.int64))
    return answered / len(order), np.interp(answered, [0, *ends + 1], [0, *errors]) / answered


def threshold(confidence: np.ndarray, wrong: np.ndarray, risk: float) -> float:
    """The lowest confidence from which on the rows (N,) that reach it have at most this share of errors; ∞ if none."""
    order, _, ends = _ties(np.asarray(confidence))
    fine = np.cumsum(np.asarray(wrong)[order])[ends] <= risk * (ends + 1)
    return float(confidence[order][ends[fine][-1]]) if fine.any() else float("inf")


def strongest(test: Predictions, val: Predictions) -> dict[str, str]:
    """By each method of `BASE`, the form of it, bare or with a calibration, that has the lowest NLL on the val rows.

    A calibration gives rows another order of confidence, so attention is compared with others only as well calibrated
    as they can be, and so is it.

    Raises:
        InputError: attention does not answer both the test and the val rows.
    """
    best: dict[str, tuple[float, str]] = {}
    for name, probs in zip(val.methods, val.probs, strict=True):
        base = Method.parse(name).base
        if name in test.methods and base in BASE:
            # A calibration that changes nothing but the last bits is a tie, and the first form is the bare one.
            nll = round(metrics.scores(probs, val.y)["nll"], 6)
            if base not in best or nll < best[base][0]:
                best[base] = nll, name
    require(OURS in best, f"attention: not among the methods on test and val, which are {', '.join(best)}")
    return {base: best[base][1] for base in BASE if base in best}


def _rows(predictions: Predictions, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Confidence −ln(1 − max p), in the order of the top probability, (N,); and whether the top class is wrong (N,)."""
    probs = np.asarray(predictions.probs[predictions.methods.index(method)])
    return -doubt(probs).min(1), probs.argmax(1) != np.asarray(predictions.y)


def resampled(
    functions: Mapping[str, Callable[[np.ndarray], np.ndarray]], rows: int, resamples: int, seed: int
) -> dict[str, np.ndarray]:
    """What functions of counts (N, R) give for the same bootstrap resamples, (R, W) each."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in functions}
    for counts in metrics._resamples(rows, resamples, seed):
        by_row = np.ascontiguousarray(counts.T, dtype=np.int32)  # rows are taken in many orders
        for name, function in functions.items():
            parts[name].append(function(by_row))
    return {name: np.concatenate(part) for name, part in parts.items()}


def paired_tests(
    names: Sequence[str],
    ours: str,
    point: dict[str, np.ndarray],
    drawn: dict[str, np.ndarray],
    telling: dict[str, np.ndarray],
    confidence: float,
) -> Table:
    """One method against every other, as `scorecard`'s `paired`.

    Args:
        names: of the W scores; ours: the one; point: method → (W,); drawn: method → (R, W), centred on point.
        telling: method → rows (N,) bool that a difference comes from.
    """
    table: Table = []
    for method in (name for name in point if name != ours):
        rows = int((telling[ours] | telling[method]).sum())
        for i, metric in enumerate(names):
            differences = drawn[ours][:, i] - drawn[method][:, i]
            differences[np.abs(differences) < _ROUNDING] = 0
            low, high = metrics.interval(differences, confidence)
            table.append(
                {
                    "method": ours,
                    "baseline": method,
                    "metric": metric,
                    "difference": float(point[ours][i] - point[method][i]),
                    "low": low,
                    "high": high,
                    "errors": rows,
                    "p": metrics.paired_p(differences, rows),
                    "test": "paired bootstrap",
                }
            )
    return table


def abstention(
    test: Predictions, val: Predictions, risks: Sequence[float], resamples: int, confidence: float, seed: int
) -> tuple[Table, Table, Table]:
    """Risk–coverage of the test rows under abstention below a top probability, for the forms that `strongest` gives.

    Intervals of AURC and E-AURC and the tests of attention against each other method are of the paired bootstrap over
    test rows, centred on the sample as in `scorecard`. For each risk of r percent, `coverage_at_r` is the share of test
    rows that reach the lowest threshold which keeps the val rows at that risk, and `risk_at_r` the share of errors
    among them, left out where there is none; both with Wilson's interval.

    Returns:
        Curves: method, coverage, risk. Scores: method, metric, value, low, high. Tests: as `scorecard`'s `paired`.

    Raises:
        InputError: attention is missing on test or val.
    """
    forms = strongest(test, val)
    on_test = {name: _rows(test, name) for name in forms.values()}
    point = {name: aurc(*rows)[0] for name, rows in on_test.items()}  # (2,)
    drawn = resampled(
        {name: partial(aurc, *rows) for name, rows in on_test.items()}, len(test.y), resamples, seed
    )  # (R, 2) each
    curves: Table = []
    scores: Table = []
    for name, (sure, wrong) in on_test.items():
        drawn[name] += point[name] - drawn[name].mean(0)
        curve = zip(*risk_coverage(sure, wrong), strict=True)
        curves += [{"method": name, "coverage": float(c), "risk": float(r)} for c, r in curve]
        values: dict[str, tuple[float, float, float]] = {}
        for i, metric in enumerate(AREAS):
            low, high = np.clip(metrics.interval(drawn[name][:, i], confidence), 0, 1)
            values[metric] = float(point[name][i]), float(low), float(high)
        for risk in risks:
            answered = sure >= threshold(*_rows(val, name), risk)
            values[f"coverage_at_{percent(risk)}"] = float(answered.mean()), *metrics.wilson(answered, confidence)
            if answered.any():
                errors = wrong[answered]
                values[f"risk_at_{percent(risk)}"] = float(errors.mean()), *metrics.wilson(errors, confidence)
        for metric, (value, low, high) in values.items():
            scores.append({"method": name, "metric": metric, "value": value, "low": low, "high": high})
    telling = {name: wrong for name, (_, wrong) in on_test.items()}
    return curves, scores, paired_tests(AREAS, forms[OURS], point, drawn, telling, confidence)


def summary(scores: Table, sets: Table) -> dict[str, dict[str, float]]:
    """The values of `abstention` and `conformal` by method: the scores, and coverage and size of each kind of set."""
    values: dict[str, dict[str, float]] = {}
    for row in scores:
        values.setdefault(row["method"], {})[row["metric"]] = row["value"]
    for row in sets:
        for key in ("coverage", "size"):
            values[row["method"]][f"{row['kind']}_{key}_at_{percent(1 - row['alpha'])}"] = row[key]
    return values
