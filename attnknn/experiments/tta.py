"""Test-time augmentation: mean predictions of every method over several views of the same rows.

Baselines are tuned and heads fitted on the original images; the views select nothing. Calibration is fitted on each
mean. All methods use the same views, which separates the effect of the views from that of a head.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, PartProbs
from attnknn.core.errors import require
from attnknn.evaluation.evaluate import calibrated, predict_parts, stack_methods, tuned_baselines
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests, scores
from attnknn.heads.attention import Head
from attnknn.heads.baselines import choices_of_k
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.views import View, held_out

ORIGINAL = "original"
CALIBRATIONS = ("temperature", "vector")
COLUMNS = {
    "tta": ("views", "method", "metric", "value", "low", "high"),
    "tta_paired": (
        *("method", "baseline", "views", "baseline_views", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
}


def view_space(main: EmbeddingSpace, view: View) -> EmbeddingSpace:
    """Replace the embeddings and neighbours of the held-out rows by those of a view.

    Raises:
        InputError: the view is of other rows, or of another bank or encoder.
    """
    e = main.embeddings
    require(
        np.array_equal(view.rows, held_out(e.part)) and view.z.shape[1] == e.z.shape[1],
        "view: other rows or another encoder; only held-out rows have views. Run `dvc repro`",
    )
    in_bank = (view.ids < 0) | (e.part[view.ids] == BANK)
    require(bool(in_bank.all()), "view: a neighbour is not in the bank; run `dvc repro`")
    z = np.array(e.z)
    z[view.rows] = view.z
    logits = None
    if e.logits is not None:
        require(view.logits is not None, "view: has no logits, but the embeddings do; run `dvc repro`")
        logits = np.array(e.logits)
        logits[view.rows] = view.logits
    return EmbeddingSpace(dataclasses.replace(e, z=z, logits=logits), view, main.statistics)


def predict_views(
    main: EmbeddingSpace,
    views: Mapping[str, View],
    heads: Mapping[str, Head],
    k_eval: int,
    grids: Mapping[str, Any],
    device: str = "cpu",
) -> dict[str, PartProbs]:
    """Predict the original rows (`original`) and each view with every method.

    Methods: `uniform` and `distance` as tuned on the original val rows, the heads, and `linear` where there are logits.
    The folds of a cross-fit have no views, so they are not used.

    Args:
        k_eval: the most neighbours that any method may use.
        grids: ks, temperatures, priors of `evaluate.compare`.

    Raises:
        InputError: k_eval is above the neighbours stored, or a view does not fit.
    """
    spaces = {ORIGINAL: main} | {name: view_space(main, view) for name, view in views.items()}
    baselines, _ = tuned_baselines([main], choices_of_k(grids["ks"], k_eval), grids["temperatures"], grids["priors"])
    return {name: predict_parts([space], {**baselines, **heads}, k_eval, device) for name, space in spaces.items()}


def mean_over_views(views: Sequence[PartProbs]) -> PartProbs:
    """The mean of every method's probabilities over views: p(c) = Σ_v p_v(c)/V."""

    def mean(method: str, part: int) -> np.ndarray:
        stacked = np.stack([view[method][part] for view in views])  # (V, M, C)
        return stacked.mean(0, dtype=np.float64).astype(np.float32)

    return {method: (mean(method, 0), mean(method, 1), mean(method, 2)) for method in views[0]}


def score_views(
    probs: Mapping[str, PartProbs],
    main: EmbeddingSpace,
    ridges: Sequence[float],
    scoring: Mapping[str, Any],
    seed: int,
) -> tuple[dict[str, Any], dict[str, Table]]:
    """Score the mean over the first n views for every n, with calibrations fitted on the mean's fit rows.

    Args:
        probs: of `predict_views`, two views or more.
        ridges: the grid of vector scaling.
        scoring: bins, resamples, confidence.

    Returns:
        Scores by "views n", method and metric; and the tables of `COLUMNS`: `tta` with intervals, and `tta_paired`,
        every method with all views against one view, and attention against distance weighting with the same
        calibration or none, with one view and with all.
    """
    views, last = list(probs.values()), len(probs)
    by_n = {n: calibrated(mean_over_views(views[:n]), [main], ridges, CALIBRATIONS)[0] for n in range(1, last + 1)}
    means = {
        f"views {n}": {name: {m: row[m] for m in TESTED} for name, row in scores(p, scoring["bins"]).items()}
        for n, p in by_n.items()
    }
    methods = by_n[1].methods
    pairs = [(f"{last}:{method}", f"1:{method}") for method in methods]
    for n in (1, last):
        same_kind = [(Method("attention", kind), Method("distance", kind)) for kind in ("", *CALIBRATIONS)]
        pairs += [(f"{n}:{a}", f"{n}:{b}") for a, b in same_kind if {str(a), str(b)} <= set(methods)]
    # One bootstrap of methods `<n>:<method>`, with the same resamples for all.
    named = [dataclasses.replace(p, methods=tuple(f"{n}:{method}" for method in methods)) for n, p in by_n.items()]
    intervals, paired = intervals_and_tests(stack_methods(*named), pairs, **scoring, seed=seed, metric_names=TESTED)
    tables: dict[str, Table] = {}
    for table, rows in {"tta": intervals, "tta_paired": paired}.items():
        for row in rows:
            for column, number in (("method", "views"), ("baseline", "baseline_views")):
                if column in row:
                    method = Method.parse(row[column])
                    row |= {column: method.name, number: int(method.variant)}
        tables[table] = [{column: row[column] for column in COLUMNS[table]} for row in rows]
    return means, tables
