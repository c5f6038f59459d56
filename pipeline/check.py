"""Check all settings before any stage runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from attnknn.core.config import Count
from attnknn.core.errors import require
from pipeline.settings import (
    BLOCKS,
    DATASETS,
    OVERRIDES,
    PARAMS,
    PRESET,
    PRESETS,
    Common,
    Params,
    checked,
    filled,
    load,
    load_preset,
    merge,
    require_keys,
    with_preset,
)


def check(root: Path = Path()) -> dict[str, Params]:
    """Check every setting: as it stands, for each dataset, and under each preset.

    Returns:
        The settings of the datasets that run.

    Raises:
        InputError: one line that names the key, what was given and what is allowed.
    """
    raw = load(root / PARAMS)
    checked(Common, raw, PARAMS)
    require_keys(f"{PARAMS}: ", raw, [*Common.model_fields, *BLOCKS], "add it, {} if nothing in it differs")
    datasets = load(root / DATASETS)
    blocks = ", ".join(f"{block}: {{}}" for block in OVERRIDES)
    for name, own in datasets.items():
        require(isinstance(own, dict), f"{DATASETS}: {name}: {own!r} given; an entry with a source is needed")
        require_keys(f"{DATASETS}: {name}.", own, ["source", *OVERRIDES], f"an entry has source: {{...}}, {blocks}")
    for block in BLOCKS:
        filled(block, raw[block], f"{PARAMS}: {block}")
    for path in sorted((root / PRESETS).glob("*.yaml")):
        _check_preset(path.stem, load_preset(root, path.stem), raw)
    for name in raw["datasets"]:
        known = f"known: {', '.join(datasets)}"
        require(name in datasets, f"{PARAMS}: datasets: {name} has no entry in {DATASETS}; {known}")
    settings = {name: Params(root, name) for name in raw["datasets"]}
    for params in (Params(root), *settings.values()):
        for key in (*Common.model_fields, *BLOCKS, *(["source"] if params.dataset else [])):
            getattr(params, key)
        _check_agreement(params)
        whole, variants = (
            params.train_embedder.model_dump(),
            params.encoder_ablation.variants_for(params.train_embedder.encoder),
        )
        for name, change in variants.items() if params.dataset and params.encoder_ablation.seeds else ():
            where = f"{PARAMS}: encoder_ablation.variants.{name} (for {params.dataset})"
            checked(type(params.train_embedder), merge(whole, change), where)
    for name in set(datasets) - set(settings):  # not laid over params.yaml, which need not suit those that do not run
        _ = Params(root, name).source
        for block in OVERRIDES:
            filled(block, datasets[name][block], f"{DATASETS}: {name}.{block}")
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
            filled(block, whole[block], f"{where}: {block}{inner}")


def _check_agreement(params: Params) -> None:
    """Check constraints between blocks."""
    largest = {"statistics.sizes": max(params.statistics.sizes)}
    for block in ("noise", "imbalance", "splits", "probe", "ensemble", "theory"):
        largest[f"{block}.k"] = getattr(params, block).k or 1
    for key, k in largest.items():
        require(k <= params.k_max, f"{PARAMS}: {key}: {k} is above k_max: {params.k_max}; lower it or raise k_max")
    for block, key in (
        ("train_corrupted", "seeds"),
        ("encoder_ablation", "seeds"),
        ("finetune", "seeds"),
        ("splits", "datasets"),
    ):
        all_values = getattr(params, key)
        for value in getattr(getattr(params, block), key):
            known = f"is not among {key}: {', '.join(map(str, all_values))}; add it there or leave it out"
            require(value in all_values, f"{PARAMS}: {block}.{key}: {value} {known}")
    size = params.train_field.size
    fine = size == "none" or size in params.probe.transformers
    require(fine, f"{PARAMS}: probe.transformers: none for train_field.size {size}; add one of that name")
    head, folds = params.train_attention, params.train_embedder.folds
    moved = head.parts.prototypes and head.parts.move_prototypes
    one_space = head.kind == "tabr" or head.parts.similarity != "bank" or moved
    require(
        params.dataset is None or not (folds and one_space),
        f"{DATASETS}: {params.dataset}.train_embedder.folds: {folds} embeds rows in several spaces, and "
        f"train_attention learns one; set {params.dataset}.train_embedder.folds: 0 in {DATASETS}, or take "
        "kind: attention with similarity: bank and move_prototypes: false",
    )


def shadowed(changed: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name the changed values of params.yaml that datasets.yaml or the preset hides, by dataset.

    Args:
        changed: values of params.yaml by dotted key.
        settings: as they hold for each dataset that runs.
    """
    flat, lines = {name: flatten(own) for name, own in settings.items()}, []
    for key, value in changed.items():
        if hidden := [name for name, own in flat.items() if own.get(key) != value]:
            lines.append(f"{key}: {value} has no effect on {', '.join(hidden)}: {DATASETS} or the preset overrides it")
    return lines


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
