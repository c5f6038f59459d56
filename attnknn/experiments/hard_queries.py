"""Queries whose neighbourhood disagrees with them: how many, how each method fares, and what weight on them changes.

A query is hard if at least a set share of its neighbours carry another class than its own. That is known only where
the true class is: hard test rows are picked by what they are tested for, so every method is poor on them, and a method
that does better there may merely trust neighbours less. What a change is worth is therefore told on all test rows.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from attnknn.core.artifacts import FIT, PARTS, TEST, VAL, Predictions
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.calibration import calibrate
from attnknn.evaluation.evaluate import Answers, answers, tuned_baselines
from attnknn.evaluation.paired_tests import TESTED, Pair, Table, intervals_and_tests
from attnknn.heads.attention import Distance, Head
from attnknn.heads.baselines import choices_of_k, spread
from attnknn.heads.fit import fit_head
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace, classes_of, voters
from attnknn.nn.objectives import hard_weights, hardness, nll
from attnknn.nn.votes import distance_weights, vote

SUBSETS = ("all", "hard", "easy")
# method: what it is made of
_CALIBRATED = {
    "distance_vector": "distance",
    "distance_weighted_vector": "distance_weighted",
    "linear_temperature": "linear",
}


def disagreement(spaces: Sequence[EmbeddingSpace], part: int, k: int) -> np.ndarray:
    """Share of each row's k nearest that carry another class than it: float32 (M,), in the order of `pooled`.

    Raises:
        InputError: k is above the neighbours stored.
    """
    labels = torch.from_numpy(voters(spaces, part, k)[1])
    return hardness(labels, torch.from_numpy(classes_of(spaces, part))).numpy()


def shares(spaces: Sequence[EmbeddingSpace], k: int, threshold: float) -> Table:
    """How many rows of each class are hard: part (fit, val, test), class, rows, hard.

    Fit and val rows are those of all spaces, test rows those of the first alone.
    """
    names = spaces[0].embeddings.classes
    table = []
    for part in (FIT, VAL, TEST):
        of = spaces[:1] if part == TEST else spaces
        y, hard = classes_of(of, part), disagreement(of, part, k) >= threshold
        table += [
            {"part": PARTS[part], "class": name, "rows": int((y == c).sum()), "hard": int((hard & (y == c)).sum())}
            for c, name in enumerate(names)
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
    """`distance` with the k, τ and ε of lowest NLL on val rows, each row weighed as `fit_head` weighs fit rows.

        Σ w·NLL/Σ w,   w = 1 + (factor − 1)·(share of the k nearest that carry another class)

    With factor 1 it is what `tuning.tune_distance` finds.
    """
    sims, labels = map(torch.from_numpy, voters(spaces, VAL, max(ks)))
    y = torch.from_numpy(classes_of(spaces, VAL))
    weight = hard_weights(torch.from_numpy(disagreement(spaces, VAL, k)), factor).double()
    unit, prior_of = spread(sims.numpy()), spaces[0].shares[y].double()
    best: tuple[float, dict[str, Any]] = (np.inf, {})
    for n in ks:
        for t in temperatures:
            voted = vote(*distance_weights(sims, n, t * unit, 0.0), labels, spaces[0].shares)
            own = voted.gather(1, y[:, None])[:, 0].double()  # of the true class
            for prior in priors:
                mixed = ((1 - prior) * own + prior * prior_of)[:, None]
                loss = float(nll(mixed, torch.zeros_like(y), weight=weight))
                if loss < best[0]:
                    best = loss, {"k": n, "temperature": t * unit, "prior": prior}
    return Distance(**best[1])


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
    """Answers of the base methods to the test rows, and of those that are fitted with weight on hard queries.

    `attention` weighs all queries alike, `attention_weighted` hard ones up to `factor` times, all else equal;
    `attention_configured` is there where `fitting` has a third weight. Each is fitted `repeats` times, from other
    seeds, and named `attention/0`, `attention/1`, …; repeats of the same number share a seed. `distance_weighted` is
    distance weighting, tuned with the same weights. k shrinks with the bank.

    Args:
        k: neighbours that each head is fitted and evaluated with, at most.
        fitting: keyword arguments of `fit_head` that do not follow from the others.
        grids: ks, temperatures, priors, ridges of `comparison.compare`.
        workers: see `parallel.run_parallel`.
        progress: called with each head's name when it is fitted.
    """
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    k = min(k, stored)
    starts = {name: grids[name] for name in ("temperatures", "priors")}
    ks = choices_of_k(grids["ks"], k)
    heads: dict[str, Head] = dict(tuned_baselines(spaces, ks, **starts)[0])
    heads["distance_weighted"] = tune_weighted_distance(spaces, ks, **starts, factor=factor, k=k)
    heads["prototypes"] = fit_prototypes(spaces, grids["ridges"], device)
    weights = {"attention": 1.0, "attention_weighted": factor}
    if fitting["hard_weight"] not in weights.values():
        weights["attention_configured"] = fitting["hard_weight"]
    asked = {f"{name}/{r}": (weight, r) for name, weight in weights.items() for r in range(repeats)}
    common = {**fitting, **starts, "k_train": k, "device": device}
    # Not the seed of `train_attention`, whose head is counted elsewhere.
    seeds = {name: {"hard_weight": weight, "seed": 100 * seed + r + 1} for name, (weight, r) in asked.items()}
    fits = [partial(fit_head, spaces, **common | own) for own in seeds.values()]
    for name, (head, _) in zip(seeds, run_parallel(fits, workers), strict=True):
        heads[name] = head
        if progress is not None:
            progress(name)
    probs = answers(spaces, heads, k, device)
    found = {name: test for name, (_, _, test) in probs.items()} | _calibrated(probs, spaces, grids["ridges"])
    main = spaces[0].embeddings
    rows, y = main.rows(TEST).astype(np.int32), classes_of(spaces[:1], TEST)
    return Predictions(rows, y, np.stack(list(found.values())), tuple(found), tuple(main.classes))


def _calibrated(probs: Answers, spaces: Sequence[EmbeddingSpace], ridges: Sequence[float]) -> dict[str, np.ndarray]:
    """Probabilities of the test rows after the calibrations that are compared."""
    y_fit, y_val = classes_of(spaces, FIT), classes_of(spaces, VAL)
    made = {}
    for name, base in _CALIBRATED.items():
        if base in probs:
            fit, val, test = probs[base]
            made[name] = calibrate(name.rpartition("_")[2], fit, y_fit, val, y_val, test, ridges).test
    return made


def _pairs(methods: Sequence[str]) -> list[Pair]:
    """What weight changes, a repeat at a time, and attention beside the two strongest peers."""
    found: list[Pair] = [("distance_weighted", "distance"), ("distance_weighted_vector", "distance_vector")]
    for name in methods:
        base, _, repeat = name.partition("/")
        if base in ("attention_weighted", "attention_configured"):
            found.append((name, f"attention/{repeat}"))
        if base == "attention":
            found += [(name, "distance_vector"), (name, "linear_temperature")]
    return [(a, b) for a, b in found if a in methods and b in methods]


def by_subset(
    predictions: Predictions, hard: np.ndarray, bins: int, resamples: int, confidence: float, seed: int
) -> tuple[dict[str, dict[str, dict[str, float]]], Table, Table]:
    """Scores on all rows, the hard and the easy ones, with intervals and paired tests.

    Where no row is hard, or every one, there are only those of all rows.

    Args:
        predictions: of `compare_weighting`.
        hard: bool (N,).

    Returns:
        Mean over repeats by subset, method and metric; rows of subset, rows, method, repeat, metric, value, low, high;
        and of subset, rows, method, repeat, baseline, metric, difference, low, high, errors, p, test.
    """
    means: dict[str, dict[str, dict[str, float]]] = {}
    intervals: Table = []
    paired: Table = []
    for subset, at in zip(SUBSETS, (np.ones_like(hard), hard, ~hard), strict=True):
        if subset != "all" and at.all() | ~at.any():
            continue
        of = dataclasses.replace(
            predictions, rows=predictions.rows[at], y=predictions.y[at], probs=predictions.probs[:, at]
        )
        found = intervals_and_tests(of, _pairs(of.methods), bins, resamples, confidence, seed, wanted=TESTED)
        where = {"subset": subset, "rows": int(at.sum())}
        for table, rows in zip((intervals, paired), found, strict=True):
            for row in rows:
                name, _, repeat = row["method"].partition("/")
                own = {"method": name, "repeat": int(repeat or 0)}
                if "baseline" in row:
                    own["baseline"] = row["baseline"].partition("/")[0]
                table.append({**where, **own, **{key: value for key, value in row.items() if key not in own}})
        mine = [row for row in intervals if row["subset"] == subset]
        means[subset] = {
            name: {
                metric: float(np.mean([r["value"] for r in mine if (r["method"], r["metric"]) == (name, metric)]))
                for metric in TESTED
            }
            for name in dict.fromkeys(row["method"] for row in mine)
        }
    return means, intervals, paired
