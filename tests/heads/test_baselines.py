"""Tuned values against loops over the whole grid."""

import math

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import BANK, VAL
from attnknn.heads.baselines import choices_of_k, similarity_scale, tune_distance, tune_uniform
from attnknn.heads.config import Tune
from attnknn.nn.votes import class_shares, distance_weights, uniform_weights, vote
from synthetic import blobs, embedded, searched

KS, TEMPERATURES, PRIORS = [1, 3, 8, 20], [0.05, 0.2, 0.5, 1.0, 3.0], [0.001, 0.02, 0.1]


@pytest.fixture(scope="module")
def val():
    data = embedded(blobs(240, noise=1.5))
    rows = data.rows(VAL)
    ids, sims = searched(data).take(rows, 20)
    return sims, data.y[ids], data.y[rows], class_shares(data.y[data.rows(BANK)], 3)


def nll_by_loops(val, weigh, prior: float) -> float:
    """Mean −log((1 − ε)·Σ w·1[label = y] + ε·share), a row at a time."""
    sims, labels, y, shares = val
    total = 0.0
    for s, v, c in zip(sims, labels, y, strict=True):
        w = weigh(s)
        total -= math.log((1 - prior) * sum(w[v == c]) + prior * float(shares[c]))
    return total / len(y)


def test_uniform_finds_the_best_of_the_grid(val) -> None:
    losses = {(k, e): nll_by_loops(val, lambda s, k=k: (np.arange(len(s)) < k) / k, e) for k in KS for e in PRIORS}
    tuned = tune_uniform(*val, KS, PRIORS)
    assert (tuned["k"], tuned["prior"]) == min(losses, key=losses.__getitem__)


def test_distance_finds_the_best_of_the_grid(val) -> None:
    unit = similarity_scale(val[0])

    def weigh(s: np.ndarray, k: int, t: float) -> np.ndarray:
        w = np.where(np.arange(len(s)) < k, np.exp((s - s[0]) / (t * unit)), 0)
        return w / w.sum()

    losses = {
        (k, t, e): nll_by_loops(val, lambda s, k=k, t=t: weigh(s, k, t), e)
        for k in KS
        for t in TEMPERATURES
        for e in PRIORS
    }
    tuned = tune_distance(*val, KS, TEMPERATURES, PRIORS)
    k, t, e = min(losses, key=losses.__getitem__)
    assert tuned == {"k": k, "temperature": pytest.approx(t * unit), "prior": e}


def test_fault_8_the_historic_temperature_is_near_uniform_and_tuning_beats_it() -> None:
    """τ = 1 on squared distances of unit vectors hardly tells a neighbour from another; the tuned one does."""
    data = embedded(blobs(150, dim=3, noise=0.7))
    rows = data.rows(VAL)
    ids, sims = searched(data, 64).take(rows, 64)
    val = sims, data.y[ids], data.y[rows], class_shares(data.y[data.rows(BANK)], 3)
    untuned = np.exp(sims) / np.exp(sims).sum(1, keepdims=True)
    assert untuned.max() < 5 / 64
    tuned = tune_distance(*val, [64], TEMPERATURES, PRIORS)

    def weigh(s: np.ndarray, t: float) -> np.ndarray:
        w = np.exp((s - s[0]) / t)
        return w / w.sum()

    best = nll_by_loops(val, lambda s: weigh(s, tuned["temperature"]), tuned["prior"])
    assert best < min(nll_by_loops(val, lambda s: weigh(s, 1.0), e) for e in PRIORS) - 0.05


def test_scale_of_the_embedding_does_not_matter(val) -> None:
    sims, *rest = val
    small, large = (tune_distance(f * sims, *rest, KS, TEMPERATURES, PRIORS) for f in (np.float32(1), np.float32(64)))
    assert large["temperature"] == pytest.approx(64 * small["temperature"], rel=1e-5)
    assert (large["k"], large["prior"]) == (small["k"], small["prior"])


def test_spread_of_one_point_is_usable() -> None:
    assert similarity_scale(np.zeros((3, 4), dtype=np.float32)) == 1.0
    assert similarity_scale(np.array([[-1.0, -3.0, -np.inf], [-2.0, -4.0, -9.0]], dtype=np.float32)) == 4.5


def test_choices_of_k() -> None:
    assert choices_of_k([1, 5, 50, 64], 20) == [1, 5, 20]
    assert choices_of_k([1, 5, 20], 5) == [1, 5]


def test_fault_8_tuned_distance_weighting_is_never_worse_than_uniform() -> None:
    """Its widest temperatures are as good as uniform, also where a few distances are far beyond the usual one."""
    grid = Tune().model_dump()
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    labels = np.where(rng.random((200, 20)) < 0.6, rng.integers(3, size=(200, 20)), y[:, None])
    sims = -np.sort(rng.lognormal(0, 3, size=(200, 20)), axis=1).astype(np.float32)
    shares = class_shares(y, 3)
    tuned = tune_distance(sims, labels, y, shares, [20], grid["temperatures"], grid["priors"])
    flat = tune_uniform(sims, labels, y, shares, [20], grid["priors"])

    def nll(weights: tuple[torch.Tensor, torch.Tensor]) -> float:
        probs = vote(*weights, torch.from_numpy(labels), shares).numpy()
        return -float(np.log(probs[np.arange(200), y]).mean())

    distance = nll(distance_weights(torch.from_numpy(sims), 20, tuned["temperature"], tuned["prior"]))
    assert distance <= nll(uniform_weights(torch.from_numpy(sims), 20, flat["prior"])) + 1e-3
