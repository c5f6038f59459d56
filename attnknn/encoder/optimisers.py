"""Parameter groups and optimisers of an encoder."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.convnet import Filters
from attnknn.nn.optim import AdamW, FilterMuon, Optimiser


def optimisers(
    encoder: nn.Module, loss: nn.Module, neighbours: nn.Module | None, settings: TrainEmbedder
) -> list[Optimiser | torch.optim.Optimizer]:
    """AdamW and, where its learning rate is above 0, Muon; each group holds the `peak` of its learning rate.

    AdamW's groups are backbone; projection, with the linear head and the loss's proxies; knn, with τ, without weight
    decay. Their peaks are lr times the group's factor. Muon takes the convnet's filters out of the backbone's group.
    """
    filters = [module.weight for module in encoder.modules() if isinstance(module, Filters)] if settings.muon.lr else []
    by_muon = {id(matrix) for matrix in filters}
    factors = settings.lr_factors

    def group(factor: float, parameters: Iterable[nn.Parameter], **options: float) -> dict[str, Any]:
        by_adamw = [p for p in parameters if p.requires_grad and id(p) not in by_muon]
        return {"params": by_adamw, "peak": settings.lr * factor, **options}

    backbone = [p for name, p in encoder.named_parameters() if name.startswith("backbone.")]
    projection = [p for name, p in encoder.named_parameters() if not name.startswith("backbone.")]
    groups = [group(factors.backbone, backbone), group(factors.projection, [*projection, *loss.parameters()])]
    if neighbours is not None:
        groups.append(group(factors.knn, neighbours.parameters(), weight_decay=0.0))
    adamw = AdamW([g for g in groups if g["params"]], weight_decay=settings.weight_decay)
    if not filters:
        return [adamw]
    group_of_filters = {"params": filters, "peak": settings.muon.lr}
    return [adamw, FilterMuon([group_of_filters], momentum=settings.muon.momentum, weight_decay=0.0, ns_steps=3)]
