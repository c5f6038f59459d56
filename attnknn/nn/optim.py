"""Optimisers and learning rates. AdamW is without torch's class, whose import of the compiler takes 1.2 s."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnknn.core.device import has_bf16


class Optimiser(ABC):
    """Base class with parameter groups and a state dict, as `torch.optim.Optimizer`.

    Args:
        groups: dicts of `params` and their options.
        defaults: options of groups that do not set them.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]], **defaults: Any) -> None:
        self.param_groups = [{**defaults, **group, "params": list(group["params"])} for group in groups]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @abstractmethod
    def step(self) -> None:
        """Update every parameter that has a gradient."""

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for p in self._params():
            p.grad = None

    def state_dict(self) -> dict[str, Any]:
        """`state` by the parameter's position over all groups, and `param_groups`."""
        return {
            "state": {i: self.state[p] for i, p in enumerate(self._params()) if p in self.state},
            "param_groups": self.param_groups,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Copy the state of a `state_dict`; its groups are ignored."""
        params = self._params()
        self.state = {
            params[i]: {name: t.clone() if name == "step" else t.to(params[i], copy=True) for name, t in state.items()}
            for i, state in saved["state"].items()
        }

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


_SMALL = 10_000
_MOMENTS = ("exp_avg", "exp_avg_sq")


class AdamW(Optimiser):
    """AdamW (Loshchilov & Hutter 2019), in float32 on a CPU equal to `torch.optim.AdamW` to the byte.

        m ← β₁·m + (1 − β₁)·g,   v ← β₂·v + (1 − β₂)·g²,   w ← (1 − lr·decay)·w − lr·m̂/(√v̂ + 1e-8)

    with m̂ and v̂ divided by 1 − β₁ᵗ and 1 − β₂ᵗ. Parameters of up to `_SMALL` values, on a GPU all, are updated as one
    vector: one by one they take three times as long.

    Args:
        groups: dicts of `params`, with their own lr or weight_decay if any.
        betas: β₁ and β₂.
        lr, weight_decay: defaults of the groups.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, lr=lr, weight_decay=weight_decay)
        self._betas = betas
        self._steps: dict[Tensor, int] = {}
        self._joined: list[Tensor] = []  # small parameters
        self._moments: list[Tensor] = []  # theirs, m and v, of which `state` has views
        self._owner = torch.empty(0, dtype=torch.long)  # number of the parameter that each of their values belongs to

    @torch.no_grad()
    def step(self) -> None:
        small: list[Tensor] = []
        factors: list[tuple[float, float, float]] = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self._steps[p] = t = self._steps.get(p, 0) + 1
                rate, correction = -group["lr"] / (1 - self._betas[0] ** t), math.sqrt(1 - self._betas[1] ** t)
                own = 1 - group["lr"] * group["weight_decay"], rate, correction
                if p.numel() > _SMALL and not p.is_cuda:
                    state = self.state.setdefault(p, {})
                    if not state:
                        state |= {name: torch.zeros_like(p) for name in _MOMENTS}
                    self._update(p, p.grad, [state[name] for name in _MOMENTS], own)
                else:
                    small.append(p)
                    factors.append(own)
        if not small:
            return
        if list(map(id, small)) != list(map(id, self._joined)):
            self._join_moments(small)
        w, g = _join(small), _join([p.grad for p in small if p.grad is not None])
        self._update(w, g, self._moments, torch.tensor(factors, dtype=torch.float64).to(w).T[:, self._owner])
        for p, new in zip(small, w.split([p.numel() for p in small]), strict=True):
            p.copy_(new.view_as(p))

    def _update(self, w: Tensor, g: Tensor, moments: Iterable[Tensor], factors: Iterable[float | Tensor]) -> None:
        (m, v), (keep, rate, correction), (beta1, beta2) = moments, factors, self._betas
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        w.mul_(keep).addcdiv_(rate * m, (v.sqrt() / correction).add_(1e-8))

    def state_dict(self) -> dict[str, Any]:
        for p, t in self._steps.items():
            self.state[p]["step"] = torch.tensor(t)
        return super().state_dict()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        super().load_state_dict(saved)
        self._steps, self._joined = {p: int(state["step"]) for p, state in self.state.items()}, []

    def _join_moments(self, small: list[Tensor]) -> None:
        self._joined, self._moments, sizes = small, [], [p.numel() for p in small]
        for name in _MOMENTS:
            joined = _join([self.state.setdefault(p, {}).get(name, torch.zeros_like(p)) for p in small])
            for p, view in zip(small, joined.split(sizes), strict=True):
                self.state[p][name] = view.view_as(p)
            self._moments.append(joined)
        self._owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(joined.device)


