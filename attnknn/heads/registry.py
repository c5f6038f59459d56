"""Construct, save and load learned heads of every kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attnknn.core.errors import InputError
from attnknn.core.files import load_weights, save_weights
from attnknn.heads.attention import Attention
from attnknn.heads.tabr import TabR

LearnedHead = Attention | TabR


def make_head(
    kind: str, parts: Mapping[str, Any], *, k: int = 0, n_sizes: int, sim_scale: float, **start: Any
) -> LearnedHead:
    """Construct a head of one kind, initialised to distance weighting of k neighbours.

    Args:
        kind: attention or tabr.
        parts: keyword arguments of `Attention`, and value, which it ignores; `TabR` takes value, hidden, dropout, key,
            label_embedding and correction, and ignores the others.
        n_sizes, sim_scale: see `Attention`.
        start: dim, n_classes, temperature, prior, metric.

    Raises:
        InputError: incompatible parts.
    """
    if kind == "tabr":
        names = ("hidden", "dropout", "key", "label_embedding", "correction", "value")
        head: LearnedHead = TabR(**start, **{name: parts[name] for name in names if name in parts})
    else:
        own = {name: part for name, part in parts.items() if name != "value"}
        head = Attention(**start, n_sizes=n_sizes, sim_scale=sim_scale, **own)
    head.k = k
    return head


def learns_space(kind: str, parts: Mapping[str, Any]) -> bool:
    """Whether the head has parameters per embedding dimension, which do not transfer to another embedding space."""
    moves = parts.get("prototypes", False) and parts.get("move_prototypes", False)
    return kind == "tabr" or parts.get("similarity", "bank") != "bank" or moves


def save_head(head: LearnedHead, folder: Path) -> None:
    """Write weights and configuration to `folder`, atomically."""
    kind = "tabr" if isinstance(head, TabR) else "attention"
    save_weights(folder, head.state_dict(), {"kind": kind, "k": head.k, **head.config})


def load_head(folder: Path) -> LearnedHead:
    """Read what `save_head` wrote, in evaluation mode.

    Raises:
        InputError: files are missing, damaged, or do not match.
    """
    state, config = load_weights(folder)
    try:
        return restored_head(config, state)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"{folder}: weights and configuration do not fit ({error!s:.200}); run `dvc repro`") from None


_RENAMED = {"evidence": "features", "unit": "sim_scale"}  # configuration names of 0.4.0 → now
_RENAMED_WEIGHTS = {"heat": "log_temperature_offset", "spread_out": "fc1", "draw_in": "fc2"}


def restored_head(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> LearnedHead:
    """Construct a head, in evaluation mode, from its saved configuration and weights; names of 0.4.0 are mapped.

    Raises:
        TypeError, RuntimeError: configuration and weights do not match.
    """
    config = {_RENAMED.get(name, name): value for name, value in config.items()}
    kind, k = config.pop("kind", None), config.pop("k", 0)
    head = TabR(**config) if kind in ("tabr", "retrieval") else Attention(**config)
    renamed = {".".join(_RENAMED_WEIGHTS.get(part, part) for part in name.split(".")): t for name, t in state.items()}
    head.load_state_dict(renamed)
    head.k = k
    return head.eval()
