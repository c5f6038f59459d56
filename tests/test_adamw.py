"""AdamW against torch's class of that name, and what it is there for."""

import subprocess
import sys

import torch
from torch import nn

from attnknn.adamw import AdamW


def trained(ours: bool, steps: int = 7) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 11), nn.GELU(), nn.Linear(11, 2), nn.Linear(3, 3))  # the last is never used
    x = torch.randn(13, 5)
    matrices, biases = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim == 1]
    if ours:
        optimiser = AdamW([(matrices, 0.3), (biases, 0.0)], 0.02)
    else:
        groups = [{"params": matrices, "weight_decay": 0.3}, {"params": biases, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        model[:3](x).square().mean().backward()
        optimiser.step()
    return list(model.parameters())


def test_it_is_torchs_to_the_byte() -> None:
    for ours, theirs in zip(trained(True), trained(False), strict=True):
        assert torch.equal(ours, theirs)


def test_first_step_by_hand() -> None:
    w, still = nn.Parameter(torch.tensor([2.0, -1.0])), nn.Parameter(torch.tensor([4.0]))
    optimiser = AdamW([([w, still], 0.1)], 0.5)
    (3 * w[0] - w[1]).backward()
    optimiser.step()
    # m̂/√v̂ is the sign of the first gradient: (1 − .05)·2 − .5 and (1 − .05)·(−1) + .5; no gradient, no decay.
    torch.testing.assert_close(w.detach(), torch.tensor([1.4, -0.45]))
    assert still.item() == 4.0
    optimiser.zero_grad()
    assert w.grad is None


def test_it_does_not_import_the_compiler() -> None:
    code = (
        "import sys, torch; from attnknn.adamw import AdamW; w = torch.ones(1, requires_grad=True); "
        "o = AdamW([([w], 0.0)], 0.1); w.backward(); o.step(); o.zero_grad(); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
