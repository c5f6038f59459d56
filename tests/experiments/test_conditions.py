"""Embedding spaces with wrong labels or rare classes: only bank rows change, alike in every space."""

import dataclasses

import numpy as np
import pytest

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings
from attnknn.experiments.corruption import NOISES, TRAINING_PARTS, with_imbalance, with_noise
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics
from synthetic import blobs, crossfit_spaces, embedded, rng

SIZES, MAIN = (3, 7), embedded(blobs(180, noise=1.5))


@pytest.fixture(scope="module")
def spaces() -> list[EmbeddingSpace]:
    return crossfit_spaces(MAIN, 3, 20, SIZES)


def origin(e: Embeddings) -> np.ndarray:
    """Row of the main embeddings that each row was; folds keep the logits."""
    return (np.asarray(e.logits)[:, None] == MAIN.logits).all(2).argmax(1)


def of_queries(e: Embeddings) -> np.ndarray:
    return np.flatnonzero(e.part != BANK)


def same(a: EmbeddingSpace, b: EmbeddingSpace) -> bool:
    parts = [(getattr(a, name), getattr(b, name)) for name in ("embeddings", "neighbours", "statistics")]
    return all(np.array_equal(x, y) for pair in parts for x, y in zip(*map(dataclasses.astuple, pair), strict=True))


def test_retrieve_takes_no_more_than_the_other_rows_of_the_bank() -> None:
    data = embedded(blobs(60))
    space = retrieve(data, 64, (5, 40))
    assert space.neighbours.ids.shape == (60, 29)
    assert space.statistics.sizes == (5, 29)
    assert not (space.neighbours.ids == np.arange(60)[:, None]).any()
    assert retrieve(data, 4, (3,), metric="ip").neighbours.metric == "ip"


@pytest.mark.parametrize("rate", [0.3, 0.6])
@pytest.mark.parametrize("kind", NOISES)
def test_fault_10_noise_changes_labels_of_bank_rows_alone(spaces: list[EmbeddingSpace], kind: str, rate: float) -> None:
    for before, after in zip(spaces, with_noise(spaces, rate, rng(), kind), strict=True):
        e, noisy = before.embeddings, after.embeddings
        wrong = noisy.y != e.y
        assert not wrong[of_queries(e)].any()
        for name in ("z", "part", "logits"):
            np.testing.assert_array_equal(getattr(noisy, name), getattr(e, name))
        assert after.neighbours is before.neighbours
        if before is spaces[0]:
            assert wrong.sum() == round(rate * 90)


def test_folds_have_the_same_noise_and_lose_the_same_rows(spaces: list[EmbeddingSpace]) -> None:
    main, *folds = (one.embeddings for one in with_noise(spaces, 0.6, rng()))
    for fold in folds:
        bank = fold.rows(BANK)
        np.testing.assert_array_equal(fold.y[bank], main.y[bank])
        queries = np.concatenate([fold.rows(FIT), fold.rows(VAL)])
        np.testing.assert_array_equal(fold.y[queries], spaces[0].embeddings.y[queries])
        assert (main.y[queries] != fold.y[queries]).any(), "labels change as bank rows, not as queries"
    main, *folds = (one.embeddings for one in with_imbalance(spaces, 0.1, rng()))
    bank_rows = origin(main)[main.rows(BANK)]
    for before, fold in zip(spaces[1:], folds, strict=True):
        bank = origin(fold)[fold.rows(BANK)]
        assert set(bank) == set(bank_rows) & set(before.embeddings.rows(BANK))


@pytest.mark.parametrize("kind", NOISES)
def test_noise_of_all_labels_leaves_test_labels_and_is_one_label_a_row(spaces: list[EmbeddingSpace], kind: str) -> None:
    noisy = [one.embeddings for one in with_noise(spaces, 0.3, rng(), kind, TRAINING_PARTS)]
    main, clean = noisy[0], spaces[0].embeddings
    for part in TRAINING_PARTS:
        rows = clean.rows(part)
        assert (main.y[rows] != clean.y[rows]).sum() == round(0.3 * len(rows))
    np.testing.assert_array_equal(main.y[clean.rows(TEST)], clean.y[clean.rows(TEST)])
    for fold in noisy[1:]:
        held_out = np.isin(fold.part, TRAINING_PARTS)
        np.testing.assert_array_equal(fold.y[held_out], main.y[held_out])


