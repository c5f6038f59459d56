"""Refit and score all methods on a modified bank."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, Embeddings, Predictions
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import Comparison, compare
from attnknn.evaluation.metrics import shot_accuracy
from attnknn.evaluation.opponents import (
    BEST,
    FORMS,
    OURS,
    TUNED,
    UNDER_CONDITIONS,
    compare_with_opponents,
    opponents_over_repeats,
)
from attnknn.evaluation.paired_tests import TESTED, Table
from attnknn.heads.fit import fit_forms
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace

Condition = Callable[[np.random.Generator], Sequence[EmbeddingSpace]]
Settings = Mapping[str, Any]
Scores = dict[str, dict[str, float]]  # method or role → metric → value


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
    """Fit attention in all forms and the prototypes, tune the baselines, and predict all test and val rows.

    Args:
        k: neighbours of all methods; lowered to those stored.
        fitting: keyword arguments of `fit_forms` other than those given here.
        grids: ks, temperatures, priors, ridges of `compare`.
        calibrations: kinds of `calibration.calibrate`.
        memory, members: see `evaluate.compare`.
    """
    k = min(k, *(space.neighbours.ids.shape[1] for space in spaces))
    starts = {"temperatures": grids["temperatures"], "priors": grids["priors"]}
    common = {**fitting, **starts, "k_train": k, "seed": seed, "device": device}
    heads = {name: head for name, (head, _) in fit_forms(spaces, **common).items()}
    heads["prototypes"] = fit_prototypes(spaces, grids["ridges"], device)
    others = {"memory": memory, "members": members}
    return compare(spaces, heads, k, **grids, calibrations=calibrations, device=device, **others)  # type: ignore[arg-type]


def shot_accuracies(predictions: Predictions, embeddings: Embeddings) -> Table:
    """`metrics.shot_accuracy` of every method, by the class sizes of the bank.

    Returns:
        Rows of method, metric, value, low, high; the ends are None.
    """
    sizes = np.bincount(embeddings.y[embeddings.rows(BANK)], minlength=len(embeddings.classes))
    return [
        {"method": name, "metric": metric, "value": value, "low": None, "high": None}
        for name, probs in zip(predictions.methods, predictions.probs, strict=True)
        for metric, value in shot_accuracy(probs, predictions.y, sizes).items()
    ]


def _refit_once(condition: Condition, repeat: int, scoring: Settings, seed: int, settings: Settings) -> Table:
    """Attention and its opponents with one bank and one head under one condition."""
    spaces = condition(np.random.default_rng([seed, repeat]))
    # Another head than that of `train_attention`, also for seed 0.
    result = fit_and_compare(spaces, seed=100 * seed + repeat + 1, **settings)
    # The linear head was trained on the unmodified bank, which attention under the condition must not read.
    forms = [name for name in FORMS if name != "attention-linear"]
    return compare_with_opponents(
        result.test, [result.val], **scoring, seed=seed, metric_names=UNDER_CONDITIONS, others=TUNED, forms=forms
    )


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
