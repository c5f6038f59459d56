"""Learning rates, parameter groups and Muon."""

import math
from typing import Any

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
from attnknn.nn import optim
from attnknn.nn.optim import FilterMuon, learning_rate


def cosine(steps: int) -> list[float]:
    """From 1 down, over so many steps."""
    return [0.5 * (1 + math.cos(math.pi * i / steps)) for i in range(steps)]


@pytest.mark.parametrize(
    ("steps", "schedule", "expected"),
    [
        (10, {}, cosine(8)),
        (10, {"decay": "linear"}, [1 - i / 8 for i in range(8)]),
        (16, {"cycle": 4, "factor": 2}, [*cosine(4), *cosine(8), *cosine(16)[:2]]),
    ],
)
def test_learning_rate_by_hand(steps: int, schedule: dict[str, Any], expected: list[float]) -> None:
    """Two steps of warm-up: half, whole; then a cosine, a straight line, or restarts of which the end cuts one off."""
    rates = [learning_rate(step, steps, 2 / steps, 1.0, **schedule) for step in range(steps)]
    assert rates == pytest.approx([0.5, 1.0, *expected])


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


def test_muon_in_float32_takes_the_steps_of_torchs_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a processor without bfloat16 computes: wide and tall filters, their momentum, no gradient, no step."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(7, 45), (7, 45), (30, 9), (5, 5)]
    results = []
    for native in (False, True):
        monkeypatch.setattr(optim, "has_bf16", lambda device, native=native: native)
        matrices = [nn.Parameter(torch.randn(shape, generator=generator.manual_seed(4))) for shape in shapes]
        optimiser = FilterMuon(matrices, lr=0.1, momentum=0.6, weight_decay=0.0, ns_steps=3)
        for _ in range(3):
            for matrix in matrices[:-1]:
                matrix.grad = torch.randn(matrix.shape, generator=generator)
            optimiser.step()
        results.append((matrices, [optimiser.state[matrix]["momentum_buffer"] for matrix in matrices[:-1]]))
    (ours, means), (theirs, their_means) = results
    torch.testing.assert_close(means, their_means, rtol=0, atol=1e-6)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=5e-3)
    start = torch.randn(7, 45, generator=generator.manual_seed(4))
    assert (ours[0] - start * 7**0.5 / start.norm()).abs().max() > 0.05, "ten times what the dtypes differ by"
