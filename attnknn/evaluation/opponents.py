"""Compare attention with its strongest opponents, chosen on validation rows."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import (
    BASE,
    EMBEDDING_PEERS,
    TESTED,
    Table,
    intervals_and_tests,
    mean_over_repeats,
    reliability,
    scores,
)

OURS = "attention"  # by neighbours alone
KNN, WITHOUT, BEST = "kNN", "without neighbours", "best attention"
# The opponent of each role is the best of these on val rows, without or with a calibration.
ROLES = {
    KNN: ("uniform", "distance", "raw-uniform", "raw-distance"),
    WITHOUT: ("prototypes", "linear", "cnn", *EMBEDDING_PEERS, "logistic", "forest", "boosting", "catboost", "xgboost"),
}
# Robust to wrong labels, see experiments/conditions.py.
ROBUST = ("gce-linear", "gce-rbf", "gce-mlp", "cleaned-linear", "cleaned-rbf")
ROLES[WITHOUT] += ROBUST
COLUMNS = ("role", "method", "metric", "value", "low", "high", "difference", "difference_low", "difference_high")
COLUMNS += ("errors", "p", "ours")
# Bases of the role BEST, chosen in NLL as the opponents are.
FORMS = ("attention", "attention-means", "attention-linear")
TUNED = ("uniform", "distance")
UNDER_CONDITIONS = ("accuracy", "balanced_accuracy", "nll", "ece")
_CHOSEN_BY = {metric: metric for metric in TESTED} | {"balanced_accuracy": "accuracy"}


def select(predictions: Predictions, methods: Iterable[str]) -> Predictions:
    """The predictions of these methods, in their order."""
    methods = tuple(methods)
    probs = predictions.probs[[predictions.methods.index(name) for name in methods]]
    return dataclasses.replace(predictions, probs=probs, methods=methods)


def best_on_val(val: Predictions, bins: int, roles: Mapping[str, Sequence[str]] = ROLES) -> dict[tuple[str, str], str]:
    """The method of each role that is best on val rows in each tested metric, by (role, metric); the first on a tie.

    Args:
        roles: bases by role.

    Raises:
        InputError: no method has one of the roles.
    """
    on_val, best = scores(val, bins), {}
    for role, bases in roles.items():
        candidates = [name for name in on_val if Method.parse(name).base in bases]
        require(bool(candidates), f"validation rows: no prediction by {' or '.join(bases)}; run `dvc repro`")
        for metric in TESTED:
            sign = -1 if metric in metrics.HIGHER_IS_BETTER else 1
            # Rounded: a calibration that changes the last bits only is a tie.
            best[role, metric] = min(candidates, key=lambda name: round(sign * on_val[name][metric], 6))
    return best


def compare_with_opponents(
    test: Predictions,
    val: Predictions,
    bins: int,
    resamples: int,
    confidence: float,
    seed: int,
    metric_names: Sequence[str],
    others: Sequence[str] = (),
    ours: str = "",
    forms: Sequence[str] = FORMS,
) -> Table:
    """Score attention and the opponents of `best_on_val` on test rows, and test attention against each.

    So is the form of attention that is best on val rows in NLL; all without or with a calibration, chosen likewise.

    Args:
        metric_names: metrics to score; those of `paired_tests.TESTED` are tested. Balanced accuracy is shown of the
            opponents in accuracy.
        ours: the method compared as attention; by default `attention` with the calibration of lowest NLL on val rows.
        forms: bases of the role BEST; none leaves it out.
        others: methods to add, tested too; their role is empty. One that is also an opponent has a row as each.

    Returns:
        Rows of `COLUMNS`; differences are those of the role `ours`, OURS or BEST, − method.
    """
    own_roles = {OURS: () if ours else (OURS,), BEST: forms}
    own_roles = {role: bases for role, bases in own_roles.items() if bases}
    best = best_on_val(val, bins, ROLES | own_roles)
    compared = {OURS: ours} | {role: best[role, "nll"] for role in own_roles}
    opponents = [best[role, metric] for role in ROLES for metric in TESTED]
    methods = list(dict.fromkeys([*compared.values(), *others, *opponents]))
    against = dict.fromkeys((a, b) for a in compared.values() for b in methods if a != b)
    scoring = bins, resamples, confidence, seed, metric_names
    scored, tests = intervals_and_tests(select(test, methods), [*against], *scoring)
    tested = {(row["method"], row["baseline"], row["metric"]): row for row in tests}
    table: Table = []
    row: dict[str, Any]
    for row in scored:
        method, metric = row["method"], row["metric"]
        roles = [role for role in ROLES if best.get((role, _CHOSEN_BY.get(metric, ""))) == method]
        for name, own_method in compared.items():
            own = [name] if method == own_method else roles + [""] * (method in others and name == OURS)
            pair = tested.get((own_method, method, metric), {})
            values = [pair.get(key) for key in ("difference", "low", "high", "errors", "p")]
            for role in own:
                table.append(dict(zip(COLUMNS, (role, *row.values(), *values, name), strict=True)))
    return table


def scores_by_row(predictions: Predictions, methods: Iterable[str]) -> dict[tuple[str, str], np.ndarray]:
    """Whether each row (N,) is right, as `accuracy`, and its loss, as `nll`, by (method, metric)."""
    chosen = select(predictions, dict.fromkeys(methods))
    y, result = np.asarray(chosen.y), {}
    for name, probs in zip(chosen.methods, np.asarray(chosen.probs, dtype=np.float64), strict=True):
        result[name, "accuracy"] = (probs.argmax(1) == y).astype(np.float64)
        result[name, "nll"] = np.round(-np.log(probs[np.arange(len(y)), y]), 6)  # beyond are errors of float32
    return result


def opponents_over_repeats(
    runs: Sequence[Table], by_row: Sequence[Mapping[tuple[str, str], np.ndarray]], confidence: float
) -> Table:
    """Combine tables of `compare_with_opponents` over repeats, as `mean_over_repeats`; accuracy and NLL are tested by
    `metrics.repeated_t`.

    Args:
        by_row: `scores_by_row` of each repeat's test rows.
    """
    keyed = [[{"key": row["role"] or row["method"], **row} for row in run] for run in runs]
    keys = "ours", "key", "metric"
    methods = [{tuple(row[k] for k in keys): row["method"] for row in run} for run in keyed]
    table: Table = []
    for row in mean_over_repeats([row for run in keyed for row in run], keys):
        ours, key, metric = row["ours"], row.pop("key"), row["metric"]
        if metric in ("accuracy", "nll") and key != ours:
            both = [
                (one[ours, ours, metric], one[ours, key, metric], scored)
                for one, scored in zip(methods, by_row, strict=True)
                if (ours, key, metric) in one
            ]
            if len(both) > 1:
                differences = np.stack([scored[a, metric] - scored[b, metric] for a, b, scored in both])
                low, high, p = metrics.repeated_t(differences, confidence)
                row |= {"difference_low": low, "difference_high": high, "p": p}
        table.append(row)
    return table


def score_tables(
    test: Predictions, val: Predictions, bins: int, resamples: int, confidence: float, seed: int
) -> tuple[dict[str, dict[str, float]], dict[str, Table]]:
    """Score all methods on the test rows.

    Returns:
        Metrics by method, of those not in `BASE` the tested ones; and the tables `intervals`, of `BASE` and the
        opponents, of those in NLL all metrics, and `reliability`, of attention and the opponents in NLL.
    """
    scored, best = scores(test, bins), best_on_val(val, bins, ROLES | {OURS: (OURS,), BEST: FORMS})
    base = dict.fromkeys([name for name in test.methods if name in BASE])
    base |= dict.fromkeys(best[role, "nll"] for role in (*ROLES, OURS, BEST))
    kept = {name: {m: v for m, v in own.items() if name in BASE or m in TESTED} for name, own in scored.items()}
    rows = compare_with_opponents(test, val, bins, resamples, confidence, seed, metrics.METRICS, [*base])
    shown = [row["method"] for row in rows if row["role"] and row["metric"] == "nll"]
    tables = {"intervals": rows, "reliability": reliability(test, bins, shown)}
    return kept, tables
