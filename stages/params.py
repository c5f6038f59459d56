"""The one way that stages read params.yaml, whose shape is in schema.py.

Every stage checks the whole file, so an impossible value stops the run before any work, and then receives only the
keys it names, unchanged. No value lives here. Because an edit of this file can refuse a value but never alter one,
it and schema.py are the modules that dvc.yaml does not list as dependencies of the stages (tests/test_contracts.py
holds all that).
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer
import yaml
from pydantic import ValidationError

from attnknn.core.errors import InputError, require
from stages.schema import Params, Preset

PARAMS, PRESETS = Path("params.yaml"), Path("presets")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where there is one: ten times as fast, in every stage


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, nested blocks key by key."""
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = merge(base[key], value) if nested else value
    return merged


def with_preset(raw: dict[str, Any], preset: dict[str, Any]) -> dict[str, Any]:
    """`raw`, which may hold a dataset's overrides already, with a file of presets/ laid over it."""
    changes = {key: value for key, value in preset.items() if value is not None}
    blocks = dict(changes.pop("train_embedder", {}))
    for_tables = blocks.pop("mlp", {})
    if raw.get("train_embedder", {}).get("encoder") == "mlp":
        blocks = merge(blocks, for_tables)
    return merge(raw, changes | ({"train_embedder": blocks} if blocks else {}))


def _read(path: Path) -> Any:
    try:
        return yaml.load(path.read_text("utf-8"), _Loader)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file in {Path.cwd()}; run from the project's root") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: no valid YAML: {' '.join(str(error).split())}") from None


def _presets(folder: Path, base: Params, raw: dict[str, Any]) -> dict[str, Preset]:
    """Every preset, chosen or not. What no block allows is refused; the chosen one must agree with the rest, too."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            preset = found[path.stem] = Preset.model_validate(_read(path))
        except ValidationError as error:
            raise InputError(_one_line(error, "", path)) from None
        tables = {"encoder": "mlp"} if preset.train_embedder.get("mlp") else {}
        for start in ({}, tables):
            laid_over = with_preset(merge(raw, {"train_embedder": start}), preset.model_dump())
            for block in (key for key, value in preset if isinstance(value, dict)):
                try:
                    type(getattr(base, block)).model_validate(laid_over[block])
                except ValidationError as error:
                    inner = ".mlp" if start and block == "train_embedder" else ""
                    raise InputError(_one_line(error, f"{block}{inner}", path)) from None
    known = ", ".join(found)
    require(base.preset in found, f"{PARAMS}: preset: {base.preset} has no file in {folder}; there are {known}")
    return found


def _one_line(error: ValidationError, prefix: str, path: Path = PARAMS) -> str:
    """The first fault, with the key's full name, what was given, and what is allowed."""
    fault = error.errors()[0]
    kinds = {"sklearn", "torchvision", "image_folder", "csv"}
    parts = [str(p) for i, p in enumerate(fault["loc"]) if not (i == 2 and p in kinds and fault["loc"][0] == "sources")]
    where = ".".join([*([prefix] if prefix else []), *parts])
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = "unknown key; check its spelling"
    elif fault["type"] == "missing":
        message = "missing"
    elif fault["type"] != "value_error":
        message = f"{fault['input']!r} given; {message[0].lower()}{message[1:]}"
    more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
    return f"{path}: {where + ': ' if where else ''}{message}{more}"


def check(path: Path = PARAMS) -> tuple[Params, dict[str, Params]]:
    """Read and check params.yaml and the presets beside it: settings as they stand, and as they hold for every dataset.

    Raises:
        InputError: one line that names the key, what was given and what is allowed.
    """
    raw = _read(path)
    merged = {}
    try:
        base = Params.model_validate(raw)
    except ValidationError as error:
        raise InputError(_one_line(error, "")) from None
    chosen = _presets(path.parent / PRESETS, base, raw)[base.preset].model_dump()
    for name, changes in base.overrides.items():
        own, where = merge(raw, changes.model_dump()), f"overrides.{name}"
        try:
            merged[name] = Params.model_validate(own)
            if base.preset != "none":
                where = f"preset {base.preset} over {where}"
                merged[name] = Params.model_validate(with_preset(own, chosen))
        except ValidationError as error:
            raise InputError(_one_line(error, where)) from None
    try:
        base = Params.model_validate(with_preset(raw, chosen))
    except ValidationError as error:
        raise InputError(_one_line(error, f"preset {base.preset}")) from None
    for name in base.datasets:
        _fit_together(name, merged[name])
        if base.encoder_ablation.seeds:
            _variants(name, merged[name])
    return base, merged


def _fit_together(dataset: str, params: Params) -> None:
    """Refuse a head that learns of one embedding space where a cross-fit makes several; see `learned.learns_space`."""
    parts = params.train_attention.parts
    moved = parts.prototypes and parts.move_prototypes
    of_one_space = params.train_attention.kind == "tabr" or parts.similarity != "bank" or moved
    require(
        not (params.crossfit.folds and of_one_space),
        f"{PARAMS}: {dataset}: crossfit.folds: {params.crossfit.folds} embeds rows in several spaces, and "
        f"train_attention learns of one; for {dataset} set overrides.{dataset}.crossfit.folds: 0, or take kind: "
        "attention with similarity: bank and move_prototypes: false",
    )


def _variants(dataset: str, params: Params) -> None:
    """Refuse a variant of the encoder's ablation that is no encoder."""
    whole = params.train_embedder.model_dump()
    for name, change in params.encoder_ablation.variants.items():
        try:
            type(params.train_embedder).model_validate(merge(whole, change))
        except ValidationError as error:
            raise InputError(_one_line(error, f"{dataset}: encoder_ablation.variants.{name}")) from None


def read_params(dataset: str | None, *keys: str) -> SimpleNamespace:
    """The named keys as they hold for one dataset (or for none), after the whole file was checked.

    `sources` means that dataset's own source, as a dict. A dotted key, as noise.rates, is one value of a block.
    """
    base, merged = check()
    if dataset is None:
        params = base
    elif dataset in merged:
        params = merged[dataset]
    else:
        raise InputError(f"{PARAMS}: {dataset} is no dataset; known are {', '.join(merged)}")
    if dataset is not None and "sources" in keys and dataset not in params.sources:
        raise InputError(f"{PARAMS}: sources.{dataset}: missing")
    values: dict[str, Any] = {}
    for key in keys:
        block, _, inner = key.partition(".")
        if inner:
            values.setdefault(block, SimpleNamespace())
            setattr(values[block], inner, getattr(getattr(params, block), inner))
        else:
            values[key] = getattr(params, key)
    if dataset is not None and "sources" in keys:
        # Only what the file says: what a source leaves out is decided where it is read, in attnknn/data/split.py.
        values["sources"] = params.sources[dataset].model_dump(exclude_unset=True)
    return SimpleNamespace(**values)


def run(main: Callable[..., None]) -> None:
    """Run a stage's `main` from the command line; what the user can mend ends in one line and exit code 2."""
    try:
        typer.run(main)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
