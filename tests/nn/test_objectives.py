"""Objectives on votes and weights against loops, and their gradients against finite differences."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attnknn.nn.objectives import entropy, hard_weights, hardness, nll, soft_ece


def votes(b: int = 7, c: int = 5, seed: int = 0, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    """probs (B, C) and labels (B,)."""
    g = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(b, c, generator=g)).softmax(1), torch.randint(c, (b,), generator=g)


def hard_ece(probs: Tensor, y: Tensor, bins: int) -> float:
    """√(Σ_b n_b/n · (acc_b − conf_b)²) over equal-width bins, bin by bin."""
    confidence, top = probs.max(1)
    which, total = np.minimum((confidence.numpy() * bins).astype(int), bins - 1), 0.0
    for b in range(bins):
        inside = torch.from_numpy(which == b)
        if inside.any():
            gap = (top == y)[inside].float().mean() - confidence[inside].mean()
            total += inside.float().mean().item() * gap.item() ** 2
    return math.sqrt(total)


# NLL


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_by_loops(smoothing: float, weighted: bool) -> None:
    probs, y = votes()
    weight = torch.linspace(0.5, 2.0, 7) if weighted else None
    total = mass = 0.0
    for i in range(7):
        w = float(weight[i]) if weight is not None else 1.0
        targets = [(1 - smoothing) * (c == y[i]).item() + smoothing / 5 for c in range(5)]
        total -= w * sum(t * math.log(p) for t, p in zip(targets, probs[i].tolist(), strict=True))
        mass += w
    assert nll(probs, y, smoothing, weight).item() == pytest.approx(total / mass, rel=1e-5)


def test_a_row_that_counts_twice_is_a_row_that_is_there_twice() -> None:
    probs, y = votes()
    twice = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6])
    weight = torch.tensor([2.0, 1, 1, 1, 1, 1, 1])
    torch.testing.assert_close(nll(probs, y, 0.1, weight), nll(probs[twice], y[twice], 0.1))


def test_nll_is_linear_in_the_label_so_mixup_is_the_mixed_label() -> None:
    probs, y = votes()
    other = y.roll(1)
    mixed = 0.7 * torch.eye(5)[y] + 0.3 * torch.eye(5)[other]
    expected = -(mixed * probs.log()).sum(1).mean()
    torch.testing.assert_close(0.7 * nll(probs, y) + 0.3 * nll(probs, other), expected)


# Entropy


def test_entropy_by_loops_over_renormalised_weights() -> None:
    """The null neighbour took a third of each row: entropy is that of the neighbours among themselves."""
    weights = votes(b=7, c=11)[0] * (2 / 3)
    expected = -sum(1.5 * w * math.log(1.5 * w) for row in weights.tolist() for w in row) / 7
    assert entropy(weights).item() == pytest.approx(expected, rel=1e-5)


def test_entropy_by_hand() -> None:
    assert entropy(torch.full((3, 8), 0.1)).item() == pytest.approx(math.log(8))
    half = torch.tensor([[0.5, 0.5, 0.0, 0.0]])  # two neighbours, two that are missing
    assert entropy(half).item() == pytest.approx(math.log(2))
    assert entropy(torch.tensor([[1.0, 0.0]])).item() == 0


# Calibration


def test_soft_ece_by_loops() -> None:
    probs, y = votes(b=13)
    bins, sharpness, n = 5, 40.0, 13
    size, right, confidence = [0.0] * bins, [0.0] * bins, [0.0] * bins
    for row, label in zip(probs.tolist(), y.tolist(), strict=True):
        top = max(row)
        scores = [math.exp(-sharpness * (top - (b + 0.5) / bins) ** 2) for b in range(bins)]
        for b in range(bins):
            u = scores[b] / sum(scores)
            size[b] += u
            right[b] += u * (row.index(top) == label)
            confidence[b] += u * top
    expected = math.sqrt(
        sum(s / n * (r / s - c / s) ** 2 for s, r, c in zip(size, right, confidence, strict=True) if s > 0)
    )
    assert soft_ece(probs, y, bins, sharpness).item() == pytest.approx(expected, rel=1e-4)


def test_soft_ece_goes_to_the_hard_one_as_edges_sharpen() -> None:
    probs, y = votes(b=997, spread=3.0)
    expected = hard_ece(probs, y, 15)
    off = [abs(soft_ece(probs, y, 15, sharpness).item() - expected) for sharpness in (1e2, 1e4, 1e7)]
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-4
    assert expected > 0.1


def test_soft_ece_of_one_bin_is_the_gap_of_the_means() -> None:
    """Confidence .9 on four rows, three of them right: |.75 − .9|; the remedy is less confidence."""
    probs = torch.tensor([[0.9, 0.1]] * 4, requires_grad=True)
    value = soft_ece(probs, torch.tensor([0, 0, 0, 1]), bins=1)
    assert value.item() == pytest.approx(0.15)
    (gradient,) = torch.autograd.grad(value, probs)
    assert (gradient[:, 0] > 0).all()


@pytest.mark.parametrize("rows", [1, 16])
def test_soft_ece_of_rows_that_are_all_as_sure_has_a_finite_gradient(rows: int) -> None:
    """Most bins are next to empty then."""
    for confidence in torch.linspace(0.5, 1, 1001):
        probs = torch.stack([confidence, 1 - confidence]).repeat(rows, 1).requires_grad_()
        soft_ece(probs, torch.zeros(rows, dtype=torch.long)).backward()
        assert probs.grad is not None
        assert probs.grad.isfinite().all(), confidence


# Hard queries


def test_hardness_by_loops_and_missing_neighbours() -> None:
    g = torch.Generator().manual_seed(3)
    labels, y = torch.randint(3, (5, 11), generator=g), torch.arange(5) % 3
    labels[0, 6:], labels[1] = -1, -1
    expected = []
    for i in range(5):
        valid = [label for label in labels[i].tolist() if label >= 0]
        expected.append(sum(label != int(y[i]) for label in valid) / len(valid) if valid else 0.0)
    assert hardness(labels, y).tolist() == pytest.approx(expected)


def test_hard_weights_by_hand() -> None:
    assert hard_weights(torch.tensor([0.0, 0.25, 1.0]), 2.0).tolist() == [1.0, 1.25, 2.0]
    assert hard_weights(torch.tensor([0.0, 0.25, 1.0]), 1.0).tolist() == [1.0, 1.0, 1.0]


# Gradients


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


@pytest.mark.parametrize(
    "objective",
    [
        lambda p, y: nll(p, y),
        lambda p, y: nll(p, y, 0.1, torch.linspace(0.5, 2.0, 7, dtype=p.dtype)),
        lambda p, y: entropy(p),
        lambda p, y: entropy(0.3 * p),
        lambda p, y: soft_ece(p, y, 15, 100.0),
    ],
)
def test_gradients_against_finite_differences(objective) -> None:
    probs, y = votes()
    assert torch.autograd.gradcheck(lambda p: objective(p, y), probs.double().requires_grad_())
