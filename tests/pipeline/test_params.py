"""Settings: what is wrong is named by its key, with what was given and what is allowed, in one line."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnknn.core.config import Positive
from attnknn.core.errors import InputError
from import_closure import ROOT
from pipeline.check import check, flatten, shadowed
from pipeline.settings import BLOCKS, Params, block_class

GOOD = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
GOOD_DATASETS = yaml.safe_load((ROOT / "datasets.yaml").read_text("utf-8"))
GOOD_PRESETS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "presets").glob("*.yaml")}
MISSING = object()
LOSSES = dict.fromkeys(GOOD["train_embedder"]["losses"], 0.0)


def put(block: dict[str, Any], keys: list[str], value: Any) -> None:
    *blocks, last = keys
    for name in blocks:
        block = block.setdefault(name, {})
    if value is MISSING:
        del block[last]
    else:
        block[last] = value


def written(folder: Path, key: str, value: Any, **more: Any) -> Path:
    """Files of settings with values changed, by their dotted keys (with __ for the dot in `more`).

    A key that begins with a dataset is in datasets.yaml; one of a preset begins with `presets` and its name.
    """
    params, datasets, presets = (copy.deepcopy(good) for good in (GOOD, GOOD_DATASETS, GOOD_PRESETS))
    for keys, changed in [(key.split("."), value), *((k.split("__"), v) for k, v in more.items())]:
        root = presets if keys[0] == "presets" else datasets if keys[0] in GOOD_DATASETS else params
        put(root, keys[1:] if keys[0] == "presets" else keys, changed)
    (folder / "presets").mkdir(exist_ok=True)
    for name, preset in presets.items():
        (folder / "presets" / f"{name}.yaml").write_text(yaml.safe_dump(preset))
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "datasets.yaml").write_text(yaml.safe_dump(datasets))
    return folder


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
        ("statistics.sizes", [5, 1000], ["statistics.sizes: 1000", "k_max: 256"]),
        ("statistics.sizes", [5, 5], ["statistics.sizes", "one twice"]),
        ("noise.rates", [0.3, 0.3], ["noise.rates", "one twice"]),
        ("noise.rates", [1.0], ["noise.rates.0", "less than 1"]),
        ("imbalance.ratios", [1.0], ["imbalance.ratios.0", "less than 1"]),
        ("train_embedder.folds", 1, ["train_embedder.folds: 1", "leaves no rows to train on"]),
        ("train_attention.lr", math.inf, ["train_attention.lr", "finite"]),
        ("train_attention.kind", "oracle", ["train_attention.kind", "'attention' or 'tabr'"]),
        ("train_attention.parts.features", ["colour"], ["train_attention.parts.features.0", "'agreement'"]),
        ("train_attention.parts.features", ["gap", "gap"], ["features", "one twice"]),
        ("train_attention.parts.heads", 4, ["heads: 4 need similarity: dot"]),
        ("train_attention.parts.temperature_bounds", [2.0, 4.0], ["low < 1 < high"]),
        (
            "train_attention.parts.move_prototypes",
            True,
            ["set iris.train_embedder.folds: 0 in datasets.yaml"],
        ),
        ("train_attention.parts.similarity", "l2", ["iris.train_embedder.folds: 5", "similarity: bank"]),
        ("train_attention.kind", "tabr", ["iris.train_embedder.folds: 5", "kind: attention"]),
        ("k_eval", MISSING, ["k_eval: missing"]),
        ("k_evil", 3, ["k_evil: unknown key"]),
        ("train_embedder.epoch", 3, ["train_embedder.epoch: unknown key"]),
        ("train_embedder.lr", "1e-3", ["train_embedder.lr", "'1e-3'", "number"]),
        ("train_embedder.encoder", "vit", ["train_embedder.encoder", "'vit'", "'convnet'", "'resnet50'"]),
        ("train_embedder.losses.supcon", -1, ["train_embedder.losses.supcon", "-1"]),
        ("train_embedder.losses", LOSSES | {"entropy": 0.1, "calibration": 1.0}, ["losses", "weight above 0"]),
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
        ("iris.train_embedder", {"epohcs": 3}, ["datasets.yaml: iris.train_embedder.epohcs: unknown key"]),
        ("iris.train_attention", MISSING, ["datasets.yaml: iris.train_attention: missing"]),
        ("preset", "experiment7", ["preset: experiment7 has no file in", "experiment5"]),
        ("presets.none.tta", MISSING, ["presets/none.yaml: tta: missing"]),
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
        ("datasets", ["iris", "nope"], ["datasets: nope", "datasets.yaml", "cifar10_jpeg"]),
        ("datasets", [], ["datasets", "at least 1"]),
        ("datasets", ["iris", "iris"], ["datasets", "twice"]),
        ("iris.source", MISSING, ["iris.source: missing", "train_embedder: {}"]),
        ("device", "gpu", ["device", "'gpu'", "cuda"]),
        ("prepare.val", 0.95, ["prepare", "leave no rows for the bank"]),
        ("prepare.test", 1.0, ["prepare.test", "less than 1"]),
        ("iris.source.kind", "web", ["iris.source", "web", "csv"]),
        ("adult.source.target", MISSING, ["adult.source.target: missing"]),
        ("winequality_red.source.rule", {}, ["winequality_red.source.rule", "threshold or map"]),
        ("noise", MISSING, ["params.yaml: noise: missing"]),
        ("noise", [1], ["params.yaml: noise: [1] given"]),
        ("train_embedder", "fast", ["train_embedder: 'fast' given"]),
        ("iris.tta", 3, ["datasets.yaml: iris.tta: 3 given"]),
        ("wine.tta", [3], ["datasets.yaml: wine.tta: [3] given"]),
        ("presets.experiment5.train_embedder", None, ["presets/experiment5.yaml: train_embedder: None given"]),
        ("train_corrupted.seeds", [7], ["train_corrupted.seeds: 7 is not among seeds: [42]"]),
        ("train_corrupted.conditions", ["asymmetric-0.6"], ["asymmetric-0.6", "below 0.5"]),
        ("train_corrupted.conditions", ["colour-0.4"], ["train_corrupted.conditions.0", "pattern"]),
        ("noise.k", 300, ["noise.k: 300", "k_max: 256"]),
        ("tune.priors", [0.0], ["tune.priors.0", "0.000001"]),
    ],
)
def test_one_line_names_the_key(tmp_path: Path, key: str, value: Any, expected: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        check(written(tmp_path, key, value))
    message = str(raised.value)
    assert "\n" not in message
    start = key.partition(".")[0]
    file = {"presets": "presets/"}.get(start, "datasets.yaml" if start in GOOD_DATASETS else "params.yaml")
    assert message.startswith((file, "datasets.yaml: iris.train_embedder.folds")), message
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
    path = written(tmp_path, "iris.train_embedder", {"mixup": 0.4, "losses": losses, "knn": knn})
    if expected is None:
        assert check(path)["iris"].train_embedder.mixup == 0.4
        return
    with pytest.raises(InputError) as raised:
        check(path)
    for part in ["iris.train_embedder", *expected]:
        assert part in str(raised.value)


def test_a_learned_projection_is_allowed_without_cross_fitting(tmp_path: Path) -> None:
    path = written(tmp_path, "digits.train_attention", {"parts": {"similarity": "l2"}})
    assert check(path)["digits"].train_attention.parts.similarity == "l2"


def under(folder: Path, preset: str, **changes: Any) -> Path:
    """params.yaml and presets with a preset chosen, and values changed."""
    return written(folder, "preset", preset, **changes)


PRESETS = sorted(set(GOOD_PRESETS) - {"none"})


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_holds_for_every_dataset(tmp_path: Path, preset: str) -> None:
    """One command each: no dataset may need more than the preset's name."""
    expected = GOOD_PRESETS[preset]
    for dataset, params in check(under(tmp_path, preset, datasets=list(GOOD_DATASETS))).items():
        tables = params.train_embedder.encoder == "mlp"
        assert tables == (GOOD_DATASETS[dataset]["train_embedder"].get("encoder") == "mlp")
        assert (params.k_eval, params.k_train) == (expected["k_eval"], expected["k_train"])
        embedder = expected["train_embedder"]["mlp"] if tables else expected["train_embedder"]
        assert params.train_embedder.embed_dim == embedder["embed_dim"]
        assert params.train_attention.parts.similarity == "dot"
        assert params.train_embedder.folds == 0


