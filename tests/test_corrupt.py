"""Wrong labels and rare classes, counted."""

import numpy as np
import pytest

from attnknn.corrupt import long_tail, symmetric_noise


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("n", "rate", "hit"), [(200, 0.3, 60), (201, 0.6, 121), (10, 0.04, 0), (10, 0.06, 1), (50, 0.0, 0), (50, 1.0, 50)]
)
def test_fault_10_noise_hits_a_share_of_the_rows_and_always_another_class(n: int, rate: float, hit: int) -> None:
    y = np.arange(n) % 4
    noisy = symmetric_noise(y, rate, 4, rng())
    assert (noisy != y).sum() == hit
    assert noisy.min() >= 0
    assert noisy.max() < 4
    assert noisy.dtype == y.dtype
    np.testing.assert_array_equal(y, np.arange(n) % 4, "the labels given stay as they are")


def test_each_other_class_is_as_likely() -> None:
    """Of 30,000 rows of class 2, each of four others gets 7,500 ± 5·√(30,000·¼·¾)."""
    counts = np.bincount(symmetric_noise(np.full(30_000, 2), 1.0, 5, rng()), minlength=5)
    assert counts[2] == 0
    assert (np.abs(counts[[0, 1, 3, 4]] - 7500) < 375).all()


def test_rows_are_hit_by_chance_and_not_by_class() -> None:
    y = np.repeat(np.arange(3), 4000)
    hits = np.bincount(y[symmetric_noise(y, 0.5, 3, rng()) != y])
    assert hits.sum() == 6000
    assert (np.abs(hits - 2000) < 5 * np.sqrt(4000 / 4)).all()


def test_two_classes_are_swapped() -> None:
    y = np.arange(40) % 2
    np.testing.assert_array_equal(symmetric_noise(y, 1.0, 2, rng()), 1 - y)


def test_the_same_generator_gives_the_same_noise() -> None:
    y = np.arange(100) % 3
    np.testing.assert_array_equal(symmetric_noise(y, 0.4, 3, rng(5)), symmetric_noise(y, 0.4, 3, rng(5)))
    assert (symmetric_noise(y, 0.4, 3, rng(5)) != symmetric_noise(y, 0.4, 3, rng(6))).any()


@pytest.mark.parametrize(
    ("sizes", "ratio", "kept"),
    [
        ([100, 100, 100], 0.01, [100, 10, 1]),
        ([100, 100, 100, 100, 100], 0.0001, [100, 10, 1, 1, 1]),  # at least 1
        ([80, 80], 0.25, [80, 20]),
        ([100, 4, 100], 0.01, [100, 4, 1]),  # no more than there are
        ([30, 100, 90], 0.25, [30, 50, 25]),  # n₀ is the size of the largest class, not of the first
        ([50, 20, 7], 1, [50, 20, 7]),
        ([10, 0, 10], 0.1, [10, 0, 1]),  # a class without rows stays one
    ],
)
def test_long_tail_sizes_follow_the_formula(sizes: list[int], ratio: float, kept: list[int]) -> None:
    y = rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = long_tail(y, ratio, rng())
    assert np.bincount(y[rows], minlength=len(sizes)).tolist() == kept
    assert (np.diff(rows) > 0).all()
    assert np.bincount(y).tolist() == sizes


def test_the_same_generator_keeps_the_same_rows() -> None:
    y = np.arange(90) % 3
    np.testing.assert_array_equal(long_tail(y, 0.1, rng(5)), long_tail(y, 0.1, rng(5)))
    assert not np.array_equal(long_tail(y, 0.1, rng(5)), long_tail(y, 0.1, rng(6)))
