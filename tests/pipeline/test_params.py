"""params.yaml: what is wrong is named by its key, with what was given and what is allowed, in one line."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from stages.params import check, read_params

from attnknn.core.errors import InputError
from import_closure import ROOT

GOOD = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
GOOD_PRESETS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "presets").glob("*.yaml")}
MISSING = object()
LOSSES = dict.fromkeys(GOOD["train_embedder"]["losses"], 0.0)


def put(at: dict[str, Any], keys: list[str], value: Any) -> None:
    *blocks, last = keys
    for block in blocks:
        at = at[block]
    if value is MISSING:
        del at[last]
    else:
        at[last] = value


def written(folder: Path, key: str, value: Any, **more: Any) -> Path:
    """params.yaml and presets with values changed, by their dotted keys (with __ for the dot in `more`).

    A key of a preset begins with `presets` and its name.
    """
    params, presets = copy.deepcopy(GOOD), copy.deepcopy(GOOD_PRESETS)
    for keys, changed in [(key.split("."), value), *((k.split("__"), v) for k, v in more.items())]:
        put(presets if keys[0] == "presets" else params, keys[1:] if keys[0] == "presets" else keys, changed)
    (folder / "presets").mkdir(exist_ok=True)
    for name, preset in presets.items():
        (folder / "presets" / f"{name}.yaml").write_text(yaml.safe_dump(preset))
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(params))
    return path


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("k_eval", 0, ["k_eval", "0", "greater than or equal to 1"]),
        ("k_eval", "many", ["k_eval", "'many'", "integer"]),
        ("k_eval", 1.5, ["k_eval", "1.5", "integer"]),
        ("k_eval", True, ["k_eval", "True", "integer"]),
        ("k_eval", 257, ["k_eval: 257", "k_max: 256"]),
        ("k_train", 300, ["k_train: 300", "k_max: 256"]),
        ("seeds", [10**20], ["seeds.0", "less than 2147483648"]),
        ("evidence.sizes", [5, 1000], ["evidence.sizes: 1000", "k_max: 256"]),
        ("evidence.sizes", [5, 5], ["evidence.sizes", "one twice"]),
        ("noise.rates", [0.3, 0.3], ["noise.rates", "one twice"]),
        ("noise.rates", [1.0], ["noise.rates.0", "less than 1"]),
        ("imbalance.ratios", [1.0], ["imbalance.ratios.0", "less than 1"]),
        ("crossfit.folds", 1, ["crossfit", "leaves no rows to train on"]),
        ("train_attention.lr", math.inf, ["train_attention.lr", "finite"]),
        ("train_attention.kind", "oracle", ["train_attention.kind", "'attention' or 'tabr'"]),
        ("train_attention.parts.features", ["colour"], ["train_attention.parts.features.0", "'agreement'"]),
        ("train_attention.parts.features", ["gap", "gap"], ["features", "one twice"]),
        ("train_attention.parts.heads", 4, ["heads: 4 need similarity: dot"]),
        ("train_attention.parts.temperature_bounds", [2.0, 4.0], ["low < 1 < high"]),
        (
            "train_attention.parts.move_prototypes",
            True,
            ["set overrides.iris.crossfit.folds: 0"],
        ),
        ("train_attention.parts.similarity", "l2", ["iris: crossfit.folds: 5", "similarity: bank"]),
        ("train_attention.kind", "tabr", ["iris: crossfit.folds: 5", "kind: attention"]),
        ("k_eval", MISSING, ["k_eval: missing"]),
        ("k_evil", 3, ["k_evil: unknown key"]),
        ("train_embedder.epoch", 3, ["train_embedder.epoch: unknown key"]),
        ("train_embedder.lr", "1e-3", ["train_embedder.lr", "'1e-3'", "number"]),
        ("train_embedder.encoder", "vit", ["train_embedder.encoder", "'vit'", "'convnet'", "'resnet50'"]),
        ("train_embedder.losses.supcon", -1, ["train_embedder.losses.supcon", "-1"]),
        ("train_embedder.losses", LOSSES | {"entropy": 0.1, "calibration": 1.0}, ["losses", "weight above 0"]),
        ("train_embedder.losses.knn", MISSING, ["losses.knn: missing"]),
        ("train_embedder.losses.contrastive", -0.1, ["train_embedder.losses.contrastive", "-0.1"]),
        ("train_embedder.losses.knn", -1.0, ["train_embedder.losses.knn", "-1.0"]),
        ("train_embedder.losses.entropy", -1.0, ["train_embedder.losses.entropy", "-1.0"]),
        ("train_embedder.losses.calibration", -1.0, ["train_embedder.losses.calibration", "-1.0"]),
        ("train_embedder.contrastive_margin", 0.0, ["train_embedder.contrastive_margin", "greater than 0"]),
        ("train_embedder.knn.k", 0, ["train_embedder.knn.k", "0"]),
        ("train_embedder.knn.temperature", 0.0, ["train_embedder.knn.temperature", "greater than 0"]),
        ("train_embedder.knn.prior", 0.0, ["train_embedder.knn.prior", "greater than 0"]),
        ("train_embedder.knn.prior", 1.0, ["train_embedder.knn.prior", "less than 1"]),
        ("train_embedder.knn.refresh", 0, ["train_embedder.knn.refresh", "0"]),
        ("train_embedder.knn.momentum", 1.5, ["train_embedder.knn.momentum", "1.5", "less than or equal to 1"]),
        ("train_embedder.knn.hard_weight", 0.5, ["train_embedder.knn.hard_weight", "0.5"]),
        ("train_embedder.knn.bins", 1, ["train_embedder.knn.bins", "1"]),
        ("train_embedder.knn.sharpness", 0.0, ["train_embedder.knn.sharpness", "greater than 0"]),
        ("train_embedder.knn.tau", 0.1, ["train_embedder.knn.tau: unknown key"]),
        ("train_embedder.lr_factors.backbone", -0.1, ["train_embedder.lr_factors.backbone", "-0.1"]),
        ("train_embedder.lr_factors.projection", -0.1, ["train_embedder.lr_factors.projection", "-0.1"]),
        ("train_embedder.lr_factors.knn", -0.1, ["train_embedder.lr_factors.knn", "-0.1"]),
        ("train_embedder.restarts.period", -1, ["train_embedder.restarts.period", "-1"]),
        ("train_embedder.restarts.factor", 0, ["train_embedder.restarts.factor", "0"]),
        ("train_embedder.mixup", -0.4, ["train_embedder.mixup", "-0.4"]),
        ("overrides.iris.train_embedder", {"epohcs": 3}, ["overrides.iris.train_embedder.epohcs: unknown key"]),
        ("overrides.iris.train_attention", MISSING, ["overrides.iris.train_attention: missing"]),
        ("preset", "experiment7", ["preset: experiment7 has no file in", "experiment5"]),
        ("presets.none.crossfit", MISSING, ["presets/none.yaml: crossfit: missing"]),
        ("presets.experiment5.tune", {}, ["presets/experiment5.yaml: tune: unknown key"]),
        ("presets.experiment5.k_eval", 0, ["presets/experiment5.yaml: k_eval", "0", "greater than or equal to 1"]),
        (
            "presets.experiment5.train_embedder.epoch",
            3,
            ["presets/experiment5.yaml: train_embedder.epoch: unknown key"],
        ),
        (
            "presets.experiment4.train_embedder.mlp.width",
            [3],
            ["presets/experiment4.yaml: train_embedder.mlp.width: unknown"],
        ),
        (
            "presets.experiment4.train_embedder.lr",
            "1e-3",
            ["presets/experiment4.yaml: train_embedder.lr", "'1e-3'", "number"],
        ),
        (
            "presets.experiment2.train_attention.parts.head",
            3,
            ["presets/experiment2.yaml: train_attention.parts.head: unknown"],
        ),
        (
            "presets.experiment4.train_attention.parts.similarity",
            "bank",
            ["presets/experiment4.yaml: train_attention", "dot"],
        ),
        ("presets.experiment6.ensemble.ks", [0], ["presets/experiment6.yaml: ensemble.ks.0", "0"]),
        ("datasets", ["iris", "nope"], ["datasets: nope", "sources", "cifar10_jpeg"]),
        ("datasets", [], ["datasets", "at least 1"]),
        ("datasets", ["iris", "iris"], ["datasets", "twice"]),
        ("overrides.iris", MISSING, ["overrides.iris: missing", "train_embedder: {}"]),
        ("device", "gpu", ["device", "'gpu'", "cuda"]),
        ("prepare.val", 0.95, ["prepare", "leave no rows for the bank"]),
        ("prepare.test", 1.0, ["prepare.test", "less than 1"]),
        ("sources.iris.kind", "web", ["sources.iris", "web", "csv"]),
        ("sources.adult.target", MISSING, ["sources.adult.target: missing"]),
        ("sources.winequality_red.rule", {}, ["sources.winequality_red.rule", "threshold or map"]),
        ("tune.priors", [0.0], ["tune.priors.0", "0.000001"]),
    ],
)
def test_one_line_names_the_key(tmp_path: Path, key: str, value: Any, expected: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        check(written(tmp_path, key, value))
    message = str(raised.value)
    assert "\n" not in message
    assert "params.yaml" in message or "presets/" in message
    for part in expected:
        assert part in message, message


@pytest.mark.parametrize(
    ("losses", "knn", "expected"),
    [
        ({"knn": 1.0, "calibration": 0.5}, {}, ["mixup 0.4", "losses.calibration 0.5", "set either to 0"]),
        ({"knn": 1.0}, {"momentum": 0.5}, ["mixup 0.4", "knn.momentum 0.5", "set knn.momentum to 1.0"]),
        ({"knn": 1.0, "supcon": 0.5}, {}, None),
        ({"knn": 0.0}, {"momentum": 0.5}, None),
    ],
)
def test_what_mixup_goes_with(tmp_path: Path, losses: dict, knn: dict, expected: list[str] | None) -> None:
    path = written(tmp_path, "overrides.iris.train_embedder", {"mixup": 0.4, "losses": losses, "knn": knn})
    if expected is None:
        assert check(path)[1]["iris"].train_embedder.mixup == 0.4
        return
    with pytest.raises(InputError) as raised:
        check(path)
    for part in ["overrides.iris.train_embedder", *expected]:
        assert part in str(raised.value)


def test_what_a_cross_fit_forbids_holds_for_the_datasets_that_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "datasets", ["digits"])
    params = yaml.safe_load(path.read_text())
    params["train_attention"]["parts"]["similarity"] = "l2"
    path.write_text(yaml.safe_dump(params))
    assert check(path)[1]["digits"].train_attention.parts.similarity == "l2"


def under(folder: Path, preset: str, **changes: Any) -> Path:
    """params.yaml and presets with a preset chosen, and values changed."""
    return written(folder, "preset", preset, **changes)


PRESETS = sorted(set(GOOD_PRESETS) - {"none"})


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_holds_for_every_dataset(tmp_path: Path, preset: str) -> None:
    """One command each: no dataset may need more than the preset's name."""
    base, merged = check(under(tmp_path, preset, datasets=list(GOOD["overrides"])))
    told = GOOD_PRESETS[preset]
    assert base.k_eval == told["k_eval"]
    for dataset, params in merged.items():
        tables = params.train_embedder.encoder == "mlp"
        assert tables == (GOOD["overrides"][dataset]["train_embedder"].get("encoder") == "mlp")
        assert params.k_train == told["k_train"]
        assert (
            params.train_embedder.embed_dim
            == (told["train_embedder"]["mlp"] if tables else told["train_embedder"])["embed_dim"]
        )
        assert params.train_attention.parts.similarity == "dot"
        assert params.crossfit.folds == 0


