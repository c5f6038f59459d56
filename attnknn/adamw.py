"""AdamW without torch's optimiser class, which imports torch's compiler: 1.2 s of every process that trains."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw


class Optimiser:
    """What `torch.optim.Optimizer` gives to its kinds: groups of parameters, and a state that can be saved.

    Args:
        groups: `params` and whatever else holds for them.
        common: what holds for groups that do not say otherwise.

    Attributes:
        param_groups: as in torch; a changed value, as of `lr`, holds from the next step on.
        state: tensors by name of every parameter that has been moved.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]], **common: Any) -> None:
        self.param_groups: list[dict[str, Any]] = [
            {**common, **group, "params": list(group["params"])} for group in groups
        ]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for p in self._params():
            p.grad = None

    def state_dict(self) -> dict[str, Any]:
        """`state` by the place of its parameter, groups one after another, and `param_groups`."""
        return {
            "state": {i: self.state[p] for i, p in enumerate(self._params()) if p in self.state},
            "param_groups": self.param_groups,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of parameters of the same shapes; its groups are not read."""
        params = self._params()
        self.state = {
            params[i]: {name: t.clone() if name == "step" else t.to(params[i], copy=True) for name, t in of.items()}
            for i, of in saved["state"].items()
        }

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


class AdamW(Optimiser):
    """AdamW (Loshchilov & Hutter 2019) by torch's function of that name, to the byte what `torch.optim.AdamW` does.

        m ← β₁·m + (1 − β₁)·g,   v ← β₂·v + (1 − β₂)·g²,   w ← (1 − lr·decay)·w − lr·m̂/(√v̂ + 1e-8)

    with m̂ and v̂ divided by 1 − β₁ᵗ and 1 − β₂ᵗ.

    Args:
        groups: `params`, and any of lr, betas, weight_decay that is theirs alone.
        lr, betas, weight_decay: of the other groups.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas, weight_decay=weight_decay)

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for p in moved:
                if p not in self.state:
                    # Steps are counted by torch as float32, on the CPU.
                    moments = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                    self.state[p] = {"step": torch.tensor(0.0), **moments}
            adamw(
                moved,
                [p.grad for p in moved],
                [self.state[p]["exp_avg"] for p in moved],
                [self.state[p]["exp_avg_sq"] for p in moved],
                [],
                [self.state[p]["step"] for p in moved],
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=1e-8,
                maximize=False,
            )
