"""Objectives on votes and weights against loops; finite values and gradients at the borders."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from attnknn.nn.objectives import entropy, hard_weights, hardness, nll, soft_ece


def votes(b: int = 7, c: int = 5, seed: int = 0, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    """probs (B, C) and labels (B,)."""
    g = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(b, c, generator=g)).softmax(1), torch.randint(c, (b,), generator=g)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_is_the_weighted_mean_cross_entropy_of_smoothed_labels(smoothing: float, weighted: bool) -> None:
    probs, y = votes()
    weight = torch.linspace(0.5, 2.0, 7) if weighted else None
    targets = (1 - smoothing) * torch.eye(5)[y] + smoothing / 5
    expected = np.average(-(targets * probs.log()).sum(1), weights=weight)
    assert nll(probs, y, smoothing, weight).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "weights", [2 / 3 * votes(b=7, c=11)[0], torch.full((3, 8), 0.1), torch.tensor([[0.5, 0.5, 0, 0], [1, 0, 0, 0]])]
)
def test_entropy_is_that_of_the_neighbours_among_themselves(weights: Tensor) -> None:
    """Of weights as they are once the null neighbour's share is taken out; a missing neighbour has none."""
    assert entropy(weights).item() == pytest.approx(scipy.stats.entropy(weights, axis=1).mean(), rel=1e-5)


def test_soft_ece_by_its_definition() -> None:
    probs, y = votes(b=13)
    confidence, top = probs.double().max(1)
    membership = (-40.0 * (confidence[:, None] - (torch.arange(5) + 0.5) / 5) ** 2).softmax(1)
    size, right, sure = membership.sum(0), membership.T @ (top == y).double(), membership.T @ confidence
    expected = (size / 13 * (right / size - sure / size) ** 2).sum().sqrt().item()
    assert soft_ece(probs, y, 5, 40.0).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("rows", [1, 16])
def test_soft_ece_of_rows_that_are_all_as_sure_has_a_finite_gradient(rows: int) -> None:
    """Most bins are next to empty then."""
    y = torch.zeros(rows, dtype=torch.long)

    def loss(confidence: Tensor) -> Tensor:
        return soft_ece(torch.stack([confidence, 1 - confidence]).repeat(rows, 1), y)

    assert torch.func.vmap(torch.func.grad(loss))(torch.linspace(0.5, 1, 1001)).isfinite().all()


def test_hardness_is_the_share_that_disagrees_among_those_not_missing() -> None:
    g = torch.Generator().manual_seed(3)
    labels, y = torch.randint(3, (5, 11), generator=g), torch.arange(5) % 3
    labels[0, 6:], labels[1] = -1, -1
    expected = np.ma.masked_array(labels != y[:, None], labels < 0).mean(1).filled(0)
    assert hardness(labels, y).tolist() == pytest.approx(expected.tolist())
    for weight, weights in ((2.0, [1.0, 1.25, 2.0]), (1.0, [1.0, 1.0, 1.0])):
        assert hard_weights(torch.tensor([0.0, 0.25, 1.0]), weight).tolist() == weights


@pytest.mark.parametrize(
    ("rows", "objective", "largest"),
    [
        ([[1.0, 0.0]], lambda p: nll(p, torch.tensor([1]), smoothing=0.1), math.inf),
        *(([row], entropy, 1e-6) for row in ([1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1e-30, 1e-38, 0.0])),
        ([[1.0, 0.0], [0.0, 1.0]], lambda p: soft_ece(p, torch.tensor([0, 1])), 1e-6),
    ],
)
def test_values_and_gradients_are_finite_at_the_borders(rows: list, objective, largest: float) -> None:
    probs = torch.tensor(rows, requires_grad=True)
    value = objective(probs)
    (gradient,) = torch.autograd.grad(value, probs)
    assert 0 <= value.item() < largest
    assert gradient.isfinite().all()


def test_named_axes_are_checked() -> None:
    """Here, and wherever tests/conftest.py says."""
    with pytest.raises(TypeCheckError):
        nll(torch.ones(3, 2) / 2, torch.zeros(2, dtype=torch.long))
