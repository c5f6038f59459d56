"""t-SNE of the embeddings: the sample of rows, and separate clusters."""

import numpy as np
import pytest

from attnknn.core.errors import InputError
from attnknn.experiments.fields.maps import stratified, tsne


def test_rows_are_drawn_in_proportion_of_their_classes() -> None:
    y = np.repeat([0, 1, 2], [100, 40, 20])
    idx = stratified(y, 16)
    assert np.bincount(y[idx]).tolist() == [10, 4, 2]
    assert len(set(idx.tolist())) == 16
    assert stratified(y, 500).tolist() == list(range(160))


def test_tsne_repeats_keeps_clusters_apart_and_shrinks_its_perplexity() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(14) % 2
    z = (10 * y[:, None] + rng.normal(size=(14, 5))).astype(np.float32)
    plane = tsne(z, 30.0, 1)
    np.testing.assert_array_equal(plane, tsne(z, 30.0, 1))
    gap = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    gap[np.arange(14), np.arange(14)] = np.inf
    assert (y[gap.argmin(1)] == y).all()
    assert tsne(z[:, :1], 30.0, 1).shape == (14, 2)
    with pytest.raises(InputError, match="4 rows"):
        tsne(z[:4], 30.0, 1)


def test_rows_that_are_all_the_same_lie_in_one_place() -> None:
    """As of a collapsed encoder; scikit-learn raises on them."""
    assert tsne(np.ones((20, 3), np.float32), 5.0, 0).tolist() == [[0, 0]] * 20