def test_statistics_have_the_wrong_labels(spaces: list[EmbeddingSpace]) -> None:
    for one in with_noise(spaces, 0.3, rng()):
        rows = one.embeddings.rows(FIT)
        batch = one.around(rows, 20)
        np.testing.assert_array_equal(batch.labels, one.embeddings.y[one.neighbours.ids[rows]])
        counts = np.bincount(one.embeddings.y[one.embeddings.rows(BANK)])
        np.testing.assert_allclose(batch.shares, counts / counts.sum(), rtol=1e-6)
        again = neighbour_statistics(one.embeddings, one.neighbours, SIZES)
        np.testing.assert_array_equal(one.statistics.agreement, again.agreement)
        np.testing.assert_array_equal(one.statistics.prototypes, again.prototypes)
    clean, noisy = spaces[0].statistics, with_noise(spaces, 0.6, rng())[0].statistics
    bank = spaces[0].embeddings.rows(BANK)
    assert noisy.agreement[bank].mean() < clean.agreement[bank].mean() - 0.1
    np.testing.assert_array_equal(noisy.density, clean.density)
    e = spaces[0].embeddings
    two = dataclasses.replace(e, y=e.y % 2, classes=("a", "b"), logits=None)  # swapped at rate 1, agreement stays
    before = retrieve(two, 20, SIZES)
    after = with_noise([before], 1.0, rng())[0]
    np.testing.assert_array_equal(after.statistics.agreement, before.statistics.agreement)
    np.testing.assert_array_equal(after.statistics.prototypes, before.statistics.prototypes[::-1])
    np.testing.assert_array_equal(after.embeddings.y[two.rows(TEST)], two.y[two.rows(TEST)])


def test_the_rate_and_the_generator_decide_and_the_original_spaces_are_unchanged(spaces: list[EmbeddingSpace]) -> None:
    for before, after in zip(spaces, with_noise(spaces, 0.0, rng()), strict=True):
        assert same(before, after)
    for condition, rate in ((with_noise, 0.3), (with_imbalance, 0.1)):
        first, again, other = (condition(spaces, rate, rng(seed))[0] for seed in (4, 4, 5))
        assert same(first, again)
        assert not same(first, other)
    y, z = np.array(spaces[0].embeddings.y), np.array(spaces[0].embeddings.z)
    with_noise(spaces, 0.6, rng())
    with_imbalance(spaces, 0.1, rng())
    np.testing.assert_array_equal(spaces[0].embeddings.y, y)
    np.testing.assert_array_equal(spaces[0].embeddings.z, z)


@pytest.mark.parametrize(("kind", "ratio"), [("long_tail", 0.25), ("long_tail", 0.01), ("step", 0.1)])
def test_fault_10_rare_classes_are_bank_rows_alone(spaces: list[EmbeddingSpace], kind: str, ratio: float) -> None:
    result = with_imbalance(spaces, ratio, rng(), kind=kind)
    sizes = np.bincount(spaces[0].embeddings.y[spaces[0].embeddings.rows(BANK)])
    factors = {"long_tail": ratio ** np.array([0, 0.5, 1]), "step": [1, 1, ratio]}
    expected = np.minimum(sizes, np.maximum(1, np.round(sizes.max() * np.array(factors[kind]))))
    main = result[0].embeddings
    np.testing.assert_array_equal(np.bincount(main.y[main.rows(BANK)]), expected)
    for before, after in zip(spaces, result, strict=True):
        e, rows = after.embeddings, origin(after.embeddings)
        np.testing.assert_array_equal(rows[of_queries(e)], of_queries(before.embeddings))
        for name in ("z", "y", "part", "logits"):
            np.testing.assert_array_equal(getattr(e, name), getattr(before.embeddings, name)[rows])


