"""Encoders: shapes, unit norm, normalisation, what is written and read back, and representations without labels."""

import dataclasses
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from attnknn.core.artifacts import BANK, VAL, Split
from attnknn.core.errors import InputError
from attnknn.core.files import read_json, write_json
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.fit import fit_encoder
from attnknn.encoder.numeric_embeddings import fit_numeric
from attnknn.encoder.train import knn_score
from synthetic import blobs, parts


def encoder(kind: str = "convnet", shape: tuple[int, ...] = (3, 8, 8), n_classes: int = 5, **settings) -> Encoder:
    torch.manual_seed(0)
    return Encoder(kind, shape, n_classes, **({"widths": (13, 17, 19), "embed_dim": 7} | settings))


def rows(n: int = 11, shape: tuple[int, ...] = (3, 8, 8), seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if len(shape) == 1:
        return rng.normal(size=(n, *shape)).astype(np.float32)
    # Of different brightness, so that their embeddings differ.
    return (rng.random((n, *shape)) * rng.integers(9, 256, size=(n, 1, 1, 1))).astype(np.uint8)


def trained(kind: str = "convnet", shape: tuple[int, ...] = (3, 8, 8), **settings) -> Encoder:
    """An encoder whose batch-norm statistics and normalisation are no longer those of a new one."""
    net = encoder(kind, shape, **settings)
    if len(shape) == 3:
        net.fit_normalisation(rows(shape=shape))
    with torch.no_grad():
        for _ in range(20):
            net.train()(torch.from_numpy(rows(shape=shape)))
    return net


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *[("convnet", (c, h, w)) for c in (1, 3) for h, w in ((8, 8), (28, 28), (32, 32), (9, 13), (3, 1))],
        ("resnet18", (1, 9, 13)),
        ("mlp", (23,)),
        ("mlp", (1,)),
        ("raw", (23,)),
        ("raw", (3, 9, 13)),
    ],
)
@pytest.mark.parametrize("n_classes", [5, 0])
def test_shapes_and_unit_norm(kind: str, shape: tuple[int, ...], n_classes: int) -> None:
    net = encoder(kind, shape, n_classes)
    z, logits = net(torch.from_numpy(rows(3, shape)))
    assert z.shape == (3, 7)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(3))
    assert (logits is None) if n_classes == 0 else (logits is not None and logits.shape == (3, 5))
    assert torch.isfinite(z).all()


def test_the_stem_of_a_resnet_keeps_small_images_large() -> None:
    """16×24 comes to the last stage as 2×3: three halvings, none of them in the stem."""
    net, seen = encoder("resnet18", (3, 16, 24)), []
    net.backbone.layer4.register_forward_hook(lambda *called: seen.append(tuple(called[-1].shape)))
    net(torch.from_numpy(rows(2, (3, 16, 24))))
    assert seen == [(2, 512, 2, 3)]


@pytest.mark.parametrize(("embed_dim", "part", "divisor"), [(7, "projection", 1), (0, "backbone", 9)])
def test_the_linear_head_reads_the_vector_that_is_compared(embed_dim: int, part: str, divisor: int) -> None:
    """z = e / ‖e‖ and logits = W e + b, e what the projection gives; (W e + b) / 9 of the backbone's without one."""
    net, seen = trained(embed_dim=embed_dim).eval(), []
    getattr(net, part).register_forward_hook(lambda *called: seen.append(called[-1]))
    z, logits = net(torch.from_numpy(rows()))
    (e,) = seen
    assert net.dim == z.shape[1] == (embed_dim or 19)
    torch.testing.assert_close(z, e / e.norm(dim=1, keepdim=True))
    torch.testing.assert_close(logits, net.classifier(e) / divisor)


def test_flip_average_gives_the_mean_of_both_sides_once_trained() -> None:
    """e = (e(x) + e(mirror image)) / 2, so an image and its mirror image are the same; in training it is e(x) alone."""
    net, x = trained(embed_dim=0, flip_average=True), torch.from_numpy(rows())
    alone, halves = trained(embed_dim=0).eval(), []
    alone.backbone.register_forward_hook(lambda *called: halves.append(called[-1]))
    alone(x)
    alone(x.flip(-1))
    e = (halves[0] + halves[1]) / 2
    z, logits = net.eval()(x)
    torch.testing.assert_close(z, e / e.norm(dim=1, keepdim=True))
    torch.testing.assert_close(logits, net.classifier(e) / 9)
    torch.testing.assert_close(net(x.flip(-1))[0], z)
    torch.testing.assert_close(net.train()(x)[0], alone.train()(x)[0])


