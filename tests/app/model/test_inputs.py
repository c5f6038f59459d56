"""Images are decoded in the encoder's size and channels, as an image viewer shows them."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from synthetic_models import picture_encoder

from attnknn.app.model.inputs import Batch, Pictures
from attnknn.app.model.model import Model
from attnknn.core.errors import InputError
from attnknn.data.image_folder import decode
from attnknn.encoder.encoder import Encoder, embed


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    image.save(buffer := io.BytesIO(), kind, **options)
    return buffer.getvalue()


def test_images_of_a_folder_are_decoded_and_embedded(pictures: tuple[Path, Model, dict]) -> None:
    folder, model, summary = pictures
    assert (summary["memory"], summary["test"]) == (18, 6)
    (batch,) = model.input.batches([str(folder / "images" / "left")])
    assert [Path(name).name for name in batch.names] == sorted(f"{i}.png" for i in range(12))
    pixels = np.stack([np.asarray(Image.open(name)) for name in batch.names])[:, None]
    np.testing.assert_array_equal(batch.values, pixels)
    encoder, _ = Encoder.load(folder / "encoder")
    np.testing.assert_allclose(model.input.vectors(batch), embed(encoder, pixels)[0], atol=1e-6)
    examples = [model.examples.image(row).tolist() for row in range(18)]
    assert sum(examples.count(image.tolist()) for image in pixels[:, 0]) == 9
    large = Pictures(picture_encoder()).examples(Batch(["a"], np.zeros((1, 1, 200, 100), np.uint8)))
    assert large.images.shape == (1, 1, 67, 34)  # subsampled
    assert (model.classifier.classes_[model.classifier.memory_.y[:9]] == "left").all()


def test_images_are_resized_and_converted_to_the_channels_of_the_encoder() -> None:
    image = Pictures(picture_encoder()).decode(encoded(Image.new("RGB", (40, 20), (200, 10, 10))), "red.png")
    assert image.shape == (1, 8, 8)
    assert (image == 67).all()  # 0.299·200 + 0.701·10, by ITU-R 601
    colour = Pictures(Encoder("convnet", (3, 8, 8), 0, [4, 4, 4], embed_dim=3, depth=1))
    assert colour.decode(encoded(Image.new("L", (8, 8), 9)), "grey").tolist() == np.full((3, 8, 8), 9).tolist()


def test_exif_orientation() -> None:
    config = Pictures(picture_encoder())
    pixels = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)
    rotated = {  # stored pixels by orientation
        1: pixels, 2: pixels[:, ::-1], 3: pixels[::-1, ::-1], 4: pixels[::-1],
        5: pixels.T, 6: np.rot90(pixels), 7: pixels[::-1, ::-1].T, 8: np.rot90(pixels, -1),
    }  # fmt: skip
    for orientation, stored in rotated.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        for kind in ("PNG", "TIFF", "WEBP"):
            lossless = {"lossless": True} if kind == "WEBP" else {}
            data = encoded(Image.fromarray(np.ascontiguousarray(stored)), kind, exif=exif, **lossless)
            np.testing.assert_allclose(config.decode(data, kind)[0], pixels, atol=1, err_msg=f"{kind} {orientation}")
    exif[0x0112] = 99
    for odd in (exif, b"Exif\0\0damaged"):
        assert (config.decode(encoded(Image.fromarray(pixels), exif=odd), "odd") == pixels).all()


def test_image_modes_and_formats() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    colour, grey = Image.fromarray(pixels), Image.fromarray(pixels[:, :, 0])
    np.testing.assert_array_equal(decode(encoded(colour), "x"), pixels.transpose(2, 0, 1))
    assert decode(encoded(colour), "x", size=(10, 3)).shape == (3, 10, 3)
    assert all(decode(encoded(grey.convert(mode)), "x").shape == (1, 5, 7) for mode in ("L", "LA", "1"))
    read = Pictures(picture_encoder()).decode
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)
    grey = Image.fromarray(pixels)
    for data in (
        *(encoded(grey.convert(mode)) for mode in ("L", "LA", "P", "RGB", "RGBA")),
        encoded(grey.convert("P"), "GIF", save_all=True, append_images=[grey.rotate(90).convert("P")]),
        encoded(grey.convert("CMYK"), "TIFF"),
    ):
        np.testing.assert_allclose(read(data, "x")[0], pixels, atol=1)
    for data, message in (
        (encoded(Image.fromarray(pixels.astype(np.uint16))), "I;16 pixels; convert"),
        *((encoded(grey.convert(mode), "TIFF"), f"{mode} pixels; convert the images to 8 bits") for mode in "IF"),
        (encoded(grey, "ICO"), "no readable image"),  # not an accepted format
    ):
        with pytest.raises(InputError, match=message):
            read(data, "x")


def test_images_are_read_in_batches(pictures: tuple[Path, Model, dict]) -> None:
    folder, model, _ = pictures
    batches = list(model.input.batches([str(folder / "images"), str(folder / "images/left/0.png")], size=6))
    assert [(len(batch.names), len(batch.values)) for batch in batches] == [*[(6, 6)] * 4, (1, 1)]
    names = [name for batch in batches for name in batch.names]
    assert names[:24] == sorted(map(str, (folder / "images").rglob("*.png")))
    np.testing.assert_array_equal(batches[-1].values[0], batches[0].values[0])
