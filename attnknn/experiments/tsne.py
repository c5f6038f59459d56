"""How the embeddings lie: t-SNE in the plane."""

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation.confusion import answers
from attnknn.evaluation.paired_tests import Table
from attnknn.neighbours.space import EmbeddingSpace

FEWEST_ROWS = 5  # that a t-SNE has something to say of


def stratified(y: np.ndarray, count: int) -> np.ndarray:
    """Positions, ascending, of at most `count` of the rows y (N,), evenly spaced by class: each in proportion."""
    order = np.argsort(y, kind="stable")
    if count >= len(y):
        return np.arange(len(y))
    return np.sort(order[np.arange(count) * len(y) // count])


def tsne(z: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """t-SNE of embeddings (N, D) in the plane, from their principal components: (N, 2) (van der Maaten & Hinton 2008).

    Rows that are all the same lie at 0.

    Args:
        perplexity: neighbours that a row is to keep close; at most (N − 1)/3, and lowered to that.

    Raises:
        InputError: fewer than `FEWEST_ROWS` rows.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    require(len(z) >= FEWEST_ROWS, f"tsne: {len(z)} rows; give {FEWEST_ROWS} or more")
    if (z == z[0]).all():  # of which scikit-learn makes NaN, and then dies
        return np.zeros((len(z), 2), dtype=np.float32)
    made = TSNE(
        perplexity=min(perplexity, (len(z) - 1) / 3), init="pca" if z.shape[1] > 1 else "random", random_state=seed
    )
    # Its thousand steps are so short that threads mostly wait for each other: one is several times as fast.
    with threadpool_limits(1):
        return made.fit_transform(np.asarray(z, dtype=np.float32))


def tsne_table(
    retrieved: EmbeddingSpace,
    predictions: Predictions,
    count: int,
    perplexity: float,
    seed: int,
    method: str = "attention",
) -> Table:
    """t-SNE of at most `count` predicted rows: x, y, actual, predicted, wrong; no row where there are too few."""
    at = stratified(np.asarray(predictions.y), count)
    if len(at) < FEWEST_ROWS:
        return []
    plane = tsne(np.asarray(retrieved.embeddings.z[predictions.rows[at]]), perplexity, seed)
    y, found, names = predictions.y[at], answers(predictions, method)[at], predictions.classes
    return [
        {
            "x": round(float(place[0]), 3),
            "y": round(float(place[1]), 3),
            "actual": names[t],
            "predicted": names[p],
            "wrong": bool(t != p),
        }
        for place, t, p in zip(plane, y, found, strict=True)
    ]
