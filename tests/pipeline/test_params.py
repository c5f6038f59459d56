"""Settings: what is wrong is named by its key, with what was given and what is allowed, in one line."""

import copy
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnknn.core.config import Positive
from attnknn.core.errors import InputError
from import_closure import ROOT
from pipeline.check import check, flatten, shadowed
from pipeline.settings import BLOCKS, Params, block_class, parse

GOOD = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8")) | {"datasets": ["digits", "iris"]}
GOOD_DATASETS = yaml.safe_load((ROOT / "datasets.yaml").read_text("utf-8"))
GOOD_PRESETS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "presets").glob("*.yaml")}
MISSING = object()
MIXUP = (
    "iris.train_embedder … mixup 0.4 … losses.calibration 0.5 … set either to 0",
    "iris.train_embedder … mixup 0.4 … knn.candidates 0.5 … set either to 0",
)
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


def failure(folder: Path) -> str:
    """The message about files of settings."""
    with pytest.raises(InputError) as raised:
        check(folder)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def file_of(key: str) -> tuple[str, str]:
    """The file in which a key stands, and the key in it."""
    start, _, rest = key.partition(".")
    if start == "presets":
        preset, _, key = rest.partition(".")
        return f"presets/{preset}.yaml", key
    return "datasets.yaml" if start in GOOD_DATASETS else "params.yaml", key


EMBEDDER = "train_embedder."


@pytest.mark.parametrize(
    ("value", "rule", "block", "keys"),
    [
        (0, "greater than or equal to 1", EMBEDDER, "restarts.factor knn.k"),
        (0, "greater than or equal to 1", "", "k_eval presets.experiment5.k_eval"),
        (0.0, "greater than 0", EMBEDDER, "contrastive_margin knn.prior knn.temperature"),
        (-1, "greater than or equal to 0", f"{EMBEDDER}losses.", "supcon contrastive knn entropy calibration"),
        (1.0, "less than 1", "", "train_embedder.knn.prior prepare.test"),
        (1.5, "a valid integer", "", "k_eval"),
        ("1e-3", "a valid number", "", "train_embedder.lr presets.experiment4.train_embedder.lr"),
        (MISSING, "missing", "", "k_eval noise iris.train_attention presets.none.tta adult.source.target"),
        (MISSING, "missing; an entry has source: {...}, prepare: {}, train_embedder: {}", "iris.", "source"),
        (3, "unknown key", "", "k_evil train_embedder.epoch train_embedder.knn.tau iris.train_embedder.epohcs"),
        (3, "unknown key", "presets.", "experiment5.tune experiment5.train_embedder.epoch"),
        (3, "unknown key", "presets.", "experiment4.train_embedder.mlp.width experiment2.train_attention.parts.head"),
        (3, "a block of settings is needed", "", "noise train_embedder iris.tta"),
        ([3], "a block of settings is needed", "", "noise wine.tta"),
        (None, "a block of settings is needed", "presets.experiment5.", "train_embedder"),
    ],
)
def test_a_value_that_its_key_does_not_allow(tmp_path: Path, value: Any, rule: str, block: str, keys: str) -> None:
    for name in keys.split():
        file, key = file_of(block + name)
        message = failure(written(tmp_path, block + name, value))
        shown = "" if value is MISSING or rule == "unknown key" else f"{value!r} given; "
        rest = message.removeprefix(f"{file}: {key}: {shown}")
        assert rest.removeprefix("input should be ").startswith(rule), message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("k_eval", True, "k_eval: True given; input should be a valid integer"),
        ("k_eval", 257, "k_eval: 257 is above k_max: 256"),
        ("seeds", [10**20], f"seeds.0: {10**20} given; input should be less than 2147483648"),
        ("statistics.sizes", [5, 1000], "statistics.sizes: 1000 is above k_max: 256"),
        ("statistics.sizes", [5, 5], "statistics.sizes: [5, 5] names one twice"),
        ("noise.rates", [0.3, 0.3], "noise.rates: [0.3, 0.3] names one twice"),
        ("noise.rates", [1.0], "noise.rates.0: 1.0 given; input should be less than 1"),
        ("train_embedder.folds", 1, "train_embedder.folds: 1 leaves no rows to train on"),
        ("train_attention.lr", math.inf, "train_attention.lr: inf given; input should be a finite number"),
        ("train_attention.kind", "oracle", "train_attention.kind: 'oracle' given … 'attention' or 'tabr'"),
        ("train_attention.parts.features", ["colour"], "train_attention.parts.features.0: 'colour' … 'agreement'"),
        ("train_attention.parts.features", ["gap", "gap"], "features: ['gap', 'gap'] names one twice"),
        ("train_attention.parts.heads", 4, "heads: 4 need similarity: dot"),
        ("train_attention.parts.temperature_bounds", [2.0, 4.0], "low < 1 < high"),
        ("train_attention.parts.value", True, "needs kind: tabr"),
        ("train_attention.parts.similarity", "l2", "set iris.train_embedder.folds: 0 in datasets.yaml"),
        ("train_attention.parts.similarity", "l2", "iris.train_embedder.folds: 5 embeds rows … similarity: bank"),
        ("train_attention.kind", "tabr", "iris.train_embedder.folds: 5 embeds rows … take kind: attention"),
        ("train_embedder.encoder", "mixer", "train_embedder.encoder: 'mixer' given … 'convnet' … 'resnet50'"),
        ("train_embedder.vit", {"heads": 5}, "train_embedder.vit: heads: 5 do not divide width 192"),
        ("train_embedder.losses", LOSSES | {"entropy": 0.1, "calibration": 1.0}, "losses … weight above 0"),
        ("iris.train_embedder.representation", "self_supervised", "self_supervised is of images, encoder: mlp of"),
        ("iris.train_embedder.representation", "pretrained", "iris.train_embedder … take trained, raw or pca"),
        ("digits.train_embedder.representation", "pretrained", "digits.train_embedder … needs weights, a file of a"),
        ("digits.train_embedder.representation", "frozen", "'frozen' given … 'self_supervised' or 'pretrained'"),
        ("digits.source", {"kind": "arrays", "x": "a", "y": "b", "test_x": "c"}, "give both test_x and test_y"),
        ("preset", "experiment7", "preset: experiment7 has no file in … experiment5"),
        ("presets.experiment4.train_attention.parts.similarity", "bank", "train_attention.parts: heads: 4 … dot"),
        ("datasets", ["iris", "nope"], "datasets: nope has no entry in datasets.yaml … cifar10_jpeg"),
        ("datasets", [], "datasets: [] given; list should have at least 1"),
        ("datasets", ["iris", "iris"], "datasets: ['iris', 'iris'] names one twice"),
        ("device", "gpu", "device: 'gpu' given; string should match pattern '^(auto|cpu|cuda"),
        ("prepare.val", 0.95, "prepare: fit 0.1 + val 0.95 leave no rows for the bank"),
        ("iris.source.kind", "web", "iris.source: {'kind': 'web', 'loader': 'iris'} given … csv"),
        ("winequality_red.source.rule", {}, "winequality_red.source.rule: give either threshold or map"),
        ("train_corrupted.seeds", [7], "train_corrupted.seeds: 7 is not among seeds: 42"),
        ("splits.datasets", ["wine"], "splits.datasets: wine is not among datasets: digits, iris"),
        ("train_corrupted.conditions", ["asymmetric-0.6"], "asymmetric-0.6; give a rate below 0.5"),
        ("train_corrupted.conditions", ["colour-0.4"], "train_corrupted.conditions.0: 'colour-0.4' given"),
        ("noise.k", 300, "noise.k: 300 is above k_max: 256"),
        ("iris.train_embedder", {"mixup": 0.4, "losses": {"knn": 1.0, "calibration": 0.5}}, MIXUP[0]),
        ("iris.train_embedder", {"mixup": 0.4, "losses": {"knn": 1.0}, "knn": {"candidates": 0.5}}, MIXUP[1]),
    ],
)
def test_one_line_names_the_key(tmp_path: Path, key: str, value: Any, expected: str) -> None:
    message = failure(written(tmp_path, key, value))
    assert message.startswith((f"{file_of(key)[0]}: ", "datasets.yaml: iris.train_embedder.folds: 5")), message
    for part in expected.split(" … "):
        assert part in message


