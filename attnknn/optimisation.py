"""How the encoder's weights move: learning rates, optimisers, look-ahead.

Filters of the convolutional network can be moved by Muon (Jordan et al. 2024), which makes every step of a filter
matrix orthogonal; everything else, and without it all, by AdamW (Loshchilov & Hutter 2019).
"""

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn

from attnknn.adamw import AdamW, Optimiser
from attnknn.convnet import Filters

Decay = Literal["cosine", "linear"]


def learning_rate(
    step: int, steps: int, warmup: float, peak: float, decay: Decay = "cosine", cycle: int = 0, factor: int = 1
) -> float:
    """Linear warm-up over a share of all steps, then down to 0: by half cosines or by a straight line.

    The first half cosine takes `cycle` steps, each further one `factor` times as many as the one before; the end of
    training cuts the last off (Loshchilov & Hutter 2017). With cycle 0, a single one takes all steps after the warm-up,
    as the line always does.
    """
    rising = max(1, round(warmup * steps))
    if step < rising:
        return peak * (step + 1) / rising
    into, length = step - rising, cycle or max(1, steps - rising)
    if decay == "linear":
        return peak * (1 - into / max(1, steps - rising))
    while into >= length:
        into, length = into - length, length * factor
    return peak * 0.5 * (1 + math.cos(math.pi * into / length))


class FilterMuon(torch.optim.Muon):
    """Muon on the sphere: before a step every filter matrix (O, I·9) is brought back to the norm √O.

    Batch norm takes the scale of a filter away, so all that its norm does is to set how far a step of given length
    turns it; without this, a norm that grows would lower the learning rate.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                matrix.mul_(len(matrix) ** 0.5 / matrix.norm())
        super().step(closure)


def optimisers(
    encoder: nn.Module,
    loss: nn.Module,
    neighbours: nn.Module | None,
    *,
    lr: float,
    lr_factors: dict[str, float],
    weight_decay: float,
    muon: dict[str, float],
) -> list[Optimiser | torch.optim.Optimizer]:
    """AdamW and, where its learning rate is above 0, Muon; each group names the `peak` of its learning rate.

    The groups of AdamW are backbone; projection, with the linear head and the loss's proxies; knn, with τ, which weight
    decay leaves alone. Muon takes the filters out of the backbone's group.

    Args:
        lr, lr_factors: of AdamW, lr times the factor of the group.
        muon: lr and momentum.
    """
    matrices = [module.weight for module in encoder.modules() if isinstance(module, Filters)] if muon["lr"] else []
    by_muon = {id(matrix) for matrix in matrices}

    def group(name: str, parameters: Iterable[nn.Parameter], **more: float) -> dict[str, Any]:
        moved = [p for p in parameters if p.requires_grad and id(p) not in by_muon]
        return {"params": moved, "peak": lr * lr_factors[name], **more}

    named = list(encoder.named_parameters())
    groups = [
        group("backbone", (p for name, p in named if name.startswith("backbone."))),
        group("projection", [*(p for name, p in named if not name.startswith("backbone.")), *loss.parameters()]),
    ]
    if neighbours is not None:
        groups.append(group("knn", neighbours.parameters(), weight_decay=0.0))
    found: list[Optimiser | torch.optim.Optimizer] = [
        AdamW([g for g in groups if g["params"]], weight_decay=weight_decay)
    ]
    if matrices:
        only = {"params": matrices, "peak": muon["lr"]}
        found.append(FilterMuon([only], momentum=muon["momentum"], weight_decay=0.0, ns_steps=3))
    return found


class LookAhead:
    """Slow weights φ that the fast ones θ come back to every few steps (Zhang et al. 2019), batch statistics too.

        φ ← φ + (1 − β)·(θ − φ),  θ ← φ,  β = .95⁵·(step/steps)³

    So early on nothing is averaged, and in the end φ hardly moves (Jordan 2024).
    """

    def __init__(self, encoder: nn.Module, every: int) -> None:
        self.fast = [t for t in encoder.state_dict().values() if t.is_floating_point()]
        self.slow = [t.clone() for t in self.fast]
        self.every = every

    @torch.no_grad()
    def move(self, step: int, steps: int, last: bool) -> None:
        """After so many of the steps; `last`, of an epoch, is always one after which θ = φ."""
        if self.every and (last or step % self.every == 0):
            share = 1 - 0.95**5 * (step / steps) ** 3
            for slow, fast in zip(self.slow, self.fast, strict=True):
                fast.copy_(slow.lerp_(fast, share))
