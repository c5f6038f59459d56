"""Parameter groups and optimisers of an encoder."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from attnknn.encoder.convnet import Filters
from attnknn.nn.optim import AdamW, FilterMuon, Optimiser


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
    optimisers: list[Optimiser | torch.optim.Optimizer] = [
        AdamW([g for g in groups if g["params"]], weight_decay=weight_decay)
    ]
    if matrices:
        only = {"params": matrices, "peak": muon["lr"]}
        optimisers.append(FilterMuon([only], momentum=muon["momentum"], weight_decay=0.0, ns_steps=3))
    return optimisers