def _join(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


_A, _B, _C = 3.4445, -4.7750, 2.0315  # coefficients of Jordan et al. (2024), as in torch.optim.Muon


def orthogonalise(g: Float[Tensor, "n r c"], steps: int) -> Float[Tensor, "n r c"]:
    """Bring all singular values of each matrix near 1 by Newton–Schulz steps X ← aX + (bXXᵀ + c(XXᵀ)²)X."""
    x = g.mT if g.shape[1] > g.shape[2] else g
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.mT  # (n, r, r)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.mT if g.shape[1] > g.shape[2] else x


class StackedMuon(Optimiser):
    """Muon with Nesterov momentum on matrices (r, c), those of one shape stacked.

        m ← μ·m + (1 − μ)·g,   W ← W − lr·0.2·√max(r, c)·orthogonalise((1 − μ)·g + μ·m)

    The factor matches the root mean square of AdamW's updates (Liu et al. 2025). Tests compare it with
    `torch.optim.Muon`.

    Args:
        matrices: the parameters.
        lr: learning rate, as for AdamW.
        momentum: μ.
        steps: Newton–Schulz steps.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.9, steps: int = 5) -> None:
        super().__init__([{"params": matrices}], lr=lr, momentum=momentum, steps=steps)

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            factor = 0.2 * group["lr"]
            rates = {p.shape: factor * max(p.shape) ** 0.5 for p in group["params"]}
            _update_stacked(group["params"], self.state, group["momentum"], group["steps"], rates)


def _update_stacked(
    params: Iterable[Tensor],
    state: dict[Tensor, dict[str, Tensor]],
    momentum: float,
    steps: int,
    rates: Mapping[torch.Size, float],
) -> None:
    """Muon's update of the matrices that have a gradient, with a learning rate for each shape."""
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for matrix in params:
        if matrix.grad is not None:
            by_shape.setdefault(matrix.shape, []).append(matrix)
    for shape, matrices in by_shape.items():
        gradients = []
        for matrix in matrices:
            own = state.setdefault(matrix, {})
            mean, grad = own.setdefault("momentum_buffer", torch.zeros_like(matrix)), matrix.grad
            assert grad is not None
            mean.lerp_(grad, 1 - momentum)
            gradients.append(grad.lerp(mean, momentum))
        updates = orthogonalise(torch.stack(gradients), steps)
        for matrix, update in zip(matrices, updates, strict=True):
            matrix.sub_(update, alpha=rates[shape])


class MovingAverage:
    """Exponential moving average of a model's parameters; the first update copies them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(model)
        self._pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))
        self._decay, self._weight = decay, 1.0

    @torch.no_grad()
    def update(self) -> None:
        for average, p in self._pairs:
            average.lerp_(p, self._weight)
        self._weight = 1 - self._decay


Decay = Literal["cosine", "linear"]


def learning_rate(
    step: int, steps: int, warmup: float, peak: float, decay: Decay = "cosine", cycle: int = 0, factor: int = 1
) -> float:
    """Learning rate with linear warm-up over a share of all steps, then linear or cosine decay to 0.

    Cosine decay restarts (SGDR, Loshchilov & Hutter 2017): the first cycle takes `cycle` steps, each later one `factor`
    times as many as the previous; cycle 0 is one cycle over all steps after the warm-up.
    """
    rising = max(1, round(warmup * steps))
    if step < rising:
        return peak * (step + 1) / rising
    position, falling = step - rising, max(1, steps - rising)
    if decay == "linear":
        return peak * (1 - position / falling)
    length = cycle or falling
    while position >= length:
        position, length = position - length, length * factor
    return peak * 0.5 * (1 + math.cos(math.pi * position / length))


class FilterMuon(torch.optim.Muon):
    """Muon on filter matrices (O, I·9), each rescaled to norm √O before a step.

    Under batch norm a filter's norm affects only the effective learning rate, which a growing norm would lower. torch's
    class computes in bfloat16; where that is only emulated, the same steps are computed in float32.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                matrix.mul_(len(matrix) ** 0.5 / matrix.norm())
        if has_bf16(str(self.param_groups[0]["params"][0].device)):
            super().step(closure)
            return
        for group in self.param_groups:
            rates = {p.shape: group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5 for p in group["params"]}
            _update_stacked(group["params"], self.state, group["momentum"], group["ns_steps"], rates)