@pytest.mark.parametrize("preset", sorted(set(GOOD_PRESETS) - {"none"}))
def test_every_preset_holds_for_every_dataset(tmp_path: Path, preset: str) -> None:
    """One command each: no dataset may need more than the preset's name."""
    expected = GOOD_PRESETS[preset]
    for dataset, params in check(written(tmp_path, "preset", preset, datasets=list(GOOD_DATASETS))).items():
        tables = params.train_embedder.encoder == "mlp"
        assert tables == (GOOD_DATASETS[dataset]["train_embedder"].get("encoder") == "mlp")
        assert (params.k_eval, params.k_train) == (expected["k_eval"], expected["k_train"])
        embedder = expected["train_embedder"]["mlp"] if tables else expected["train_embedder"]
        assert params.train_embedder.embed_dim == embedder["embed_dim"]
        assert params.train_attention.parts.similarity == "dot"
        assert params.train_embedder.folds == 0


def test_a_table_goes_with_every_preset(tmp_path: Path) -> None:
    """Presets that set another kind of index set no address of a table."""
    path = written(tmp_path, "build_index.kind", "lance", build_index__uri="s3://banks")
    assert check(path)["iris"].build_index.uri == "s3://banks"
    path = written(tmp_path, "preset", "experiment1", build_index__kind="lance", build_index__uri="s3://banks")
    assert check(path)["iris"].build_index.kind == "flat"