def test_a_preset_lies_over_the_overrides_and_these_over_the_rest(tmp_path: Path) -> None:
    path = under(tmp_path, "experiment5", train_embedder__lr=1.0, overrides__iris__train_embedder__dropout=0.9)
    iris, digits = (check(path)[1][name].train_embedder for name in ("iris", "digits"))
    told, own = GOOD_PRESETS["experiment5"]["train_embedder"], GOOD["overrides"]
    assert (iris.lr, digits.lr) == (told["lr"], told["lr"])  # over both
    assert iris.widths == told["mlp"]["widths"] != own["iris"]["train_embedder"]["widths"]
    assert (iris.dropout, digits.dropout) == (told["mlp"]["dropout"], told["dropout"])
    assert digits.epochs == told["epochs"] != own["digits"]["train_embedder"]["epochs"]
    assert digits.augment.rotate == own["digits"]["train_embedder"]["augment"]["rotate"]  # untold, so the dataset's


def test_without_a_preset_nothing_is_laid_over(tmp_path: Path) -> None:
    changed = {"presets__experiment5__train_embedder__epochs": 7}
    plain, laid = (
        check(under(tmp_path, name, **changed))[1]["digits"].train_embedder for name in ("none", "experiment5")
    )
    assert plain.epochs == GOOD["overrides"]["digits"]["train_embedder"]["epochs"]
    assert laid.epochs == 7


