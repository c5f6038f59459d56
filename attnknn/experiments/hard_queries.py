"""Hard queries: their number, the scores of each method on them, and the effect of weighting them in the fit.

A query is hard if at least a given share of its neighbours has another class than its own. Hard test rows are selected
by their labels, so every method scores low on them, and a higher score there may only mean less weight on neighbours.
Changes are therefore judged on all test rows.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnknn.core.artifacts import FIT, PARTS, TEST, VAL, Predictions
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.evaluate import as_predictions, calibrated, predict_parts, tuned_baselines
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import TESTED, Pair, Table, intervals_and_tests, mean_over_repeats
from attnknn.heads.attention import Head
from attnknn.heads.baselines import Distance, choices_of_k, tune_distance
from attnknn.heads.fit import fit_head
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace, classes_of, part_neighbours
from attnknn.nn.objectives import hard_weights, hardness

SUBSETS = ("all", "hard", "easy")
CALIBRATED = (Method("distance", "vector"), Method("distance_weighted", "vector"), Method("linear", "temperature"))


def disagreement(spaces: Sequence[EmbeddingSpace], part: int, k: int) -> np.ndarray:
    """Share of each row's k nearest neighbours of another class: float32 (M,), in the order of `part_rows`.

    Raises:
        InputError: k is above the neighbours stored.
    """
    labels = torch.from_numpy(part_neighbours(spaces, part, k)[1])
    return hardness(labels, torch.from_numpy(classes_of(spaces, part))).numpy()


def count_hard(spaces: Sequence[EmbeddingSpace], k: int, threshold: float) -> Table:
    """Count the hard rows of each class: part (fit, val, test), class, rows, hard.

    Fit and val rows are those of all spaces, test rows those of the first alone.
    """
    table = []
    for part in (FIT, VAL, TEST):
        of_part = spaces[:1] if part == TEST else spaces
        y, hard = classes_of(of_part, part), disagreement(of_part, part, k) >= threshold
        table += [
            {"part": PARTS[part], "class": name, "rows": int((y == c).sum()), "hard": int((hard & (y == c)).sum())}
            for c, name in enumerate(spaces[0].embeddings.classes)
        ]
    return table


def tune_weighted_distance(
    spaces: Sequence[EmbeddingSpace],
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    factor: float,
    k: int,
) -> Distance:
    """`distance` with the k, τ and ε of lowest weighted NLL on val rows, with the weights of `fit_head`.

        Σ w·NLL/Σ w,   w = 1 + (factor − 1)·disagreement

    Factor 1 gives the result of `baselines.tune_distance`.
    """
    weight = hard_weights(torch.from_numpy(disagreement(spaces, VAL, k)), factor)
    on_val = *part_neighbours(spaces, VAL, max(ks)), classes_of(spaces, VAL), spaces[0].shares
    return Distance(**tune_distance(*on_val, ks, temperatures, priors, weight))  # type: ignore[arg-type]


def compare_weighting(
    spaces: Sequence[EmbeddingSpace],
    factor: float,
    repeats: int,
    k: int,
    fitting: Mapping[str, Any],
    grids: Mapping[str, Sequence[Any]],
    seed: int,
    device: str = "cpu",
    workers: int = 1,
    progress: Callable[[str], object] | None = None,
) -> Predictions:
    """Predict the test rows with the base methods, and with methods fitted with a weight on hard queries.

    `attention` weights all queries alike, `attention_weighted` hard ones up to `factor` times, all else equal;
    `attention_configured` is added where `fitting` has a third weight. Each is fitted `repeats` times with different
    seeds and named `0:attention`, `1:attention`, …; repeats of the same number share a seed. `distance_weighted` is
    distance weighting tuned with the same weights.

    Args:
        k: neighbours that each head is fitted and evaluated with; lowered to those stored.
        fitting: keyword arguments of `fit_head` other than those given here.
        grids: ks, temperatures, priors, ridges of `evaluate.compare`.
        workers: see `run_parallel`.
        progress: called with each head's name when it is fitted.
    """
    k = min(k, *(space.neighbours.ids.shape[1] for space in spaces))
    starts = {name: grids[name] for name in ("temperatures", "priors")}
    ks = choices_of_k(grids["ks"], k)
    heads: dict[str, Head] = dict(tuned_baselines(spaces, ks, **starts)[0])
    heads["distance_weighted"] = tune_weighted_distance(spaces, ks, **starts, factor=factor, k=k)
    heads["prototypes"] = fit_prototypes(spaces, grids["ridges"], device)
    weights = {"attention": 1.0, "attention_weighted": factor}
    if fitting["hard_weight"] not in weights.values():
        weights["attention_configured"] = fitting["hard_weight"]
    common = {**fitting, **starts, "k_train": k, "device": device}
    # Not the seed of `train_attention`, whose head is counted elsewhere.
    settings = {
        str(Method(name, variant=str(repeat))): {"hard_weight": weight, "seed": 100 * seed + repeat + 1}
        for name, weight in weights.items()
        for repeat in range(repeats)
    }
    fits = [partial(fit_head, spaces, **common | changes) for changes in settings.values()]
    for name, (head, _) in zip(settings, run_parallel(fits, workers), strict=True):
        heads[name] = head
        if progress is not None:
            progress(name)
    by_part = predict_parts(spaces, heads, k, device)
    probs = {name: test for name, (_, _, test) in by_part.items()}
    for method in CALIBRATED:
        if method.base in by_part:
            base = {method.base: by_part[method.base]}
            probs[str(method)] = calibrated(base, spaces, grids["ridges"], [method.calibration])[0].probs[1]
    return as_predictions(spaces[:1], TEST, probs)


def _pairs(methods: Sequence[str]) -> list[Pair]:
    """Pairs (weighted, unweighted) of the same repeat, and attention with the calibrated baselines."""
    pairs: list[Pair] = [("distance_weighted", "distance"), ("distance_weighted_vector", "distance_vector")]
    for method in map(Method.parse, methods):
        if method.base in ("attention_weighted", "attention_configured"):
            pairs.append((str(method), str(dataclasses.replace(method, base="attention"))))
        if method.base == "attention":
            pairs += [(str(method), "distance_vector"), (str(method), "linear_temperature")]
    return [pair for pair in pairs if set(pair) <= set(methods)]


def by_subset(
    predictions: Predictions, hard: np.ndarray, bins: int, resamples: int, confidence: float, seed: int
) -> tuple[dict[str, dict[str, float]], Table, Table]:
    """Scores on all, hard and easy rows, with intervals and paired tests; all rows alone if none or all are hard.

    Args:
        predictions: of `compare_weighting`.
        hard: bool (N,).

    Returns:
        Means of all rows by method and metric; rows of subset, rows, method, metric, value, low, high; and of subset,
        rows, method, baseline, metric, difference, low, high, errors, p, test. All are over repeats, as
        `paired_tests.mean_over_repeats`.
    """
    intervals: Table = []
    paired: Table = []
    for subset, mask in zip(SUBSETS, (np.ones_like(hard), hard, ~hard), strict=True):
        if subset != "all" and mask.all() | ~mask.any():
            continue
        selected = dataclasses.replace(
            predictions, rows=predictions.rows[mask], y=predictions.y[mask], probs=predictions.probs[:, mask]
        )
        tables = intervals_and_tests(
            selected, _pairs(selected.methods), bins, resamples, confidence, seed, metric_names=TESTED
        )
        for table, rows in zip((intervals, paired), tables, strict=True):
            for row in rows:
                method = Method.parse(row["method"])
                names = {"method": method.name, "repeat": int(method.variant or 0)}
                if "baseline" in row:
                    names["baseline"] = Method.parse(row["baseline"]).name
                table.append({"subset": subset, "rows": int(mask.sum()), **names, **row} | names)
    keys = ("subset", "method", "metric")
    intervals, paired = mean_over_repeats(intervals, keys), mean_over_repeats(paired, (*keys, "baseline"))
    means: dict[str, dict[str, float]] = {}
    for row in [row for row in intervals if row["subset"] == "all"]:
        means.setdefault(row["method"], {})[row["metric"]] = row["value"]
    return means, intervals, paired


def hard_shares(table: Table) -> dict[str, float]:
    """Share of hard rows in each part, from the rows of `count_hard`."""
    totals = pd.DataFrame(table).groupby("part", sort=False)[["hard", "rows"]].sum()
    return {str(part): float(share) for part, share in (totals["hard"] / totals["rows"]).items()}
