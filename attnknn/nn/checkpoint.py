"""Checkpoints of a training run between epochs: one safetensors file, written atomically."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnknn.core.files import atomic_file, usual_mode
from attnknn.nn.optim import Optimiser


def source_code(*packages: str) -> list[bytes]:
    """Source files of packages of attnknn, in a fixed order."""
    root = Path(__file__).parents[1]
    return [path.read_bytes() for package in packages for path in sorted((root / package).rglob("*.py"))]


def fingerprint(*parts: Any) -> str:
    """Hash arrays and plain values, to decide whether a checkpoint matches a run."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        array = isinstance(part, np.ndarray)
        digest.update(np.ascontiguousarray(part).data if array else repr(part).encode())
    return digest.hexdigest()


def save_state(
    path: Path,
    mark: str,
    encoder: nn.Module,
    loss: nn.Module,
    optimisers: Sequence[Optimiser | torch.optim.Optimizer],
    best: dict[str, Tensor],
    history: list[dict[str, float]],
) -> None:
    """Write a checkpoint; `mark` is the `fingerprint` of its run."""
    from safetensors.torch import save_file

    tensors = {f"encoder/{name}": t for name, t in encoder.state_dict().items()}
    tensors |= {f"loss/{name}": t for name, t in loss.state_dict().items()}
    tensors |= {f"best/{name}": t for name, t in best.items()}
    for number, optimiser in enumerate(optimisers):
        for index, state in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser/{number}/{index}/{name}": t for name, t in state.items()}
    # safetensors refuses tensors that share memory, and metadata holds strings only.
    copies = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    with atomic_file(path) as draft, usual_mode(draft):
        save_file(copies, draft, {"mark": mark, "history": json.dumps(history)})


def load_state(
    path: Path,
    mark: str,
    encoder: nn.Module,
    loss: nn.Module,
    optimisers: Sequence[Optimiser | torch.optim.Optimizer],
    best: dict[str, Tensor],
) -> list[dict[str, float]] | None:
    """Restore a checkpoint and return its history; None if it is missing, damaged or of another run."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("mark") != mark:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError):
        return None

    def under(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    encoder.load_state_dict(under("encoder/"))
    loss.load_state_dict(under("loss/"))
    best.update(under("best/"))
    for number, optimiser in enumerate(optimisers):
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in under(f"optimiser/{number}/").items():
            index, _, field = name.partition("/")
            moments.setdefault(int(index), {})[field] = tensor
        optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    return json.loads(metadata["history"])
