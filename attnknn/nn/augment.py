"""Batched augmentation of image tensors (B, C, H, W), uint8 or float32, with values 0 … 255; one draw per image."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Num
from torch import Generator, Tensor


def _uniform(n: int, low: float, high: float, x: Tensor, generator: Generator) -> Tensor:
    """Draw n values from [low, high) on the CPU, so that they are the same for every device."""
    return (low + (high - low) * torch.rand(n, generator=generator)).to(x.device)


def random_crop(x: Num[Tensor, "B C H W"], padding: int, generator: Generator) -> Num[Tensor, "B C H W"]:
    """Shift each image by up to `padding` pixels in both directions, with reflection padding."""
    b, c, h, w = x.shape
    # By indices: F.pad's reflection does not support uint8 on every device.
    dy, dx = torch.randint(-padding, padding + 1, (2, b, 1), generator=generator).to(x.device)
    rows = _reflect(torch.arange(h, device=x.device) + dy, h)  # (B, H)
    columns = _reflect(torch.arange(w, device=x.device) + dx, w)  # (B, W)
    images = torch.arange(b, device=x.device)[:, None, None, None]
    channels = torch.arange(c, device=x.device)[None, :, None, None]
    return x[images, channels, rows[:, None, :, None], columns[:, None, None, :]]


def _reflect(index: Tensor, size: int) -> Tensor:
    """Reflect indices outside 0 … size − 1 at the edges, without repeating the edge."""
    period = max(2 * (size - 1), 1)
    index = index.remainder(period)
    return torch.where(index < size, index, period - index)


def cut_out(x: Num[Tensor, "B C H W"], size: int, generator: Generator) -> Num[Tensor, "B C H W"]:
    """Fill a random square of side `size` in each image with its mean colour (Cutout, DeVries & Taylor 2017)."""
    b, _, h, w = x.shape
    inside = []
    for side in (h, w):
        start = torch.randint(0, max(1, side - size + 1), (b, 1), generator=generator).to(x.device)
        position = torch.arange(side, device=x.device)
        inside.append((position >= start) & (position < start + size))  # (B, side)
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square, x.float().mean(dim=(2, 3), keepdim=True).to(x.dtype), x)


def random_rotation(x: Num[Tensor, "B C H W"], degrees: float, generator: Generator) -> Float[Tensor, "B C H W"]:
    """Rotate each image about its centre by an angle from [−degrees, degrees); bilinear, edges replicated."""
    angle = _uniform(len(x), -degrees, degrees, x, generator) * math.pi / 180
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # affine_grid's height and width are both 2; the ratios make it a rotation in pixels.
    h, w = x.shape[2:]
    affine = torch.stack([cos, -sin * (h / w), zero, sin * (w / h), cos, zero], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(affine, list(x.shape), align_corners=False)
    return F.grid_sample(x.float(), grid, padding_mode="border", align_corners=False)


def random_jitter(x: Num[Tensor, "B C H W"], strength: float, generator: Generator) -> Float[Tensor, "B C H W"]:
    """Scale brightness, contrast and saturation of each image by factors from [1 − strength, 1 + strength)."""
    b = len(x)
    brightness, contrast, saturation = (
        _uniform(b, 1 - strength, 1 + strength, x, generator)[:, None, None, None] for _ in range(3)
    )
    x = x.float() * brightness
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x = mean + (x - mean) * contrast
    grey = x.mean(dim=1, keepdim=True)
    return (grey + (x - grey) * saturation).clamp(0, 255)


def random_resized_crop(x: Num[Tensor, "B C H W"], share: float, generator: Generator) -> Float[Tensor, "B C H W"]:
    """Resize a random crop of each image to its size, bilinear (Szegedy et al. 2015).

    The crop's share of the area is from [share, 1), the logarithm of its ratio of width to height from that of 3/4 to
    that of 4/3; sides are at most those of the image.
    """
    b = len(x)
    area, ratio = _uniform(b, share, 1.0, x, generator), _uniform(b, -1.0, 1.0, x, generator) * math.log(4 / 3)
    sides = torch.stack([area.sqrt() * (ratio / 2).exp(), area.sqrt() * (-ratio / 2).exp()], dim=1).clamp(max=1)
    # The grid's coordinates are −1 … 1 from edge to edge, so that a crop of half the width has half of them.
    offset = (1 - sides) * _uniform(2 * b, -1.0, 1.0, x, generator).view(b, 2)
    affine = torch.cat([torch.diag_embed(sides), offset[:, :, None]], dim=2)
    grid = F.affine_grid(affine, list(x.shape), align_corners=False)
    return F.grid_sample(x.float(), grid, padding_mode="border", align_corners=False)


def random_grey(x: Num[Tensor, "B C H W"], probability: float, generator: Generator) -> Float[Tensor, "B C H W"]:
    """Replace the channels of each image by their mean, with this probability."""
    grey = _uniform(len(x), 0.0, 1.0, x, generator) < probability
    return torch.where(grey[:, None, None, None], x.float().mean(dim=1, keepdim=True), x.float())


def augment(
    x: Num[Tensor, "B C H W"],
    generator: Generator,
    crop: int = 0,
    mirrored: Bool[Tensor, " B"] | None = None,
    jitter: float = 0.0,
    rotate: float = 0.0,
    cutout: int = 0,
    resized_crop: float = 0.0,
    grey: float = 0.0,
) -> Num[Tensor, "B C H W"]:
    """Augment each image; a transform of strength 0 is skipped and draws no random numbers.

    Args:
        x: images with values 0 … 255.
        generator: a CPU generator; the same state gives the same views on every device.
        crop: pixels of reflection padding before a random crop to the original size.
        mirrored: mask of the images to flip horizontally; None for none.
        jitter: strength of brightness, contrast and saturation jitter.
        rotate: maximum angle in degrees.
        cutout: side of the Cutout square.
        resized_crop: minimum share of the area of a random crop, resized to the original size.
        grey: probability of greyscale.
    """
    if resized_crop:
        x = random_resized_crop(x, resized_crop, generator)
    if crop:
        x = random_crop(x, crop, generator)
    if mirrored is not None:
        x = torch.where(mirrored[:, None, None, None], x.flip(-1), x)
    if rotate:
        x = random_rotation(x, rotate, generator)
    if jitter:
        x = random_jitter(x, jitter, generator)
    if grey:
        x = random_grey(x, grey, generator)
    if cutout:
        x = cut_out(x, cutout, generator)
    return x
