"""t-SNE of the same test rows by each representation."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from attnknn.core.artifacts import TEST
from attnknn.core.errors import require
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.fields.representations import Representations, standardise
from attnknn.experiments.fields.variants import ENCODER, PIXELS

FEWEST_ROWS = 5  # for a meaningful t-SNE


def stratified(y: np.ndarray, count: int) -> np.ndarray:
    """Positions, ascending, of a stratified subset of at most `count` rows with classes y (N,), evenly spaced."""
    if count >= len(y):
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    return np.sort(order[np.arange(count) * len(y) // count])


def tsne(z: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """t-SNE of embeddings (N, D), initialised by PCA: (N, 2) (van der Maaten & Hinton 2008); 0 if all rows are equal.

    Args:
        perplexity: at most (N − 1)/3 is used.

    Raises:
        InputError: fewer than `FEWEST_ROWS` rows.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    require(len(z) >= FEWEST_ROWS, f"tsne: {len(z)} rows; give {FEWEST_ROWS} or more")
    if (z == z[0]).all():  # scikit-learn would raise on NaN
        return np.zeros((len(z), 2), dtype=np.float32)
    init = "pca" if z.shape[1] > 1 else "random"
    model = TSNE(perplexity=min(perplexity, (len(z) - 1) / 3), init=init, random_state=seed)
    # Steps are so short that one thread is several times as fast as more.
    with threadpool_limits(1):
        return model.fit_transform(np.asarray(z, dtype=np.float32))


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
