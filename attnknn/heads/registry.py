"""The learned heads by kind: made, saved and loaded alike."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnknn.core.errors import InputError
from attnknn.core.files import load_weights, save_weights
from attnknn.heads.attention import Attention
from attnknn.heads.tabr import Retrieval

LearnedHead = Attention | Retrieval
KINDS = ("attention", "retrieval")


def make_head(kind: str, parts: Mapping[str, Any], *, n_sizes: int, unit: float, **start: Any) -> LearnedHead:
    """A head of one kind that answers like distance weighting until it is trained.

    Args:
        parts: keyword arguments of `Attention`; of them `Retrieval` takes hidden and dropout, and
            key, label_embedding and correction beside them.
        n_sizes, unit: see `Attention`.
        start: dim, n_classes, temperature, prior, metric.

    Raises:
        InputError: an unknown kind, or parts that do not go together.
    """
    if kind == "retrieval":
        of_it = ("hidden", "dropout", "key", "label_embedding", "correction")
        return Retrieval(**start, **{name: parts[name] for name in of_it if name in parts})
    if kind != "attention":
        raise InputError(f"kind: {kind} unknown; allowed are {', '.join(KINDS)}")
    return Attention(**start, n_sizes=n_sizes, unit=unit, **parts)


def learns_space(kind: str, parts: Mapping[str, Any]) -> bool:
    """Whether such a head has weights for each embedding dimension, which mean nothing in another embedding space."""
    moved = parts.get("prototypes", False) and parts.get("move_prototypes", False)
    return kind == "retrieval" or parts.get("similarity", "bank") != "bank" or moved


def save_head(head: LearnedHead, folder: Path) -> None:
    """Write weights and configuration to `folder`, in one step."""
    kind = "retrieval" if isinstance(head, Retrieval) else "attention"
    save_weights(folder, head.state_dict(), {"kind": kind, **head.config})


def load_head(folder: Path) -> LearnedHead:
    """Read what `save_head` wrote, in evaluation mode.

    Raises:
        InputError: files are missing, damaged, or do not fit each other.
    """
    state, config = load_weights(folder)
    kind = config.pop("kind", None)
    try:
        head = Retrieval(**config) if kind == "retrieval" else Attention(**config)
        head.load_state_dict(state)
    except (TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: weights and configuration do not fit ({reason}); run `dvc repro`") from None
    return head.eval()
