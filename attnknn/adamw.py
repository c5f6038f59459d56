"""AdamW without torch's optimiser class, which imports torch's compiler: 1.5 s of every process that fits a head."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw


class AdamW:
    """AdamW (Loshchilov & Hutter 2019) by torch's function of that name, to the byte what `torch.optim.AdamW` does.

        m ← .9·m + .1·g,   v ← .999·v + .001·g²,   w ← (1 − lr·decay)·w − lr·m̂/(√v̂ + 1e-8)

    with m̂ and v̂ divided by 1 − .9ᵗ and 1 − .999ᵗ.

    Args:
        groups: parameters with their weight decay.
        lr: learning rate of all of them.
    """

    def __init__(self, groups: Sequence[tuple[Sequence[Tensor], float]], lr: float) -> None:
        self.groups, self.lr = groups, lr
        # Of each parameter m, v and t, which torch keeps as float32 on the CPU.
        self.moments = {
            p: (torch.zeros_like(p), torch.zeros_like(p), torch.tensor(0.0)) for params, _ in groups for p in params
        }

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for p in self.moments:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for params, decay in self.groups:
            moved = [p for p in params if p.grad is not None]
            grads = [p.grad for p in moved if p.grad is not None]
            m, v, t = ([self.moments[p][i] for p in moved] for i in range(3))
            adamw(
                moved,
                grads,
                m,
                v,
                [],
                t,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.lr,
                weight_decay=decay,
                eps=1e-8,
                maximize=False,
            )
