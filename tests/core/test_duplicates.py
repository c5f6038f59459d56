"""Identical rows."""

import numpy as np
import pytest

from attnknn.core.duplicates import duplicate_counts, first_identical, mostly_duplicates, split_groups


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64])
def test_first_identical_is_that_of_comparing_all_pairs(dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 3, (200, 2, 2)).astype(dtype)
    expected = (x[:, None] == x[None]).all((2, 3)).argmax(1)
    np.testing.assert_array_equal(first_identical(x), expected)
    np.testing.assert_array_equal(first_identical(x[:, 0, 0]), (x[:, None, 0, 0] == x[None, :, 0, 0]).argmax(1))
    np.testing.assert_array_equal(first_identical(x.transpose(2, 0, 1)[0]), first_identical(x[..., 0].copy()))


def test_signed_zeros_are_equal_and_x_is_unchanged() -> None:
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0 + 1e-15]])
    assert first_identical(x).tolist() == [0, 0, 2]
    assert np.signbit(x[1, 0])


@pytest.mark.parametrize(
    ("x", "expected"), [("aabbcc", False), ("aabbccc", True), ("aabb", True), ("abc", False), ("aa", True)]
)
def test_fewer_than_half_or_three_distinct_rows_are_split_as_if_all_differed(x: str, expected: bool) -> None:
    values = np.array(list(map(ord, x)))
    first = first_identical(values)
    assert mostly_duplicates(first, values) == expected
    np.testing.assert_array_equal(split_groups(first, values), np.arange(len(x)) if expected else first)


def test_counts_by_hand() -> None:
    x, y = np.array([1, 2, 1, 1, 2, 3]), np.array(list("aababa"))
    test = np.array([0, 0, 0, 1, 0, 1], bool)
    counts = {"duplicates": 3, "conflicting_duplicates": 2, "test_duplicates": 1}
    assert duplicate_counts(first_identical(x), y, test) == counts
    groups = np.array([4, 4, 5, 5, 6, 7])
    counts |= {"groups": 4, "test_rows_of_training_groups": 1}
    assert duplicate_counts(first_identical(x), y, test, groups) == counts


def test_named_groups_are_joined_by_identical_rows() -> None:
    x, groups = np.array([1, 2, 3, 4, 2, 5, 6]), np.array([7, 8, 8, 9, 9, 5, 7])
    assert split_groups(first_identical(x), x, groups).tolist() == [0, 1, 1, 1, 1, 5, 0]
    few = np.zeros(7)  # identical rows are then split as if all differed, named groups are not
    assert split_groups(first_identical(few), few, groups).tolist() == [0, 1, 1, 3, 3, 5, 0]


def test_copies_of_rows_with_many_values_are_split_together() -> None:
    rng = np.random.default_rng(0)
    measured = np.tile(rng.normal(size=(300, 4)), (3, 1))
    categories = rng.integers(0, 4, (900, 3)).astype(float)
    graded = np.c_[categories, np.arange(900) % 20]
    grid = np.indices((30, 2)).reshape(2, -1).T.repeat(20, axis=0)  # 60 distinct rows of 30 values and 2
    for x, expected in (
        (measured, False),
        (measured.round(1), False),
        (categories, True),
        (np.c_[categories, measured[:, 0]], False),
        (graded[:80].repeat(5, axis=0), True),
        (grid, True),
        (np.tile(rng.integers(0, 256, (50, 1, 8, 8)).astype(np.uint8), (3, 1, 1, 1)), False),
    ):
        first = first_identical(x)
        assert mostly_duplicates(first, x) == expected
