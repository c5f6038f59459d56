"""Label cleaning: synthetic label noise is corrected, votes are counted by hand, and other labels are unchanged."""

import dataclasses

import numpy as np
import pytest
from scipy.special import log_softmax

from attnknn.core.artifacts import BANK, VAL, Embeddings
from attnknn.evaluation.calibration import fit_temperature
from attnknn.experiments import train_corrupted as cleaning
from attnknn.experiments.corruption import noisy_labels
from attnknn.experiments.trained_on_corruption import transition_matrix
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from synthetic import parts


def clusters(n: int = 240, classes: int = 2) -> EmbeddingSpace:
    """Clusters far apart on the unit circle, a class each."""
    y = np.arange(n) % classes
    angle = 2 * np.pi * y / classes + np.random.default_rng(0).uniform(-0.3, 0.3, n)
    z = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    return retrieve(Embeddings(z, y, parts(n), tuple("abcde"[:classes])), 40, (5,))


def wrong(space: EmbeddingSpace, rate: float, seed: int = 0) -> np.ndarray:
    """Labels with symmetric noise in every part."""
    e = space.embeddings
    return noisy_labels(np.asarray(e.y), rate, len(e.classes), "symmetric", np.random.default_rng(seed))


@pytest.mark.parametrize(("classes", "rate"), [(2, 0.2), (3, 0.4), (5, 0.5)])
def test_wrong_labels_are_found_and_no_right_one_is_spoiled(classes: int, rate: float) -> None:
    space = clusters(600, classes)
    true, noisy = np.asarray(space.embeddings.y), wrong(space, rate)
    bank = space.embeddings.rows(BANK)
    result = cleaning.quality(true[bank], noisy[bank], cleaning.clean_labels(space, noisy, 40)[bank])
    assert result["wrong_before"] > 0.8 * rate
    assert result["wrong_after"] == 0
    assert (result["mended"], result["spoiled"]) == (1, 0)


def test_fault_10_only_bank_labels_are_cleaned_by_noisy_labels_of_the_bank_alone() -> None:
    space = clusters()
    noisy = wrong(space, 0.3)
    cleaned = cleaning.clean_labels(space, noisy, 20)
    rest = space.embeddings.part != BANK
    assert (noisy != space.embeddings.y)[rest].any()
    np.testing.assert_array_equal(cleaned[rest], noisy[rest])
    np.testing.assert_array_equal(noisy, wrong(space, 0.3), "the noisy labels are unchanged")
    blind = dataclasses.replace(space, embeddings=dataclasses.replace(space.embeddings, y=np.zeros_like(noisy)))
    np.testing.assert_array_equal(cleaning.clean_labels(blind, noisy, 20), cleaned)
    other = np.where(space.embeddings.part == BANK, noisy, 0)
    bank = space.embeddings.rows(BANK)
    np.testing.assert_array_equal(cleaning.clean_labels(space, other, 20)[bank], cleaned[bank])


def test_votes_are_counted_without_the_row_itself() -> None:
    space = clusters()
    noisy, rows = wrong(space, 0.4), space.embeddings.rows(BANK)
    votes = cleaning.label_votes(space, noisy, rows, 7)
    for row, result in zip(rows, votes, strict=True):
        ids = space.neighbours.take(np.array([row]), 7)[0][0]
        assert row not in ids
        np.testing.assert_allclose(result, np.bincount(noisy[ids], minlength=2) / 7)
    most, more = (cleaning.label_votes(space, noisy, rows, k) for k in (40, 1000))
    np.testing.assert_array_equal(more, most)


def test_a_tie_keeps_the_label_and_a_class_without_votes_its_rows() -> None:
    space = clusters()
    noisy = np.zeros_like(space.embeddings.y)
    bank = space.embeddings.rows(BANK)
    noisy[bank[0]] = 1  # outvoted everywhere, and the last of its class
    assert cleaning.clean_labels(space, noisy, 20)[bank[0]] == 1
    noisy[bank[:2]] = 1
    ids = space.neighbours.take(bank, 2)[0]
    tied = bank[(noisy[ids] != noisy[ids[:, :1]]).any(1)]
    np.testing.assert_array_equal(cleaning.clean_labels(space, noisy, 2)[tied], noisy[tied])


def test_k_is_that_of_most_given_val_labels() -> None:
    """One wrong nearest neighbour misleads k = 1 and no larger one; of equals the larger is taken."""
    space = clusters()
    noisy = np.array(space.embeddings.y)
    val = space.embeddings.rows(VAL)
    nearest = np.unique(space.neighbours.take(val, 1)[0])
    noisy[nearest[::3]] = 1 - noisy[nearest[::3]]
    assert cleaning.choose_k(space, noisy, (1, 9)) == 9
    assert cleaning.choose_k(space, np.array(space.embeddings.y), (1, 5, 40)) == 40


def test_transitions_and_quality_by_hand() -> None:
    noisy, cleaned = np.array([0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1])
    np.testing.assert_allclose(transition_matrix(noisy, cleaned, 3), [[3 / 4, 1 / 4, 0], [0, 1, 0], [0, 0, 1]])
    true, noisy, cleaned = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 1]), np.array([0, 0, 0, 0, 1])
    expected = {"wrong_before": 0.4, "wrong_after": 0.4, "mended": 0.5, "spoiled": 1 / 3}
    assert cleaning.quality(true, noisy, cleaned) == pytest.approx(expected)
    assert cleaning.quality(true, true, true)["mended"] == 0


def test_the_forward_temperature_finds_how_sure_the_truth_is_through_wrong_labels() -> None:
    """Predictions are the true posterior to the power ½; labels are drawn from the posterior, then made noisy."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(20_000, 4))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    mixing = 0.6 * np.eye(4) + 0.1
    noisy = (np.log(mixing)[y] + rng.gumbel(size=logits.shape)).argmax(1)
    assert fit_temperature(log_softmax(logits / 2, 1), noisy, mixing) == pytest.approx(0.5, rel=0.1)
    assert fit_temperature(logits, noisy, mixing) == pytest.approx(1, rel=0.1)
    assert fit_temperature(log_softmax(logits / 2, 1), noisy) > 1, "without a transition matrix noise is uncertainty"
