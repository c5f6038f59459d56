"""Conformal prediction sets with a given coverage, calibrated on validation rows."""

from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import Table
from attnknn.evaluation.selective import (
    OURS,
    abstention,
    best_forms,
    bootstrap_statistics,
    log_complement,
    paired_tests,
    percent,
)

KINDS = ("split", "class_conditional")


def p_values(calibration: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Conformal p values (#{calibration ≥ score} + 1)/(V + 1), not smoothed (Vovk et al. 2005).

    Args:
        calibration: (V,) non-conformity scores of calibration rows for their true class; with V = 0 every p is 1.
        scores: any shape, non-conformity scores of new rows for a class.
    """
    below = np.searchsorted(np.sort(calibration), scores)
    return (len(calibration) - below + 1) / (len(calibration) + 1)


def conformal_p(val: np.ndarray, y_val: np.ndarray, probs: np.ndarray, kind: str) -> np.ndarray:
    """Conformal p values of every class and row, (N, C); the set at level α holds the classes with p > α.

    The non-conformity score is 1 − p_y (Sadinle et al. 2019); only its order matters, hence `log_complement`. `split`
    calibrates on all rows: P(y ∈ set) ≥ 1 − α. `class_conditional` calibrates each class on its own rows, which gives
    that coverage in every class (Mondrian, Vovk et al. 2005); a class of fewer than 1/α − 1 rows is in every set.

    Args:
        val: (V, C) probabilities of the calibration rows, y_val their classes (V,).
        probs: (N, C).
        kind: one of `KINDS`.

    Raises:
        InputError: unknown kind.
    """
    require(kind in KINDS, f"conformal: {kind} unknown; allowed are {', '.join(KINDS)}")
    own, scores = true_class_scores(val, y_val), log_complement(probs)
    if kind == "split":
        return p_values(own, scores)
    return np.stack([p_values(own[y_val == c], scores[:, c]) for c in range(probs.shape[1])], 1)


def true_class_scores(probs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Non-conformity scores (V,) of calibration rows for their own class, log(1 − p_y)."""
    return log_complement(probs)[np.arange(len(y)), y]


def conformal(
    test: Predictions, val: Predictions, alphas: Sequence[float], resamples: int, confidence: float, seed: int
) -> tuple[Table, Table]:
    """Conformal sets of the test rows, calibrated on the val rows, for the methods of `best_forms`.

    Val rows also tuned the methods and so are not exactly exchangeable with test rows: coverage is measured.

    Returns:
        Rows of method, kind, alpha, coverage (with Wilson's low and high), size (mean number of classes), empty and
        single (shares of sets), worst_class (lowest coverage of a class), always (classes of too few val rows, in every
        set). And `bootstrap_test`s of attention's set size (kind split) against the others', metric `size_at_c` at
        confidence c %; their `errors` are the rows to which either method gives no or several classes.

    Raises:
        InputError: attention is missing in test or val.
    """
    y, y_val = np.asarray(test.y), np.asarray(val.y)
    per_class = np.bincount(y_val, minlength=len(test.classes))
    table: Table = []
    sizes: dict[str, np.ndarray] = {}
    forms = best_forms(test, val)
    for method in forms.values():
        on_val, on_test = (predictions.probs[predictions.methods.index(method)] for predictions in (val, test))
        for kind in KINDS:
            p = conformal_p(on_val, y_val, on_test, kind)
            rows = np.full(len(per_class), len(y_val)) if kind == "split" else per_class
            for alpha in alphas:
                covered, size = (p > alpha)[np.arange(len(y)), y], (p > alpha).sum(1)  # (N,)
                low, high = metrics.wilson(covered, confidence)
                row = {"method": method, "kind": kind, "alpha": alpha, "coverage": float(covered.mean())}
                row |= {"low": low, "high": high, "size": float(size.mean())}
                row |= {name: float((size == n).mean()) for name, n in (("empty", 0), ("single", 1))}
                row["worst_class"] = min(float(covered[y == c].mean()) for c in np.unique(y))
                table.append(row | {"always": int((1 / (rows + 1) > alpha).sum())})
            if kind == "split":
                sizes[method] = np.stack([(p > alpha).sum(1) for alpha in alphas], 1).astype(np.float64)  # (N, A)
    point = {method: size.mean(0) for method, size in sizes.items()}
    means = {method: lambda counts, size=size: counts.T @ size / len(y) for method, size in sizes.items()}  # (R, A)
    drawn = bootstrap_statistics(means, len(y), resamples, seed)
    names = [f"size_at_{percent(1 - alpha)}" for alpha in alphas]
    not_single = {method: (size != 1).any(1) for method, size in sizes.items()}
    return table, paired_tests(names, forms[OURS], point, drawn, not_single, confidence)


def selective_tables(
    test: Predictions,
    val: Predictions,
    risks: Sequence[float],
    alphas: Sequence[float],
    resamples: int,
    confidence: float,
    seed: int,
) -> tuple[dict[str, dict[str, float]], dict[str, Table]]:
    """Abstention and conformal sets of every method.

    Returns:
        By method, its scores in `abstention`, and coverage and size of each kind of its sets; and the tables by name.
    """
    curves, areas, area_tests = abstention(test, val, risks, resamples, confidence, seed)
    sets, size_tests = conformal(test, val, alphas, resamples, confidence, seed)
    values: dict[str, dict[str, float]] = {}
    for row in areas:
        values.setdefault(row["method"], {})[row["metric"]] = row["value"]
    for row in sets:
        level = percent(1 - row["alpha"])
        values[row["method"]] |= {f"{row['kind']}_{key}_at_{level}": row[key] for key in ("coverage", "size")}
    tests = area_tests + size_tests
    return values, {"risk_coverage": curves, "selective": areas, "selective_paired": tests, "conformal": sets}
