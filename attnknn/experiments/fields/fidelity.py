"""How true reconstructions are: PSNR of pixels that a field was not shown, beside what needs no field."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from attnknn.core.artifacts import BANK, TEST, Split
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.fields.contexts import nearest_filled
from attnknn.experiments.fields.encoding import as_values
from attnknn.experiments.fields.latents import MODES, Latents, known_points
from attnknn.experiments.fields.objectives import LEAST, psnr
from attnknn.experiments.fields.perceiver import Field

MEAN, NEAREST, NEIGHBOURS = "mean image", "nearest point", "nearest images"  # reconstructions without a field
BASELINES, _NEAREST_IMAGES = (MEAN, NEAREST, NEIGHBOURS), 10
IMAGE, KNOWN = "image", "known"  # what is to be reconstructed, and from what
UNKNOWN = torch.tensor([0.72, 0.82, 0.94])  # a blue, for pixels that are not known


def image_errors(
    made: Float[Tensor, "N L C"], values: Float[Tensor, "N L C"], at: Int[Tensor, "N P"]
) -> Float[np.ndarray, " N"]:
    """Mean squared error of each image's pixels that were not shown; where all were shown, of all."""
    hidden = torch.ones(values.shape[:2])
    if at.shape[1] < values.shape[1]:
        hidden.scatter_(1, at, 0.0)
    wrong = (made.float() - values).square().mean(2) * hidden
    return (wrong.sum(1) / hidden.sum(1)).double().numpy()


def neighbours_filled(
    values: Float[Tensor, "N L C"], at: Int[Tensor, "N P"], bank: Float[Tensor, "M L C"], k: int = _NEAREST_IMAGES
) -> Float[Tensor, "N L C"]:
    """The mean of the k images of the bank that are nearest where an image is shown: kNN as reconstruction."""
    known = torch.zeros(values.shape[:2]).scatter_(1, at, 1.0)
    squares, flat, made = bank.square().sum(2), bank.flatten(1), []  # (M, L), (M, L·C)
    for some in torch.arange(len(values)).split(250):
        mask = known[some]
        # Σₗ maskₗ·‖xₗ − bₗ‖², less what is the same for all b.
        apart = mask @ squares.T - 2 * (values[some] * mask[..., None]).flatten(1) @ flat.T  # (B, M)
        near = apart.topk(min(k, len(bank)), largest=False).indices
        made.append(torch.stack([bank[of].mean(0) for of in near]))
    return torch.cat(made)


def psnr_table(
    errors: Mapping[tuple[str, str], Float[np.ndarray, " N"]], resamples: int, confidence: float, seed: int
) -> Table:
    """PSNR of the mean error over images, and what it is above each reconstruction without a field.

    Args:
        errors: by source, a variant or one of `BASELINES`, and mode; of the same images.

    Returns:
        Rows of mode, source, baseline ("" for the PSNR itself), value (dB), low, high; intervals are those of the
        bootstrap over images, the same images for all.
    """
    n = len(next(iter(errors.values())))
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=resamples) / n  # (R, N)
    own = {key: psnr(float(of.mean())) for key, of in errors.items()}
    drawn = {key: -10 * np.log10(np.maximum(counts @ of, LEAST)) for key, of in errors.items()}
    rows: Table = []
    for source, mode in errors:
        for baseline in ("", *BASELINES):
            against = (baseline, mode)
            if baseline and (against not in errors or source in BASELINES):
                continue
            value = own[source, mode] - (own[against] if baseline else 0)
            values = drawn[source, mode] - (drawn[against] if baseline else 0)
            low, high = metrics.interval(values, confidence)
            row = {"mode": mode, "source": source, "baseline": baseline}
            rows.append({**row, "value": value, "low": low, "high": high})
    return rows


def reconstructions(
    split: Split,
    fields: Path,
    latents: Path,
    variants: Sequence[str],
    pictures: int,
    device: str,
    share: float,
    least: int,
    seed: int,
) -> tuple[dict[tuple[str, str], Float[np.ndarray, " N"]], dict[tuple[str, str], UInt8[np.ndarray, "P H W 3"]]]:
    """Errors of every test image, and some reconstructed, by source and mode: the first of each class, then the second.

    Sources are the variants, `MEAN` of the bank's images and, where points are known, `NEAREST` and `NEIGHBOURS`; of
    pictures also `IMAGE` itself and `KNOWN`, the points.
    """
    rows, (_, height, width) = split.rows(TEST), split.x.shape[1:]
    y = pd.Series(split.y[rows])
    some = torch.from_numpy(np.lexsort((y, y.groupby(y).cumcount()))[:pictures])
    values = as_values(torch.from_numpy(np.array(split.x[rows])))  # (N, L, C)
    bank = as_values(torch.from_numpy(np.array(split.x[split.rows(BANK)])))
    mean = bank.mean(0).expand_as(values)
    errors: dict[tuple[str, str], np.ndarray] = {}
    drawn: dict[tuple[str, str], np.ndarray] = {}

    def keep(source: str, mode: str, made: Tensor, at: Tensor) -> None:
        errors[source, mode] = image_errors(made, values, at)
        draw(source, mode, made)

    def draw(source: str, mode: str, made: Tensor) -> None:
        images = made[some].unflatten(1, (height, width)).expand(-1, -1, -1, 3)
        drawn[source, mode] = (images * 255).round().to(torch.uint8).numpy()

    for mode in MODES:
        at = known_points(mode, len(split.x), height * width, share, least, seed)[torch.from_numpy(rows)]
        draw(IMAGE, mode, values)
        keep(MEAN, mode, mean, at)
        if at.shape[1] < height * width:
            hidden = torch.ones(values.shape[:2], dtype=torch.bool).scatter_(1, at, False)
            draw(KNOWN, mode, torch.where(hidden[..., None], UNKNOWN, values))
            keep(NEAREST, mode, nearest_filled(values, at, height, width), at)
            keep(NEIGHBOURS, mode, neighbours_filled(values, at, bank), at)
        for name in variants:
            field = Field.load(fields / name / "field")[0].to(device)
            tokens = Latents.load(latents / name / mode).tokens[rows]
            with torch.inference_mode():
                parts = [field.decode(torch.from_numpy(of).float().to(device)).cpu() for of in _parts(tokens)]
            keep(name, mode, torch.cat(parts).clamp(0, 1), at)
    return errors, drawn


def _parts(tokens: np.ndarray, size: int = 250) -> Iterator[np.ndarray]:
    return (np.array(tokens[start : start + size]) for start in range(0, len(tokens), size))


def strips(pictures: Mapping[tuple[str, str], UInt8[np.ndarray, "P H W 3"]]) -> tuple[list[str], Image.Image]:
    """One picture, an image a row: names of its columns, `<mode>:<source>`, and the pictures side by side, framed."""
    columns = [f"{mode}:{source}" for source, mode in pictures]
    framed = {at: np.pad(of, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255) for at, of in pictures.items()}
    return columns, Image.fromarray(np.concatenate([np.concatenate(list(of)) for of in framed.values()], axis=1))
