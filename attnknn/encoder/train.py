"""The encoder's training loop, read top to bottom: on bank rows, its epoch chosen by kNN on validation rows.

The head's loop is in fitting.py, so that a change of the head does not train encoders again.
"""

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from attnknn.core.artifacts import BANK, VAL, Embeddings, Split
from attnknn.core.device import compile_network
from attnknn.core.errors import require
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.losses import EncoderLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.optimisers import optimisers
from attnknn.index.bank import build
from attnknn.nn.augment import augment as augment_images
from attnknn.nn.checkpoint import fingerprint, load_state, save_state, source_code
from attnknn.nn.optim import Decay, LookAhead, learning_rate
from attnknn.nn.votes import class_shares, distance_weights, vote

Row = dict[str, float]
_TEMPERATURE, _PRIOR = 0.1, 0.01  # of the validation kNN, on squared distances of unit vectors


def mix_rows(x: torch.Tensor, alpha: float, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, float]:
    """λ·x + (1 − λ)·x[partner], the partners' places, and λ: one a batch, the larger of Beta(α, α) and its complement.

    So the first row of a pair always has the larger share (Zhang et al. 2018).
    """
    drawn = np.random.default_rng(int(torch.randint(2**31, (), generator=generator))).beta(alpha, alpha)
    share = max(drawn, 1 - drawn)
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


def linear_score(logits: np.ndarray | None, y: np.ndarray) -> tuple[float, float]:
    """Accuracy and NLL of softmax(logits)."""
    require(logits is not None, "judged_by: logits, of an encoder that has no linear head; give n_classes")
    log_probs = torch.from_numpy(logits).double().log_softmax(1).numpy()
    return float((log_probs.argmax(1) == y).mean()), -float(log_probs[np.arange(len(y)), y].mean())


def judged_by_logits(embeddings: Embeddings) -> Row:
    """val_accuracy and val_nll of the linear head on validation rows."""
    rows = embeddings.rows(VAL)
    logits = None if embeddings.logits is None else np.asarray(embeddings.logits)[rows]
    return dict(zip(("val_accuracy", "val_nll"), linear_score(logits, np.asarray(embeddings.y)[rows]), strict=True))


