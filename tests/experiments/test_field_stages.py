"""The stages of fields in sequence on a few small images."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import InputError
from attnknn.encoder.encoder import Encoder
from attnknn.experiments.fields.latents import Latents, context_pixels, save_latents
from attnknn.experiments.fields.perceiver import Field
from attnknn.experiments.fields.representations import Representations
from attnknn.experiments.fields.variants import ENCODER, MODES, PIXELS, PROBE_TABLES, REPORT_TABLES
from import_closure import ROOT
from pipeline.run import Run
from stages.field_report import field_report
from stages.probe import probe
from stages.train_field import train_field

TINY = {"frequencies": 4, "scale": 0.5, "dims": [8, 12], "latents": 3, "heads": 2, "depth": 1, "least": 3, "decoded": 0}
TINY |= {"epochs": 2, "batch_size": 16, "lr": 0.003, "muon": 0.01, "bf16": False, "compile": False}
NET = {"patch": 3, "dim": 8, "heads": 2, "layers": 1, "dropout": 0.1, "epochs": 2, "patience": 2, "batch_size": 16}
NET |= {"lr": 0.003}
SPLIT, FIELDS, LATENTS = Path("data/split/digits/3"), Path("models/field/digits/3"), Path("data/field_latents/digits/3")
VARIANTS = ["full", "full_nce", "full_views", "sparse", "sparse_nce", "sparse_views"]


def workspace(root: Path, split: Split, sampler: str = "image") -> Path:
    """A folder with dvc.yaml, settings and a split."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
    params["train_field"] = {"size": "small", "sizes": {"small": TINY}, "sampler": sampler}
    params["probe"] = {"transformers": {"small": NET}, "resamples": 100, "tsne_rows": 20, "pictures": 2}
    params |= {"device": "cpu", "threads": 1}
    (root / "params.yaml").write_text(yaml.safe_dump(params), "utf-8")
    datasets = yaml.safe_load((ROOT / "datasets.yaml").read_text("utf-8"))
    datasets["digits"]["train_attention"]["epochs"] = 2
    (root / "datasets.yaml").write_text(yaml.safe_dump(datasets), "utf-8")
    for name in ("dvc.yaml", "presets"):
        (root / name).symlink_to(ROOT / name)
    split.save(root / "data/split/digits/3")
    return root


