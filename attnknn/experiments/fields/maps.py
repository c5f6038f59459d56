"""t-SNE of the same test rows by each representation."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import TEST, Split
from attnknn.core.parallel import run_parallel
from attnknn.encoder.encoder import Encoder
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.fields.representations import representation, standardise
from attnknn.experiments.fields.variants import ENCODER, PIXELS
from attnknn.experiments.tsne import FEWEST_ROWS, stratified, tsne


def maps(
    split: Split,
    latents: Path,
    variants: Sequence[str],
    encoder: Encoder,
    context: Mapping[str, Any],
    workers: int,
    rows: int,
    perplexity: float,
) -> Table:
    """t-SNE of at most `rows` test rows by each representation of whole images.

    Args:
        context: share, least and seed of `representations.representation`.
        workers: see `parallel.run_parallel`.

    Returns:
        Rows of representation, x, y, actual; none if the test rows are too few.
    """
    test = split.rows(TEST)
    ids = test[stratified(np.asarray(split.y[test]), rows)]
    if len(ids) < FEWEST_ROWS:
        return []
    names = (PIXELS, *variants, ENCODER)
    calls = [partial(_plane, split, latents, name, encoder, context, ids, perplexity) for name in names]
    return [
        {"representation": name, "x": round(float(x), 3), "y": round(float(y), 3), "actual": split.classes[label]}
        for name, plane in zip(names, run_parallel(calls, workers), strict=True)
        for (x, y), label in zip(plane, split.y[ids], strict=True)
    ]


def _plane(
    split: Split,
    latents: Path,
    name: str,
    encoder: Encoder,
    context: Mapping[str, Any],
    ids: np.ndarray,
    perplexity: float,
) -> np.ndarray:
    vectors, _ = representation(split, latents, name, "full", encoder, patch=1, **context)
    return tsne(standardise(vectors[0], np.asarray(split.part))[ids], perplexity, context["seed"])
