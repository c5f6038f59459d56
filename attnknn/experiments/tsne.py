"""t-SNE of the embeddings."""

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation.confusion import predicted_classes
from attnknn.evaluation.paired_tests import Table
from attnknn.neighbours.space import EmbeddingSpace

TSNE_COLUMNS = ("x", "y", "actual", "predicted", "wrong")
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


def tsne_table(space: EmbeddingSpace, predictions: Predictions, count: int, perplexity: float, seed: int) -> Table:
    """t-SNE of at most `count` rows: x, y, actual, predicted and wrong by attention; empty below `FEWEST_ROWS` rows."""
    idx = stratified(np.asarray(predictions.y), count)
    if len(idx) < FEWEST_ROWS:
        return []
    points = tsne(np.asarray(space.embeddings.z[predictions.rows[idx]]), perplexity, seed)
    y, predicted, names = predictions.y[idx], predicted_classes(predictions, "attention")[idx], predictions.classes
    return [
        dict(zip(TSNE_COLUMNS, (round(float(a), 3), round(float(b), 3), names[t], names[p], bool(t != p)), strict=True))
        for (a, b), t, p in zip(points, y, predicted, strict=True)
    ]