def test_a_preset_lies_over_the_datasets_and_these_over_the_rest(tmp_path: Path) -> None:
    path = under(tmp_path, "experiment5", train_embedder__lr=1.0, iris__train_embedder__dropout=0.9)
    iris, digits = (check(path)[name].train_embedder for name in ("iris", "digits"))
    expected, own = GOOD_PRESETS["experiment5"]["train_embedder"], GOOD_DATASETS
    assert (iris.lr, digits.lr) == (expected["lr"], expected["lr"])  # over both
    assert iris.widths == expected["mlp"]["widths"] != own["iris"]["train_embedder"]["widths"]
    assert (iris.dropout, digits.dropout) == (expected["mlp"]["dropout"], expected["dropout"])
    assert digits.epochs == expected["epochs"] != own["digits"]["train_embedder"]["epochs"]
    assert digits.augment.rotate == own["digits"]["train_embedder"]["augment"]["rotate"]  # the preset names none


def test_without_a_preset_nothing_is_laid_over(tmp_path: Path) -> None:
    changed = {"presets__experiment5__train_embedder__epochs": 7}
    epochs = {
        name: check(under(tmp_path, name, **changed))["digits"].train_embedder.epochs
        for name in ("none", "experiment5")
    }
    assert epochs == {"none": GOOD_DATASETS["digits"]["train_embedder"]["epochs"], "experiment5": 7}


