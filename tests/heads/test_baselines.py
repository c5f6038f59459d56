"""Tuned values against the whole grid."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import softmax

from attnknn.core.artifacts import BANK, VAL
from attnknn.heads.baselines import choices_of_k, similarity_scale, tune_distance, tune_uniform
from attnknn.heads.config import Tune
from attnknn.nn.votes import class_shares
from synthetic import blobs, embedded, searched

KS, TEMPERATURES, PRIORS = [1, 3, 8, 20], [0.05, 0.2, 0.5, 1.0, 3.0], [0.1, 0.001, 0.02]


@pytest.fixture(scope="module")
def val() -> tuple[np.ndarray, np.ndarray, np.ndarray, torch.Tensor]:
    """Similarities and labels of the neighbours of val rows, their own labels, and the class shares of the bank."""
    data = embedded(blobs(240, noise=1.5))
    rows = data.rows(VAL)
    ids, sims = searched(data, 20).take(rows, 20)
    return sims, data.y[ids], data.y[rows], class_shares(data.y[data.rows(BANK)], 3)


def nll(val, weights: np.ndarray, prior: float) -> float:
    """Mean −log((1 − ε)·Σ w·1[label = y] + ε·share)."""
    _, labels, y, shares = val
    votes = (weights * (labels == y[:, None])).sum(1)
    return -np.log((1 - prior) * votes + prior * shares.numpy()[y]).mean()


def softmax_weights(sims: np.ndarray, k: int, temperature: float) -> np.ndarray:
    """Of the k nearest; uniform at an infinite temperature."""
    return softmax(np.where(np.arange(sims.shape[1]) < k, sims.astype(np.float64) / temperature, -np.inf), axis=1)


def test_tuning_finds_the_best_of_the_grid(val) -> None:
    unit = similarity_scale(val[0])
    grid = itertools.product(KS, [np.inf, *TEMPERATURES], PRIORS)
    losses = {(k, t, e): nll(val, softmax_weights(val[0], k, t * unit), e) for k, t, e in grid}
    k, _, e = min((values for values in losses if values[1] == np.inf), key=losses.__getitem__)
    assert tune_uniform(*val, KS, PRIORS) == {"k": k, "prior": e}
    k, t, e = min((values for values in losses if values[1] < np.inf), key=losses.__getitem__)
    assert tune_distance(*val, KS, TEMPERATURES, PRIORS) == {"k": k, "temperature": pytest.approx(t * unit), "prior": e}


def test_scale_of_the_embedding_does_not_matter(val) -> None:
    sims, *rest = val
    small, large = (tune_distance(f * sims, *rest, KS, TEMPERATURES, PRIORS) for f in (np.float32(1), np.float32(64)))
    assert large["temperature"] == pytest.approx(64 * small["temperature"], rel=1e-5)
    assert (large["k"], large["prior"]) == (small["k"], small["prior"])


def test_similarity_scale_and_choices_of_k_by_hand() -> None:
    assert similarity_scale(np.zeros((3, 4), dtype=np.float32)) == 1.0
    assert similarity_scale(np.array([[-1.0, -3.0, -np.inf], [-2.0, -4.0, -9.0]], dtype=np.float32)) == 4.5
    assert choices_of_k([1, 5, 50, 64], 20) == [1, 5, 20]
    assert choices_of_k([1, 5, 20], 5) == [1, 5]


def test_fault_8_tuned_distance_weighting_is_never_worse_than_uniform() -> None:
    """Its widest temperatures are as good as uniform, also where a few distances are far beyond the usual one."""
    grid = Tune().model_dump()
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    labels = np.where(rng.random((200, 20)) < 0.6, rng.integers(3, size=(200, 20)), y[:, None])
    sims = -np.sort(rng.lognormal(0, 3, size=(200, 20)), axis=1).astype(np.float32)
    val = sims, labels, y, class_shares(y, 3)
    tuned = tune_distance(*val, [20], grid["temperatures"], grid["priors"])
    flat = tune_uniform(*val, [20], grid["priors"])
    distance = nll(val, softmax_weights(sims, 20, tuned["temperature"]), tuned["prior"])
    assert distance <= nll(val, softmax_weights(sims, 20, np.inf), flat["prior"]) + 1e-3