@pytest.mark.parametrize("channels", [1, 3])
def test_normalisation_is_numpys_mean_and_deviation_of_each_channel(channels: int) -> None:
    net, x = encoder(shape=(channels, 7, 5)), rows(13, (channels, 7, 5))
    x[:, 0] //= 3
    net.fit_normalisation(x)
    np.testing.assert_allclose(net.mean.flatten(), x.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(net.std.flatten(), x.std((0, 2, 3)), rtol=1e-6)
    net.fit_normalisation(np.full_like(x, 9))
    assert net.std.flatten().tolist() == [1] * channels, "a flat channel is not divided by zero"


@pytest.mark.parametrize(("kind", "shape"), [("convnet", (3, 9, 13)), ("mlp", (23,))])
def test_a_row_is_embedded_alike_in_any_batch(kind: str, shape: tuple[int, ...]) -> None:
    net, x = trained(kind, shape, dropout=0.5), rows(11, shape)
    order = np.random.default_rng(1).permutation(11)
    z, logits = embed(net, x)
    assert np.abs(z - z[order]).max() > 0.01
    for idx, batch_size in ((slice(None), 4), (order, 1000)):
        for again, expected in zip(embed(net, x[idx], batch_size=batch_size), (z, logits), strict=True):
            np.testing.assert_allclose(again, expected[idx], atol=1e-5)


@pytest.mark.parametrize("mode", [True, False])
def test_embed_is_forward_in_evaluation_mode_and_restores_the_mode(mode: bool) -> None:
    net, x = trained(dropout=0.5), rows()
    result = embed(net.train(mode), x)
    assert net.training == net.backbone.training == mode
    with torch.no_grad():
        expected = net.eval()(torch.from_numpy(x))
    for values, right, halved in zip(result, expected, embed(net, x, bf16=True), strict=True):
        assert values.dtype == halved.dtype == np.float32
        assert np.array_equal(values, right)
        np.testing.assert_allclose(halved, right, atol=0.05)


@pytest.mark.parametrize(
    ("kind", "shape", "n_classes", "numeric"),
    [
        ("convnet", (1, 9, 13), 5, ""),
        ("raw", (1, 9, 13), 5, ""),
        *(("mlp", (23,), 0, name) for name in ("none", "linear", "periodic", "piecewise")),
    ],
)
def test_saved_and_loaded_gives_the_same_bytes(tmp_path: Path, kind: str, shape, n_classes: int, numeric: str) -> None:
    x = rows(shape=shape)
    more = {"numeric": fit_numeric(x, numeric, dim=5, frequencies=3, scale=0.5, bins=4)} if numeric else {}
    net = trained(kind, shape, n_classes=n_classes, **more)
    net.save(tmp_path / "encoder", epoch=3, classes=["a", "b"])
    loaded, about = Encoder.load(tmp_path / "encoder")
    assert about == {"epoch": 3, "classes": ["a", "b"]}
    assert not loaded.training
    for before, after in zip(embed(net, x), embed(loaded, x), strict=True):
        assert (before is after is None) or before.tobytes() == after.tobytes()


def refused(folder: Path) -> None:
    with pytest.raises(InputError, match="dvc repro") as error:
        Encoder.load(folder)
    assert str(error.value).startswith(str(folder))
    assert "\n" not in str(error.value)


CHANGES = [*({"kind": kind} for kind in ("mlp", "perceptron", "resnet18")), {"embed_dim": 5}, {"dropout": 2.0}]


@pytest.mark.parametrize("change", [*CHANGES, {"n_classes": 0}, {"colour": "red"}], ids=str)
def test_a_configuration_that_does_not_fit_the_weights_is_one_line(tmp_path: Path, change: dict) -> None:
    encoder().save(tmp_path)
    config = read_json(tmp_path / "config.json")
    write_json(tmp_path / "config.json", {**config, "encoder": config["encoder"] | change})
    refused(tmp_path)


@pytest.mark.parametrize("content", [b"{}", b"{", b"<html>", b"", "half", "none"])
@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
def test_a_file_that_is_damaged_or_missing_is_one_line(tmp_path: Path, name: str, content: bytes | str) -> None:
    encoder().save(tmp_path)
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[:-9] if isinstance(content, str) else content)
    if content == "none":
        file.unlink()
    refused(tmp_path)


@pytest.mark.parametrize(
    ("kind", "shape", "mend"),
    [
        *((kind, (3, 8, 8), "convnet, vit, resnet18 or resnet50 for images") for kind in ("mlp", "perceptron")),
        *((kind, (23,), "mlp for tables") for kind in ("convnet", "resnet18")),
    ],
)
def test_a_kind_that_does_not_fit_the_rows(kind: str, shape: tuple[int, ...], mend: str) -> None:
    with pytest.raises(InputError) as error:
        encoder(kind, shape)
    assert str(error.value) == f"encoder: {kind} does not fit rows of shape {shape}; take {mend}"


