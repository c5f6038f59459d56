"""t-SNE of the same test rows by each representation."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from attnknn.core.artifacts import TEST
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.fields.representations import Representations, standardise
from attnknn.experiments.fields.variants import ENCODER, PIXELS
from attnknn.experiments.tsne import FEWEST_ROWS, stratified, tsne


def _plane(representations: Representations, name: str, ids: np.ndarray, perplexity: float) -> np.ndarray:
    vectors, _ = representations.load(name, "full")
    z = standardise(vectors[0], np.asarray(representations.split.part))[ids]
    return tsne(z, perplexity, representations.seed)


def maps(
    representations: Representations, variants: Sequence[str], rows: int, perplexity: float, n_workers: int
) -> Table:
    """t-SNE of at most `rows` test rows by each representation of whole images.

    Returns:
        Rows of representation, x, y, actual; none if the test rows are too few.
    """
    split = representations.split
    test = split.rows(TEST)
    ids = test[stratified(np.asarray(split.y[test]), rows)]
    if len(ids) < FEWEST_ROWS:
        return []
    names = (PIXELS, *variants, ENCODER)
    calls = [partial(_plane, representations, name, ids, perplexity) for name in names]
    return [
        {"representation": name, "x": round(float(x), 3), "y": round(float(y), 3), "actual": split.classes[label]}
        for name, plane in zip(names, run_parallel(calls, n_workers), strict=True)
        for (x, y), label in zip(plane, split.y[ids], strict=True)
    ]
