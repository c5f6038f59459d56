"""Label noise and class imbalance: counts, rates and randomness."""

import numpy as np
import pytest

from attnknn.core.artifacts import BANK, FIT, VAL
from attnknn.experiments import corruption
from synthetic import rng


@pytest.mark.parametrize("kind", ["symmetric", "asymmetric"])
@pytest.mark.parametrize(
    ("n", "rate", "hit"), [(200, 0.3, 60), (201, 0.45, 90), (10, 0.04, 0), (10, 0.06, 1), (50, 0.0, 0), (50, 1.0, 50)]
)
def test_fault_10_noise_changes_a_share_of_the_rows_to_another_class(n: int, rate: float, hit: int, kind: str) -> None:
    y = np.arange(n) % 4
    noisy = corruption.noisy_labels(y, rate, 4, kind, rng())
    wrong = noisy != y
    assert wrong.sum() == hit
    assert set(noisy) <= set(range(4))
    assert noisy.dtype == y.dtype
    np.testing.assert_array_equal(y, np.arange(n) % 4, "the original labels are unchanged")
    if kind == "asymmetric":
        np.testing.assert_array_equal(noisy[wrong], (y[wrong] + 1) % 4)


def test_rows_and_other_classes_are_drawn_with_equal_chance() -> None:
    counts = np.bincount(corruption.noisy_labels(np.full(30_000, 2), 1.0, 5, "symmetric", rng()), minlength=5)
    assert counts[2] == 0
    assert (np.abs(counts[[0, 1, 3, 4]] - 7500) < 5 * np.sqrt(30_000 * 3 / 16)).all()
    y = np.repeat(np.arange(3), 4000)
    hits = np.bincount(y[corruption.noisy_labels(y, 0.5, 3, "symmetric", rng()) != y])
    assert hits.sum() == 6000
    assert (np.abs(hits - 2000) < 5 * np.sqrt(4000 / 4)).all()
    y = np.arange(40) % 2
    np.testing.assert_array_equal(corruption.noisy_labels(y, 1.0, 2, "symmetric", rng()), 1 - y)
    y = np.repeat(np.arange(2), 4000)
    hits = np.bincount(y[corruption.instance_noise(y, 0.5, np.zeros((8000, 2)), rng()) != y])
    assert hits.sum() == 4000
    assert (np.abs(hits - 2000) < 5 * np.sqrt(2000 / 4)).all()


@pytest.mark.parametrize(
    ("kind", "sizes", "ratio", "expected"),
    [
        ("long_tail", [100, 100, 100], 0.01, [100, 10, 1]),
        ("long_tail", [100, 100, 100, 100, 100], 0.0001, [100, 10, 1, 1, 1]),  # at least 1
        ("long_tail", [80, 80], 0.25, [80, 20]),
        ("long_tail", [100, 4, 100], 0.01, [100, 4, 1]),  # at most the size of the class
        ("long_tail", [30, 100, 90], 0.25, [30, 50, 25]),  # n₀ is the size of the largest class, not of the first
        ("long_tail", [50, 20, 7], 1, [50, 20, 7]),
        ("long_tail", [10, 0, 10], 0.1, [10, 0, 1]),  # a class without rows
        ("step", [100, 100, 100, 100], 0.1, [100, 100, 10, 10]),
        ("step", [100, 100, 100, 100, 100], 0.01, [100, 100, 100, 1, 1]),  # the larger half is unchanged
        ("step", [40, 100, 5, 60], 0.1, [40, 100, 5, 10]),
        ("step", [50, 20], 0.001, [50, 1]),
        ("step", [50, 20, 7], 1, [50, 20, 7]),
    ],
)
def test_class_sizes_follow_the_formula(kind: str, sizes: list[int], ratio: float, expected: list[int]) -> None:
    y = rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = corruption.imbalanced(y, ratio, kind, rng())
    assert np.bincount(y[rows], minlength=len(sizes)).tolist() == expected
    assert (np.diff(rows) > 0).all()
    assert np.bincount(y).tolist() == sizes


