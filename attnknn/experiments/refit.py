"""Refit and score all methods on a modified bank."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import Comparison, compare
from attnknn.evaluation.metrics import shot_accuracy
from attnknn.evaluation.paired_tests import BASE, UNDER_CONDITIONS, Table, intervals_and_tests, pairs, scores, values
from attnknn.heads.fit import fit_head
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace

Make = Callable[[np.random.Generator], Sequence[EmbeddingSpace]]
Settings = Mapping[str, Any]


def fit_and_compare(
    spaces: Sequence[EmbeddingSpace],
    k: int,
    fitting: Settings,
    grids: Settings,
    seed: int,
    device: str,
    calibrations: Sequence[str] = KINDS,
    memory: EmbeddingSpace | None = None,
    members: Sequence[EmbeddingSpace] = (),
) -> Comparison:
    """Fit attention and prototypes alone, tune the baselines, and predict all test rows.

    Args:
        k: neighbours of all methods; fewer where the bank is smaller.
        fitting: keyword arguments of `fit_head` that do not follow from the others.
        grids: ks, temperatures, priors, ridges of `compare`.
        calibrations: kinds of `calibration.calibrate`.
        memory, members: see `evaluate.compare`.
    """
    k = min(k, *(space.neighbours.ids.shape[1] for space in spaces))
    starts = {"temperatures": grids["temperatures"], "priors": grids["priors"]}
    common = {**fitting, **starts, "k_train": k, "seed": seed, "device": device}
    heads = {"attention": fit_head(spaces, **common)[0], "prototypes": fit_prototypes(spaces, grids["ridges"], device)}
    others = {"memory": memory, "members": members}
    return compare(spaces, heads, k, **grids, calibrations=calibrations, device=device, **others)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Cell:
    """Results of one bank and one head under one condition."""

    scores: dict[str, dict[str, float]]
    tables: dict[str, Table]


def _cell(make: Make, repeat: int, scoring: Settings, seed: int, settings: Settings) -> _Cell:
    spaces = make(np.random.default_rng([seed, repeat]))
    # Seed 0 must not give the head of `train_attention` again, which the claims count beside these.
    result = fit_and_compare(spaces, seed=100 * seed + repeat + 1, **settings)
    against = pairs(result.test.methods)
    intervals, paired = intervals_and_tests(result.test, against, **scoring, seed=seed, metric_names=UNDER_CONDITIONS)
    scored = scores(result.test, scoring["bins"])
    bank = np.bincount(spaces[0].embeddings.y[spaces[0].embeddings.rows(BANK)], minlength=len(result.test.classes))
    for name, probs in zip(result.test.methods, result.test.probs, strict=True):
        shots = shot_accuracy(probs, result.test.y, bank)
        scored[name] |= shots
        intervals += [{"method": name, "metric": m, "value": v, "low": None, "high": None} for m, v in shots.items()]
    tables = {"intervals": intervals, "paired": paired, "validation": values(result.val, scoring["bins"])}
    return _Cell(scored, tables)


def refit_and_score(
    conditions: Mapping[str, Make],
    repeats: int,
    scoring: Settings,
    seed: int,
    progress: Callable[[str], object] | None = None,
    workers: int = 1,
    **settings: Any,
) -> tuple[dict[str, dict[str, dict[str, float]]], dict[str, Table]]:
    """Refit and score under each condition, several times: with a new bank and a new head each.

    Args:
        conditions: by name, a function from a random generator to the modified spaces.
        scoring: bins, resamples, confidence.
        workers: see `parallel.run_parallel`.
        settings: of `fit_and_compare`.

    Returns:
        Mean scores over repeats by condition, method (of `BASE`) and metric; and the tables `intervals`, `paired` and
        `validation`, whose rows begin with condition and repeat. Metrics `many`, `medium` and `few` are
        `metrics.shot_accuracy`, and have no interval.
    """
    cells = [(name, repeat) for name in conditions for repeat in range(repeats)]
    calls = [partial(_cell, conditions[name], repeat, scoring, seed, settings) for name, repeat in cells]
    scored: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in conditions}
    tables: dict[str, Table] = {"intervals": [], "paired": [], "validation": []}
    for (name, repeat), cell in zip(cells, run_parallel(calls, workers), strict=True):
        scored[name].append(cell.scores)
        for table, rows in cell.tables.items():
            tables[table] += [{"condition": name, "repeat": repeat, **row} for row in rows]
        if progress is not None:
            progress(name)
    means = {
        name: {
            method: {metric: float(np.mean([cell[method][metric] for cell in scores_of])) for metric in metrics}
            for method, metrics in scores_of[0].items()
            if method in BASE
        }
        for name, scores_of in scored.items()
    }
    return means, tables
