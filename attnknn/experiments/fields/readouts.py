"""What classifiers of three kinds read off a representation: our neighbours, a linear layer, a small transformer."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from attnknn.core.artifacts import TEST, VAL, Embeddings, Predictions, Split
from attnknn.evaluation.evaluate import together, tuned_baselines
from attnknn.experiments.fields.probe import linear_probe, transformer_probe
from attnknn.experiments.fields.representations import Tokens, standardised
from attnknn.experiments.refit import fit_and_compare
from attnknn.heads.baselines import choices_of_k
from attnknn.heads.classify import classify_part
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace, classes_of

NEIGHBOURS = ("uniform", "distance", "attention")
READOUTS = (*NEIGHBOURS, "linear_probe", "transformer")


def _val_nll(space: EmbeddingSpace, k_eval: int, grids: Mapping[str, Any], device: str) -> float:
    """NLL on val of distance weighting at its best there."""
    k = min(k_eval, space.neighbours.ids.shape[1])
    heads, _ = tuned_baselines([space], choices_of_k(grids["ks"], k), grids["temperatures"], grids["priors"])
    probs, y = classify_part(heads["distance"], [space], VAL, k, device), classes_of([space], VAL)
    return -float(np.log(probs[np.arange(len(y)), y]).mean())


def by_neighbours(
    kinds: Sequence[Float[np.ndarray, "N D"]],
    split: Split,
    k_max: int,
    sizes: Sequence[int],
    metric: str,
    **settings: Any,
) -> Predictions:
    """What uniform, distance and attention weighting say of test rows, in the bank that everything else uses.

    Args:
        kinds: vectors of every row, in one way or another; val chooses, by the NLL of distance weighting.
        k_max, sizes, metric: of `gather.retrieve`.
        settings: of `study.fit_and_compare`.
    """
    y, part, classes = np.asarray(split.y), np.asarray(split.part), tuple(split.classes)
    searching = k_max, sizes, metric, settings["device"]
    spaces = [retrieve(Embeddings(z, y, part, classes), *searching) for z in kinds]
    space = min(spaces, key=lambda of: _val_nll(of, settings["k_eval"], settings["grids"], settings["device"]))
    found = fit_and_compare([space], calibrations=(), **settings).test
    kept = [found.methods.index(name) for name in NEIGHBOURS]
    return dataclasses.replace(found, probs=found.probs[kept], methods=NEIGHBOURS)


def read_off(
    vectors: Sequence[np.ndarray],
    tokens: Tokens | None,
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
        vectors: (N, D), as many kinds as there are; kNN may take each as it is or standardised.
        tokens: None leaves the transformer out.
        searching: k_max, sizes, metric.
        settings: k_train, k_eval, fitting, grids of `study.fit_and_compare`.
        strengths: of the linear probe.
        transformer: keyword arguments of `probe.transformer_probe`.
    """
    y, part = np.asarray(split.y), np.asarray(split.part)
    kinds = [z.astype(np.float32) for of in vectors for z in (standardised(of, part), of)]
    found = by_neighbours(kinds, split, **searching, **settings, seed=seed, device=device)
    made = {"linear_probe": linear_probe(vectors, y, part, strengths)[0]}
    if tokens is not None:
        classes = len(split.classes)
        made["transformer"] = transformer_probe(tokens, y, part, classes, **transformer, seed=seed, device=device)[0]
    rows = np.flatnonzero(part == TEST).astype(np.int32)
    others = Predictions(rows, y[rows], np.stack(list(made.values())), tuple(made), tuple(split.classes))
    return together(found, others)
