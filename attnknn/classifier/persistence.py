"""A fitted classifier as a folder: model.json, arrays.safetensors, and the bank with its FAISS index. No pickle."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from attnknn.classifier.memory import Memory
from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_folder, write_json
from attnknn.heads.attention import Distance, Uniform
from attnknn.heads.registry import LearnedHead, restored_head
from attnknn.index.bank import Bank

FORMAT = 1
_DAMAGED = "{}: damaged (its SHA-256 is another); copy it again, or fit and save the model anew"
_ABOUT, _ARRAYS, _BANK = "model.json", "arrays.safetensors", "bank"
_OF_MEMORY = ("ids", "y", "weight", "near_ids", "near_sims", "sums")
T = TypeVar("T")
AnyHead = LearnedHead | Distance | Uniform
_BASELINES = {"distance": Distance, "uniform": Uniform}


def packed_head(head: AnyHead) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Configuration and weights of a head."""
    if isinstance(head, Distance | Uniform):
        return {"kind": type(head).__name__.lower(), **dataclasses.asdict(head)}, {}
    return {"kind": "attention", **head.config}, {name: of.cpu().numpy() for name, of in head.state_dict().items()}


def unpacked_head(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> AnyHead:
    """The head that `packed_head` was given, on the CPU, in float64 and evaluation mode."""
    import torch

    about = dict(config)
    kind = about.pop("kind")
    if kind in _BASELINES:
        return _BASELINES[kind](**about)
    weights = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return restored_head(config, weights).double()


class Parts(NamedTuple):
    """What a folder holds.

    Attributes:
        memory, head: of the classifier; the head in float64.
        arrays: what else was fitted.
        about: plain values.
    """

    memory: Memory
    head: AnyHead
    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


def save_parts(parts: Parts, folder: Path, also: Callable[[Path], None] | None = None) -> None:
    """Write to `folder`, in one step; `also` may put more into the new folder, which is then checked with the rest.

    Raises:
        InputError: something that is no model is there.
    """
    from attnknn import __version__

    folder = folder.resolve()  # a link stays one
    check_destination(folder)
    config, weights = packed_head(parts.head)
    arrays = {f"memory.{name}": getattr(parts.memory, name) for name in _OF_MEMORY}
    arrays |= {f"head.{name}": of for name, of in weights.items()}
    arrays |= {f"own.{name}": of for name, of in parts.arrays.items()}
    with atomic_folder(folder) as draft:
        parts.memory.bank.save(draft / _BANK)
        save_file({name: np.ascontiguousarray(of) for name, of in arrays.items()}, draft / _ARRAYS)
        if also is not None:
            also(draft)
        digests = {
            path.relative_to(draft).as_posix(): _digest(path) for path in sorted(draft.rglob("*")) if path.is_file()
        }
        about = {"format": FORMAT, "attnknn": __version__, "head": config, "next_id": parts.memory.next_id}
        about = {**about, "about": parts.about, "sha256": digests}
        write_json(draft / _ABOUT, {**about, "own_sha256": _digest_of(about)})


def check_destination(folder: Path) -> None:
    """Refuse to write a model where something is that is none, or that holds files of others.

    Raises:
        InputError: a file, a folder of something else, or a model with more in its folder.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        about = json.loads((folder / _ABOUT).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        about = {}
    ours = isinstance(about, dict) and isinstance(about.get("sha256"), dict) and "format" in about
    require(ours, f"{folder}: there already, and no model; name another folder")
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    others = sorted(there - {*about["sha256"], _ABOUT})
    require(not others, f"{folder}: holds {', '.join(others[:3])} beside a model, which would be lost; move it away")


def read_consistently(folder: Path, read: Callable[[], T], again: int = 20) -> T:
    """What `read` makes of a folder; again where another process has saved to it meanwhile, so never of two models."""
    before = _which(folder)
    try:
        made = read()
        if not again or _which(folder) == before:
            return made
    except (InputError, OSError):
        if not again or (before is not None and _which(folder) == before):
            raise
    time.sleep(0.01)
    # Where none was, the old one may just have gone, and the new one be about to come.
    return read_consistently(folder, read, 0 if before is None else again - 1)


def _which(folder: Path) -> tuple[int, int] | None:
    try:
        about = folder.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


def load_parts(folder: Path) -> Parts:
    """Read what `save_parts` wrote.

    Raises:
        InputError: nothing is there, it is no such model, of a later format, or damaged.
    """
    about = _about(folder)
    for name, digest in about["sha256"].items():
        path = folder / name
        require(path.is_file(), f"{path}: missing; copy the whole folder again, or fit and save the model anew")
        require(_digest(path) == digest, _DAMAGED.format(path))
    try:
        arrays = load_file(folder / _ARRAYS)
        of = {name: arrays[f"memory.{name}"] for name in _OF_MEMORY}
        bank = Bank.load(folder / _BANK)
        rows = np.sort(bank.ids[bank.ids >= 0])
        fit = np.array_equal(rows, of["ids"]) and all(len(of[name]) == len(rows) for name in _OF_MEMORY[:-1])
        require(fit, "rows of the index and of the memory differ")
        memory = Memory(bank=bank, next_id=about["next_id"], **of)
        head = unpacked_head(about["head"], _with_prefix(arrays, "head."))
        return Parts(memory, head, _with_prefix(arrays, "own."), about["about"])
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: not a whole model ({reason}); fit and save it anew") from None


def _about(folder: Path) -> dict[str, Any]:
    path = folder / _ABOUT
    try:
        about = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder}: no saved model ({_ABOUT} is not there); give the folder that `save` wrote"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error}); copy it again, or fit and save the model anew") from None
    number = about.get("format") if isinstance(about, dict) else None
    if type(number) is not int or number < 1 or "sha256" not in about:
        raise InputError(f"{path}: no model of Attn-KNN; give a folder that `save` wrote")
    written = f"{folder}: format {number}, written by attnknn {about.get('attnknn')}"
    require(number <= FORMAT, f"{written}; this one reads up to {FORMAT}: upgrade")
    own = about.pop("own_sha256", None)
    whole = own == _digest_of(about) and isinstance(about["sha256"], dict)
    whole = whole and not any(".." in Path(name).parts or Path(name).is_absolute() for name in about["sha256"])
    require(whole, _DAMAGED.format(path))
    return about


def _digest_of(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): of for name, of in arrays.items() if name.startswith(prefix)}