FILE = "resnet18-f37072fd.pth"


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torch's folder of downloaded weights, empty, on a machine without a network."""
    no_network = Mock(side_effect=URLError("Name or service not known"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def test_pretrained_weights_that_lie_in_torchs_folder_are_loaded(checkpoints: Path) -> None:
    from attnknn.core.torchvision_shim import torchvision

    torch.manual_seed(5)
    weights = torchvision.models.resnet18().state_dict()
    torch.save(weights, checkpoints / FILE)
    net = encoder("resnet18", (1, 8, 8), pretrained=True)
    loaded = net.backbone.state_dict()
    same = {name for name in loaded if torch.equal(loaded[name], weights[name])}
    assert set(loaded) - same == {"conv1.weight"}
    assert loaded["conv1.weight"].shape == (64, 1, 3, 3)


@pytest.mark.parametrize("content", ["missing", "page", "nothing", "cut", "other"])
def test_pretrained_weights_that_are_missing_or_damaged_are_one_line(checkpoints: Path, content: str) -> None:
    file = checkpoints / FILE
    if content != "missing":
        torch.save({"fc.weight": torch.zeros(3)}, file)
        whole = file.read_bytes()
        held = {"page": b"<html>404</html>", "nothing": b"", "cut": whole[: len(whole) // 2], "other": whole}
        file.write_bytes(held[content])
    with pytest.raises(InputError, match=r"^pretrained: .*resnet18") as error:
        encoder("resnet18", pretrained=True)
    message = str(error.value)
    assert "\n" not in message
    assert ("Name or service not known" in message) == (content == "missing")
    assert message.endswith(f"put https://download.pytorch.org/models/{FILE} at {file}, or set pretrained: false")


def gratings(n: int = 300, size: int = 12) -> Split:
    """Stripes whose direction is the class; phase, width, brightness and contrast vary, and noise is added."""
    rng = np.random.default_rng(0)
    y, steps = np.arange(n) % 3, np.arange(size)
    angle, width, phase = np.radians(45 * y), rng.uniform(1.2, 1.8, n), rng.uniform(0, 2 * np.pi, n)
    across = np.cos(angle)[:, None, None] * steps[:, None] + np.sin(angle)[:, None, None] * steps
    waves = np.sin(width[:, None, None] * across + phase[:, None, None]) * rng.uniform(10, 50, (n, 1, 1))
    x = rng.uniform(60, 190, (n, 1, 1)) + waves + 20 * rng.normal(size=waves.shape)
    return Split(x.clip(0, 255).astype(np.uint8)[:, None], y, parts(n), ("a", "b", "c"))


CONVNET: dict[str, Any] = {"widths": [16, 32], "batch_size": 50, "supcon_temperature": 0.2}
CONVNET["self_supervised"] = {"epochs": 10, "augment": {"resized_crop": 0.5, "jitter": 0.4}}


def fitted(split: Split, representation: str, **settings) -> tuple[Encoder, list[dict[str, float]]]:
    settings = {"representation": representation, **CONVNET, **settings}
    return fit_encoder(split, TrainEmbedder.model_validate(settings), 0, "cpu", "")


def unit(e: np.ndarray) -> np.ndarray:
    return e / np.linalg.norm(e, axis=1, keepdims=True)


def in_colour(split: Split) -> Split:
    """Three channels of different means and deviations."""
    return dataclasses.replace(split, x=np.concatenate([split.x, split.x // 2, 255 - split.x // 3], axis=1))


def standardised(split: Split) -> np.ndarray:
    x = split.x.astype(np.float64)
    bank = x[split.part == BANK]
    axes = (0, 2, 3)
    return ((x - bank.mean(axes, keepdims=True)) / bank.std(axes, keepdims=True)).reshape(len(x), -1)


@pytest.mark.parametrize("bf16", [False, True])
def test_raw_pixels_are_standardised_per_channel_on_bank_rows_and_columns_are_as_they_are(bf16: bool) -> None:
    split, table = in_colour(gratings(60)), blobs(60)
    for data, expected in ((split, standardised(split)), (table, table.x)):
        net, (row,) = fitted(data, "raw", bf16=bf16, flip_average=True)
        z, logits = embed(net, data.x, bf16=bf16)
        np.testing.assert_allclose(z, unit(expected), atol=1e-5)
        val, bank = data.part == VAL, data.part == BANK
        score = knn_score(z[bank], data.y[bank], z[val], data.y[val], 10, 3)
        assert row == {"epoch": 0, "val_accuracy": score[0], "val_nll": pytest.approx(score[1], rel=1e-4)}
        assert logits.shape == (60, 3)


@pytest.mark.parametrize(("embed_dim", "dim"), [(5, 5), (0, 64)])
def test_pca_is_the_projection_on_principal_components_of_bank_rows(embed_dim: int, dim: int) -> None:
    split = in_colour(gratings(200))
    x, bank = standardised(split), split.part == BANK
    mean = x[bank].mean(0)
    components = np.linalg.svd(x[bank] - mean, full_matrices=False)[2][:dim]
    net, _ = fitted(split, "pca", embed_dim=embed_dim, bf16=True)
    z = embed(net, split.x, bf16=True)[0]
    expected = unit((x - mean) @ components.T)
    signs = np.sign((z * expected).sum(0))
    np.testing.assert_allclose(z, signs * expected, atol=2e-3)
    others = np.array(split.x)
    others[~bank] = 255 - others[~bank]
    moved = fitted(dataclasses.replace(split, x=others), "pca", embed_dim=embed_dim)[0].state_dict()
    for name in ("projection.weight", "projection.bias", "mean", "std"):
        assert torch.equal(moved[name], net.state_dict()[name]), name
    assert embed(fitted(blobs(60), "pca")[0], blobs(60).x)[0].shape == (60, 7), "as many as there are columns"


@pytest.mark.parametrize("representation", ["raw", "pca", "self_supervised"])
def test_labels_change_nothing_but_the_linear_head(representation: str) -> None:
    split = gratings(120)
    relabelled = dataclasses.replace(split, y=(split.y + np.arange(120) // 7) % 3)
    (z, logits), (other_z, other_logits) = (
        embed(fitted(data, representation)[0], split.x) for data in (split, relabelled)
    )
    assert z.tobytes() == other_z.tobytes()
    assert not np.array_equal(logits, other_logits)


def test_views_without_labels_teach_the_direction_of_stripes() -> None:
    split = gratings()
    net, history = fitted(split, "self_supervised", embed_dim=5)
    *before, last = history
    assert net.dim == 32, "the features"
    assert [row["epoch"] for row in history] == list(range(1, 11))
    assert all(np.isnan(row["val_accuracy"]) for row in before), "no label chooses the epoch"
    random = encoder(shape=(1, 12, 12), widths=(16, 32), embed_dim=0)
    random.fit_normalisation(split.x[split.part == BANK])
    z, bank, val = embed(random, split.x)[0], split.part == BANK, split.part == VAL
    assert last["val_accuracy"] > 0.1 + knn_score(z[bank], split.y[bank], z[val], split.y[val], 10, 3)[0]


@pytest.mark.parametrize(("kind", "file"), [("resnet18", "w.pth"), ("resnet50", "w.safetensors")])
@pytest.mark.parametrize("channels", [1, 3])
def test_features_of_a_pretrained_resnet_are_torchvisions(tmp_path: Path, kind: str, file: str, channels: int) -> None:
    from attnknn.core.torchvision_shim import torchvision

    torch.manual_seed(5)
    net = getattr(torchvision.models, kind)(weights=None)
    net(torch.randn(8, 3, 40, 40))  # statistics of the batch norms
    state = net.eval().state_dict()
    save_file(state, tmp_path / file) if file.endswith("safetensors") else torch.save(state, tmp_path / file)
    split = gratings(24) if channels == 1 else in_colour(gratings(24))
    ours, _ = fitted(split, "pretrained", weights=str(tmp_path / file), input_size=40)
    ours.save(tmp_path / "encoder")
    images = torch.from_numpy(split.x).expand(-1, 3, -1, -1) / 255
    images = torchvision.transforms.functional.resize(images, [40, 40])
    images = torchvision.transforms.functional.normalize(images, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    net.fc = torch.nn.Identity()
    with torch.no_grad():
        expected = unit(net(images).numpy())
    for loaded in (ours, Encoder.load(tmp_path / "encoder")[0]):
        np.testing.assert_allclose(embed(loaded, split.x)[0], expected, atol=1e-4)


@pytest.mark.parametrize("content", ["missing", "page", "other", "cut", "text"])
def test_weights_that_are_missing_or_no_resnets_are_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "w.pth"
    if content == "page":
        file.write_bytes(b"<html>404</html>")
    elif content == "text":
        torch.save("resnet18", file)
    elif content != "missing":
        torch.save({"conv1.weight": torch.zeros(3)}, file)
        file.write_bytes(file.read_bytes()[: 200 if content == "cut" else None])
    with pytest.raises(InputError, match=rf"^train_embedder\.weights: {file}: no (such file|state dict)") as error:
        fitted(gratings(24), "pretrained", weights=str(file))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("representation", ["self_supervised", "pretrained"])
def test_representations_of_images_refuse_a_table(representation: str) -> None:
    with pytest.raises(InputError, match=f"{representation} is of images; for a table take trained, raw or pca$"):
        fitted(blobs(60), representation, weights="w.pth")