def run_stages(root: Path, *stages: Callable[[Run], None], seed: int = 3) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for stage in stages:
            stage(Run(stage.__name__, "digits", str(seed)))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the outputs of all stages of fields."""
    rng, n = np.random.default_rng(0), 200
    y = np.arange(n) % 2
    x = rng.integers(0, 120, (n, 1, 6, 7))
    x[y == 0, :, :3] += 100
    part = np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), n // 4)
    split = Split(x.astype(np.uint8), y.astype(np.int64), part, ("up", "down"))
    root = workspace(tmp_path_factory.mktemp("fields"), split)
    kept = {"widths": [8], "depth": 1, "embed_dim": 0, "dropout": 0.0, "pretrained": False, "flip_average": False}
    encoder = Encoder("convnet", (1, 6, 7), 2, numeric={}, **kept)
    encoder.backbone.whiten(torch.from_numpy(x / 255 - 0.5).float())  # without it all embeddings are equal
    encoder.save(root / "models/encoder/digits/3", bf16=False)
    run_stages(root, train_field, probe, field_report)
    return root


def table(root: Path, name: str) -> pd.DataFrame:
    (path,) = root.glob(f"data/results/*/digits/3/{name}.csv")
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def test_every_representation_has_every_readout_in_both_modes(done: Path) -> None:
    scores = table(done, "probe")
    combinations = set(scores[["mode", "representation", "readout"]].itertuples(index=False, name=None))
    readouts = ("uniform", "distance", "attention", "linear_probe", "transformer")
    expected = {*product(MODES, ("pixels", *VARIANTS), readouts), *product(MODES, ("encoder",), readouts[:-1])}
    assert combinations == expected
    assert (scores["low"] <= scores["value"] + 1e-9).all()
    pixels = scores[(scores["representation"] == "pixels") & (scores["metric"] == "accuracy")].set_index("mode")
    assert pixels.loc["full", "value"].max() > 0.9, "half of the image is brighter in one class"
    means = json.loads((done / "metrics/digits/3/probe.json").read_text())
    assert means["full"]["pixels"]["distance"]["accuracy"] in pixels.loc["full", "value"].to_list()


def test_variants_set_the_training_arguments_and_see_the_bank_alone(done: Path, tmp_path, monkeypatch) -> None:
    split, recorded = Split.load(done / SPLIT), []

    def record(net, x, x_val, **settings) -> list:
        recorded.append((net, settings))
        np.testing.assert_array_equal(x, split.x[split.part == BANK])
        np.testing.assert_array_equal(x_val, split.x[split.part == VAL])
        return []

    monkeypatch.setattr("attnknn.experiments.fields.train.train_field", record)
    order = ("full", "sparse", "full_nce", "sparse_nce", "full_views", "sparse_views")
    run_stages(workspace(tmp_path, split), train_field)
    nets, calls = (dict(zip(order, values, strict=True)) for values in zip(*recorded, strict=True))
    assert [calls[v]["sampler"] for v in VARIANTS] == ["full"] * 3 + ["image"] * 3
    assert [calls[v]["contrast_weight"] > 0 for v in VARIANTS] == [False, True, False] * 2
    assert [calls[v]["views"] for v in VARIANTS] == [False, True, True] * 2
    for rate in ("lr", "muon"):
        assert calls["sparse_nce"][rate] == 0.5 * calls["sparse"][rate] == 0.5 * calls["full_nce"][rate]
    without = [
        {k: v for k, v in calls[f"full_{kind}"].items() if k not in ("contrast_weight", "resume", "progress")}
        for kind in ("nce", "views")
    ]
    assert without[0] == without[1], "the control differs in the loss alone"
    assert len({calls[v]["resume"] for v in VARIANTS}) == 6
    assert (nets["full"].config.height, nets["full"].config.width) == (6, 7)
    assert nets["sparse_nce"].config == nets["sparse_views"].config == nets["sparse"].config
    keys = {"crop", "flip", "jitter", "rotate", "cutout", "resized_crop", "grey"}
    assert calls["full"]["augment"].keys() == keys
    recorded.clear()
    (tmp_path / "batch").mkdir()
    root = workspace(tmp_path / "batch", split, sampler="batch")
    split.save(root / "data/split/digits/4")
    run_stages(root, train_field, seed=4)
    for name in ("latents", "positions"):
        one, other = (getattr(net, name) for net in (nets["full"], recorded[0][0]))
        assert not torch.equal(one, other), f"another seed, other {name}"
    assert [settings["sampler"] for _, settings in recorded[:2]] == ["full", "batch"]
    histories = {v: json.loads((done / FIELDS / v / "trained.json").read_text())["history"] for v in VARIANTS}
    assert [len(histories[name]) for name in VARIANTS] == [2, 2, 2, 2, 1, 1]
    assert [name for name, history in histories.items() if "contrast" in history[0]] == ["full_nce", "sparse_nce"]
    assert histories["sparse_nce"][0]["mse"] < histories["sparse"][0]["mse"]


def test_sparse_representations_use_only_the_context(done: Path, tmp_path) -> None:
    """Other values outside the context, on rows outside the bank, change whole-image representations only."""
    split = Split.load(done / SPLIT)
    mask = np.zeros((200, 42), dtype=bool)
    np.put_along_axis(mask, context_pixels("sparse", 200, 42, 0.2, 3, seed=3).numpy(), True, axis=1)
    x = np.where(mask.reshape(split.x.shape) | (split.part == BANK)[:, None, None, None], split.x, 255 - split.x)
    other = replace(split, x=x)
    shutil.copytree(done / FIELDS, workspace(tmp_path, other) / FIELDS)
    save_latents(other, tmp_path / FIELDS, tmp_path / LATENTS, 3, "cpu")
    rest = split.part != BANK
    for name, mode in product(VARIANTS, MODES):
        tokens, other_tokens = (Latents.load(root / LATENTS / name / mode).tokens for root in (done, tmp_path))
        assert np.array_equal(tokens, other_tokens) == (mode == "sparse")
        np.testing.assert_array_equal(tokens[~rest], other_tokens[~rest])
    encoder = Encoder.load(done / "models/encoder/digits/3")[0]
    splits = {done / LATENTS: split, tmp_path / LATENTS: other}
    both = [Representations(x, root, encoder, share=0.2, least=3, patch=2, seed=3) for root, x in splits.items()]
    for name, kinds in ((ENCODER, 2), (PIXELS, 2), ("full", 1)):
        vectors = [representations.load(name, "sparse")[0] for representations in both]
        assert len(vectors[0]) == kinds
        for z, other_z in zip(*vectors, strict=True):
            np.testing.assert_array_equal(z, other_z)
        whole = [representations.load(name, "full")[0][0][rest] for representations in both]
        assert np.abs(whole[0] - whole[1]).max() > 0.01, "the whole image makes a difference"


def test_psnr_against_the_mean_image_of_the_bank_pictures_and_t_sne_are_written(done: Path) -> None:
    split, psnr = Split.load(done / SPLIT), table(done, "field_psnr")
    test, bank = (split.x[split.part == part] / 255 for part in (TEST, BANK))
    expected = -10 * np.log10(np.square(test - bank.mean(0)).mean())
    own = psnr.query("mode == 'full' and source == 'mean image' and baseline.isna()")["value"].item()
    assert own == pytest.approx(expected, abs=1e-4)
    own = psnr[psnr["baseline"].isna()]
    assert set(own["source"]) == {"mean image", "nearest point", "nearest images", *VARIANTS}
    for baseline in ("nearest point", "nearest images"):
        assert set(psnr.loc[psnr["baseline"] == baseline, "mode"]) == {"sparse"}
    folder = done / "data/pictures/field_pictures/digits-3"
    columns = json.loads((folder / "pictures.json").read_text())["columns"]
    assert Image.open(folder / "reconstructions.png").size == (len(columns) * (7 + 2), 2 * (6 + 2))
    assert columns[:2] == ["full:image", "full:mean image"]
    planes = pd.read_csv(folder / "tsne.csv")
    assert planes.groupby("representation").size().to_dict() == dict.fromkeys(["pixels", *VARIANTS, "encoder"], 20)


def test_the_same_seed_gives_the_same_latents(done: Path, tmp_path: Path) -> None:
    run_stages(workspace(tmp_path, Split.load(done / SPLIT)), train_field)
    for mode in ("full", "sparse"):
        one, other = (root / LATENTS / "sparse" / mode / "tokens.npy" for root in (done, tmp_path))
        assert one.read_bytes() == other.read_bytes()


def test_tables_pass_through_with_empty_results(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = Split.load(done / SPLIT)
    x = np.asarray(digits.x).reshape(200, -1).astype(np.float32)
    split = replace(digits, x=x, features=tuple(map(str, range(x.shape[1]))))
    run_stages(workspace(tmp_path, split), train_field, probe, field_report)
    assert "train_field digits/3: nothing to train, no images" in capsys.readouterr().out
    for name, columns in {**PROBE_TABLES, **REPORT_TABLES}.items():
        rows = table(tmp_path, name)
        assert (tuple(rows.columns), len(rows)) == (tuple(columns), 0)


def test_missing_and_invalid_fields_are_errors_in_one_line(done: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"models/field/digits/3: no such folder; run `dvc repro`"):
        run_stages(workspace(tmp_path, Split.load(done / SPLIT)), field_report)
    field = Field.load(done / FIELDS / "full" / "field")[0]
    with torch.no_grad():
        field.latents[0, 0] = torch.nan
    field.save(tmp_path / "field")
    with pytest.raises(InputError, match=r"NaN or infinite values in latents"):
        Field.load(tmp_path / "field")
