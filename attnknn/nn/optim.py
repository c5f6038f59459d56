"""AdamW without torch's optimiser class, which imports torch's compiler: 1.2 s of every process that trains."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
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
            params[i]: {name: t.clone() if name == "step" else t.to(params[i], copy=True) for name, t in state.items()}
            for i, state in saved["state"].items()
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
                steps = orthogonalised(torch.stack(ahead), group["steps"])
                for matrix, step in zip(matrices, steps, strict=True):
                    matrix.sub_(step, alpha=group["lr"] * 0.2 * max(shape) ** 0.5)


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