def train_encoder(
    split: Split,
    encoder: Encoder,
    loss: EncoderLoss,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    muon: dict[str, float],
    decay: Decay,
    warmup: float,
    look_ahead: int,
    grad_clip: float,
    validate_every: int,
    k_val: int,
    augment: dict[str, Any],
    mixup: float,
    lr_factors: dict[str, float],
    restarts: dict[str, int],
    bf16: bool,
    compile: bool,
    seed: int,
    neighbours: NeighbourLoss | None = None,
    judged_by: Literal["knn", "logits"] = "knn",
    device: str = "cpu",
    resume: Path | None = None,
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Train the encoder on bank rows; leave it with the weights of the epoch of best validation accuracy.

    AdamW and Muon (see `optimisation`), the learning rate set at each step, gradients clipped at norm grad_clip. The
    accuracy is that of kNN or of its own linear head; ties go to the lower NLL of the same. Everything random in an
    epoch follows from (seed, epoch), so a run that was killed and resumed ends with the same bytes as one that was not.

    An image that is mirrored in one epoch is not in the next (alternating flip, Jordan 2024): any two epochs in a row
    show both of its sides, where chance would show one of them twice to half of the images.

    Under MixUp rows are mixed before they are embedded, and every loss is λ·L(y) + (1 − λ)·L(y′), with the labels of
    all first or of all second rows of the pairs: cross-entropy and kNN are linear in the label, so for them this is
    the mixed label; losses on pairs take first those pairs that share y, then those that share y′.

    Args:
        loss: of a batch; its sum with `neighbours` is what is trained on.
        warmup: share of all steps.
        validate_every: epochs between validations; the last epoch is always validated.
        augment: keyword arguments of `images.augment`, for images.
        mixup: α of MixUp; 0 mixes nothing.
        lr_factors: of lr for backbone, projection and knn; see `optimisers`.
        restarts: period of the first cosine in epochs, 0 for a single one, and factor; see `learning_rate`.
        neighbours: the kNN objective over the bank rows in their order, or None.
        judged_by: whose validation accuracy chooses the epoch.
        resume: file that holds the state after each epoch, for the caller to remove once the result is safe; or None.
        progress: called with each epoch's row.

    Returns:
        A row an epoch: epoch, loss, lr, and val_accuracy and val_nll (NaN where not validated).
    """
    x, y = np.asarray(split.x[split.part == BANK]), np.asarray(split.y[split.part == BANK])
    x_val, y_val = np.asarray(split.x[split.part == VAL]), np.asarray(split.y[split.part == VAL])
    settings = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay, "warmup": warmup}
    settings |= {"grad_clip": grad_clip, "validate_every": validate_every, "k_val": k_val, "augment": augment}
    settings |= {
        "muon": muon,
        "decay": decay,
        "look_ahead": look_ahead,
        "compile": compile,
        "mixup": mixup,
        "lr_factors": lr_factors,
        "restarts": restarts,
        "bf16": bf16,
        "seed": seed,
        "judged_by": judged_by,
    }
    if neighbours is not None:
        settings["neighbours"] = {name: v for name, v in vars(neighbours).items() if not name.startswith("_")}
    objectives = nn.ModuleList([loss] if neighbours is None else [loss, neighbours])
    start = [t.numpy() for module in (encoder, objectives) for t in module.state_dict().values()]  # weights, shapes
    about = (settings, loss.weights, loss.config, device, torch.get_num_threads(), torch.__version__)
    mark = fingerprint(x, y, x_val, y_val, *start, encoder.config, about, source_code("core", "nn", "index", "encoder"))

    if split.is_image:
        encoder.fit_normalisation(x)
    encoder.to(device)
    objectives.to(device)
    parameters = [*encoder.parameters(), *objectives.parameters()]
    rates = {"lr": lr, "lr_factors": lr_factors, "weight_decay": weight_decay, "muon": muon}
    movers = optimisers(encoder, loss, neighbours, **rates)
    n, batch = len(x), min(batch_size, len(x))
    steps_an_epoch = max(1, n // batch)
    best = copy.deepcopy(encoder.state_dict())
    history: list[Row] = []
    if resume is not None:
        history = load_state(resume, mark, encoder, objectives, movers, best) or []
    data, target = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    first_sides = torch.rand(n, generator=torch.Generator().manual_seed(seed * 100_003 + epochs)).to(device) < 0.5
    flip, views_of = augment.get("flip", False), {name: v for name, v in augment.items() if name != "flip"}
    slow = LookAhead(encoder, look_ahead)
    forward = compile_network(encoder, device) if compile else encoder

    for epoch in range(len(history), epochs):
        torch.manual_seed(seed * 100_003 + epoch)  # dropout
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        order = torch.randperm(n, generator=generator).to(device)
        if neighbours is not None and not neighbours.candidates and epoch % neighbours.refresh == 0:
            neighbours.fill(torch.from_numpy(embed(encoder, x, device, bf16)[0]))
        encoder.train()
        total = 0.0
        for i in range(steps_an_epoch):
            rows = order[i * batch : (i + 1) * batch]
            step, cycle = epoch * steps_an_epoch + i, restarts["period"] * steps_an_epoch
            share_of_peak = learning_rate(step, epochs * steps_an_epoch, warmup, 1.0, decay, cycle, restarts["factor"])
            for group in (group for mover in movers for group in mover.param_groups):
                group["lr"] = share_of_peak * group["peak"]
            others = None if neighbours is None else neighbours.draw(rows, generator)
            shown = rows if others is None else torch.cat([rows, others])
            views = data[shown]
            if split.is_image:
                mirrored = first_sides[shown] ^ (epoch % 2 == 1) if flip else None
                views = augment_images(views, generator, mirrored=mirrored, **views_of)
            partners, share = None, 1.0
            if mixup:
                views, places, share = mix_rows(views, mixup, generator)
                partners = rows[places]
            with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bf16):
                z, logits = forward(views)
            among = None
            if others is not None:
                among, z, logits = (
                    (others, z[len(rows) :]),
                    z[: len(rows)],
                    None if logits is None else logits[: len(rows)],
                )
            value = loss(z, logits, target[rows])
            if partners is not None:
                value = share * value + (1 - share) * loss(z, logits, target[partners])
            if neighbours is not None:
                value = value + neighbours(z, rows, partners, share, among)
            for mover in movers:
                mover.zero_grad(set_to_none=True)
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters, grad_clip)
            for mover in movers:
                mover.step()
            slow.move(step + 1, epochs * steps_an_epoch, last=i + 1 == steps_an_epoch)
            if neighbours is not None and partners is None:  # a mixture is no embedding of a bank row
                neighbours.update(rows, z.detach())
            total += float(value.detach())
        require(
            math.isfinite(total),
            f"train_embedder: the loss is {total} in epoch {epoch + 1}; lower lr ({lr}) or grad_clip",
        )

        row = {
            "epoch": epoch + 1,
            "loss": total / steps_an_epoch,
            "lr": lr * share_of_peak,
            "val_accuracy": math.nan,
            "val_nll": math.nan,
        }
        if (epoch + 1) % validate_every == 0 or epoch + 1 == epochs:
            z_val, logits_val = embed(encoder, x_val, device, bf16)
            if judged_by == "logits":
                row["val_accuracy"], row["val_nll"] = linear_score(logits_val, y_val)
            else:
                z_bank = embed(encoder, x, device, bf16)[0]
                row["val_accuracy"], row["val_nll"] = knn_score(z_bank, y, z_val, y_val, k_val, len(split.classes))
            if row is best_epoch([*history, row]):
                best = copy.deepcopy(encoder.state_dict())
        history.append(row)
        if resume is not None:
            save_state(resume, mark, encoder, objectives, movers, best, history)
        if progress is not None:
            progress(row)

    encoder.load_state_dict(best)
    return history


def best_epoch(history: Sequence[Row]) -> Row:
    """The row of highest validation accuracy, then lowest validation NLL, then the earliest."""
    validated = [row for row in history if not math.isnan(row["val_accuracy"])]
    return max(validated, key=lambda row: (row["val_accuracy"], -row["val_nll"], -row["epoch"]))


def summary(history: Sequence[Row]) -> tuple[Row, list[Row]]:
    """What is reported of a run: best_epoch and val_accuracy there, and epoch, loss, val_accuracy where validated."""
    best = best_epoch(history)
    validated = [row for row in history if not math.isnan(row["val_accuracy"])]  # dvc plots an empty cell as 0
    curve = [{key: row[key] for key in ("epoch", "loss", "val_accuracy")} for row in validated]
    return {"best_epoch": best["epoch"], "val_accuracy": best["val_accuracy"]}, curve