def test_what_a_preset_and_a_dataset_make_together_names_both(tmp_path: Path) -> None:
    path = under(
        tmp_path,
        "experiment5",
        presets__experiment5__train_embedder__knn={"candidates": 0.0, "k": 16},
        iris__train_embedder__knn={"momentum": 0.5},
    )
    message = r"preset experiment5 over datasets\.yaml: iris\.train_embedder: mixup 0\.4.*0\.5"
    with pytest.raises(InputError, match=message):
        check(path)


def test_a_preset_that_is_not_chosen_need_not_agree_with_the_rest(tmp_path: Path) -> None:
    small = {"k_max": 8, "k_eval": 8, "k_train": 8, "statistics__sizes": [5]}
    assert check(under(tmp_path, "none", **small))["iris"].k_max == 8
    with pytest.raises(InputError, match="k_eval: 16 is above k_max: 8"):
        check(under(tmp_path, "experiment5", **small))


def test_no_file_and_no_yaml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        check(tmp_path)
    for content in (b"a: [1,\nb", "a: 1".encode("utf-16")):
        (tmp_path / "params.yaml").write_bytes(content)
        with pytest.raises(InputError, match="not valid YAML") as raised:
            check(tmp_path)
        assert "\n" not in str(raised.value)
    (tmp_path / "params.yaml").write_text("")
    with pytest.raises(InputError, match=r"params\.yaml"):
        check(tmp_path)


def test_a_dataset_lies_over_nested_blocks_key_by_key(tmp_path: Path) -> None:
    path = written(tmp_path, "iris.train_embedder", {"augment": {"flip": True}})
    embedder, default = check(path)["iris"].train_embedder, block_class("train_embedder")()
    assert embedder.augment.model_dump() == {**default.augment.model_dump(), "flip": True}
    assert embedder.epochs == GOOD["train_embedder"]["epochs"]


def test_an_unknown_dataset_is_named() -> None:
    with pytest.raises(InputError, match=r"nope has no entry in datasets\.yaml; known are digits"):
        _ = Params(ROOT, "nope").k_eval


def test_values_are_handed_over_unchanged() -> None:
    """A block is its defaults, what params.yaml says over them, and what the dataset says over both."""
    for dataset, own in GOOD_DATASETS.items():
        params = Params(ROOT, dataset)
        for block in BLOCKS:
            expected = flatten(block_class(block)().model_dump())
            expected |= flatten(GOOD[block]) | flatten(own.get(block, {}))
            assert flatten(getattr(params, block).model_dump()) == expected, (dataset, block)
        assert params.source == own["source"]


def test_a_key_that_params_yaml_does_not_name_can_be_set(tmp_path: Path) -> None:
    assert "mixup" not in GOOD["train_embedder"]
    path = written(tmp_path, "train_embedder.mixup", 0.2)
    assert check(path)["digits"].train_embedder.mixup == 0.2
    sizes = check(written(tmp_path, "train_field.sizes", {"small": {"epochs": 1}}))["digits"].train_field.sizes
    assert (sizes["small"].epochs, sizes["small"].latents, set(sizes)) == (1, 8, {"small", "medium", "full"})


def test_a_setting_that_a_dataset_hides_is_named(tmp_path: Path) -> None:
    datasets = ["digits", "winequality_red"]
    running = check(written(tmp_path, "train_attention.lr", 0.5, train_attention__patience=3, datasets=datasets))
    changed = {"train_attention.lr": 0.5, "train_attention.patience": 3}
    assert shadowed(changed, running) == [
        "train_attention.lr: 0.5 has no effect on digits: datasets.yaml or the preset overrides it"
    ]


def test_an_invalid_default_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tune(block_class("tune")):  # type: ignore[misc]
        epochs: Positive = 0.0

    monkeypatch.setattr("attnknn.heads.config.Tune", Tune)
    with pytest.raises(InputError, match=r"^defaults of tune\.epochs: 0\.0 given"):
        check(written(tmp_path, "k_eval", 50))