def line(n: int = 3000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows on a line from 0 to 3, classes 0, 1, 2 at a unit each, and how near each row lies to their middles."""
    x = rng(1).uniform(0, 3, n)
    return x, np.floor(x).astype(int), -np.abs(x[:, None] - [0.5, 1.5, 2.5])


@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_instance_noise_hits_border_rows_most_and_gives_them_the_class_across(rate: float) -> None:
    x, y, scores = line()
    noisy = corruption.instance_noise(y, rate, scores, rng())
    wrong = noisy != y
    assert wrong.sum() == round(rate * len(y))
    to_border = np.minimum(np.abs(x - 1), np.abs(x - 2))
    assert wrong[to_border < 0.2].mean() > 2 * wrong[to_border > 0.5].mean()
    across = np.where(x < 1, 1, np.where(x < 1.5, 0, np.where(x < 2, 2, 1)))
    np.testing.assert_array_equal(noisy[wrong], across[wrong])


def test_class_similarity_orders_classes_as_the_distance_to_their_means() -> None:
    x = rng(0).integers(0, 255, size=(60, 1, 3, 5)).astype(np.uint8)
    y = np.arange(60) % 4
    means = np.stack([x[y == c].mean(0) for c in range(4)])
    squares = ((x[:, None].astype(float) - means) ** 2).sum((2, 3, 4))
    own = (x.astype(float) ** 2).sum((1, 2, 3))
    np.testing.assert_allclose(own[:, None] - corruption.class_similarity(x, y, 4), squares, rtol=1e-4)


@pytest.mark.parametrize("kind", corruption.NOISES)
def test_every_kind_hits_so_many_rows_and_follows_the_generator(kind: str) -> None:
    _, y, scores = line(500)
    first, again, other = (corruption.noisy_labels(y, 0.3, 3, kind, rng(seed), scores) for seed in (5, 5, 6))
    assert (first != y).sum() == 150
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_conditions_are_named_and_what_is_the_same_is_there_once() -> None:
    kinds = ("symmetric", "asymmetric", "instance")
    bank, everywhere = (BANK,), (BANK, FIT, VAL)
    assert corruption.noise_conditions(kinds, (0.0, 0.3, 0.6), ["bank"], 3) == {
        "noise 0.0": ("symmetric", 0.0, bank),
        "noise 0.3": ("symmetric", 0.3, bank),
        "noise 0.6": ("symmetric", 0.6, bank),
        "asymmetric noise 0.3": ("asymmetric", 0.3, bank),
        "instance noise 0.3": ("instance", 0.3, bank),
    }
    two = corruption.noise_conditions(kinds[1:], (0.0, 0.3, 0.6), ["bank", "all"], 2)
    assert two == {
        "noise 0.0": ("symmetric", 0.0, bank),
        "noise 0.3": ("symmetric", 0.3, bank),
        "instance noise 0.3": ("instance", 0.3, bank),
        "noise of all labels 0.3": ("symmetric", 0.3, everywhere),
        "instance noise of all labels 0.3": ("instance", 0.3, everywhere),
    }
    assert corruption.noise_conditions(kinds, (0.0, 0.3, 0.6), ["bank", "all"], 2) == two
    assert list(corruption.noise_conditions(("instance",), (0.0,), ["bank", "all"], 3)) == ["noise 0.0"]
    long_tail = {"long tail 0.1": ("long_tail", 0.1)}
    both = ("long_tail", "step")
    assert corruption.imbalance_conditions(both, (0.1,), 3) == long_tail | {"step 0.1": ("step", 0.1)}
    assert corruption.imbalance_conditions(both, (0.1,), 2) == long_tail


def test_kinds_that_are_left_out_of_two_classes_are_the_same() -> None:
    y = np.arange(200) % 5 // 3
    same = [corruption.noisy_labels(y, 0.3, 2, kind, rng(1)) for kind in ("symmetric", "asymmetric")]
    np.testing.assert_array_equal(*same)
    np.testing.assert_array_equal(*(corruption.imbalanced(y, 0.1, kind, rng(1)) for kind in ("long_tail", "step")))