def test_a_long_tail_is_searched_exactly_with_the_metric_for_the_nearest_needed(spaces: list[EmbeddingSpace]) -> None:
    """Faults 1 and 2: neighbours are bank rows, and no row is its own neighbour."""
    for one in with_imbalance(spaces, 0.25, rng()):
        e, neighbours = one.embeddings, one.neighbours
        bank = e.rows(BANK)
        assert (e.part[neighbours.ids] == BANK).all()
        assert not (neighbours.ids == neighbours.rows[:, None]).any()
        np.testing.assert_array_equal(neighbours.rows, np.arange(len(e.z)))
        squares = ((e.z[:, None].astype(np.float64) - e.z[bank][None]) ** 2).sum(2)
        squares[bank, np.arange(len(bank))] = np.inf
        np.testing.assert_allclose(-neighbours.sims[:, 0], squares.min(1), atol=1e-5)
        assert neighbours.ids.shape[1] == min(20, len(bank) - 1)
    products = [retrieve(one.embeddings, 20, SIZES, metric="ip") for one in spaces]
    assert {one.neighbours.metric for one in with_imbalance(products, 0.1, rng())} == {"ip"}
    all_k, few = (with_imbalance(spaces, 0.25, rng(), most=most)[0] for most in (None, 1))
    k = max(spaces[0].statistics.sizes)  # as many as requested, or as the statistics need if more
    assert few.neighbours.ids.shape[1] == k < all_k.neighbours.ids.shape[1]
    np.testing.assert_array_equal(few.neighbours.ids, all_k.neighbours.ids[:, :k])
    np.testing.assert_array_equal(few.statistics.agreement, all_k.statistics.agreement)


def test_fewer_rows_than_k_and_a_class_without_rows_in_a_fold(spaces: list[EmbeddingSpace]) -> None:
    wide = [retrieve(one.embeddings, 40, (5, 40)) for one in spaces]  # class sizes will be 30, 3 and 1
    for one in with_imbalance(wide, 0.01, rng()):
        size = len(one.embeddings.rows(BANK))
        assert size - 1 < 40
        assert one.neighbours.ids.shape[1] == size - 1
        assert one.statistics.sizes == (5, size - 1)
        assert (one.neighbours.ids >= 0).all()
    result = with_imbalance(spaces, 0.01, rng())
    counts = np.stack([np.bincount(one.embeddings.y[one.embeddings.rows(BANK)], minlength=3) for one in result])
    assert counts[:, 2].tolist().count(0) == 1, "one fold holds out the only row"
    bare = result[int(counts[:, 2].argmin())]
    assert not bare.statistics.prototypes[2].any()
    total = counts[counts[:, 2].argmin()].sum() + 0.5
    assert float(bare.shares[2]) == pytest.approx(0.5 / total)
    assert not (bare.around(of_queries(bare.embeddings), 5).labels == 2).any()
    assert (bare.embeddings.y[bare.embeddings.rows(FIT)] == 2).any(), "queries are unchanged"


def test_instance_noise_moves_rows_to_the_class_of_the_next_prototype(spaces: list[EmbeddingSpace]) -> None:
    e, prototypes = spaces[0].embeddings, spaces[0].statistics.prototypes
    bank = e.rows(BANK)
    cosines = e.z[bank] @ prototypes.T
    own = cosines[np.arange(len(bank)), e.y[bank]]
    cosines[np.arange(len(bank)), e.y[bank]] = -np.inf
    margins = {True: [], False: []}
    for seed in range(20):
        noisy = with_noise(spaces, 0.3, rng(seed), "instance")[0].embeddings.y[bank]
        wrong = noisy != e.y[bank]
        np.testing.assert_array_equal(noisy[wrong], cosines.argmax(1)[wrong])
        for hit in (True, False):
            margins[hit].append((own - cosines.max(1))[wrong == hit].mean())
    assert np.mean(margins[True]) < np.mean(margins[False]) - 0.2
