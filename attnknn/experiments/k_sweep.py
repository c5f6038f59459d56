"""Score every method at each number of neighbours k, tuned or fitted for that k."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from attnknn.core.artifacts import BANK, PartProbs, Predictions
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.evaluate import calibrated, predict_parts, stack_methods, tuned_baselines
from attnknn.evaluation.method import KINDS, Method
from attnknn.evaluation.opponents import OURS, compare_with_opponents, select
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests, scores
from attnknn.heads.attention import Head
from attnknn.heads.fit import fit_head
from attnknn.neighbours.space import EmbeddingSpace

KNN = ("uniform", "distance", OURS)  # the methods with neighbours
SWEPT = (*KNN, "distance_vector")
COLUMNS = ("k", "sqrt_n", "method", "metric", "validation", "value", "low", "high")


class Sweep(NamedTuple):
    """Results of a sweep over k."""

    table: Table  # rows of `COLUMNS`, of the methods `SWEPT`; sqrt_n marks the rounded √n
    paired: Table  # rows of `opponents.COLUMNS`: attention and the best opponents, each with its own k and calibration
    best: dict[str, dict[str, Any]]  # by method: best_k (lowest NLL on val) and accuracy, nll, ece on test at that k
    predictions: Predictions  # of the test rows by the uncalibrated methods with neighbours, as `<method>@<k>`


def root(bank_rows: int) -> int:
    """√n, rounded: a rule of thumb for k."""
    return round(math.sqrt(bank_rows))


def swept_ks(ks: Sequence[int], bank_rows: int, stored: int) -> list[int]:
    """Those of ks that are stored, and √n/2, √n and 2√n, ascending.

    The largest stored k replaces a larger 2√n: a grid that ends at √n cannot show whether √n is best.
    """
    sqrt_n = root(bank_rows)
    return sorted({k for k in (*ks, max(1, sqrt_n // 2), sqrt_n, min(2 * sqrt_n, stored)) if k <= stored})


def _calibrated(
    probs: PartProbs, spaces: Sequence[EmbeddingSpace], ridges: Sequence[float], k: int | None
) -> tuple[Predictions, Predictions]:
    """Predictions of the test and of the val rows, without and with each calibration; k becomes part of the names."""
    test, val, _ = calibrated(probs, spaces, ridges, KINDS)
    methods = tuple(str(dataclasses.replace(Method.parse(name), k=k)) for name in test.methods)
    return dataclasses.replace(test, methods=methods), dataclasses.replace(val, methods=methods)


def _predict_at_k(
    spaces: Sequence[EmbeddingSpace],
    k: int,
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    seed: int,
    device: str,
) -> tuple[Predictions, Predictions]:
    """Tune and fit the methods with neighbours for k of them, and predict test and val rows."""
    starts = {"temperatures": grids["temperatures"], "priors": grids["priors"]}
    heads, _ = tuned_baselines(spaces, [k], **starts)
    heads[OURS] = fit_head(spaces, k_train=k, **fitting, **starts, seed=seed, device=device)[0]
    probs = predict_parts(spaces, heads, k, device)
    return _calibrated({name: probs[name] for name in KNN}, spaces, grids["ridges"], k)


def sweep(
    spaces: Sequence[EmbeddingSpace],
    ks: Sequence[int],
    others: Mapping[str, Head],
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    scoring: Mapping[str, Any],
    seed: int,
    device: str = "cpu",
    progress: Callable[..., Iterable[Any]] = lambda results, **_: results,
    workers: int = 1,
) -> Sweep:
    """Tune uniform and distance weighting, and fit attention, at each k; compare all methods on the test rows.

    The k and the calibration with which attention is tested have the lowest NLL on val, those of its opponents the best
    value of each metric there; test selects nothing.

    Args:
        spaces: as for `evaluate.compare`.
        ks: of `swept_ks`.
        others: heads without neighbours, such as the prototypes.
        fitting: keyword arguments of `fit_head` other than those given here.
        grids: temperatures, priors, ridges.
        scoring: bins, resamples, confidence.
        workers: see `run_parallel`.
    """
    by_k = [_calibrated(predict_parts(spaces, others, 1, device), spaces, grids["ridges"], None)]
    calls = [partial(_predict_at_k, spaces, k, fitting, grids, seed, device) for k in ks]
    by_k += progress(run_parallel(calls, workers), total=len(calls))
    test, val = (stack_methods(*parts) for parts in zip(*by_k, strict=True))
    methods = {name: Method.parse(name) for name in test.methods}
    without_k = {name: str(dataclasses.replace(method, k=None)) for name, method in methods.items()}
    on_val = scores(val, scoring["bins"])
    by_nll = sorted(test.methods, key=lambda name: round(on_val[name]["nll"], 6))  # lowest k first on a tie
    best = {without_k[name]: name for name in reversed(by_nll)}
    shown = select(test, [name for name in test.methods if without_k[name] in SWEPT])
    rows = intervals_and_tests(shown, (), **scoring, seed=seed, metric_names=TESTED)[0]
    sqrt_n = root(len(spaces[0].embeddings.rows(BANK)))
    table: Table = []
    for row in rows:
        name, k = row["method"], methods[row["method"]].k
        score = {"method": without_k[name], "metric": row["metric"], "validation": on_val[name][row["metric"]]}
        table.append({"k": k, "sqrt_n": k == sqrt_n, **score} | {key: row[key] for key in ("value", "low", "high")})
    ours = next(name for name in by_nll if methods[name].base == OURS)
    compared = compare_with_opponents(test, val, **scoring, seed=seed, metric_names=TESTED, ours=ours, forms=())
    on_test = scores(select(test, best.values()), scoring["bins"])
    best_scores = {
        name: {"best_k": methods[best[name]].k, **{m: on_test[best[name]][m] for m in TESTED}} for name in SWEPT
    }
    return Sweep(table, compared, best_scores, select(test, [name for name in test.methods if without_k[name] in KNN]))
