"""Attention and what it has to beat, fitted and tuned anew under conditions of the memory; it ends in plain tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import Compared, compare
from attnknn.evaluation.metrics import shot_accuracy
from attnknn.evaluation.paired_tests import UNDER_CONDITIONS, Table, intervals_and_tests, pairs, scores, values
from attnknn.heads.fit import fit_head
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace

Make = Callable[[np.random.Generator], Sequence[EmbeddingSpace]]
Settings = Mapping[str, Any]


def fit_and_compare(
    spaces: Sequence[EmbeddingSpace],
    k_train: int,
    k_eval: int,
    fitting: Settings,
    grids: Settings,
    seed: int,
    device: str,
    calibrations: Sequence[str] = KINDS,
    memory: EmbeddingSpace | None = None,
    members: Sequence[EmbeddingSpace] = (),
) -> Compared:
    """Fit attention and prototypes alone, tune the baselines, and answer all test rows; k shrinks with the bank.

    Args:
        fitting: keyword arguments of `fit_head` that do not follow from the others.
        grids: ks, temperatures, priors, ridges of `compare`.
        calibrations: kinds of `calibration.calibrate`.
        memory, members: see `comparison.compare`.
    """
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    starts = {"temperatures": grids["temperatures"], "priors": grids["priors"]}
    common = {**fitting, **starts, "k_train": min(k_train, stored), "seed": seed, "device": device}
    heads = {"attention": fit_head(spaces, **common)[0], "prototypes": fit_prototypes(spaces, grids["ridges"], device)}
    k = min(k_eval, stored)
    others = {"memory": memory, "members": members}
    return compare(spaces, heads, k, **grids, calibrations=calibrations, device=device, **others)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Cell:
    """What one memory and one head under one condition gave."""

    scores: dict[str, dict[str, float]]
    tables: dict[str, Table]


def _cell(make: Make, repeat: int, scoring: Settings, seed: int, settings: Settings) -> _Cell:
    spaces = make(np.random.default_rng([seed, repeat]))
    # Seed 0 must not give the head of `train_attention` again, which the claims count beside these.
    made = fit_and_compare(spaces, seed=100 * seed + repeat + 1, **settings)
    against = pairs(made.test.methods)
    intervals, paired = intervals_and_tests(made.test, against, **scoring, seed=seed, wanted=UNDER_CONDITIONS)
    scored = scores(made.test, scoring["bins"])
    bank = np.bincount(spaces[0].embeddings.y[spaces[0].embeddings.rows(BANK)], minlength=len(made.test.classes))
    for name, probs in zip(made.test.methods, made.test.probs, strict=True):
        shots = shot_accuracy(probs, made.test.y, bank)
        scored[name] |= shots
        intervals += [{"method": name, "metric": m, "value": v, "low": None, "high": None} for m, v in shots.items()]
    tables = {"intervals": intervals, "paired": paired, "validation": values(made.val, scoring["bins"])}
    return _Cell(scored, tables)


def under_conditions(
    conditions: Mapping[str, Make],
    repeats: int,
    scoring: Settings,
    seed: int,
    progress: Callable[[str], object] | None = None,
    workers: int = 1,
    **settings: Any,
) -> tuple[dict[str, dict[str, dict[str, float]]], dict[str, Table]]:
    """`fit_and_compare` under each condition, several times: a new memory and a new head each.

    Args:
        conditions: by name, what makes the memory from a random generator.
        scoring: bins, resamples, confidence.
        workers: see `parallel.run_parallel`.
        settings: of `fit_and_compare`.

    Returns:
        Mean scores over repeats, by condition, method and metric; and the tables `intervals`, `paired` and
        `validation`, whose rows begin with condition and repeat. Metrics `many`, `medium` and `few` are
        `metrics.shot_accuracy`, and have no interval.
    """
    asked = [(name, repeat) for name in conditions for repeat in range(repeats)]
    calls = [partial(_cell, conditions[name], repeat, scoring, seed, settings) for name, repeat in asked]
    scored: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in conditions}
    tables: dict[str, Table] = {"intervals": [], "paired": [], "validation": []}
    for (name, repeat), cell in zip(asked, run_parallel(calls, workers), strict=True):
        scored[name].append(cell.scores)
        for table, rows in cell.tables.items():
            tables[table] += [{"condition": name, "repeat": repeat, **row} for row in rows]
        if progress is not None:
            progress(name)
    means = {
        name: {
            method: {metric: float(np.mean([one[method][metric] for one in cells])) for metric in of}
            for method, of in cells[0].items()
        }
        for name, cells in scored.items()
    }
    return means, tables
