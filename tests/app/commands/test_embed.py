"""`attnknn embed` to arrays: encoders of the pipeline, of torchvision and of ONNX; pictures beside vectors."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from attnknn.app.model.embedders import open_embedder
from attnknn.app.model.inputs import Pictures
from attnknn.app.model.labelled_rows import _seen
from attnknn.app.model.model import Model
from attnknn.app.model.read_files import parquet_vectors
from attnknn.core.artifacts import Split
from attnknn.core.torchvision_shim import torchvision
from attnknn.encoder.encoder import IMAGENET_MEAN, IMAGENET_STD, Encoder
from command_line import attnknn, csv_rows, embed, refused, succeeded

ONNX = Path(__file__).parent / "data" / "channel_means.onnx"  # (n, 3, 8, 6) → means over space (n, 3)
FAST = ("--weights", "distance", "-k", 3)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of pictures of one colour, wider than high."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, (red, green, blue) in (("red", (200, 10, 30)), ("blue", (20, 40, 240))):
        (folder / name).mkdir()
        for i in range(12):
            Image.new("RGB", (30, 20), (red + i, green + i, blue + i)).save(folder / name / f"{i:02}.png")
    return folder


def test_vectors_with_labels_and_paths_beside(folder: Path, tmp_path: Path) -> None:
    z, command = tmp_path / "z.npy", embed(folder, folder / "images")
    assert "--target label --pictures path" in succeeded(*command, "-o", z)
    model_input = Pictures(Encoder.load(folder / "encoder")[0])
    (batch,) = model_input.batches([str(folder / "images")])
    np.testing.assert_allclose(np.load(z), model_input.vectors(batch), atol=1e-6)
    rows, paths = pd.read_csv(tmp_path / "z.csv"), sorted((folder / "images").rglob("*.png"))
    assert rows["path"].tolist() == list(map(str, paths))
    assert rows["label"].tolist() == [path.parent.name for path in paths]
    assert "exists; name another file, or add --force" in refused(*command, "-o", z)
    z.unlink()
    assert "z.csv exists" in refused(*command, "-o", z)
    assert "z.npy is written by this process" in refused(*command, "-o", z, "--cluster", "auto")


def test_a_model_of_torchvision_gives_its_last_layers_input(pictures: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torchvision.models.resnet18(num_classes=5).eval()
    weights, z = tmp_path / "resnet18-f37072fd.pth", tmp_path / "z.npy"
    torch.save(net.state_dict(), weights)
    succeeded("embed", pictures, "--encoder", "torchvision:resnet18", "--weights", weights, "-o", z)
    # By hand: the middle 224 × 224 of a side of 256, ImageNet's mean and deviation; all but the last layer.
    x = torch.full((1, 3, 224, 224), 1 / 255) * torch.tensor([20.0, 40, 240])[:, None, None]
    x = (x - torch.tensor(IMAGENET_MEAN)[:, None, None]) / torch.tensor(IMAGENET_STD)[:, None, None]
    net.fc = torch.nn.Identity()
    with torch.inference_mode():
        np.testing.assert_allclose(np.load(z)[0], net(x)[0], atol=1e-4)
    assert np.load(z).shape == (24, 512)
    another = ("embed", pictures, "-o", tmp_path / "y.npy", "--encoder")
    assert "no weights of torchvision's resnet34" in refused(*another, "torchvision:resnet34", "--weights", weights)
    assert "no such model; there are resnet" in refused(*another, "torchvision:resnet7", "--weights", weights)
    assert "no linear layer" in refused(*another, "torchvision:squeezenet1_1", "--weights", weights)
    assert "it lacks classifier.6.weight" in refused(*another, "torchvision:vgg11", "--weights", weights)
    torch.save({"state_dict": net.state_dict() | {"fc.weight": torch.ones(5, 512), "fc.bias": torch.ones(5)}}, weights)
    succeeded(*another, "torchvision:resnet18", "--weights", weights)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.load(z))
    another = ("embed", pictures, "-o", tmp_path / "x.npy", "--encoder")
    assert "--weights: none given" in refused(*another, "torchvision:resnet18")
    assert "no such file" in refused(*another, "torchvision:resnet18", "--weights", tmp_path / "none")
    assert "for torchvision:NAME; leave it out" in refused(*another, f"onnx:{ONNX}", "--weights", weights)


def test_a_vision_transformer_has_the_size_of_its_weights(pictures: Path, tmp_path: Path) -> None:
    """`vit_b_16` for 64 pixels, in a file of any name; one of expanded zeros is small."""
    with torch.device("meta"):
        shapes = torchvision.models.vit_b_16(image_size=64, num_classes=2).state_dict()
    weights = tmp_path / "mine.pth"
    torch.save({name: torch.zeros(()).expand(tensor.shape) for name, tensor in shapes.items()}, weights)
    assert open_embedder("torchvision:vit_b_16", weights)([pictures / "red" / "00.png"]).shape == (1, 768)


def test_an_onnx_file_gets_normalised_pictures(pictures: Path, tmp_path: Path) -> None:
    z = tmp_path / "z.npy"
    succeeded("embed", pictures, "--encoder", f"onnx:{ONNX}", "-o", z)
    blue = (np.array([20, 40, 240]) + np.arange(12)[:, None]) / 255
    np.testing.assert_allclose(np.load(z)[:12], (blue - IMAGENET_MEAN) / IMAGENET_STD, atol=1e-5)
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    other = ("embed", pictures, "-o", tmp_path / "y.npy", "--encoder")
    assert "no ONNX model" in refused(*other, f"onnx:{tmp_path}/bad.onnx")
    assert "no such file" in refused(*other, f"onnx:{tmp_path}/none.onnx")
    assert "torchvision:NAME or onnx:FILE" in refused(*other, pictures / "red")
    assert not (tmp_path / "y.npy").exists()


def test_pictures_beside_vectors_are_stored_with_the_model(pictures: Path, tmp_path: Path) -> None:
    z, rows, model, other = tmp_path / "z.npy", tmp_path / "z.csv", tmp_path / "model", tmp_path / "other"
    succeeded("embed", pictures, "--encoder", f"onnx:{ONNX}", "-o", z)
    shown, labelled = ("--target", "label", "--pictures", "path", *FAST), ("--target", "label", *FAST)
    succeeded("fit", z, "--rows", rows, *shown, "-o", model)
    examples = Model.load(model).examples
    assert examples.images is not None
    assert examples.images.shape == (22, 3, 64, 64)
    row = int(np.flatnonzero(examples.table["path"].str.endswith("red/03.png"))[0])
    assert examples.images[row, :, 32, 32].tolist() == [203, 13, 33]
    assert examples.images[row, :, 0, 0].tolist() == [127, 127, 127], "above a wide picture"
    # Added rows keep their columns and pictures; without any they are blank.
    succeeded("add", model, z, "--rows", rows, "--target", "label")
    succeeded("add", model, z, "--label", "red")
    examples = Model.load(model).examples
    assert examples.images is not None
    assert examples.images[[45, 46], 0, 32, 32].tolist() == [211, 127]
    assert examples.table["path"].iloc[45].endswith("red/11.png")
    assert examples.table["path"].isna().sum() == 24
    frame, changed = pd.read_csv(rows), tmp_path / "changed.csv"
    frame.rename(columns={"path": "file"}).to_csv(changed, index=False)
    missing = "no column 'path', which names the pictures"
    assert missing in refused("add", model, z, "--rows", changed, "--target", "label")
    assert missing in refused("fit", z, "--rows", changed, *shown, "-o", other)
    frame.assign(path=["none.png", *frame["path"][1:]]).to_csv(changed, index=False)
    assert f"{tmp_path}/none.png: cannot be read" in refused("fit", z, "--rows", changed, *shown, "-o", other)
    frame.assign(path=[None, *frame["path"][1:]]).to_csv(changed, index=False)
    assert "no picture in column 'path'" in refused("fit", z, "--rows", changed, *shown, "-o", other)
    assert "a column beside vectors" in refused("fit", changed, *labelled, "--pictures", "path", "-o", other)


def test_parquet_files_of_vectors_are_read(folder: Path, pictures: Path, tmp_path: Path) -> None:
    z, parts = tmp_path / "z.npy", tmp_path / "parts"
    succeeded("embed", pictures, "--encoder", f"onnx:{ONNX}", "-o", z)
    succeeded("embed", pictures, "--encoder", f"onnx:{ONNX}", "-o", parts)
    flags = ("--target", "label", "--pictures", "path", *FAST)
    succeeded("fit", z, "--rows", tmp_path / "z.csv", *flags, "-o", tmp_path / "a")
    expected = Model.load(tmp_path / "a")
    pd.read_parquet(parts).to_parquet(tmp_path / "one.parquet")
    for source in (parts, tmp_path / "one.parquet"):
        model = tmp_path / f"m-{source.name}"
        succeeded("fit", source, *flags, "-o", model)
        loaded = Model.load(model)
        np.testing.assert_allclose(loaded.memory.bank.z, expected.memory.bank.z, atol=1e-5)
        pd.testing.assert_frame_equal(loaded.examples.table, expected.examples.table)
        np.testing.assert_array_equal(loaded.examples.images, expected.examples.images)
    # All commands read them, with labels and pictures in their columns.
    model, by_array = tmp_path / "a", csv_rows("predict", tmp_path / "a", z)
    for source in (parts, tmp_path / "one.parquet"):
        answers = csv_rows("predict", model, source)
        assert [row["label"] for row in answers] == [row["label"] for row in by_array]
        assert answers[3]["input"] == f"{source.name} row 3"
        assert "24 rows" in succeeded("evaluate", model, source, "--target", "label")
        assert f"{source.name} row 0" in succeeded("explain", model, source)
    blocks = list(parquet_vectors(str(parts), 5))
    assert [name for _, beside in blocks for name in beside.index] == [f"parts row {row}" for row in range(24)]
    np.testing.assert_allclose(np.concatenate([vectors for vectors, _ in blocks]), np.load(z), atol=1e-6)
    assert "no column 'sort'" in refused("evaluate", model, parts, "--target", "sort")
    succeeded("add", model, tmp_path / "one.parquet", "--target", "label")
    examples = Model.load(model).examples
    np.testing.assert_array_equal(examples.images[34:46, 0, 32, 32], range(200, 212))
    assert examples.table["path"].iloc[45].endswith("red/11.png")
    line = refused("predict", model, pictures)
    assert f"this model reads vectors: run `attnknn embed {pictures} -o z.npy` first" in line
    other = ("-o", tmp_path / "other")
    assert "no label column; name it with --target: label, path" in refused("fit", parts, *other)
    assert "has the columns itself" in refused("fit", parts, "--rows", tmp_path / "z.csv", "--target", "label", *other)
    frame = pd.read_parquet(parts).assign(label=[None, *["a", "b"] * 11, "a"])
    frame.to_parquet(tmp_path / "one.parquet")
    fit = ("fit", tmp_path / "one.parquet", "--target", "label", *other)
    assert "rows without a label" in refused(*fit)
    frame.rename(columns={"vector": "embedding"}).to_parquet(tmp_path / "one.parquet")
    assert "column 'embedding' holds vectors; rename it to 'vector'" in refused(*fit)
    ragged = [vector[: 3 - (row == 5)] for row, vector in enumerate(frame["vector"])]
    frame.assign(vector=ragged, label="a").to_parquet(tmp_path / "one.parquet")
    assert "2 numbers in row 5, 3 in row 0; give vectors of one length" in refused(*fit)


def test_pictures_that_trained_the_encoder_are_counted(folder: Path, tmp_path: Path) -> None:
    model_input = Pictures(Encoder.load(folder / "encoder")[0])
    (batch,) = model_input.batches([str(folder / "images")])
    encoder, split = (tmp_path / kind / "shapes" / "42" for kind in ("models/encoder", "data/split"))
    model_input.encoder.save(encoder)
    command = ("fit", folder / "images", "--encoder", encoder, *FAST, "-o")
    assert "trained this encoder" not in attnknn(*command, tmp_path / "a").stderr
    for place in (Path("/a"), Path("/a/b"), tmp_path):
        assert _seen(place, batch.values) == 0, "no pipeline around it"
    part = np.repeat(np.arange(4, dtype=np.int8), [len(batch.names) - 3, 1, 1, 1])
    Split(batch.values, np.arange(len(part)) % 2, part, ("left", "right")).save(split)
    expected = f"warning: {len(part) - 3} of the pictures trained this encoder"
    assert expected in attnknn(*command, tmp_path / "b").stderr
