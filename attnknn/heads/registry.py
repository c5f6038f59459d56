"""The learned heads by kind: made, saved and loaded alike."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attnknn.core.errors import InputError
from attnknn.core.files import load_weights, save_weights
from attnknn.heads.attention import Attention
from attnknn.heads.tabr import TabR

LearnedHead = Attention | TabR
KINDS = ("attention", "tabr")


def make_head(kind: str, parts: Mapping[str, Any], *, n_sizes: int, sim_scale: float, **start: Any) -> LearnedHead:
    """A head of one kind that answers like distance weighting until it is trained.

    Args:
        parts: keyword arguments of `Attention`; of them `TabR` takes hidden and dropout, and
            key, label_embedding and correction beside them.
        n_sizes, sim_scale: see `Attention`.
        start: dim, n_classes, temperature, prior, metric.

    Raises:
        InputError: an unknown kind, or parts that do not go together.
    """
    if kind == "tabr":
        of_it = ("hidden", "dropout", "key", "label_embedding", "correction")
        return TabR(**start, **{name: parts[name] for name in of_it if name in parts})
    if kind != "attention":
        raise InputError(f"kind: {kind} unknown; allowed are {', '.join(KINDS)}")
    return Attention(**start, n_sizes=n_sizes, sim_scale=sim_scale, **parts)


def learns_space(kind: str, parts: Mapping[str, Any]) -> bool:
    """Whether such a head has weights for each embedding dimension, which mean nothing in another embedding space."""
    moved = parts.get("prototypes", False) and parts.get("move_prototypes", False)
    return kind == "tabr" or parts.get("similarity", "bank") != "bank" or moved


def save_head(head: LearnedHead, folder: Path) -> None:
    """Write weights and configuration to `folder`, in one step."""
    kind = "tabr" if isinstance(head, TabR) else "attention"
    save_weights(folder, head.state_dict(), {"kind": kind, **head.config})


def load_head(folder: Path) -> LearnedHead:
    """Read what `save_head` wrote, in evaluation mode.

    Raises:
        InputError: files are missing, damaged, or do not fit each other.
    """
    state, config = load_weights(folder)
    try:
        return restored_head(config, state)
    except (TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: weights and configuration do not fit ({reason}); run `dvc repro`") from None


_RENAMED = {"evidence": "features", "unit": "sim_scale"}  # configuration since 0.4.0
_RENAMED_WEIGHTS = {"heat": "log_temperature_offset", "spread_out": "fc1", "draw_in": "fc2"}


def restored_head(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> LearnedHead:
    """Make a head, in evaluation mode, from its saved configuration and weights; those of 0.4.0 are renamed.

    Raises:
        TypeError, RuntimeError: they do not fit each other.
    """
    config = {_RENAMED.get(name, name): value for name, value in config.items()}
    kind = config.pop("kind", None)
    head = TabR(**config) if kind in ("tabr", "retrieval") else Attention(**config)
    renamed = {".".join(_RENAMED_WEIGHTS.get(part, part) for part in name.split(".")): t for name, t in state.items()}
    head.load_state_dict(renamed)
    return head.eval()
