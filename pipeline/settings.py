"""Read, merge and check params.yaml, datasets.yaml and presets/.

What holds for a dataset: the defaults of the config.py files, params.yaml over them, the dataset's entry in
datasets.yaml over that, the chosen preset over all.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from attnknn.core.config import Block, Count, Name, Seed, no_duplicates
from attnknn.core.errors import InputError, require

PARAMS, DATASETS, PRESETS = Path("params.yaml"), Path("datasets.yaml"), Path("presets")
EXPERIMENTS = {
    "peers": "Peers", "k_sweep": "KSweep", "noise": "Noise", "imbalance": "Imbalance", "tta": "Tta",
    "train_corrupted": "TrainCorrupted", "ensemble": "Ensemble", "hard": "Hard", "ablation": "Ablation",
    "encoder_ablation": "EncoderAblation", "profile": "Profile", "splits": "Splits", "theory": "Theory",
    "explain": "Explain",
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
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C: ten times as fast, in every stage


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
        if value != {} or key not in base:  # {} changes nothing, not even a value that is no block
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
    try:
        value = yaml.load(content.decode("utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    require(isinstance(value, dict), f"{path}: no settings in it; restore it, e.g. git checkout {path}")
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
        preset = _preset(root, str(raw["preset"]))
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
            # Only what the file says: what a source leaves out is decided where it is read.
            return checked(TypeAdapter(_class("attnknn.data.config:Source")), self._own["source"], where).model_dump(
                exclude_unset=True
            )
        if name not in BLOCKS:
            return getattr(
                checked(Common, {k: v for k, v in self.raw.items() if k in Common.model_fields}, PARAMS), name
            )
        return _filled(name, self.raw.get(name), self.origin(name))

    def origin(self, block: str) -> str:
        """The file, and entry, that an error in a block is told of."""
        where = f"{DATASETS}: {self.dataset}.{block}" if self._own.get(block) else f"{PARAMS}: {block}"
        preset = self.raw["preset"]
        return f"preset {preset} over {where}" if preset != "none" and block in PRESET else where


def block_class(name: str) -> type[Block]:
    """The class that holds a block's defaults and checks."""
    return _class(BLOCKS[name])


def _class(path: str) -> Any:
    module, _, attribute = path.partition(":")
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
        kinds = {"sklearn", "torchvision", "image_folder", "csv"} if isinstance(model, TypeAdapter) else set()
        key = ".".join(str(part) for part in fault["loc"] if part not in kinds)
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = "unknown key; check its spelling"
        elif fault["type"] == "missing":
            message = "missing"
        elif fault["type"] != "value_error":
            message = f"{fault['input']!r} given; {message[0].lower()}{message[1:]}"
        more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
        in_block = not isinstance(where, Path) and (key or re.match(r"\w+: ", message))
        separator = "." if in_block else ": " if key else ""
        raise InputError(f"{where}{separator}{key}{': ' if key or not separator else ''}{message}{more}") from None


def _filled(block: str, value: Any, where: str) -> Block:
    """Lay values over a block's defaults, and check them."""
    require(value is None or isinstance(value, dict), f"{where}: {value!r} given; a block of settings is needed")
    model = block_class(block)
    return checked(model, merge(model().model_dump(), value or {}), where)


def report_settings(root: Path = Path()) -> dict[str, Any]:
    """Return all settings as plain values, those of the datasets under `overrides`, for the report."""
    params, raw = Params(root), load(root / PARAMS)
    blocks = {name: getattr(params, name).model_dump() for name in BLOCKS}
    datasets = {name: dict(own) for name, own in load(root / DATASETS).items()}
    sources = {name: own.pop("source", {}) for name, own in datasets.items()}
    common = {name: raw[name] for name in Common.model_fields}
    return (
        common
        | {"k_eval": params.k_eval, "k_train": params.k_train}
        | blocks
        | {"sources": sources, "overrides": datasets}
    )


def _preset(root: Path, name: str) -> dict[str, Any]:
    known = sorted(path.stem for path in (root / PRESETS).glob("*.yaml"))
    require(name in known, f"{PARAMS}: preset: {name} has no file in {PRESETS}; there are {', '.join(known)}")
    preset = load(root / PRESETS / f"{name}.yaml")
    path = PRESETS / f"{name}.yaml"
    for key in PRESET:
        require(key in preset, f"{path}: {key}: missing; every key must be there, {{}} or null where nothing differs")
        fine = key.startswith("k_") or isinstance(preset[key], dict)
        require(
            fine, f"{path}: {key}: {preset[key]!r} given; a block of settings is needed, {{}} where nothing differs"
        )
    unknown = sorted(set(preset) - set(PRESET))
    require(not unknown, f"{path}: {', '.join(unknown)}: unknown key; check its spelling")
    return preset


