"""t-SNE of the embeddings."""

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation.confusion import predicted_classes
from attnknn.evaluation.paired_tests import Table
from attnknn.neighbours.space import EmbeddingSpace

FEWEST_ROWS = 5  # of a meaningful t-SNE


def stratified(y: np.ndarray, count: int) -> np.ndarray:
    """Positions, ascending, of at most `count` of the rows y (N,), each class in proportion, evenly spaced."""
    if count >= len(y):
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    return np.sort(order[np.arange(count) * len(y) // count])


def tsne(z: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """t-SNE of embeddings (N, D), started from their principal components: (N, 2) (van der Maaten & Hinton 2008).

    Rows that are all equal give 0.

    Args:
        perplexity: lowered to (N − 1)/3 where it is above.

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
    # Its thousand steps are so short that threads mostly wait for each other: one is several times as fast.
    with threadpool_limits(1):
        return model.fit_transform(np.asarray(z, dtype=np.float32))


def tsne_table(
    space: EmbeddingSpace,
    predictions: Predictions,
    count: int,
    perplexity: float,
    seed: int,
    method: str = "attention",
) -> Table:
    """t-SNE of at most `count` predicted rows: x, y, actual, predicted, wrong; empty with fewer than `FEWEST_ROWS`."""
    idx = stratified(np.asarray(predictions.y), count)
    if len(idx) < FEWEST_ROWS:
        return []
    points = tsne(np.asarray(space.embeddings.z[predictions.rows[idx]]), perplexity, seed)
    y, predicted, names = predictions.y[idx], predicted_classes(predictions, method)[idx], predictions.classes
    return [
        {
            "x": round(float(point[0]), 3),
            "y": round(float(point[1]), 3),
            "actual": names[t],
            "predicted": names[p],
            "wrong": bool(t != p),
        }
        for point, t, p in zip(points, y, predicted, strict=True)
    ]
