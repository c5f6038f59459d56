"""Each augmentation against a slow oracle on small images of odd sizes that are not square."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from attnknn.nn.augment import (
    augment,
    cut_out,
    random_crop,
    random_grey,
    random_jitter,
    random_resized_crop,
    random_rotation,
)

PARTS = {"crop": 2, "jitter": 0.4, "rotate": 30.0, "cutout": 3, "resized_crop": 0.3, "grey": 0.5}


def gen(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(b: int = 5, c: int = 3, h: int = 7, w: int = 11, seed: int = 1) -> Tensor:
    return torch.randint(256, (b, c, h, w), generator=gen(seed), dtype=torch.uint8)


def drawn(b: int, seed: int = 0) -> np.ndarray:
    """The first b numbers from [0, 1) that a generator of this seed gives."""
    return torch.rand(b, generator=gen(seed)).double().numpy()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_everything_off_is_the_identity_and_draws_nothing(dtype: torch.dtype) -> None:
    x, generator = images().to(dtype), gen()
    before = generator.get_state()
    view = augment(x, generator)
    assert view.dtype == dtype
    assert torch.equal(view, x)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    ("part", "draws"),
    [
        *(("crop", random_crop), ("jitter", random_jitter), ("rotate", random_rotation), ("cutout", cut_out)),
        *(("resized_crop", random_resized_crop), ("grey", random_grey)),
    ],
)
def test_one_part_alone_is_that_part(part: str, draws) -> None:
    x, strength = images(), PARTS[part]
    alone = draws(x, strength, gen())
    assert torch.equal(augment(x, gen(), **{part: strength}), alone)
    assert not torch.equal(alone.float(), x.float())


@pytest.mark.parametrize(("h", "w", "padding"), [(7, 11, 2), (13, 5, 1), (3, 5, 7), (1, 3, 2)])
def test_crop_is_a_window_of_the_image_padded_by_its_mirror(h: int, w: int, padding: int) -> None:
    """Among 1000 copies of an image of different numbers every shift turns up, and nothing else."""
    image = torch.arange(2 * h * w).reshape(2, h, w).to(torch.uint8)
    padded = np.pad(image.numpy(), [(0, 0), (padding, padding), (padding, padding)], mode="reflect")
    shifts = range(2 * padding + 1)
    windows = {padded[:, dy : dy + h, dx : dx + w].tobytes() for dy in shifts for dx in shifts}
    views = random_crop(image.expand(1000, -1, -1, -1), padding, gen())
    assert views.dtype == torch.uint8
    assert {view.numpy().tobytes() for view in views} == windows


def test_the_images_that_are_told_are_mirrored_left_to_right() -> None:
    x = images(5)
    view = augment(x, gen(), mirrored=torch.tensor([True, False, True, False, False]))
    assert torch.equal(view[[0, 2]], x[[0, 2]].flip(-1))
    assert torch.equal(view[[1, 3, 4]], x[[1, 3, 4]])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_cutout_paints_one_square_somewhere_inside(dtype: torch.dtype) -> None:
    """Of 1000 copies, each has a 3×3 square of the image's mean, and every place turns up."""
    image = images(1, 2, 5, 7).to(dtype)
    views = cut_out(image.expand(1000, -1, -1, -1), 3, gen())
    mean = image.float().mean((2, 3)).to(dtype)[0, :, None, None]
    expected = set()
    for top, left in itertools.product(range(3), range(5)):
        painted = image[0].clone()
        painted[:, top : top + 3, left : left + 3] = mean
        expected.add(painted.numpy().tobytes())
    assert {view.numpy().tobytes() for view in views} == expected
    assert torch.equal(cut_out(image, 99, gen())[0], mean.expand_as(image[0])), "a larger square paints it all"