def test_a_preset_lies_over_the_datasets_and_these_over_the_rest(tmp_path: Path) -> None:
    path = written(tmp_path, "preset", "experiment5", train_embedder__lr=1.0, iris__train_embedder__dropout=0.9)
    iris, digits = (check(path)[name].train_embedder for name in ("iris", "digits"))
    expected, own = GOOD_PRESETS["experiment5"]["train_embedder"], GOOD_DATASETS
    assert (iris.lr, digits.lr) == (expected["lr"], expected["lr"])  # over both
    assert iris.widths == expected["mlp"]["widths"] != own["iris"]["train_embedder"]["widths"]
    assert (iris.dropout, digits.dropout) == (expected["mlp"]["dropout"], expected["dropout"])
    assert digits.epochs == expected["epochs"] != own["digits"]["train_embedder"]["epochs"]
    assert digits.augment.rotate == own["digits"]["train_embedder"]["augment"]["rotate"]  # the preset names none
    knn = {"presets__experiment5__train_embedder__knn": {"k": 16}}
    path = written(tmp_path, "preset", "experiment5", iris__train_embedder__knn={"candidates": 0.5}, **knn)
    both = r"preset experiment5 over datasets\.yaml: iris\.train_embedder: mixup 0\.4.*0\.5"
    assert re.search(both, failure(path)), "what both make together names both"
    small = {"k_max": 8, "k_eval": 8, "k_train": 8, "statistics__sizes": [5]}
    assert check(written(tmp_path, "preset", "none", **small))["iris"].k_max == 8, "a preset not chosen need not agree"
    assert "k_eval: 16 is above k_max: 8" in failure(written(tmp_path, "preset", "experiment5", **small))


def test_no_file_and_no_yaml(tmp_path: Path) -> None:
    assert "no such file" in failure(tmp_path)
    for content, message in ((b"a: [1,\nb", "not valid YAML"), ("a: 1".encode("utf-16"), "not valid YAML"), (b"", "")):
        (tmp_path / "params.yaml").write_bytes(content)
        assert re.search(rf"params\.yaml.*{message}", failure(tmp_path))


@pytest.mark.parametrize("key", ["2024", "on", "null", "1.5"])
def test_keys_that_yaml_does_not_read_as_text(key: str) -> None:
    with pytest.raises(InputError, match=r"datasets\.yaml: \[.*\] is a key .* put it in quotes"):
        parse(f"{key}: {{}}".encode(), Path("datasets.yaml"))
    assert parse(f"'{key}': {{}}".encode(), Path("datasets.yaml")) == {key: {}}


def test_values_are_handed_over_unchanged() -> None:
    """A block is its defaults, what params.yaml says over them, and what the dataset says over both."""
    for dataset, own in GOOD_DATASETS.items():
        params = Params(ROOT, dataset)
        for block in BLOCKS:
            expected = flatten(block_class(block)().model_dump())
            expected |= flatten(GOOD[block]) | flatten(own.get(block, {}))
            assert flatten(getattr(params, block).model_dump()) == expected, (dataset, block)
        assert params.source == own["source"]
    with pytest.raises(InputError, match=r"nope has no entry in datasets\.yaml; known are digits"):
        _ = Params(ROOT, "nope").k_eval


def test_what_is_allowed(tmp_path: Path) -> None:
    """A learned projection without cross-fitting, keys that params.yaml does not name, and mixup with most losses."""
    path = written(tmp_path, "digits.train_attention", {"parts": {"similarity": "l2"}})
    assert check(path)["digits"].train_attention.parts.similarity == "l2"
    assert "mixup" not in GOOD["train_embedder"]
    path = written(tmp_path, "train_embedder.mixup", 0.2)
    assert check(path)["digits"].train_embedder.mixup == 0.2
    for losses, knn in (({"knn": 1.0, "supcon": 0.5}, {}), ({"knn": 0.0}, {"k": 5})):
        path = written(tmp_path, "iris.train_embedder", {"mixup": 0.4, "losses": losses, "knn": knn})
        assert check(path)["iris"].train_embedder.mixup == 0.4
    path = written(tmp_path, "iris.train_embedder", {"augment": {"flip": True}})
    augment, default = check(path)["iris"].train_embedder.augment, block_class("train_embedder")().augment
    assert augment.model_dump() == {**default.model_dump(), "flip": True}, "nested blocks are laid over key by key"
    sizes = check(written(tmp_path, "train_field.sizes", {"small": {"epochs": 1}}))["digits"].train_field.sizes
    assert (sizes["small"].epochs, sizes["small"].latents, set(sizes)) == (1, 8, {"small", "medium", "half", "full"})


def test_a_setting_that_a_dataset_hides_is_named(tmp_path: Path) -> None:
    datasets = ["digits", "winequality_red"]
    running = check(written(tmp_path, "train_attention.lr", 0.5, train_attention__patience=3, datasets=datasets))
    changed = {"train_attention.lr": 0.5, "train_attention.patience": 3}
    assert shadowed(changed, {name: params.raw for name, params in running.items()}) == [
        "train_attention.lr: 0.5 has no effect on digits: datasets.yaml or the preset overrides it"
    ]


def test_an_invalid_default_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tune(block_class("tune")):  # type: ignore[misc]
        epochs: Positive = 0.0

    monkeypatch.setattr("attnknn.heads.config.Tune", Tune)
    assert failure(written(tmp_path, "k_eval", 50)).startswith("defaults of tune.epochs: 0.0 given")
