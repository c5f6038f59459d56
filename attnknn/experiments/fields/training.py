"""The loop that trains a field, read top to bottom: to reconstruct images of the bank, and to know them again."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor, nn

from attnknn.core.device import compile_network
from attnknn.core.errors import require
from attnknn.experiments.fields.contexts import draw_points, points_of, shown
from attnknn.experiments.fields.encoding import as_values, reconstruct
from attnknn.experiments.fields.objectives import alike, contrast, psnr
from attnknn.experiments.fields.perceiver import Field
from attnknn.nn.augment import augment as augment_images
from attnknn.nn.checkpoint import fingerprint, load_state, save_state, source_code
from attnknn.nn.optim import AdamW, StackedMuon, learning_rate

Row = dict[str, float]


def train_field(
    field: Field,
    x: UInt8[np.ndarray, "N C H W"],
    x_val: UInt8[np.ndarray, "M C H W"],
    *,
    sampler: str,
    share: float,
    least: int,
    epochs: int,
    batch_size: int,
    lr: float,
    muon: float,
    warmup: float,
    grad_clip: float,
    decoded: int,
    contrast_weight: float,
    temperature: float,
    soft: float,
    augment: dict[str, Any],
    bf16: bool,
    compile: bool,
    seed: int,
    device: str = "cpu",
    resume: Path | None = None,
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Train a field on images x: mean squared error of what it decodes, plus a weight times `objectives.contrast`.

    Muon moves the matrices and Adam the rest, rates by a half cosine after a linear warm-up, gradients clipped. The
    field is left as the last epoch made it: nothing is chosen by labels, of which it sees none. Everything random in an
    epoch follows from (seed, epoch), so a run that was killed and resumed ends with the same bytes as one that was not.

    Args:
        x: the images that are learnt from.
        x_val: those whose PSNR is told after each epoch.
        sampler, share, least: of the contexts; see `contexts.draw_points` and `contexts.points_of`.
        lr, muon: highest rates, of Adam and of Muon.
        decoded: pixels drawn in each step to be decoded, the same for all images of a batch; 0 decodes all.
        contrast_weight: of the contrastive loss between the mean latents of two views of each image: `augment` of it,
            in a context of its own; 0 leaves it out, and the views too.
        temperature: τ of that loss.
        soft: scale of its targets (`objectives.alike`); 0 is InfoNCE itself.
        augment: keyword arguments of `images.augment`, and `flip`, by chance. The first view is decoded.
        resume: file that holds the state after each epoch, for the caller to remove once the result is safe; or None.

    Returns:
        A row an epoch: epoch, loss, mse, val_psnr (dB) of pixels that are not shown, and contrast where there is one.

    Raises:
        InputError: the loss is no number any more.
    """
    pixels = x.shape[2] * x.shape[3]
    points = pixels if sampler == "full" else points_of(pixels, share, least)
    settings = (sampler, points, epochs, batch_size, lr, muon, warmup, grad_clip, decoded, contrast_weight)
    settings += (temperature, soft, augment, bf16, compile, seed, device, torch.get_num_threads(), torch.__version__)
    code = source_code("core", "nn", "experiments/fields")
    mark = fingerprint(x, x_val, *(t.numpy() for t in field.state_dict().values()), field.config, settings, code)
    field.to(device).train()
    matrices = field.matrices()
    by_muon = {id(matrix) for matrix in matrices}
    rest = [parameter for parameter in field.parameters() if id(parameter) not in by_muon]
    movers = [AdamW([{"params": rest}], betas=(0.9, 0.99)), StackedMuon(matrices, lr=muon)]
    peaks, nothing = (lr, muon), nn.Module()
    history = (load_state(resume, mark, field, nothing, movers, {}) if resume else None) or []
    encode = compile_network(field.encode, device) if compile else field.encode  # type: ignore[arg-type]
    data, batch = torch.from_numpy(x).to(device), min(batch_size, len(x))
    steps = max(1, len(x) // batch)
    at_val = draw_points(sampler, len(x_val), pixels, points, Generator().manual_seed(seed))

    def view(images: Tensor, generator: Generator) -> tuple[Float[Tensor, "B N C"], Int[Tensor, "B P"]]:
        if contrast_weight:
            flips = torch.rand(len(images), generator=generator).to(device) < 0.5 if augment["flip"] else None
            rest = {name: v for name, v in augment.items() if name != "flip"}
            images = augment_images(images, generator, mirrored=flips, **rest)
        return as_values(images), draw_points(sampler, len(images), pixels, points, generator).to(device)

    for epoch in range(len(history), epochs):
        generator = Generator().manual_seed(seed * 100_003 + epoch)
        order, sums = torch.randperm(len(x), generator=generator).to(device), torch.zeros(3)
        for i in range(steps):
            images = data[order[i * batch : (i + 1) * batch]]
            for mover, peak in zip(movers, peaks, strict=True):
                mover.param_groups[0]["lr"] = learning_rate(epoch * steps + i, epochs * steps, warmup, peak)
            values, at = view(images, generator)
            asked = torch.randperm(pixels, generator=generator)[:decoded].to(device) if decoded else None
            with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bf16):
                latents = encode(shown(values, at), at)
                made = field.decode(latents, asked)
                seen = None
                if contrast_weight:
                    other, at_other = view(images, generator)
                    seen = encode(shown(other, at_other), at_other).mean(1)
            mse = (made.float() - (values if asked is None else values[:, asked])).square().mean()
            apart = torch.zeros(())
            if seen is not None:
                targets = alike(as_values(images), soft) if soft else None
                apart = contrast(latents.mean(1), seen, temperature, targets)
            loss = mse + contrast_weight * apart
            field.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(field.parameters(), grad_clip)
            for mover in movers:
                mover.step()
            sums += torch.stack([part.detach().float().cpu() for part in (loss, mse, apart)])
        mean = (sums / steps).tolist()
        of_val = reconstruct(field, x_val, at_val, device, bf16)[1]
        require(
            math.isfinite(mean[0]) and math.isfinite(of_val),
            f"train_field: the loss is {mean[0]} in epoch {epoch + 1}, on val {of_val}; "
            f"lower lr ({lr}) or muon ({muon})",
        )
        row = {"epoch": epoch + 1, "loss": mean[0], "mse": mean[1], "val_psnr": psnr(of_val)}
        history.append(row | ({"contrast": mean[2]} if contrast_weight else {}))
        if resume is not None:
            save_state(resume, mark, field, nothing, movers, {}, history)
        if progress is not None:
            progress(row)
    field.eval()
    return history
