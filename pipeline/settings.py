"""Read, merge and check params.yaml, datasets.yaml and presets/.

What holds for a dataset: the defaults of the config.py files, params.yaml over them, the dataset's entry in
datasets.yaml over that, the chosen preset over all.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from attnknn.core.config import Block, Count, Name, Seed, no_duplicates
from attnknn.core.errors import InputError, require
from attnknn.core.files import parse_yaml

PARAMS, DATASETS, PRESETS = Path("params.yaml"), Path("datasets.yaml"), Path("presets")
EXPERIMENTS = {
    "peers": "Peers", "k_sweep": "KSweep", "noise": "Noise", "audit": "Audit",
    "new_classes": "NewClasses", "novelty": "Novelty", "drift": "Drift", "imbalance": "Imbalance", "tta": "Tta",
    "train_corrupted": "TrainCorrupted", "ensemble": "Ensemble", "ablation": "Ablation",
    "encoder_ablation": "EncoderAblation", "profile": "Profile", "splits": "Splits", "theory": "Theory",
    "explain": "Explain", "finetune": "Finetune",
}  # fmt: skip
# The class of each block of settings; imported when the block is read, so that a stage depends on its own only.
BLOCKS = {
    "prepare": "attnknn.data.config:Prepare",
    "train_embedder": "attnknn.encoder.config:TrainEmbedder",
    "build_index": "attnknn.index.config:BuildIndex",
    "statistics": "attnknn.neighbours.config:Statistics",
    "train_attention": "attnknn.heads.config:TrainAttention",
    "tune": "attnknn.heads.config:Tune",
    "train_field": "attnknn.experiments.fields.config:TrainField",
    "probe": "attnknn.experiments.fields.config:Probe",
    "evaluate": "attnknn.evaluation.config:Evaluate",
    "selective": "attnknn.evaluation.config:Selective",
    **{block: f"attnknn.experiments.config:{name}" for block, name in EXPERIMENTS.items()},
}
OVERRIDES = ("prepare", "train_embedder", "build_index", "train_attention", "tta", "train_field")  # in datasets.yaml
PRESET = ("k_eval", "k_train", "train_embedder", "build_index", "train_attention", "tta", "ensemble")


class Common(BaseModel):
    """The settings of params.yaml outside of blocks."""

    model_config = Block.model_config | {"extra": "allow"}

    datasets: Annotated[list[Name], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1)]
    preset: Name
    k_eval: Count
    k_train: Count
    k_max: Count
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
    threads: Count
    mirror: str
    cluster: str

    @model_validator(mode="after")
    def _agree(self) -> "Common":
        for key in ("k_eval", "k_train"):
            if getattr(self, key) > self.k_max:
                raise ValueError(f"{key}: {getattr(self, key)} is above k_max: {self.k_max}; lower it or raise k_max")
        no_duplicates(datasets=self.datasets, seeds=self.seeds)
        return self


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` laid over it, nested blocks key by key."""
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict)
        if value != {} or key not in base:  # {} changes nothing
            merged[key] = merge(base[key], value) if nested else value
    return merged


