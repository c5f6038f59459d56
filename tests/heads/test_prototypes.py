"""Class prototypes alone, fitted to the end."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from attnknn.core.artifacts import BANK, FIT, TEST, VAL
from attnknn.heads.classify import classify, classify_part
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from synthetic import blobs, embedded, part_nll, relabelled, retrieved


@pytest.fixture(scope="module")
def data() -> EmbeddingSpace:
    return retrieved(embedded(blobs(480, noise=1.5)))


def test_no_other_gain_and_biases_have_a_lower_nll_on_fit_rows(data: EmbeddingSpace) -> None:
    """Found by a search that knows no gradient, from the formula itself."""
    rows = data.embeddings.rows(FIT)
    x, y = data.embeddings.z[rows] @ data.statistics.prototypes.T, data.embeddings.y[rows]
    offset = np.log(data.shares.numpy())

    def loss(flat: np.ndarray) -> float:
        return -float(log_softmax(offset + flat[0] * x + flat[1:], axis=1)[np.arange(len(y)), y].mean())

    best = minimize(loss, np.zeros(4), method="Nelder-Mead", options={"maxiter": 5000, "fatol": 1e-10, "xatol": 1e-7})
    assert part_nll(fit_prototypes([data], [1e-9]), [data], FIT, 5) == pytest.approx(best.fun, abs=1e-5)


def test_its_ridge_is_chosen_on_val_rows() -> None:
    """Few fit rows: the smallest ridge follows them too closely, the greatest not at all."""
    data = retrieved(embedded(blobs(72, noise=1.5, seed=7)), 5)
    each = {ridge: part_nll(fit_prototypes([data], [ridge]), [data], VAL, 5) for ridge in (1e-4, 1.0, 1e4)}
    assert each[1.0] < min(each[1e-4], each[1e4]) - 0.01
    assert part_nll(fit_prototypes([data], list(each)), [data], VAL, 5) == pytest.approx(each[1.0])
    probs = classify(fit_prototypes([data], [1e12]), data, data.embeddings.rows(TEST), 5)
    np.testing.assert_allclose(probs, np.broadcast_to(data.shares.numpy(), probs.shape), atol=1e-4)


def test_faults_3_and_4_fit_rows_teach_it_and_test_rows_do_not(data: EmbeddingSpace) -> None:
    def gain(space: EmbeddingSpace) -> float:
        return float(fit_prototypes([space], [1e-4]).prototype_gain.detach())

    assert gain(relabelled(data, FIT)) != gain(data)
    assert gain(relabelled(data, TEST)) == gain(data)


def test_several_spaces_are_fitted_together(data: EmbeddingSpace) -> None:
    """Each by its own prototypes: the pooled NLL on fit rows is below that of a head fitted on the main one alone."""
    fold = retrieved(embedded(blobs(480, noise=0.7, seed=4)))
    spaces = [data, fold]
    losses = [part_nll(fit_prototypes(fitted, [1e-9]), spaces, FIT, 5) for fitted in (spaces, [data])]
    assert losses[0] < losses[1] - 1e-3


def test_each_space_has_the_class_shares_of_its_own_bank(data: EmbeddingSpace) -> None:
    """The biases are free, so over all fit rows the mean probability of a class is its share of them."""
    part = np.array(data.embeddings.part)
    part[np.flatnonzero((data.embeddings.y == 0) & (part == BANK))[10:]] = TEST
    spaces = [data, retrieved(dataclasses.replace(data.embeddings, part=part))]
    probs = classify_part(fit_prototypes(spaces, [1e-9]), spaces, FIT, 5)
    shares = np.bincount(classes_of(spaces, FIT)) / len(probs)
    np.testing.assert_allclose(probs.mean(0), shares, atol=1e-4)


def test_it_is_where_it_is_asked_to_be(data: EmbeddingSpace) -> None:
    """So that it meets its queries there; `meta` stands for any device that is not the CPU."""
    assert {p.device.type for p in fit_prototypes([data], [1e-4], "meta").parameters()} == {"meta"}
