"""Refit and score all methods under conditions of the labels: wrong ones, rare classes."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnknn.core.parallel import run_parallel
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import calibrated, stack_methods
from attnknn.evaluation.opponents import (
    BEST,
    OURS,
    TUNED,
    UNDER_CONDITIONS,
    compare_with_opponents,
    opponents_over_repeats,
)
from attnknn.evaluation.paired_tests import TESTED, Table
from attnknn.experiments.peers import embedding_peers
from attnknn.experiments.refit import Scores, Settings, fit_and_compare
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.linear_probe import with_linear_probe

Condition = Callable[[np.random.Generator], Sequence[EmbeddingSpace]]
PEERS = ("rbf", "mlp")  # of `peers.EMBEDDING_PEERS`; boosting takes as long as all others together


def _refit_once(condition: Condition, repeat: int, scoring: Settings, seed: int, settings: Settings) -> Table:
    """Attention and its opponents with one bank and one head under one condition.

    The encoder's linear head was trained on the unmodified labels, which no method may read here: a logistic regression
    on the modified bank takes its place.
    """
    spaces = [
        dataclasses.replace(space, embeddings=with_linear_probe(space.embeddings))
        for space in condition(np.random.default_rng([seed, repeat]))
    ]
    # Another head than that of `train_attention`, also for seed 0.
    seed_of_repeat = 100 * seed + repeat + 1
    result = fit_and_compare(spaces, seed=seed_of_repeat, **settings)
    embeddings = [space.embeddings for space in spaces]
    peers, _ = embedding_peers(embeddings, PEERS, held_out=True, tries=3, seed=seed_of_repeat, threads=1)
    test, val = result.test, result.val
    if peers:  # none where a fold's bank has one class only
        others = calibrated(peers, spaces, settings["grids"]["ridges"], KINDS)
        test, val = stack_methods(test, others[0]), stack_methods(val, others[1])
    return compare_with_opponents(test, val, **scoring, seed=seed, metric_names=UNDER_CONDITIONS, others=TUNED)


def refit_and_score(
    conditions: Mapping[str, Condition],
    repeats: int,
    scoring: Settings,
    seed: int,
    progress: Callable[..., Iterable[Any]] = lambda results, **_: results,
    workers: int = 1,
    **settings: Any,
) -> tuple[dict[str, Scores], Table]:
    """Refit and score under each condition, `repeats` times with a new bank and a new head.

    Args:
        conditions: by name, a function from a random generator to the modified spaces.
        scoring: bins, resamples, confidence.
        workers: see `parallel.run_parallel`.
        settings: of `fit_and_compare`.

    Returns:
        Scores by condition, role and tested metric; and rows of condition and of `opponents.COLUMNS`. Both are means
        over repeats, see `opponents.opponents_over_repeats`.
    """
    keys = [(name, repeat) for name in conditions for repeat in range(repeats)]
    calls = [partial(_refit_once, conditions[name], repeat, scoring, seed, settings) for name, repeat in keys]
    by_condition: dict[str, list[Table]] = {name: [] for name in conditions}
    for (name, _), rows in zip(keys, progress(run_parallel(calls, workers), total=len(calls)), strict=True):
        by_condition[name].append(rows)
    table = [{"condition": name, **row} for name, runs in by_condition.items() for row in opponents_over_repeats(runs)]
    means: dict[str, Scores] = {}
    for row in [row for row in table if row["role"] and row["metric"] in TESTED]:
        if row["ours"] != OURS and row["role"] != BEST:
            continue
        means.setdefault(row["condition"], {}).setdefault(row["role"], {})[row["metric"]] = row["value"]
    return means, table
