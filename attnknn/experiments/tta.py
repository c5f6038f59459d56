"""Test-time augmentation: every method's answers to several views of the same rows, and their mean.

Baselines are tuned, heads fitted, on the images as they are; nothing is chosen by what the views give. Calibration is
fitted anew on the mean, as each mean is another method. All of it for every method alike, so that what the views give
is told from what a head gives.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, TEST, Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.evaluate import Answers, answers, calibrated, tuned_baselines
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


def as_view(main: EmbeddingSpace, view: View) -> EmbeddingSpace:
    """The same bank and the same labels, the held-out rows as they look under a view.

    Raises:
        InputError: the view is of other rows, or of another bank or encoder.
    """
    e = main.embeddings
    require(
        np.array_equal(view.rows, held_out(e.part)) and view.z.shape[1] == e.z.shape[1],
        "view: of other rows or another encoder; only held-out rows have views. Run `dvc repro`",
    )
    of_bank = (view.ids < 0) | (e.part[view.ids] == BANK)
    require(bool(of_bank.all()), "view: a neighbour is no row of the bank; run `dvc repro`")
    z = np.array(e.z)
    z[view.rows] = view.z
    logits = None
    if e.logits is not None:
        require(view.logits is not None, "view: no logits beside embeddings that have some; run `dvc repro`")
        logits = np.array(e.logits)
        logits[view.rows] = view.logits
    return EmbeddingSpace(dataclasses.replace(e, z=z, logits=logits), view.neighbours, main.statistics)


def answer_views(
    main: EmbeddingSpace,
    views: Mapping[str, View],
    heads: Mapping[str, Head],
    k_eval: int,
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    device: str = "cpu",
) -> dict[str, Answers]:
    """What every method says of the rows as they are (`original`) and of each view.

    Methods: `uniform` and `distance` as tuned on the val rows as they are, the heads as given, and `linear` where there
    are logits. The folds of a cross-fit have no views, so they take no part here.

    Args: as for `comparison.compare`.

    Raises:
        InputError: k_eval is above the neighbours stored, or a view does not fit.
    """
    seen = {ORIGINAL: main} | {name: as_view(main, view) for name, view in views.items()}
    stored = min(one.neighbours.ids.shape[1] for one in seen.values())
    require(k_eval <= stored, f"k_eval: {k_eval} is above the {stored} neighbours stored for each row; lower k_eval")
    baselines, _ = tuned_baselines([main], choices_of_k(ks, k_eval), temperatures, priors)
    return {name: answers([one], {**baselines, **heads}, k_eval, device) for name, one in seen.items()}


def mean_of(views: Sequence[Answers]) -> Answers:
    """The mean of every method's probabilities over views: p(c) = Σ_v p_v(c)/V.

    Raises:
        InputError: there are no views, or they were not all answered by the same methods.
    """
    require(len(views) > 0, "views: none; give one or more")
    require(all(set(v) == set(views[0]) for v in views), "views: each must be answered by every method, none left out")

    def mean(method: str, part: int) -> np.ndarray:
        stacked = np.stack([view[method][part] for view in views])  # (V, M, C)
        return stacked.mean(0, dtype=np.float64).astype(np.float32)

    return {method: (mean(method, 0), mean(method, 1), mean(method, 2)) for method in views[0]}


def _scored_alone(seen: Mapping[str, Answers], y: np.ndarray, bins: int) -> Table:
    """Each view by itself, and the mean of all views but this one; what that is worse than all, the view adds."""
    table: Table = []
    for name, view in seen.items():
        others = mean_of([other for key, other in seen.items() if key != name])
        for method, (_, _, test) in view.items():
            alone, without = metrics.scores(test, y, bins), metrics.scores(others[method][2], y, bins)
            where = {"view": name, "method": method}
            table += [{**where, "metric": m, "value": alone[m], "without": without[m]} for m in TESTED]
    return table


def score_views(
    seen: Mapping[str, Answers],
    main: EmbeddingSpace,
    ridges: Sequence[float],
    bins: int,
    resamples: int,
    confidence: float,
    seed: int,
) -> tuple[dict[str, dict[str, dict[str, float]]], dict[str, Table]]:
    """Score the mean over the first n views for every n, with calibrations fitted on the mean's fit rows.

    Args:
        seen: of `answer_views`, two views or more.
        ridges: what vector scaling chooses among.

    Returns:
        Scores by "views n", method and metric; and the tables of `COLUMNS`: `tta` with intervals, `tta_alone`, and
        `tta_paired`, every method with all views against itself with one, and attention against distance weighting,
        both bare and both under each calibration, with one view and with all.

    Raises:
        InputError: there is one view only.
    """
    require(len(seen) > 1, "views: one only, so there is no mean over several; give tta.flip or tta.crops")
    views = list(seen.values())
    means: dict[str, dict[str, dict[str, float]]] = {}
    made: list[Predictions] = []
    for n in range(1, len(views) + 1):
        found = calibrated(mean_of(views[:n]), [main], ridges, CALIBRATIONS)[0]
        means[f"views {n}"] = {m: {key: of[key] for key in TESTED} for m, of in scores(found, bins).items()}
        made.append(found)
    methods, last = made[0].methods, len(views)
    # All of them as one set of methods, `<n> <method>`: one bootstrap, its resamples the same for all.
    names = tuple(f"{n} {method}" for n in range(1, last + 1) for method in methods)
    probs = np.concatenate([of.probs for of in made])
    everything = dataclasses.replace(made[0], probs=probs, methods=names)
    ours = [(f"attention{kind}", f"distance{kind}") for kind in ("", *(f"_{k}" for k in CALIBRATIONS))]
    against = [(f"{last} {method}", f"1 {method}") for method in methods]
    against += [(f"{n} {a}", f"{n} {b}") for n in (1, last) for a, b in ours if {a, b} <= set(methods)]
    intervals, paired = intervals_and_tests(everything, against, bins, resamples, confidence, seed, wanted=TESTED)

    def parted(row: dict[str, Any], **named: str) -> dict[str, Any]:
        """The row with its names of methods parted into the number of views and the method."""
        found = {}
        for key, count in named.items():
            n, _, found[key] = row[key].partition(" ")
            found[count] = int(n)
        return row | found

    rows = {
        "tta": [parted(row, method="views") for row in intervals],
        "tta_alone": _scored_alone(seen, classes_of([main], TEST), bins),
        "tta_paired": [parted(row, method="views", baseline="baseline_views") for row in paired],
    }
    tables = {name: [{c: row[c] for c in COLUMNS[name]} for row in of] for name, of in rows.items()}
    return means, tables
