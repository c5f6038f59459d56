"""A fitted classifier as a folder: model.json, arrays.safetensors, and the bank with its FAISS index. No pickle."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from attnknn.bank import Bank
from attnknn.errors import InputError, require
from attnknn.files import new_folder, write_json
from attnknn.heads import Distance, Uniform
from attnknn.labelled_bank import LabelledBank
from attnknn.learned import LearnedHead, make_head

if TYPE_CHECKING:
    from attnknn.estimator import AttnKNNClassifier

FORMAT = 1
_ABOUT, _ARRAYS, _BANK = "model.json", "arrays.safetensors", "bank"
_OF_MEMORY = ("ids", "y", "weight", "near_ids", "near_sims", "sums")
_PLAIN = ("n_features_in_", "n_iter_", "_unit", "_usual_weight", "_doubt")
_BASELINES = {"distance": Distance, "uniform": Uniform}


def packed_head(head: LearnedHead | Distance | Uniform) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Configuration and weights of a head."""
    if isinstance(head, Distance | Uniform):
        return {"kind": type(head).__name__.lower(), **dataclasses.asdict(head)}, {}
    return {"kind": "attention", **head.config}, {name: of.cpu().numpy() for name, of in head.state_dict().items()}


def unpacked_head(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> LearnedHead | Distance | Uniform:
    """The head that `packed_head` was given, on the CPU, in float64 and evaluation mode."""
    import torch

    about = dict(config)
    kind = about.pop("kind")
    if kind in _BASELINES:
        return _BASELINES[kind](**about)
    names = ("n_sizes", "unit", "dim", "n_classes", "temperature", "prior", "metric")
    given = {name: about.pop(name) for name in names}
    head = make_head(kind, about, **given)
    head.load_state_dict({name: torch.from_numpy(np.array(of)) for name, of in arrays.items()})
    return head.double().eval()


def save_model(model: "AttnKNNClassifier", folder: Path) -> None:
    """Write a fitted classifier to `folder`, in one step.

    Raises:
        InputError: labels that JSON cannot tell.
    """
    labels = model.classes_.tolist()
    plain = all(isinstance(label, str | int | float | bool) for label in labels)
    require(plain, f"classes: labels of type {type(labels[0]).__name__} cannot be saved; take strings or numbers")
    params = {name: value for name, value in model.get_params().items() if name != "random_state"}
    state = model.random_state if isinstance(model.random_state, int) else None
    config, weights = packed_head(model.head_)
    memory, own = model.memory_, model._arrays()
    arrays = {f"memory.{name}": getattr(memory, name) for name in _OF_MEMORY}
    arrays |= {f"head.{name}": of for name, of in weights.items()} | {f"own.{name}": of for name, of in own.items()}
    with new_folder(folder) as draft:
        memory.bank.save(draft / _BANK)
        save_file({name: np.ascontiguousarray(of) for name, of in arrays.items()}, draft / _ARRAYS)
        from attnknn import __version__

        write_json(
            draft / _ABOUT,
            {
                "format": FORMAT,
                "attnknn": __version__,
                "params": {**params, "random_state": state},
                "classes": labels,
                "classes_dtype": model.classes_.dtype.str,
                "feature_names": list(getattr(model, "feature_names_in_", [])),
                "head": config,
                "next_id": memory.next_id,
                "plain": {name: getattr(model, name) for name in _PLAIN},
                "sha256": {str(path.relative_to(draft)): _digest(path) for path in _files(draft)},
            },
        )


def load_model(folder: Path, kind: "type[AttnKNNClassifier]") -> "AttnKNNClassifier":
    """Read what `save_model` wrote.

    Raises:
        InputError: nothing is there, it is no such model, of a later format, or damaged.
    """
    folder = Path(folder)
    about = _about(folder)
    for name, digest in about["sha256"].items():
        path = folder / name
        require(path.is_file(), f"{path}: missing; copy the whole folder again, or fit and save the model anew")
        whole = _digest(path) == digest
        require(whole, f"{path}: damaged (its SHA-256 is another); copy it again, or fit and save the model anew")
    try:
        arrays = load_file(folder / _ARRAYS)
        bank = Bank.load(folder / _BANK)
        of = {name: arrays[f"memory.{name}"] for name in _OF_MEMORY}
        memory = LabelledBank(bank=bank, next_id=about["next_id"], **of)
        model = kind(**about["params"])
        model.classes_ = np.array(about["classes"], dtype=np.dtype(about["classes_dtype"]))
        if about["feature_names"]:
            model.feature_names_in_ = np.array(about["feature_names"], dtype=object)
        model.memory_ = memory
        model.head_ = unpacked_head(about["head"], _with_prefix(arrays, "head."))
        for name in _PLAIN:
            setattr(model, name, about["plain"][name])
        model._set_arrays(_with_prefix(arrays, "own."))
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: not a whole model ({reason}); fit and save it anew") from None
    return model


def _about(folder: Path) -> dict[str, Any]:
    path = folder / _ABOUT
    try:
        about = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder}: no saved model ({_ABOUT} is not there); give the folder that `save` wrote"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error}); copy it again, or fit and save the model anew") from None
    number = about.get("format") if isinstance(about, dict) else None
    require(
        isinstance(number, int) and "sha256" in about, f"{path}: no model of Attn-KNN; give a folder that `save` wrote"
    )
    later = (
        f"{folder}: format {number}, written by attnknn {about.get('attnknn')}; this one reads up to {FORMAT}: upgrade"
    )
    require(number <= FORMAT, later)
    return about


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): of for name, of in arrays.items() if name.startswith(prefix)}
