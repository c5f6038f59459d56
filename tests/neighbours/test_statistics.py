"""Neighbour statistics by hand, and from bank rows only."""

import dataclasses

import numpy as np
import pytest

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours, NeighbourStatistics
from attnknn.core.errors import InputError
from attnknn.heads.fit import fit_head
from attnknn.neighbours.search import memory, retrieve, search
from attnknn.neighbours.statistics import neighbour_statistics
from synthetic import FITTING, blobs, embedded, searched


def points(z: list[list[float]], y: list[int], part: list[int], classes: str = "ab") -> Embeddings:
    return Embeddings(np.array(z, dtype=np.float32), np.array(y), np.array(part, dtype=np.int8), tuple(classes))


def statistics(embeddings: Embeddings, k: int, sizes: tuple[int, ...]) -> NeighbourStatistics:
    return neighbour_statistics(embeddings, search(memory(embeddings), embeddings, k), sizes)


def test_four_rows_on_a_line_by_hand() -> None:
    """Bank a, a, b, a at 0, 1, 3, 7; the query at 2 has no statistics and is in none."""
    line = points([[0], [1], [3], [7], [2]], [0, 0, 1, 0, 1], [BANK] * 4 + [TEST])
    stats = statistics(line, 3, (1, 2, 3))
    expected = [[1, 1 / 2, 2 / 3], [1, 1 / 2, 2 / 3], [0, 0, 0], [0, 1 / 2, 2 / 3], [0, 0, 0]]
    np.testing.assert_allclose(stats.agreement, expected, rtol=1e-6)
    squares = [1 + 9 + 49, 1 + 4 + 36, 4 + 9 + 16, 16 + 36 + 49, 0]
    np.testing.assert_allclose(stats.density, [-total / 3 for total in squares], rtol=1e-6)
    assert stats.sizes == (1, 2, 3)


def test_prototypes_by_hand() -> None:
    """(3, 0) and (0, 4) point to (.6, .8) on average; a class that no bank row has gets zeros; queries do not count."""
    plane = points([[3, 0], [0, 4], [0, -2], [9, 9]], [0, 0, 1, 2], [BANK] * 3 + [FIT], "abc")
    np.testing.assert_allclose(statistics(plane, 1, (1,)).prototypes, [[0.6, 0.8], [0, -1], [0, 0]], rtol=1e-6)
    mean_at_origin = points([[1, 0], [-1, 0], [0, 1]], [0, 0, 1], [BANK] * 3)
    np.testing.assert_array_equal(statistics(mean_at_origin, 1, (1,)).prototypes, [[0, 0], [0, 1]])


def test_fault_1_a_row_is_left_out_of_its_own_neighbours() -> None:
    """The only row of its class agrees with nobody; and of two rows at one point, each sees the other's label."""
    data = embedded(blobs(60))
    y = np.array(data.y)
    alone = data.rows(BANK)[4]
    y[y == 2] = 1
    y[alone] = 2
    assert not statistics(dataclasses.replace(data, y=y), 20, (1, 5, 20)).agreement[alone].any()
    pairs = np.repeat(np.arange(8.0), 2)[:, None].tolist()
    opposed = statistics(points(pairs, [0, 1] * 8, [BANK] * 16), 5, (1, 5))
    assert not opposed.agreement[:, 0].any(), "its own label at distance 0 would be agreement"
    agreed = statistics(points(pairs, [0, 0, 1, 1] * 4, [BANK] * 16), 5, (1, 5))
    assert (agreed.agreement[:, 0] == 1).all()


@pytest.mark.parametrize("part", [FIT, VAL, TEST])
def test_fault_2_held_out_rows_change_nothing(part: int) -> None:
    data = embedded(blobs(90))
    before = statistics(data, 12, (3, 12))
    rows = data.rows(part)
    y, z = np.array(data.y), np.array(data.z)
    y[rows], z[rows] = (y[rows] + 1) % 3, z[data.rows(BANK)[: len(rows)]]
    after = statistics(dataclasses.replace(data, y=y, z=z), 12, (3, 12))
    for name in ("agreement", "density", "prototypes"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def test_neighbours_that_were_not_found_do_not_count() -> None:
    """Bank row 0 has neighbours 1 (its class) and 2 only: of a neighbourhood of 3 they are the two that vote."""
    line = points([[0], [1], [2], [4]], [0, 0, 1, 1], [BANK] * 4)
    ids = np.array([[1, 2, -1], [0, 2, 3], [1, 0, 3], [2, 1, 0]], dtype=np.int32)
    sims = np.array([[-1, -4, -np.inf], [-1, -1, -9], [-1, -4, -4], [-4, -9, -16]], dtype=np.float32)
    stats = neighbour_statistics(line, Neighbours(np.arange(4, dtype=np.int32), ids, sims, "l2"), (1, 3))
    assert stats.agreement[0].tolist() == [1, 0.5]
    assert stats.density[0] == -2.5
    np.testing.assert_allclose(stats.agreement[1:], [[1, 1 / 3], [0, 1 / 3], [1, 1 / 3]], rtol=1e-6)


def test_sizes_above_what_is_stored_shrink_to_it_and_stay_as_many() -> None:
    data = embedded(blobs(90))
    stats = statistics(data, 12, (50, 3, 64))
    assert stats.sizes == (3, 12, 12)
    np.testing.assert_array_equal(stats.agreement[:, 1], stats.agreement[:, 2])
    np.testing.assert_array_equal(stats.agreement[:, :2], statistics(data, 12, (3, 12)).agreement)


def test_a_head_can_be_fitted_on_banks_smaller_and_larger_than_a_size() -> None:
    """The larger bank has sizes 5, 20 and 40; in the smaller, of 11 rows, two of them shrink to the same 10."""
    large = embedded(blobs(84, dim=8))
    part = np.array(large.part)
    part[large.rows(BANK)[11:]] = TEST
    spaces = [retrieve(e, 64, (5, 20, 64)) for e in (large, dataclasses.replace(large, part=part))]
    assert [space.statistics.sizes for space in spaces] == [(5, 20, 41), (5, 10, 10)]
    settings = FITTING | {"parts": {"features": ["agreement"]}, "temperatures": [0.2], "priors": [0.1]}
    head, history = fit_head(spaces, k_train=10, seed=0, **settings | {"epochs": 1, "patience": 1})
    assert head.config["n_sizes"] == 3
    assert len(history) == 2


def test_sizes_that_mean_nothing_and_bank_rows_without_neighbours_are_refused() -> None:
    data = embedded(blobs(90))
    for sizes in ((), (0, 5)):
        with pytest.raises(InputError, match=r"sizes: .*give at least one, of 1 or more"):
            statistics(data, 12, sizes)
    held_out = np.flatnonzero(data.part != BANK).astype(np.int32)
    with pytest.raises(InputError, match="45 rows have no stored neighbours"):
        neighbour_statistics(data, Neighbours(held_out, *searched(data).take(held_out, 20), "l2"), (3,))
