"""Test-time augmentation: mean predictions of every method over several views of the same rows.

Baselines are tuned and heads fitted on the original images; the views select nothing. Calibration is fitted on each
mean. All methods use the same views, which separates the effect of the views from that of a head.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, TEST
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.evaluate import PartProbs, calibrated, predict_parts, stack_methods, tuned_baselines
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests, scores
from attnknn.heads.attention import Head
from attnknn.heads.baselines import choices_of_k
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from attnknn.neighbours.views import View, held_out

ORIGINAL = "original"
CALIBRATIONS = ("temperature", "vector")
COLUMNS = {
    "tta": ("views", "method", "metric", "value", "low", "high"),
    "tta_alone": ("view", "method", "metric", "value", "without"),
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
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    device: str = "cpu",
) -> dict[str, PartProbs]:
    """Predict the original rows (`original`) and each view with every method.

    Methods: `uniform` and `distance` as tuned on the original val rows, the heads, and `linear` where there are logits.
    The folds of a cross-fit have no views, so they are not used. Arguments are as for `evaluate.compare`.

    Raises:
        InputError: k_eval is above the neighbours stored, or a view does not fit.
    """
    spaces = {ORIGINAL: main} | {name: view_space(main, view) for name, view in views.items()}
    baselines, _ = tuned_baselines([main], choices_of_k(ks, k_eval), temperatures, priors)
    return {name: predict_parts([space], {**baselines, **heads}, k_eval, device) for name, space in spaces.items()}


def mean_over_views(views: Sequence[PartProbs]) -> PartProbs:
    """The mean of every method's probabilities over views: p(c) = Σ_v p_v(c)/V.

    Raises:
        InputError: the methods of the views differ.
    """
    require(all(set(v) == set(views[0]) for v in views), "views: the methods differ; predict each with every method")

    def mean(method: str, part: int) -> np.ndarray:
        stacked = np.stack([view[method][part] for view in views])  # (V, M, C)
        return stacked.mean(0, dtype=np.float64).astype(np.float32)

    return {method: (mean(method, 0), mean(method, 1), mean(method, 2)) for method in views[0]}


def _score_alone(probs: Mapping[str, PartProbs], y: np.ndarray, bins: int) -> Table:
    """Scores of each single view (value), and of the mean of all other views (without)."""
    table: Table = []
    for name, view in probs.items():
        others = mean_over_views([other for key, other in probs.items() if key != name])
        for method, (_, _, test) in view.items():
            alone, without = metrics.scores(test, y, bins), metrics.scores(others[method][2], y, bins)
            row = {"view": name, "method": method}
            table += [{**row, "metric": m, "value": alone[m], "without": without[m]} for m in TESTED]
    return table


def score_views(
    probs: Mapping[str, PartProbs],
    main: EmbeddingSpace,
    ridges: Sequence[float],
    bins: int,
    resamples: int,
    confidence: float,
    seed: int,
) -> tuple[dict[str, dict[str, dict[str, float]]], dict[str, Table]]:
    """Score the mean over the first n views for every n, with calibrations fitted on the mean's fit rows.

    Args:
        probs: of `predict_views`, two views or more.
        ridges: the grid of vector scaling.

    Returns:
        Scores by "views n", method and metric; and the tables of `COLUMNS`: `tta` with intervals, `tta_alone`, and
        `tta_paired`, every method with all views against one view, and attention against distance weighting with the
        same calibration or none, with one view and with all.

    Raises:
        InputError: there is one view only.
    """
    require(len(probs) > 1, "views: one only, and a mean needs several; give tta.flip or tta.crops")
    views = list(probs.values())
    by_n = {
        n: calibrated(mean_over_views(views[:n]), [main], ridges, CALIBRATIONS)[0] for n in range(1, len(views) + 1)
    }
    means = {
        f"views {n}": {method: {m: row[m] for m in TESTED} for method, row in scores(predictions, bins).items()}
        for n, predictions in by_n.items()
    }
    methods, last = by_n[1].methods, len(views)
    pairs = [(f"{last}:{method}", f"1:{method}") for method in methods]
    for n in (1, last):
        same_kind = [(Method("attention", kind), Method("distance", kind)) for kind in ("", *CALIBRATIONS)]
        pairs += [(f"{n}:{a}", f"{n}:{b}") for a, b in same_kind if {str(a), str(b)} <= set(methods)]
    # One bootstrap of methods `<n>:<method>`, with the same resamples for all.
    named = [dataclasses.replace(p, methods=tuple(f"{n}:{method}" for method in methods)) for n, p in by_n.items()]
    intervals, paired = intervals_and_tests(
        stack_methods(*named), pairs, bins, resamples, confidence, seed, metric_names=TESTED
    )

    def split_names(row: dict[str, Any], **columns: str) -> dict[str, Any]:
        """The row with the number of views in a column of its own, for each column of names."""
        for column, views in columns.items():
            method = Method.parse(row[column])
            row = row | {column: method.name, views: int(method.variant)}
        return row

    rows = {
        "tta": [split_names(row, method="views") for row in intervals],
        "tta_alone": _score_alone(probs, classes_of([main], TEST), bins),
        "tta_paired": [split_names(row, method="views", baseline="baseline_views") for row in paired],
    }
    return means, {name: [{c: row[c] for c in COLUMNS[name]} for row in table] for name, table in rows.items()}