@pytest.mark.parametrize(("h", "w"), [(7, 7), (7, 11), (13, 5)])
def test_rotation_against_scipy(h: int, w: int) -> None:
    """Bilinear, about the centre, in pixels: a circle stays a circle where height and width differ."""
    from scipy.ndimage import affine_transform

    x = images(5, 3, h, w)
    views = random_rotation(x, 60.0, gen()).numpy()
    centre = np.array([h - 1, w - 1]) / 2
    for image, view, u in zip(x.numpy(), views, drawn(5), strict=True):
        angle = math.radians(60 * (2 * u - 1))
        turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        for plane, rotated in zip(image.astype(float), view, strict=True):
            expected = affine_transform(plane, turn, centre - turn @ centre, order=1, mode="nearest")
            np.testing.assert_allclose(rotated, expected, atol=0.02)


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_by_hand(channels: int) -> None:
    """Brightness, then contrast about the image's mean, then saturation about each pixel's grey."""
    x, strength = images(5, channels, 3, 5), 0.4
    views = random_jitter(x, strength, gen()).numpy()
    brightness, contrast, saturation = 1 - strength + 2 * strength * drawn(15).reshape(3, 5)
    for image, view, b, c, s in zip(x.double().numpy(), views, brightness, contrast, saturation, strict=True):
        bright = image * b
        pixels = bright.mean() + (bright - bright.mean()) * c
        grey = pixels.mean(0)
        np.testing.assert_allclose(view, (grey + (pixels - grey) * s).clip(0, 255), rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize(("h", "w"), [(7, 11), (13, 5)])
def test_resized_crop_by_hand(h: int, w: int) -> None:
    """In an image of its own pixels' coordinates, bilinear interpolation reads off where each pixel came from."""
    b, share = 500, 0.2
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    views = random_resized_crop(torch.stack([rows, columns]).expand(b, -1, -1, -1), share, gen()).numpy()
    u = drawn(4 * b)
    area, ratio, start = share + (1 - share) * u[:b], (4 / 3) ** (2 * u[b : 2 * b] - 1), u[2 * b :].reshape(b, 2)
    for view, a, r, (left, top) in zip(views, area, ratio, start, strict=True):
        for axis, (size, side, offset) in enumerate(((h, (a / r) ** 0.5, top), (w, (a * r) ** 0.5, left))):
            side = min(side, 1)
            expected = (side * (np.arange(size) + 0.5) / size + (1 - side) * offset) * size - 0.5
            expected = np.broadcast_to(expected[:, None] if axis == 0 else expected, (h, w))
            np.testing.assert_allclose(view[axis], expected.clip(0, size - 1), atol=1e-3)


def test_grey_images_have_the_mean_of_their_channels() -> None:
    x = images(500, 3, 2, 3)
    views, grey = random_grey(x, 0.2, gen()).numpy(), drawn(500) < 0.2
    np.testing.assert_array_equal(views[~grey], x.numpy()[~grey])
    np.testing.assert_allclose(views[grey], np.broadcast_to(x.numpy()[grey].mean(1, keepdims=True), views[grey].shape))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("shape", [(5, 3, 7, 11), (3, 1, 8, 8), (2, 3, 5, 3)])
def test_shape_dtype_and_range(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Crop, flip and cutout keep the type; rotation and jitter make new ones, so they give float32."""
    x = images(*shape).to(dtype)
    moved = augment(x, gen(), crop=2, mirrored=torch.ones(len(x), dtype=torch.bool), cutout=2)
    assert (moved.dtype, moved.shape) == (dtype, shape)
    view = augment(x, gen(), **PARTS)
    assert (view.dtype, view.shape) == (torch.float32, shape)
    assert view.min() >= 0
    assert view.max() <= 255
    torch.testing.assert_close(view, augment(images(*shape), gen(), **PARTS))


def test_the_state_decides_and_images_have_draws_of_their_own() -> None:
    x, others, generator = images(), images(seed=2), gen(4)
    first, second = augment(x, generator, **PARTS), augment(x, generator, **PARTS)
    assert torch.equal(x, images()), "the input is not changed"
    assert torch.equal(first, augment(x, gen(4), **PARTS))
    assert not torch.equal(first, second)
    copies = augment(images(1).expand(5, -1, -1, -1), gen(), **PARTS)
    assert all(not torch.equal(copies[i], copies[j]) for i in range(5) for j in range(i))
    others[2] = x[2]
    assert torch.equal(first[2], augment(others, gen(4), **PARTS)[2]), "images do not mix"
