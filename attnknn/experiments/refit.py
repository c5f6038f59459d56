"""Fit attention and tune its baselines in given embedding spaces, and predict all test and val rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, Embeddings, Predictions
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import Comparison, compare
from attnknn.evaluation.metrics import shot_accuracy
from attnknn.evaluation.paired_tests import Table
from attnknn.heads.fit import fit_forms
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace

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
        k: neighbours of attention; lowered to those stored. Baselines are tuned over all of the grid that are stored.
        fitting: keyword arguments of `fit_forms` other than those given here.
        grids: ks, temperatures, priors, ridges of `compare`.
        calibrations: kinds of `calibration.calibrate`.
        memory, members: see `evaluate.compare`.
    """
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    k = min(k, stored)
    starts = {"temperatures": grids["temperatures"], "priors": grids["priors"]}
    common = {**fitting, **starts, "k_train": k, "seed": seed, "device": device}
    heads = {name: head for name, (head, _) in fit_forms(spaces, **common).items()}
    heads["prototypes"] = fit_prototypes(spaces, grids["ridges"], device)
    k_eval = min(max(grids["ks"]), stored)
    others = {"memory": memory, "members": members}
    return compare(spaces, heads, k_eval, **grids, calibrations=calibrations, device=device, **others)  # type: ignore[arg-type]


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
