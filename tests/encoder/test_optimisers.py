"""Learning rates, parameter groups and Muon."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.convnet import Filters
from attnknn.encoder.encoder import Encoder
from attnknn.encoder.losses import EncoderLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.optimisers import optimisers
from attnknn.nn.optim import FilterMuon, learning_rate


def cosine(steps: int) -> list[float]:
    """From 1 down, over so many steps."""
    return [0.5 * (1 + math.cos(math.pi * i / steps)) for i in range(steps)]


def test_learning_rate_by_hand() -> None:
    """Ten steps, two of them warm-up: half, whole, then a cosine or a straight line over eight steps."""
    rates = [learning_rate(step, 10, 0.2, 1.0) for step in range(10)]
    assert rates == pytest.approx([0.5, 1.0, *cosine(8)])
    straight = [learning_rate(step, 10, 0.2, 1.0, "linear") for step in range(10)]
    assert straight == pytest.approx([0.5, 1.0, *(1 - i / 8 for i in range(8))])


def test_restarts_by_hand() -> None:
    """Two steps of warm-up, a cosine of 4 steps, one of 8, and 2 steps of one of 16 that the end cuts off."""
    rates = [learning_rate(step, 16, 2 / 16, 1.0, cycle=4, factor=2) for step in range(16)]
    assert rates == pytest.approx([0.5, 1.0, *cosine(4), *cosine(8), *cosine(16)[:2]])


def settings(muon: float) -> TrainEmbedder:
    factors = {"backbone": 0.1, "projection": 1.0, "knn": 2.0}
    return TrainEmbedder(lr=0.01, lr_factors=factors, weight_decay=0.1, muon={"lr": muon, "momentum": 0.6})


@pytest.mark.parametrize("muon", [0.0, 0.2])
def test_every_parameter_that_is_learned_is_in_one_group_with_its_rate(muon: float) -> None:
    encoder, loss = Encoder("convnet", (3, 8, 8), 3, [5, 7], 11), EncoderLoss(3, 11, proxy_anchor=0.1)
    neighbours = NeighbourLoss(torch.arange(20).numpy() % 3, 3, 11, k=5)
    names = {id(p): name for name, p in encoder.named_parameters()}
    groups = [g for optimiser in optimisers(encoder, loss, neighbours, settings(muon)) for g in optimiser.param_groups]
    (adamw, *_) = optimisers(encoder, loss, None, settings(muon))
    assert len(adamw.param_groups) == 2, "without a kNN loss there is no group for it"
    held = [{names.get(id(p), "").partition(".")[0] for p in group["params"]} for group in groups]
    assert held == [{"backbone"}, {"projection", "classifier", ""}, {""}] + ([{"backbone"}] if muon else [])
    assert [group["peak"] for group in groups] == pytest.approx([0.001, 0.01, 0.02] + ([0.2] if muon else []))
    assert [group["weight_decay"] for group in groups][:3] == [0.1, 0.1, 0.0], "decay would pull τ towards 1"
    learned = [p for module in (encoder, loss, neighbours) for p in module.parameters() if p.requires_grad]
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(map(id, learned))
    if muon:
        matrices = [m.weight for m in encoder.modules() if isinstance(m, Filters)]
        assert [id(p) for p in groups[-1]["params"]] == [id(m) for m in matrices]
        assert len(matrices) == 4


def test_a_step_of_muon_is_nearly_orthogonal_and_the_filters_keep_their_norm() -> None:
    """The update's singular values lie about 1, whatever the gradient's; the norm is √rows before it."""
    torch.manual_seed(0)
    matrix = nn.Parameter(3 * torch.randn(7, 45))
    optimiser = FilterMuon([matrix], lr=1.0, momentum=0.6, weight_decay=0.0, ns_steps=3)
    before = matrix.detach() * 7**0.5 / matrix.detach().norm()
    gradient = torch.randn(7, 45) * torch.logspace(-1, 1, 7)[:, None]
    matrix.grad = gradient.clone()
    optimiser.step()
    update = before - matrix.detach()
    values, uneven = torch.linalg.svdvals(update), torch.linalg.svdvals(gradient)
    assert uneven[-1] < 0.05 * uneven[0]
    assert 0.3 < values.min() <= values.max() < 1.6
    assert functional.cosine_similarity(update.flatten(), gradient.flatten(), 0) > 0.3
