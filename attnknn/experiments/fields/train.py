"""Train a field on the bank's images: reconstruction, and a contrastive loss between two views."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor, nn

from attnknn.core.artifacts import BANK, VAL, Split
from attnknn.core.device import autocast, compile_network, use_device
from attnknn.core.errors import require
from attnknn.core.progress import epoch_progress
from attnknn.experiments.fields.contexts import context_size, gather_pixels, pixel_values, sample_pixels
from attnknn.experiments.fields.latents import psnr, reconstruction_error
from attnknn.experiments.fields.perceiver import Field, FieldConfig
from attnknn.nn.augment import augment as augment_images
from attnknn.nn.checkpoint import fingerprint, load_state, save_state, source_code
from attnknn.nn.optim import AdamW, StackedMuon, learning_rate

Row = dict[str, float]
_LOOP = ("share", "warmup", "grad_clip", "temperature", "augment")


def info_nce(a: Float[Tensor, "B D"], b: Float[Tensor, "B D"], temperature: float) -> Float[Tensor, ""]:
    """Symmetric InfoNCE (van den Oord et al. 2018; CLIP) of two views of each image:

        −½·meanᵢ (log(exp sᵢᵢ / Σⱼ exp sᵢⱼ) + log(exp sᵢᵢ / Σⱼ exp sⱼᵢ))

    with s the cosines of aᵢ and bⱼ over τ.
    """
    logits = F.normalize(a.float(), dim=1) @ F.normalize(b.float(), dim=1).T / temperature  # (B, B)
    target = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def train_variant(
    split: Split,
    variant: str,
    settings: Mapping[str, Any],
    seed: int,
    device: str,
    threads: int,
    resume: Path | None,
    start: Path | None = None,
    track: Callable[[str, int], AbstractContextManager[Callable[[Row], None]]] = epoch_progress,
) -> tuple[Field, dict[str, Any]]:
    """Train one variant of `variants.VARIANTS` on the images of the bank.

    Args:
        settings: the block `train_field` of params.yaml.
        resume: checkpoint; see `train_field`.
        start: folder of a field to fine-tune, by `settings["finetune"]`; None trains from scratch.
        track: a context manager (name, epochs) whose function is called with the row of each epoch.

    Returns:
        The field, and its summary: size, share, least, bf16 and history.
    """
    device, size = use_device(device, threads), settings["sizes"][settings["size"]]
    shape = {f.name: size[f.name] for f in fields(FieldConfig) if f.name in size}
    loop = {key: size[key] for key in size.keys() - shape.keys()} | {key: settings[key] for key in _LOOP}
    if start is None:
        torch.manual_seed(seed)
        channels, height, width = split.x.shape[1:]
        field = Field(FieldConfig(height=height, width=width, channels=channels, seed=seed, **shape))
    else:
        field, _ = Field.load(start)
        finetune = settings["finetune"]
        loop["epochs"] = max(1, round(finetune["epochs"] * size["epochs"]))
        loop |= {rate: finetune["rate"] * size[rate] for rate in ("lr", "muon")}
    loop["views"] = variant.endswith(("_nce", "_views"))
    loop["contrast_weight"] = settings["contrast_weight"] if variant.endswith("_nce") else 0.0
    loop["sampler"] = "full" if variant.startswith("full") else settings["sampler"]
    images = split.x[split.rows(BANK)], split.x[split.rows(VAL)]
    with track(f"field {variant} {seed}", loop["epochs"]) as show:
        history = train_field(field, *images, **loop, seed=seed, device=device, resume=resume, progress=show)
    context = {"share": settings["share"], "least": size["least"]}
    return field, {"size": settings["size"], **context, "bf16": size["bf16"], "history": history}


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
    views: bool,
    contrast_weight: float,
    temperature: float,
    augment: dict[str, Any],
    bf16: bool,
    compile: bool,
    seed: int,
    device: str = "cpu",
    resume: Path | None = None,
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Minimise the mean squared error of decoded pixels, plus `contrast_weight` times `info_nce`.

    Muon optimises the matrices and AdamW the rest, with linear warm-up, cosine decay and gradient clipping. No label is
    used and no epoch is selected. All randomness of an epoch follows from (seed, epoch), so a resumed run ends with the
    same bytes as an uninterrupted one.

    Args:
        x: training images.
        x_val: images whose PSNR is reported after each epoch.
        sampler, share, least: contexts; see `contexts.sample_pixels` and `contexts.context_size`.
        lr, muon: peak learning rates of AdamW and of Muon.
        decoded: pixels decoded in each step, the same random subset for the whole batch; 0 decodes all.
        views: train on augmented images.
        contrast_weight: weight of the loss between the mean latents of two views of each image, each with a context of
            its own. At 0 the views are drawn alike and the second is not encoded: the control of a contrastive loss.
        temperature: τ of that loss.
        augment: keyword arguments of `nn.augment.augment`, and `flip`: mirror half of the images. The first view is
            the one that is decoded.
        resume: checkpoint, written after each epoch; the caller deletes it.

    Returns:
        A row per epoch: epoch, loss, mse, val_psnr (dB, pixels outside the context), and contrast if it has weight.

    Raises:
        InputError: the loss is not finite.
    """
    pixels = x.shape[2] * x.shape[3]
    points = pixels if sampler == "full" else context_size(pixels, share, least)
    settings = (sampler, points, epochs, batch_size, lr, muon, warmup, grad_clip, decoded, views, contrast_weight)
    settings += (temperature, augment, bf16, compile, seed, device, torch.get_num_threads(), torch.__version__)
    code = source_code("core", "nn", "experiments/fields")
    mark = fingerprint(x, x_val, *(t.numpy() for t in field.state_dict().values()), field.config, settings, code)
    field.to(device).train()
    matrices = field.matrices()
    by_muon = {id(matrix) for matrix in matrices}
    rest = [parameter for parameter in field.parameters() if id(parameter) not in by_muon]
    optimisers = [AdamW([{"params": rest}], betas=(0.9, 0.99)), StackedMuon(matrices, lr=muon)]
    no_loss_weights = nn.Module()
    state = field, no_loss_weights, optimisers, {}
    history = (load_state(resume, mark, *state) if resume else None) or []
    encode = compile_network(field.encode, device) if compile else field.encode  # type: ignore[arg-type]
    data, batch = torch.from_numpy(x).to(device), min(batch_size, len(x))
    steps = max(1, len(x) // batch)
    val_idx = sample_pixels(sampler, len(x_val), pixels, points, Generator().manual_seed(seed))

    def view(images: Tensor, generator: Generator) -> tuple[Float[Tensor, "B N C"], Int[Tensor, "B P"]]:
        if views:
            flips = torch.rand(len(images), generator=generator).to(device) < 0.5 if augment["flip"] else None
            options = {name: value for name, value in augment.items() if name != "flip"}
            images = augment_images(images, generator, mirrored=flips, **options)
        return pixel_values(images), sample_pixels(sampler, len(images), pixels, points, generator).to(device)

    for epoch in range(len(history), epochs):
        generator = Generator().manual_seed(seed * 100_003 + epoch)
        order, sums = torch.randperm(len(x), generator=generator).to(device), torch.zeros(3)
        for i in range(steps):
            images = data[order[i * batch : (i + 1) * batch]]
            for optimiser, peak in zip(optimisers, (lr, muon), strict=True):
                optimiser.param_groups[0]["lr"] = learning_rate(epoch * steps + i, epochs * steps, warmup, peak)
            values, idx = view(images, generator)
            query = torch.randperm(pixels, generator=generator)[:decoded].to(device) if decoded else None
            with autocast(device, bf16):
                latents = encode(gather_pixels(values, idx), idx)  # (B, M, D)
                reconstruction = field.decode(latents, query)  # (B, Q, C)
                second = None
                if views:
                    other, other_idx = view(images, generator)
                if contrast_weight:
                    second = encode(gather_pixels(other, other_idx), other_idx).mean(1)  # (B, D)
            target = values if query is None else values[:, query]
            mse = (reconstruction.float() - target).square().mean()
            contrast = torch.zeros(())
            if second is not None:
                contrast = info_nce(latents.mean(1), second, temperature)
            loss = mse + contrast_weight * contrast
            field.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(field.parameters(), grad_clip)
            for optimiser in optimisers:
                optimiser.step()
            sums += torch.stack([term.detach().float().cpu() for term in (loss, mse, contrast)])
        mean = (sums / steps).tolist()
        val_mse = reconstruction_error(field, x_val, val_idx, device, bf16)
        require(
            math.isfinite(mean[0]) and math.isfinite(val_mse),
            f"train_field: epoch {epoch + 1}: loss {mean[0]}, validation MSE {val_mse}; "
            f"lower train_field.sizes.*.lr ({lr}) or muon ({muon})",
        )
        row = {"epoch": epoch + 1, "loss": mean[0], "mse": mean[1], "val_psnr": psnr(val_mse)}
        history.append(row | ({"contrast": mean[2]} if contrast_weight else {}))
        if resume is not None:
            save_state(resume, mark, *state, history)
        if progress is not None:
            progress(row)
    field.eval()
    return history
