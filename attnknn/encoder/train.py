"""The encoder's training loop: on bank rows; the epoch is chosen by validation accuracy."""

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnknn.core.artifacts import BANK, VAL, Split
from attnknn.core.device import autocast, compile_network
from attnknn.core.errors import require
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.losses import EncoderLoss, ViewsLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.optimisers import optimisers
from attnknn.index.bank import build
from attnknn.nn.augment import augment
from attnknn.nn.checkpoint import fingerprint, load_state, save_state, source_code
from attnknn.nn.optim import learning_rate
from attnknn.nn.votes import class_shares, distance_weights, vote

Row = dict[str, float]
SHRINK = 0.75  # side of `settings.shrunk`
_TEMPERATURE, _PRIOR = 0.1, 0.01  # of the validation kNN, on squared distances of unit vectors


def mix_rows(x: Tensor, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """MixUp (Zhang et al. 2018): λ·x + (1 − λ)·x[partner], the partners' positions, and λ.

    λ is one per batch, the larger of a draw from Beta(α, α) and its complement.
    """
    draw = np.random.default_rng(int(torch.randint(2**31, (), generator=generator))).beta(alpha, alpha)
    share = max(draw, 1 - draw)
    partner = torch.randperm(len(x), generator=generator).to(x.device)
    return share * x + (1 - share) * x[partner], partner, share


def knn_score(
    z_bank: np.ndarray, y_bank: np.ndarray, z: np.ndarray, y: np.ndarray, k: int, n_classes: int
) -> tuple[float, float]:
    """Accuracy and NLL of distance-weighted kNN, for choosing among epochs of one training run."""
    ids, sims = build(z_bank, np.arange(len(z_bank))).search(z, min(k, len(z_bank)))
    labels = torch.from_numpy(y_bank[ids])
    weights, null = distance_weights(torch.from_numpy(sims), k, _TEMPERATURE, _PRIOR)
    probs = vote(weights, null, labels, class_shares(y_bank, n_classes)).numpy()
    return float((probs.argmax(1) == y).mean()), -float(np.log(probs[np.arange(len(y)), y]).mean())


def linear_score(logits: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Accuracy and NLL of softmax(logits)."""
    log_probs = torch.from_numpy(logits).double().log_softmax(1).numpy()
    return float((log_probs.argmax(1) == y).mean()), -float(log_probs[np.arange(len(y)), y].mean())


def train_encoder(
    split: Split,
    encoder: Encoder,
    loss: EncoderLoss | ViewsLoss,
    settings: TrainEmbedder,
    *,
    seed: int,
    neighbours: NeighbourLoss | None = None,
    judged_by: Literal["knn", "logits"] = "knn",
    device: str = "cpu",
    resume: Path | None = None,
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Train the encoder on bank rows; leave it with the weights of the epoch of best validation accuracy.

    AdamW and Muon (see `optimisers`), the learning rate set at each step, gradients clipped at norm grad_clip. The
    accuracy is that of kNN or of the linear head; ties go to the lower NLL. All randomness of an epoch follows from
    (seed, epoch), so a resumed run ends with the same bytes as an uninterrupted one.

    Mirroring alternates (Jordan 2024): an image that is mirrored in one epoch is not in the next, so any two successive
    epochs show both sides, where independent draws would show one side twice to half of the images.

    In the first share `shrunk` of the epochs images are smaller: a pooled network reads any size, and the time is that
    of the pixels (progressive resizing).

    Under MixUp rows are mixed before they are embedded, and every loss is λ·L(y) + (1 − λ)·L(y′), y and y′ the labels
    of the first and second rows of the pairs. Cross-entropy and kNN are linear in the label, so for them this is the
    mixed label; losses on pairs take first the pairs that share y, then those that share y′.

    Args:
        loss: loss of a batch; `neighbours` is added to it. With `ViewsLoss` a batch is two views of each image.
        settings: optimisation, schedule, augmentation and validation; the network and the losses are built already.
        neighbours: the kNN loss over the bank rows in their order, or None.
        judged_by: classifier whose validation accuracy chooses the epoch.
        resume: checkpoint, written after each epoch; the caller deletes it.
        progress: called with each epoch's row.

    Returns:
        A row per epoch: epoch, loss, lr, and val_accuracy and val_nll (NaN where not validated).

    Raises:
        InputError: the loss is not finite.
    """
    x, y = np.asarray(split.x[split.part == BANK]), np.asarray(split.y[split.part == BANK])
    x_val, y_val = np.asarray(split.x[split.part == VAL]), np.asarray(split.y[split.part == VAL])
    objectives = nn.ModuleList([loss] if neighbours is None else [loss, neighbours])
    start = [t.numpy() for module in (encoder, objectives) for t in module.state_dict().values()]  # weights, shapes
    knn = None if neighbours is None else {k: v for k, v in vars(neighbours).items() if not k.startswith("_")}
    config = (settings.model_dump(), encoder.config, loss.config, knn, seed, judged_by)
    environment = (device, torch.get_num_threads(), torch.__version__, source_code("core", "nn", "index", "encoder"))
    mark = fingerprint(x, y, x_val, y_val, *start, config, environment)

    if split.is_image:
        encoder.fit_normalisation(x)
    if settings.shrunk and split.is_image:
        side, groups = min(x.shape[2:]), len(encoder.config["widths"])
        small, fits = int(SHRINK * side), side > 1
        if encoder.config["kind"] == "convnet":  # up to 2^groups pixels are pooled with ceil_mode
            fits = small > 1 and (small > 2**groups or side <= 2**groups)
        remedy = f"3/4 of {side} pixels are too few for this network; set it to 0"
        require(fits, f"train_embedder.shrunk: {remedy}")
    encoder.to(device)
    objectives.to(device)
    parameters = [*encoder.parameters(), *objectives.parameters()]
    optims = optimisers(encoder, loss, neighbours, settings)
    epochs, n, batch = settings.epochs, len(x), min(settings.batch_size, len(x))
    steps_per_epoch = max(1, n // batch)
    steps, cycle = epochs * steps_per_epoch, settings.restarts.period * steps_per_epoch
    best = copy.deepcopy(encoder.state_dict())
    history: list[Row] = []
    if resume is not None:
        history = load_state(resume, mark, encoder, objectives, optims, best) or []
    views_of_images = isinstance(loss, ViewsLoss)
    data = torch.from_numpy(x).to(device)
    target = torch.arange(n, device=device) if views_of_images else torch.from_numpy(y).to(device)
    mirrored_first = torch.rand(n, generator=torch.Generator().manual_seed(seed * 100_003 + epochs)).to(device) < 0.5
    augmentation = settings.augment.model_dump(exclude={"flip"})
    forward = compile_network(encoder, device) if settings.compile else encoder

    for epoch in range(len(history), epochs):
        torch.manual_seed(seed * 100_003 + epoch)  # dropout
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        order = torch.randperm(n, generator=generator).to(device)
        if neighbours is not None and not neighbours.candidates:
            neighbours.fill(torch.from_numpy(embed(encoder, x, device, settings.bf16)[0]))
        encoder.train()
        total = 0.0
        for i in range(steps_per_epoch):
            rows = order[i * batch : (i + 1) * batch]
            if views_of_images:
                rows = rows.repeat(2)
            step = epoch * steps_per_epoch + i
            factor = learning_rate(step, steps, settings.warmup, 1.0, settings.decay, cycle, settings.restarts.factor)
            for group in (group for optim in optims for group in optim.param_groups):
                group["lr"] = factor * group["peak"]
            candidates = None if neighbours is None else neighbours.draw(rows, generator)
            shown = rows if candidates is None else torch.cat([rows, candidates])
            views = data[shown]
            if split.is_image:
                mirrored = mirrored_first[shown] ^ (epoch % 2 == 1)
                if views_of_images:  # each by itself
                    mirrored = torch.rand(len(shown), generator=generator).to(device) < 0.5
                mirrored = mirrored if settings.augment.flip else None
                views = augment(views, generator, mirrored=mirrored, **augmentation)
                if epoch < settings.shrunk * epochs:
                    views = F.interpolate(views.float(), scale_factor=SHRINK, mode="bilinear", antialias=True)
            partners, share = None, 1.0
            if settings.mixup:
                views, positions, share = mix_rows(views, settings.mixup, generator)
                partners = rows[positions]
            with autocast(device, settings.bf16):
                z, logits = forward(views)
            keys = None
            if candidates is not None:
                keys = candidates, z[len(rows) :]
                z, logits = z[: len(rows)], None if logits is None else logits[: len(rows)]
            value = loss(z, logits, target[rows])
            if partners is not None:
                value = share * value + (1 - share) * loss(z, logits, target[partners])
            if neighbours is not None:
                value = value + neighbours(z, rows, partners, share, keys)
            for optim in optims:
                optim.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters, settings.grad_clip)
            for optim in optims:
                optim.step()
            total += float(value.detach())
        message = f"train_embedder: the loss is {total} in epoch {epoch + 1}; lower lr ({settings.lr}) or grad_clip"
        require(math.isfinite(total), message)

        row = {"epoch": epoch + 1, "loss": total / steps_per_epoch, "lr": settings.lr * factor}
        row |= {"val_accuracy": math.nan, "val_nll": math.nan}
        if (epoch + 1) % settings.validate_every == 0 or epoch + 1 == epochs:
            z_val, logits_val = embed(encoder, x_val, device, settings.bf16)
            if judged_by == "logits":
                assert logits_val is not None, "plain classifiers have a linear head"
                score = linear_score(logits_val, y_val)
            else:
                z_bank = embed(encoder, x, device, settings.bf16)[0]
                score = knn_score(z_bank, y, z_val, y_val, settings.k_val, len(split.classes))
            row["val_accuracy"], row["val_nll"] = score
            if row is best_epoch([*history, row]):
                best = copy.deepcopy(encoder.state_dict())
        history.append(row)
        if resume is not None:
            save_state(resume, mark, encoder, objectives, optims, best, history)
        if progress is not None:
            progress(row)

    encoder.load_state_dict(best)
    return history


def best_epoch(history: Sequence[Row]) -> Row:
    """The row of highest validation accuracy, then lowest validation NLL, then the earliest."""
    validated = [row for row in history if not math.isnan(row["val_accuracy"])]
    return max(validated, key=lambda row: (row["val_accuracy"], -row["val_nll"], -row["epoch"]))


def summary(history: Sequence[Row]) -> tuple[Row, list[Row]]:
    """Metrics of a run (best_epoch, val_accuracy), and its learning curve (epoch, loss, val_accuracy) if validated."""
    best = best_epoch(history)
    validated = [row for row in history if not math.isnan(row["val_accuracy"])]  # dvc plots an empty cell as 0
    curve = [{key: row.get(key, math.nan) for key in ("epoch", "loss", "val_accuracy")} for row in validated]
    return {"best_epoch": best["epoch"], "val_accuracy": best["val_accuracy"]}, curve
