"""Near-copies among images."""

import numpy as np
import pytest

from attnknn.data.near_copies import NEIGHBOURS, distance_ratios, near_copies, thumbnails


def images(n: int, shape: tuple[int, ...] = (3, 16, 16), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(60, 180, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 24), (1, 28, 28), (3, 5, 19)])
def test_thumbnails_are_the_mean_colours_of_fields(shape: tuple[int, ...]) -> None:
    x = images(3, shape)
    rows, columns = (np.arange(side) * min(8, side) // side for side in shape[1:])
    fields = [
        [x[:, :, rows == r][..., columns == c].mean((2, 3)) for c in range(columns[-1] + 1)]
        for r in range(rows[-1] + 1)
    ]
    expected = np.moveaxis(np.array(fields), (2, 3), (0, 1)).reshape(3, -1)
    expected -= expected.mean(1, keepdims=True)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(thumbnails(x), expected, atol=1e-6)


def test_ratios_are_those_of_comparing_all_pairs() -> None:
    test, train = images(300, seed=1), images(70)
    distances = np.sort(np.linalg.norm(thumbnails(test)[:, None] - thumbnails(train), axis=2), axis=1)
    np.testing.assert_allclose(distance_ratios(test, train), distances[:, 0] / distances[:, NEIGHBOURS - 1], rtol=1e-3)
    few = train[:7]
    np.testing.assert_allclose(distance_ratios(test, few), distances_to(test, few), rtol=1e-3)


def distances_to(test: np.ndarray, train: np.ndarray) -> np.ndarray:
    distances = np.linalg.norm(thumbnails(test)[:, None] - thumbnails(train), axis=2)
    return distances.min(1) / distances.max(1)


def test_copies_that_are_brighter_or_of_less_contrast_or_noisy_are_counted() -> None:
    train, test = images(200), images(40, seed=1)
    noise = np.random.default_rng(2).integers(-5, 6, train[6:9].shape)
    test[:3], test[3:6], test[6:9] = train[:3] + 40, train[3:6] // 2 + 60, train[6:9] + noise
    counted = near_copies(test, train)
    assert counted["test_near_copies"] == 9 / 40
    assert 0.8 < counted["nearest_ratio"] < 1
    assert near_copies(test[9:], train)["test_near_copies"] == 0


def test_images_without_contrast_are_no_copies_of_each_other() -> None:
    flat = np.full((60, 1, 8, 8), 7, np.uint8)
    assert near_copies(flat[:5], flat) == {"test_near_copies": 0.0, "nearest_ratio": 1.0}
