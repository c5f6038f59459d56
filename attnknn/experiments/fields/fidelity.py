"""Reconstruction quality: PSNR of pixels outside the context, beside reconstructions without a field."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from attnknn.core.artifacts import BANK, TEST
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.fields.contexts import fill_nearest, hidden_mask, pixel_values
from attnknn.experiments.fields.latents import MIN_MSE, Latents, psnr
from attnknn.experiments.fields.perceiver import Field
from attnknn.experiments.fields.representations import Representations
from attnknn.experiments.fields.variants import MODES

MEAN, NEAREST, NEIGHBOURS = "mean image", "nearest point", "nearest images"  # reconstructions without a field
BASELINES = (MEAN, NEAREST, NEIGHBOURS)
IMAGE, CONTEXT = "image", "known"  # the image itself, and the pixels of its context
_HIDDEN_COLOUR = torch.tensor([0.72, 0.82, 0.94])  # of pixels outside the context
_K = 10
Key = tuple[str, str]  # source and mode


def image_errors(
    reconstruction: Float[Tensor, "N L C"], values: Float[Tensor, "N L C"], idx: Int[Tensor, "N P"]
) -> Float[np.ndarray, " N"]:
    """Mean squared error of each image outside its context; of all pixels if the context is the whole image."""
    mask = hidden_mask(idx, values.shape[1])
    errors = (reconstruction.float() - values).square().mean(2) * mask
    return (errors.sum(1) / mask.sum(1)).double().numpy()


def fill_from_bank(
    values: Float[Tensor, "N L C"], idx: Int[Tensor, "N P"], bank: Float[Tensor, "M L C"], k: int = _K
) -> Float[Tensor, "N L C"]:
    """kNN reconstruction: the mean of the k bank images nearest by the pixels of the context."""
    context = torch.zeros(values.shape[:2]).scatter_(1, idx, 1.0)
    squares, flat, means = bank.square().sum(2), bank.flatten(1), []  # (M, L), (M, L·C)
    for rows in torch.arange(len(values)).split(250):
        mask = context[rows]
        # Σₗ maskₗ·‖xₗ − bₗ‖², without the term that is the same for all b.
        distances = mask @ squares.T - 2 * (values[rows] * mask[..., None]).flatten(1) @ flat.T  # (B, M)
        nearest = distances.topk(min(k, len(bank)), largest=False).indices
        means.append(torch.stack([bank[ids].mean(0) for ids in nearest]))
    return torch.cat(means)


def psnr_table(errors: Mapping[Key, Float[np.ndarray, " N"]], resamples: int, confidence: float, seed: int) -> Table:
    """PSNR of the mean error over images, and its differences to the baselines.

    Args:
        errors: of the same images, by source (a variant or one of `BASELINES`) and mode.

    Returns:
        Rows of mode, source, baseline ("" for the PSNR itself), value (dB), low, high; intervals by a bootstrap over
        images, the same resamples for all.
    """
    n = len(next(iter(errors.values())))
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(n, np.full(n, 1 / n), size=resamples) / n  # (R, N)
    values = {key: psnr(float(error.mean())) for key, error in errors.items()}
    samples = {key: -10 * np.log10(np.maximum(weights @ error, MIN_MSE)) for key, error in errors.items()}  # (R,)
    rows: Table = []
    for source, mode in errors:
        for baseline in ("", *BASELINES):
            against = (baseline, mode)
            if baseline and (against not in errors or source in BASELINES):
                continue
            value = values[source, mode] - (values[against] if baseline else 0)
            low, high = metrics.interval(samples[source, mode] - (samples[against] if baseline else 0), confidence)
            rows.append(
                {"mode": mode, "source": source, "baseline": baseline, "value": value, "low": low, "high": high}
            )
    return rows


def reconstructions(
    representations: Representations, fields: Path, variants: Sequence[str], pictures: int, device: str
) -> tuple[dict[Key, Float[np.ndarray, " N"]], dict[Key, UInt8[np.ndarray, "P H W 3"]]]:
    """Errors of all test images, and `pictures` of them reconstructed (the first of each class, then the second, …).

    Sources of errors are the variants and `BASELINES`; of pictures also `IMAGE` and `CONTEXT`. `CONTEXT`, `NEAREST` and
    `NEIGHBOURS` exist for sparse contexts only.
    """
    split = representations.split
    rows, (_, height, width) = split.rows(TEST), split.x.shape[1:]
    y = pd.Series(split.y[rows])
    chosen = torch.from_numpy(np.lexsort((y, y.groupby(y).cumcount()))[:pictures])
    values, bank = (pixel_values(torch.from_numpy(np.array(split.x[ids]))) for ids in (rows, split.rows(BANK)))
    errors: dict[Key, np.ndarray] = {}
    images: dict[Key, np.ndarray] = {}

    def draw(source: str, mode: str, reconstruction: Tensor) -> None:
        rgb = reconstruction[chosen].unflatten(1, (height, width)).expand(-1, -1, -1, 3)
        images[source, mode] = (rgb * 255).round().to(torch.uint8).numpy()

    for mode in MODES:
        idx = representations.context(mode)[torch.from_numpy(rows)]
        draw(IMAGE, mode, values)
        sources = {MEAN: bank.mean(0).expand_as(values)}
        if idx.shape[1] < height * width:
            sources[CONTEXT] = torch.where(hidden_mask(idx, height * width).bool()[..., None], _HIDDEN_COLOUR, values)
            sources[NEAREST] = fill_nearest(values, idx, height, width)
            sources[NEIGHBOURS] = fill_from_bank(values, idx, bank)
        for name in variants:
            tokens = Latents.load(representations.latents / name / mode).tokens[rows]
            sources[name] = _decode(fields / name / "field", tokens, device)
        for source, reconstruction in sources.items():
            draw(source, mode, reconstruction)
            if source != CONTEXT:
                errors[source, mode] = image_errors(reconstruction, values, idx)
    return errors, images


@torch.inference_mode()
def _decode(folder: Path, tokens: np.ndarray, device: str) -> Tensor:
    """Reconstructions (N, L, C) by a saved field from latents, in batches."""
    field = Field.load(folder)[0].to(device)
    batches = torch.from_numpy(np.array(tokens)).split(250)
    return torch.cat([field.decode(batch.float().to(device)).cpu() for batch in batches]).clamp(0, 1)


def image_grid(pictures: Mapping[Key, UInt8[np.ndarray, "P H W 3"]]) -> tuple[list[str], Image.Image]:
    """All pictures in one: a row per image, a column per `<mode>:<source>`; and the names of the columns."""
    columns = [f"{mode}:{source}" for source, mode in pictures]
    frame = ((0, 0), (1, 1), (1, 1), (0, 0))
    strips = [np.concatenate(list(np.pad(images, frame, constant_values=255))) for images in pictures.values()]
    return columns, Image.fromarray(np.concatenate(strips, axis=1))
