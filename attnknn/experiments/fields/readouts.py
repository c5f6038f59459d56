"""Readouts: classifiers of a representation, by kNN heads, a linear probe and a transformer probe."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from attnknn.core.artifacts import TEST, VAL, Embeddings, Predictions, Split
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.evaluate import stack_methods, tuned_baselines
from attnknn.experiments.fields.probe import linear_probe, transformer_probe
from attnknn.experiments.fields.representations import Representations, Tokens, standardise
from attnknn.experiments.fields.variants import ENCODER, KNN_READOUTS, MODES, PIXELS
from attnknn.experiments.refit import fit_and_compare
from attnknn.heads.baselines import choices_of_k
from attnknn.heads.classify import classify_part
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace, classes_of


def _val_nll(space: EmbeddingSpace, k: int, grids: Mapping[str, Any], device: str) -> float:
    """NLL of tuned distance weighting on val rows."""
    k = min(k, space.neighbours.ids.shape[1])
    heads, _ = tuned_baselines([space], choices_of_k(grids["ks"], k), grids["temperatures"], grids["priors"])
    probs, y = classify_part(heads["distance"], [space], VAL, k, device), classes_of([space], VAL)
    return -float(np.log(probs[np.arange(len(y)), y]).mean())


def knn_readouts(
    kinds: Sequence[Float[np.ndarray, "N D"]],
    split: Split,
    *,
    k: int,
    k_max: int,
    sizes: Sequence[int],
    metric: str,
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    seed: int,
    device: str,
) -> Predictions:
    """Predictions of uniform, distance and attention weighting on test rows.

    Args:
        kinds: alternative vectors of every row; chosen by the NLL of distance weighting on val rows.
        k: neighbours of every method.
        k_max, sizes, metric: of `neighbours.search.retrieve`.
        fitting, grids: of `refit.fit_and_compare`.
    """
    y, part, classes = np.asarray(split.y), np.asarray(split.part), tuple(split.classes)
    spaces = [retrieve(Embeddings(z, y, part, classes), k_max, sizes, metric, device) for z in kinds]
    space = min(spaces, key=lambda candidate: _val_nll(candidate, k, grids, device))
    predictions = fit_and_compare([space], k, fitting, grids, seed, device, calibrations=()).test
    rows = [predictions.methods.index(name) for name in KNN_READOUTS]
    return dataclasses.replace(predictions, probs=predictions.probs[rows], methods=KNN_READOUTS)


def read_out(
    vectors: Sequence[np.ndarray],
    tokens: Tokens | None,
    split: Split,
    knn: Mapping[str, Any],
    strengths: Sequence[float],
    transformer: Mapping[str, Any],
    seed: int,
    device: str,
) -> Predictions:
    """Predictions of every readout of one representation on test rows.

    Args:
        vectors: alternative arrays (N, D); kNN takes each as it is or standardised.
        tokens: None leaves the transformer out.
        knn: keyword arguments of `knn_readouts`.
        strengths: C of the linear probe.
        transformer: keyword arguments of `probe.transformer_probe`.
    """
    y, part = np.asarray(split.y), np.asarray(split.part)
    kinds = [z.astype(np.float32) for raw in vectors for z in (standardise(raw, part), raw)]
    neighbours = knn_readouts(kinds, split, **knn, seed=seed, device=device)
    probs = {"linear_probe": linear_probe(vectors, y, part, strengths)[0]}
    if tokens is not None:
        n_classes = len(split.classes)
        probs["transformer"] = transformer_probe(tokens, y, part, n_classes, **transformer, seed=seed, device=device)[0]
    rows = np.flatnonzero(part == TEST).astype(np.int32)
    probes = Predictions(rows, y[rows], np.stack(list(probs.values())), tuple(probs), tuple(split.classes))
    return stack_methods(neighbours, probes)


def _named(representations: Representations, name: str, mode: str, settings: Mapping[str, Any]) -> Predictions:
    inputs = representations.load(name, mode)
    predictions = read_out(*inputs, representations.split, **settings, seed=representations.seed)
    methods = tuple(f"{mode}:{name}:{readout}" for readout in predictions.methods)
    return dataclasses.replace(predictions, methods=methods)


def read_out_all(
    representations: Representations, variants: Sequence[str], n_workers: int, **settings: Any
) -> Predictions:
    """Predictions on test rows by every readout of every representation, named `<mode>:<representation>:<readout>`.

    Args:
        n_workers: see `parallel.run_parallel`.
        settings: keyword arguments of `read_out`.
    """
    names = [(name, mode) for mode in MODES for name in (PIXELS, *variants, ENCODER)]
    calls = [partial(_named, representations, *name, settings) for name in names]
    return stack_methods(*run_parallel(calls, n_workers))