def check(root: Path = Path()) -> dict[str, Params]:
    """Check every setting: as it stands, for each dataset, and under each preset.

    Returns:
        The settings of the datasets that run.

    Raises:
        InputError: one line that names the key, what was given and what is allowed.
    """
    raw = load(root / PARAMS)
    checked(Common, raw, PARAMS)
    unknown = sorted(set(raw) - set(Common.model_fields) - set(BLOCKS))
    require(not unknown, f"{PARAMS}: {', '.join(unknown)}: unknown key; check its spelling")
    missing = sorted(set(BLOCKS) - set(raw))
    require(not missing, f"{PARAMS}: {', '.join(missing)}: missing; add `{(missing or [''])[0]}: {{}}`")
    datasets = load(root / DATASETS)
    for name, own in datasets.items():
        require(isinstance(own, dict), f"{DATASETS}: {name}: {own!r} given; an entry with a source is needed")
        blocks = ", ".join(f"{block}: {{}}" for block in OVERRIDES)
        for block in ("source", *OVERRIDES):
            require(block in own, f"{DATASETS}: {name}.{block}: missing; an entry has source: {{...}}, {blocks}")
        unknown = sorted(set(own) - {"source", *OVERRIDES})
        require(not unknown, f"{DATASETS}: {name}: {', '.join(unknown)}: unknown key; one of source, {blocks}")
    for path in sorted((root / PRESETS).glob("*.yaml")):
        _check_preset(path.stem, _preset(root, path.stem), raw)
    for name in raw["datasets"]:
        require(
            name in datasets, f"{PARAMS}: datasets: {name} has no entry in {DATASETS}; known: {', '.join(datasets)}"
        )
    settings = {name: Params(root, name) for name in raw["datasets"]}
    for params in (Params(root), *settings.values()):
        for key in (*Common.model_fields, *BLOCKS, *(["source"] if params.dataset else [])):
            getattr(params, key)
        _fit_together(params)
        if params.dataset and params.encoder_ablation.seeds:
            _check_variants(params)
    for name in set(datasets) - set(settings):  # not laid over params.yaml, which need not suit those that do not run
        _ = Params(root, name).source
        for block in OVERRIDES:
            _filled(block, datasets[name][block], f"{DATASETS}: {name}.{block}")
    return settings


def _check_preset(name: str, preset: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
    """Check a preset's own values; only a chosen one must agree with the rest."""
    where = f"{PRESETS / name}.yaml"
    for key in ("k_eval", "k_train"):
        checked(TypeAdapter(Count | None), preset[key], f"{where}: {key}")
    for mlp in [False, True] if "mlp" in preset["train_embedder"] else [False]:
        whole = with_preset(merge(raw, {"train_embedder": {"encoder": "mlp"}} if mlp else {}), preset)
        for block in set(PRESET) & set(BLOCKS):
            inner = ".mlp" if mlp and block == "train_embedder" else ""
            _filled(block, whole[block], f"{where}: {block}{inner}")


def _fit_together(params: Params) -> None:
    """Refuse blocks that are fine alone and do not go together."""
    largest = max(params.statistics.sizes)
    require(largest <= params.k_max, f"{PARAMS}: statistics.sizes: {largest} is above k_max: {params.k_max}; lower it")
    for block in ("train_corrupted", "encoder_ablation"):
        strange = [seed for seed in getattr(params, block).seeds if seed not in params.seeds]
        known = f"is not among seeds: {params.seeds}; add it there or leave it out"
        require(not strange, f"{PARAMS}: {block}.seeds: {(strange or [0])[0]} {known}")
    for block in ("noise", "imbalance", "ablation", "splits", "probe", "ensemble", "theory", "profile"):
        k = getattr(params, block).k or 1
        require(k <= params.k_max, f"{PARAMS}: {block}.k: {k} is above k_max: {params.k_max}; lower it or raise k_max")
    size = params.train_field.size
    fine = size == "none" or size in params.probe.transformers
    require(fine, f"{PARAMS}: probe.transformers: none for train_field.size {size}; add one of that name")
    head, folds = params.train_attention, params.train_embedder.folds
    moved = head.parts.prototypes and head.parts.move_prototypes
    of_one_space = head.kind == "tabr" or head.parts.similarity != "bank" or moved
    require(
        params.dataset is None or not (folds and of_one_space),
        f"{params.dataset}: train_embedder.folds: {folds} embeds rows in several spaces, and train_attention learns "
        f"one; set {params.dataset}.train_embedder.folds: 0 in {DATASETS}, or take kind: attention with similarity: "
        "bank and move_prototypes: false",
    )


def _check_variants(params: Params) -> None:
    """Refuse a variant of the encoder ablation that is not an encoder."""
    whole = params.train_embedder.model_dump()
    for name, change in params.encoder_ablation.variants.items():
        where = f"{PARAMS}: encoder_ablation.variants.{name} (for {params.dataset})"
        checked(type(params.train_embedder), merge(whole, change), where)


def shadowed(changed: Mapping[str, Any], settings: Mapping[str, Params]) -> list[str]:
    """Name the changed values of params.yaml that datasets.yaml or the preset hides, by dataset.

    Args:
        changed: values of params.yaml by dotted key.
        settings: of the datasets that run.
    """
    lines = []
    for key, value in changed.items():
        hidden = []
        for name, params in settings.items():
            node: Any = params.raw
            for part in key.split("."):
                node = node.get(part) if isinstance(node, dict) else None
            if node != value:
                hidden.append(name)
        if hidden:
            lines.append(f"{key}: {value} has no effect on {', '.join(hidden)}: {DATASETS} or the preset overrides it")
    return lines


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