def test_what_a_preset_and_an_override_make_together_names_both(tmp_path: Path) -> None:
    path = under(
        tmp_path,
        "experiment5",
        presets__experiment5__train_embedder__knn={"candidates": 0.0, "k": 16},
        overrides__iris__train_embedder__knn={"momentum": 0.5},
    )
    with pytest.raises(InputError, match=r"preset experiment5 over overrides\.iris\.train_embedder: mixup 0\.4.*0\.5"):
        check(path)


def test_a_preset_that_is_not_chosen_need_not_agree_with_the_rest(tmp_path: Path) -> None:
    small = {"k_max": 8, "k_eval": 8, "k_train": 8, "evidence__sizes": [5]}
    assert check(under(tmp_path, "none", **small))[0].k_max == 8
    with pytest.raises(InputError, match="k_eval: 16 is above k_max: 8"):
        check(under(tmp_path, "experiment5", **small))


def test_no_file_and_no_yaml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        check(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("a: [1,\nb")
    with pytest.raises(InputError, match="no valid YAML") as raised:
        check(tmp_path / "params.yaml")
    assert "\n" not in str(raised.value)
    (tmp_path / "params.yaml").write_text("")
    with pytest.raises(InputError, match=r"params\.yaml"):
        check(tmp_path / "params.yaml")


def test_an_override_lies_over_nested_blocks_key_by_key(tmp_path: Path) -> None:
    merged = check(written(tmp_path, "overrides.iris.train_embedder", {"augment": {"flip": True}}))[1]["iris"]
    base = GOOD["train_embedder"]
    assert merged.train_embedder.augment.model_dump() == {**base["augment"], "flip": True}
    assert merged.train_embedder.epochs == base["epochs"]


def test_an_unknown_dataset_is_named() -> None:
    with pytest.raises(InputError, match="nope is no dataset; known are digits"):
        read_params("nope", "k_eval")


def test_without_a_dataset_no_override_is_laid_over() -> None:
    params = read_params(None, "train_embedder", "overrides")
    assert params.train_embedder.model_dump() == GOOD["train_embedder"]
    assert set(params.overrides) == set(GOOD["overrides"])
