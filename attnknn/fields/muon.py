"""Muon for a network of many small matrices: those of one shape are made orthogonal together.

`torch.optim.Muon` takes one matrix after the other, which in a small field was half the time of a training step.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from attnknn.adamw import Optimiser

_A, _B, _C = 3.4445, -4.7750, 2.0315  # of Jordan et al. (2024), as in torch.optim.Muon


def orthogonalised(g: Float[Tensor, "n r c"], steps: int) -> Float[Tensor, "n r c"]:
    """Each matrix with all of its singular values near 1, by Newton–Schulz steps X ← aX + (bXXᵀ + c(XXᵀ)²)X."""
    x = g.mT if g.shape[1] > g.shape[2] else g
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.mT  # (n, r, r)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.mT if g.shape[1] > g.shape[2] else x


class StackedMuon(Optimiser):
    """W ← W − lr·0.2·√max(r, c)·orthogonalised(g + μ·m), m ← μ·m + (1 − μ)·g: Muon with Nesterov momentum.

    The factor gives a step the root mean square of one of AdamW (Liu et al. 2025). Tests hold it against
    `torch.optim.Muon`.

    Args:
        matrices: parameters (r, c).
        lr: of matrices, as for AdamW.
        momentum: μ.
        steps: of Newton–Schulz.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.9, steps: int = 5) -> None:
        super().__init__([{"params": matrices}], lr=lr, momentum=momentum, steps=steps)

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in alike.items():
                ahead = []
                for matrix in matrices:
                    kept = self.state.setdefault(matrix, {"momentum_buffer": torch.zeros_like(matrix)})
                    mean, grad = kept["momentum_buffer"], matrix.grad
                    assert grad is not None
                    mean.lerp_(grad, 1 - group["momentum"])
                    ahead.append(grad.lerp(mean, group["momentum"]))
                made = orthogonalised(torch.stack(ahead), group["steps"])
                for matrix, step in zip(matrices, made, strict=True):
                    matrix.sub_(step, alpha=group["lr"] * 0.2 * max(shape) ** 0.5)
