"""How representations lie in the plane, the same test rows in each."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import TEST, Split
from attnknn.core.parallel import run_parallel
from attnknn.encoder.encoder import Encoder
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.fields.representations import ENCODER, PIXELS, representation, standardised
from attnknn.experiments.tsne import FEWEST_ROWS, stratified, tsne


def maps(
    split: Split,
    latents: Path,
    variants: Sequence[str],
    encoder: Encoder,
    known: Mapping[str, Any],
    workers: int,
    rows: int,
    perplexity: float,
    seed: int,
) -> Table:
    """t-SNE of at most `rows` test rows by each representation of whole images: representation, x, y, actual.

    Args:
        known: of `representations.representation`.
        workers: see `parallel.run_parallel`.
    """
    test = split.rows(TEST)
    some = test[stratified(np.asarray(split.y[test]), rows)]
    if len(some) < FEWEST_ROWS:
        return []
    names = (PIXELS, *variants, ENCODER)

    def place(name: str) -> np.ndarray:
        vectors, _ = representation(split, latents, name, "full", encoder, patch=1, **known)
        return tsne(standardised(vectors[0], np.asarray(split.part))[some], perplexity, seed)

    actual = [split.classes[y] for y in split.y[some]]
    made = zip(names, run_parallel([partial(place, name) for name in names], workers), strict=True)
    return [
        {"representation": name, "x": round(float(x), 3), "y": round(float(y), 3), "actual": of}
        for name, plane in made
        for (x, y), of in zip(plane, actual, strict=True)
    ]
