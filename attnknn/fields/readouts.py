"""What classifiers of three kinds read off a representation: our neighbours, a linear layer, a small transformer."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attnknn.artifacts import TEST, Embeddings, Predictions, Split
from attnknn.comparison import together
from attnknn.fields.probe import linear_probe, transformer_probe
from attnknn.fields.representations import comparable
from attnknn.gather import retrieve
from attnknn.study import fit_and_compare

NEIGHBOURS = ("uniform", "distance", "attention")
READOUTS = (*NEIGHBOURS, "linear_probe", "transformer")


def by_neighbours(
    z: Float[np.ndarray, "N D"], split: Split, k_max: int, sizes: Sequence[int], metric: str, **settings: Any
) -> Predictions:
    """What uniform, distance and attention weighting say of test rows, in the bank that everything else uses.

    Args:
        z: vectors to compare; see `comparable`.
        k_max, sizes, metric: of `gather.retrieve`.
        settings: of `study.fit_and_compare`.
    """
    e = Embeddings(z, np.asarray(split.y), np.asarray(split.part), tuple(split.classes))
    space = retrieve(e, k_max, sizes, metric, settings["device"])
    found = fit_and_compare([space], calibrations=(), **settings).test
    kept = [found.methods.index(name) for name in NEIGHBOURS]
    return dataclasses.replace(found, probs=found.probs[kept], methods=NEIGHBOURS)


def read_off(
    vectors: np.ndarray,
    tokens: Tensor | None,
    split: Split,
    seed: int,
    device: str,
    searching: Mapping[str, Any],
    settings: Mapping[str, Any],
    strengths: Sequence[float],
    transformer: Mapping[str, Any],
) -> Predictions:
    """Every readout of one representation on test rows.

    Args:
        vectors: (N, D).
        tokens: (N, L, I); None leaves the transformer out.
        searching: k_max, sizes, metric.
        settings: k_train, k_eval, fitting, grids of `study.fit_and_compare`.
        strengths: of the linear probe.
        transformer: keyword arguments of `probe.transformer_probe`.
    """
    y, part = np.asarray(split.y), np.asarray(split.part)
    z = comparable(vectors, part)
    found = by_neighbours(z, split, **searching, **settings, seed=seed, device=device)
    made = {"linear_probe": linear_probe(np.asarray(vectors, dtype=np.float32), y, part, strengths)[0]}
    if tokens is not None:
        classes = len(split.classes)
        made["transformer"] = transformer_probe(tokens, y, part, classes, **transformer, seed=seed, device=device)[0]
    rows = np.flatnonzero(part == TEST).astype(np.int32)
    others = Predictions(rows, y[rows], np.stack(list(made.values())), tuple(made), tuple(split.classes))
    return together(found, others)