def with_preset(raw: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a preset over settings; its `train_embedder.mlp` holds only where the encoder is an MLP."""
    changes = {key: value for key, value in preset.items() if value is not None}
    embedder, own = dict(changes.get("train_embedder", {})), raw.get("train_embedder")
    for_mlp = embedder.pop("mlp", {})
    if isinstance(own, dict) and own.get("encoder") == "mlp":
        embedder = merge(embedder, for_mlp)
    return merge(raw, changes | {"train_embedder": embedder})


def parse(content: bytes, path: Path) -> dict[str, Any]:
    """Parse the content of a file of settings.

    Raises:
        InputError: it is not valid YAML, or no mapping.
    """
    value = parse_yaml(content, path)
    require(isinstance(value, dict), f"{path}: no settings in it; restore it, e.g. git checkout {path}")
    other = [key for key in value if not isinstance(key, str)]
    require(not other, f"{path}: {other[:1]} is a key of YAML that is no text; put it in quotes")
    return value


def load(path: Path) -> dict[str, Any]:
    """Read and parse a file of settings.

    Raises:
        InputError: it is not there, or see `parse`.
    """
    try:
        return parse(path.read_bytes(), path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file in {Path.cwd()}; run from the project's root") from None


class Params:
    """Settings as they hold for one dataset, or without any; a block is checked when it is first read.

    `params.noise` is the block of that name, `params.k_eval` a plain value, `params.source` the dataset's source.
    """

    def __init__(self, root: Path = Path(), dataset: str | None = None, raw: Mapping[str, Any] | None = None) -> None:
        self.root, self.dataset = root, dataset
        raw = load(root / PARAMS) if raw is None else raw
        require("preset" in raw, f"{PARAMS}: preset: missing; none is the one that changes nothing")
        preset = load_preset(root, str(raw["preset"]))
        own = {}
        if dataset is not None:
            known = load(root / DATASETS)
            require(dataset in known, f"datasets: {dataset} has no entry in {DATASETS}; known are {', '.join(known)}")
            own = known[dataset]
        self.raw = with_preset(merge(raw, own), preset)
        self._own, self._blocks = own, {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._blocks:
            self._blocks[name] = self._read(name)
        return self._blocks[name]

    def _read(self, name: str) -> Any:
        if name == "source":
            where = f"{DATASETS}: {self.dataset}.source"
            require("source" in self._own, f"{where}: missing")
            source = TypeAdapter(import_module("attnknn.data.config").Source)
            # Without defaults: the reader of each kind of source has its own.
            return checked(source, self._own["source"], where).model_dump(exclude_unset=True)
        if name not in BLOCKS:
            return getattr(checked(Common, self.raw, PARAMS), name)
        return filled(name, self.raw.get(name), self.origin(name))

    def origin(self, block: str) -> str:
        """The file and entry that errors in a block name."""
        where = f"{DATASETS}: {self.dataset}.{block}" if self._own.get(block) else f"{PARAMS}: {block}"
        preset = self.raw["preset"]
        return f"preset {preset} over {where}" if preset != "none" and block in PRESET else where


def block_class(name: str) -> Any:
    """The class that holds a block's defaults and checks."""
    module, _, attribute = BLOCKS[name].partition(":")
    return getattr(import_module(module), attribute)


def checked(model: Any, value: Any, where: str | Path) -> Any:
    """Validate a value.

    Raises:
        InputError: one line with the key's full name, what was given, and what is allowed.
    """
    try:
        return (model.validate_python if isinstance(model, TypeAdapter) else model.model_validate)(value)
    except ValidationError as error:
        fault = error.errors()[0]
        kinds = {"sklearn", "torchvision", "image_folder", "csv", "arrays"} if isinstance(model, TypeAdapter) else set()
        key = ".".join(str(part) for part in fault["loc"] if part not in kinds)
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = "unknown key; check its spelling"
        elif fault["type"] == "missing":
            message = "missing"
        elif fault["type"] != "value_error":
            message = f"{fault['input']!r:.200} given; {message[0].lower()}{message[1:]}"
        more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
        in_block = not isinstance(where, Path) and (key or re.match(r"\w+: ", message))
        separator = "." if in_block else ": " if key else ""
        raise InputError(f"{where}{separator}{key}{': ' if key or not separator else ''}{message}{more}") from None


def require_keys(where: str, settings: Mapping[str, Any], keys: Sequence[str], hint: str) -> None:
    """Require all these keys and no others.

    Raises:
        InputError: a key is missing or unknown.
    """
    for key in keys:
        require(key in settings, f"{where}{key}: missing; {hint}")
    unknown = sorted(set(settings) - set(keys))
    require(not unknown, f"{where}{', '.join(unknown)}: unknown key; check its spelling")


def filled(block: str, value: Any, where: str) -> Block:
    """Lay values over a block's defaults, and check them."""
    require(value is None or isinstance(value, dict), f"{where}: {value!r:.200} given; a block of settings is needed")
    model = block_class(block)
    defaults = checked(model, {}, f"defaults of {block}").model_dump()
    return checked(model, merge(defaults, value or {}), where)


def report_settings(root: Path = Path()) -> dict[str, Any]:
    """Return all settings that can change a result as plain values, those of datasets under `overrides`."""
    params, raw = Params(root), load(root / PARAMS)
    blocks = {name: getattr(params, name).model_dump() for name in BLOCKS}
    datasets = {name: dict(own) for name, own in load(root / DATASETS).items()}
    sources = {name: own.pop("source", {}) for name, own in datasets.items()}
    common = {name: raw[name] for name in Common.model_fields if name != "cluster"} | {
        "k_eval": params.k_eval,
        "k_train": params.k_train,
    }
    return common | blocks | {"sources": sources, "overrides": datasets}


def load_preset(root: Path, name: str) -> dict[str, Any]:
    """Read a preset and check its keys."""
    known = sorted(path.stem for path in (root / PRESETS).glob("*.yaml"))
    require(name in known, f"{PARAMS}: preset: {name} has no file in {PRESETS}; there are {', '.join(known)}")
    path = PRESETS / f"{name}.yaml"
    preset = load(root / path)
    require_keys(f"{path}: ", preset, PRESET, "every key must be there, {} or null where nothing differs")
    for key, value in preset.items():
        fine = key.startswith("k_") or isinstance(value, dict)
        message = f"{value!r:.200} given; a block of settings is needed, {{}} where nothing differs"
        require(fine, f"{path}: {key}: {message}")
    return preset
