"""AdamW and moving averages against torch's classes; training without importing the compiler."""

import subprocess
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from attnknn.nn import optim
from attnknn.nn.optim import AdamW, MovingAverage


class Network(nn.Module):
    """A scalar, filters with channels last, a layer of every third step, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        self.first, self.second, self.sometimes, self.never = (nn.Linear(3, 3) for _ in range(4))
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        x = self.second(self.first(self.filters(x).mean((2, 3))).tanh()) * self.scale
        return self.sometimes(x) if step % 3 == 1 else x


def trained(ours: bool) -> list[torch.Tensor]:
    """Seven steps; ours reads a saved state after three, with a new optimiser, and after six, with the same."""
    torch.manual_seed(3)
    model = Network()
    x = torch.randn(13, 2, 5, 5)
    matrices, others = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.3}, {"params": others}]
    kind = AdamW if ours else partial(torch.optim.AdamW, weight_decay=0.0)
    optimiser = kind(groups, 0.02, (0.8, 0.9))
    for step in range(7):
        if ours and step in (3, 6):
            saved = deepcopy(optimiser.state_dict())
            assert len(saved["state"]) == 9, "a parameter that never had a gradient has no state"
            for state in optimiser.state.values():
                state["exp_avg"].fill_(torch.nan)
            if step == 3:
                optimiser = AdamW(groups, 0.02, (0.8, 0.9))
            optimiser.load_state_dict(saved)
            for state in saved["state"].values():
                state["exp_avg"].fill_(torch.nan)  # what was read is a copy
        for group in optimiser.param_groups:
            group["lr"] = 0.02 / (step + 1)
        optimiser.zero_grad()
        model(x, step).square().mean().backward()
        optimiser.step()
    return list(model.parameters())


@pytest.mark.parametrize("small", [0, 8, 10_000])
def test_it_is_torchs_to_the_byte_also_with_a_loaded_state(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, some and all parameters are updated as one vector."""
    monkeypatch.setattr(optim, "_SMALL", small)
    for ours, theirs in zip(trained(True), trained(False), strict=True):
        assert torch.equal(ours, theirs)


def test_a_moving_average_is_torchs_to_the_byte() -> None:
    torch.manual_seed(0)
    model = nn.Linear(11, 3)
    ours, theirs = MovingAverage(model, 0.9), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for _ in range(4):
        for p in model.parameters():
            p.data += torch.randn_like(p)
        ours.update()
        theirs.update_parameters(model)
        for a, b in zip(ours.module.parameters(), theirs.module.parameters(), strict=True):
            assert torch.equal(a, b)


def test_training_does_not_import_the_compiler() -> None:
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[i]) for i in (1, 2)] + [str(Path(__file__).parents[1] / "encoder")]}
import numpy as np, torch
import test_train
from attnknn.nn.optim import StackedMuon
from attnknn.experiments.fields.probe import transformer_probe
from attnknn.experiments.fields.representations import Tokens
test_train.train(test_train.blobs(96), epochs=1)
w = torch.ones(2, 2, requires_grad=True)
w.sum().backward()
StackedMuon([w], lr=0.1).step()
y, part = np.arange(40) % 2, np.arange(40) % 4
net = dict(dim=8, heads=2, layers=1, dropout=0.0, epochs=1, patience=1, batch_size=8, lr=0.01, seed=0)
transformer_probe(Tokens(torch.rand(40, 3, 5), torch.arange(3)), y, part, 2, **net)
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
