"""Training: the project's encoder compared with a plain ResNet18 (float32, eager) on the same images and threads.

Images per second, from two trainings of different length: fixed costs (start, compilation, the last validation)
cancel in the difference; and the share that they are of this device's fastest matrix product in the same precision.
With `--accuracy MINUTES DATASET` also the test accuracy of both after the same minutes, and that of ours with smaller
images in the first half of the epochs: each fits its schedule to the budget by its measured speed. Up to ten times on
the way the linear head is evaluated on validation rows, which counts as training time for ours alone. Ours keeps the
best of these epochs, the ResNet its last step, at the end of its learning rate schedule.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attnknn.core.artifacts import BANK, PARTS, TEST, VAL, Split
from attnknn.core.device import autocast, compile_network, has_bf16, use_device
from attnknn.core.errors import require
from attnknn.core.torchvision_shim import torchvision
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.fit import NETWORK, fit_encoder
from attnknn.encoder.train import SHRINK
from attnknn.experiments.profile import rounds
from attnknn.nn.augment import augment
from attnknn.report.names import method_colour
from attnknn.report.plots import Line, line_plot
from benchmarks.comparison import Row, compare
from pipeline.settings import Params

SIZES = {
    "full": {
        "like": "cifar10",
        "ours_rows": 2048,
        "long": 2,
        "most": 3,
        "widths": None,
        "batch": None,
        "compile": True,
    },
    "quick": {"like": "cifar10", "ours_rows": 64, "long": 4, "most": 1, "widths": [4], "batch": 8, "compile": False},
}
OURS, PEER, COMPILED = "ours", "ResNet18, float32, eager", "ours, torch.compile"
SMALLER, SHRUNK = "ours, smaller images first", 0.5
SPLITS = Path("data/split")
POINTS = 10  # of the curve
Curve = list[tuple[float, float]]  # minutes of training, validation accuracy of the linear head
_MIN_DIFFERENCE = 0.4  # minutes, enough to measure a speed
_TIMED = 10  # our speed is measured on every tenth row
# ResNet: SGD with Nesterov momentum and a one-cycle schedule, in batches of the usual size for CIFAR; with larger ones
# it would take too few steps within the budget.
_LR, _DECAY, _BATCH = 0.1, 5e-4, 128


def ours(split: Split, t: TrainEmbedder, epochs: int, seed: int, device: str) -> tuple[Encoder, float, Curve]:
    """Train the project's encoder; minutes and curve, assuming that an epoch takes the time of its pixels."""
    t = t.model_copy(update={"epochs": epochs, "validate_every": math.ceil(epochs / POINTS)})
    start = time.perf_counter()
    encoder, history = fit_encoder(split, t, seed, device, "benchmark", judged_by="logits")
    minutes = (time.perf_counter() - start) / 60
    pixels = np.where(np.arange(epochs) < t.shrunk * epochs, SHRINK**2, 1.0).cumsum()
    curve = [(minutes * pixels[int(row["epoch"]) - 1] / pixels[-1], row["val_accuracy"]) for row in history]
    return encoder, minutes, [point for point in curve if not math.isnan(point[1])]


def outputs(encoder: Encoder, x: np.ndarray, device: str, t: TrainEmbedder) -> tuple[np.ndarray, np.ndarray]:
    """Unit embeddings (N, D) and logits (N, C) of ours."""
    z, logits = embed(encoder, x, device, t.bf16)
    require(logits is not None, "train_embedder.losses.cross_entropy: 0, so there is no linear head to compare")
    return z, logits  # type: ignore[return-value]


class PlainResNet(nn.Module):
    """torchvision's ResNet18 with a 3×3 stem and no max-pool, over normalised images: features (B, 512) and logits."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        channels = split.x.shape[1]
        bank = split.x[split.part == BANK].astype(np.float32)
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.from_numpy(bank.mean((0, 2, 3), keepdims=True)))
        self.register_buffer("std", torch.from_numpy(bank.std((0, 2, 3), keepdims=True)))
        self.body = torchvision.models.resnet18(weights=None)
        self.body.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.body.maxpool = nn.Identity()  # type: ignore[assignment]
        self.head = nn.Linear(self.body.fc.in_features, len(split.classes))
        self.body.fc = nn.Identity()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body((x.float() - self.mean) / self.std)
        return features, self.head(features)


def plain(
    split: Split, t: TrainEmbedder, steps: int, seed: int, device: str, points: int = POINTS
) -> tuple[PlainResNet, float, Curve]:
    """Train the ResNet by cross-entropy with our augmentation; minutes, without evaluation, and curve."""
    x_val, y_val = split.x[split.part == VAL], split.y[split.part == VAL]
    evaluated = {round(steps * (i + 1) / points) for i in range(points)}
    curve: Curve = []
    batch = min(_BATCH, t.batch_size)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    net = PlainResNet(split).to(device).train()
    optimiser = torch.optim.SGD(net.parameters(), _LR, momentum=0.9, weight_decay=_DECAY, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _LR, total_steps=steps)
    x, y = (torch.from_numpy(values[split.part == BANK]).to(device) for values in (split.x, split.y))
    order, minutes = torch.empty(0, dtype=torch.long), 0.0
    for step in range(1, steps + 1):
        start = time.perf_counter()
        if len(order) < batch:
            order = torch.randperm(len(x), generator=generator)
        rows, order = order[:batch], order[batch:]
        rows = rows.to(device)
        mirrored = torch.rand(len(rows), generator=generator).to(device) < 0.5 if t.augment.flip else None
        views = augment(x[rows], generator, mirrored=mirrored, **t.augment.model_dump(exclude={"flip"}))
        loss = F.cross_entropy(net(views)[1], y[rows])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        float(loss.detach())  # on a GPU: synchronise
        minutes += (time.perf_counter() - start) / 60
        if step in evaluated:
            curve.append((minutes, float((plain_outputs(net, x_val, device)[1].argmax(1) == y_val).mean())))
            net.train()
    return net, minutes, curve


@torch.inference_mode()
def plain_outputs(net: PlainResNet, x: np.ndarray, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Unit features (N, 512) and logits (N, C) of the ResNet."""
    batches = [net.eval()(torch.from_numpy(np.array(x[s : s + 250])).to(device)) for s in range(0, len(x), 250)]
    features, logits = (torch.cat(parts).cpu() for parts in zip(*batches, strict=True))
    return F.normalize(features).numpy(), logits.numpy()


def noise_images(bank: int, size: int, classes: int = 10, seed: int = 0) -> Split:
    """Random images: `bank` rows in the bank, one per class in each other part."""
    rng = np.random.default_rng(seed)
    n = bank + 3 * classes
    part = np.repeat(np.arange(4, dtype=np.int8), [bank, classes, classes, classes])
    x = rng.integers(256, size=(n, 3, size, size), dtype=np.uint8)
    return Split(x, np.arange(n) % classes, part, tuple("abcdefghij"[:classes]))


def operations(net: nn.Module, images: Tensor) -> float:
    """Floating-point operations of convolutions and matrix products for an image, forward and back."""
    with FlopCounterMode(display=False) as counter:
        net.train()(images)[1].sum().backward()
    return counter.get_total_flops() / len(images)


def product_peak(bf16: bool, device: str, side: int = 2048) -> float:
    """Operations a second of the fastest of five products of two square matrices."""
    a = torch.ones(side, side, dtype=torch.bfloat16 if bf16 and has_bf16(device) else torch.float32, device=device)

    def seconds() -> float:
        start = time.perf_counter()
        float((a @ a)[0, 0])  # on a GPU: synchronise
        return time.perf_counter() - start

    return 2 * side**3 / min(seconds() for _ in range(6))


def throughput(t: TrainEmbedder, device: str, repeats: int, ours_rows: int, long: int) -> list[Row]:
    """Training images per second, 32×32 pixels."""
    split, seed = noise_images(ours_rows, 32), 0

    def rate(train_for: Callable[[int], tuple[nn.Module, float, Curve]], images: int) -> float:
        short = train_for(1)[1]
        return images * long / (60 * (train_for(1 + long)[1] - short))

    calls = {
        OURS: lambda: rate(lambda n: ours(split, t, n, seed, device), ours_rows // t.batch_size * t.batch_size),
        PEER: lambda: rate(lambda n: plain(split, t, n, seed, device, 0), min(_BATCH, t.batch_size)),
    }
    what = f"training on 3 × 32 × 32, batches of {t.batch_size} and {_BATCH}, {device}"
    rates, images = rounds(calls, repeats), torch.from_numpy(split.x[:8])
    nets = {OURS: Encoder(t.encoder, split.x.shape[1:], 10, **t.model_dump(include=NETWORK)), PEER: PlainResNet(split)}
    peaks = {OURS: product_peak(t.bf16, device), PEER: product_peak(False, device)}
    notes = {}
    for name, net in nets.items():
        share, giga = np.median(rates[name]) * operations(net, images) / peaks[name], peaks[name] / 1e9
        notes[name] = f"{name}: {share:.0%} of {giga:,.0f} GFLOP/s"
    notes = {PEER: "; ".join(notes.values())}
    return compare(what, "images a second", rates, OURS, higher_is_better=True, notes=notes)


def compiling(t: TrainEmbedder, device: str, repeats: int, steps: int) -> list[Row]:
    """Images per second of forward and backward pass, eager and with torch.compile, and the compilation time."""
    x = torch.from_numpy(noise_images(t.batch_size, 32).x[: t.batch_size]).to(device)
    measured: dict[str, Callable[[], float]] = {}
    first_step: dict[str, float] = {}
    for name, compile in ((OURS, False), (COMPILED, True)):
        encoder = Encoder(t.encoder, x.shape[1:], 10, **t.model_dump(include=NETWORK)).to(device).train()
        encoder.fit_normalisation(x.cpu().numpy())
        forward = compile_network(encoder, device) if compile else encoder

        def images(n: int, encoder=encoder, forward=forward) -> float:
            start = time.perf_counter()
            for _ in range(n):
                encoder.zero_grad()
                with autocast(device, t.bf16):
                    logits = forward(x)[1]
                loss = logits.float().square().mean()
                loss.backward()
                float(loss.detach())  # on a GPU: synchronise
            return n * len(x) / (time.perf_counter() - start)

        first_step[name] = len(x) / images(1)
        measured[name] = partial(images, steps)
    notes = {COMPILED: f"the first step took {first_step[COMPILED]:.0f} s, of which {first_step[OURS]:.1f} without"}
    numbers = "bfloat16" if t.bf16 and has_bf16(device) else "float32"
    what = f"the network forward and back, batches of {len(x)}, {numbers}, {device}"
    return compare(what, "images a second", rounds(measured, repeats), OURS, higher_is_better=True, notes=notes)


def fitted_length(minutes: Callable[[int], float], budget: float, name: str) -> int:
    """Number of epochs or steps that fit into `budget` minutes.

    The speed is measured with lengths that differ by _MIN_DIFFERENCE minutes or a tenth of the budget.

    Args:
        minutes: of a training of a length.

    Raises:
        InputError: the budget is too small for one.
    """
    minutes(1)  # warm-up
    first, length = minutes(1), 2
    while (difference := minutes(length) - first) < min(budget / 10, _MIN_DIFFERENCE):
        length *= 2
    each = difference / (length - 1)
    fits = int((budget - max(0.0, first - each)) / each)
    require(fits >= 1, f"accuracy: {budget:g} minutes are too few for {name}: one takes {first:.1f}; give more")
    return fits


def side_by_side(own: Curve, peer: Curve) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Each point of the peer's curve with our last one that is no later, within 1 %; points without one are skipped."""
    pairs = [([point for point in own if point[0] <= 1.01 * other[0]], other) for other in peer]
    return [(earlier[-1], other) for earlier, other in pairs if earlier]


def accuracy(t: TrainEmbedder, device: str, minutes: float, dataset: str, seed: int) -> list[Row]:
    """Test accuracy of the linear head and of kNN after the same training time, and the curves."""
    split = Split.load(SPLITS / dataset / str(seed))
    require(split.is_image, f"accuracy: {dataset} is not an image dataset")
    bank, test = split.rows(BANK), split.rows(TEST)

    def test_accuracy(outputs: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
        z, logits = outputs(split.x[test])
        knn = KNeighborsClassifier(t.k_val).fit(outputs(split.x[bank])[0], split.y[bank])
        linear = float((logits.argmax(1) == split.y[test]).mean())
        return {"linear head": linear, f"kNN, k {t.k_val}": float(knn.score(z, split.y[test]))}  # type: ignore[arg-type]

    scores, lengths, curves = {}, {}, {}
    whole, smaller = (t.model_copy(update={"shrunk": shrunk}) for shrunk in (0.0, SHRUNK))
    rows = np.concatenate([split.rows(number)[::_TIMED] for number in range(len(PARTS))])
    timed = dataclasses.replace(split, x=split.x[rows], y=split.y[rows], part=split.part[rows])
    epochs = fitted_length(lambda n: ours(timed, whole, n, seed, device)[1], minutes, OURS) // _TIMED
    require(epochs >= 1, f"accuracy: {minutes:g} minutes are too few for an epoch of {OURS}; give more")
    steps = fitted_length(lambda n: plain(split, t, n, seed, device, 0)[1], minutes, PEER)
    more = int(epochs / (1 - SHRUNK * (1 - SHRINK**2)))  # by the pixels that an epoch has on average
    for name, unit, length, train_for, predict in (
        (OURS, "epochs", epochs, partial(ours, split, whole), partial(outputs, t=t)),
        (SMALLER, "epochs", more, partial(ours, split, smaller), partial(outputs, t=t)),
        (PEER, "steps", steps, partial(plain, split, t), plain_outputs),
    ):
        net, taken, curves[name] = train_for(length, seed, device)
        lengths[name] = f"{length:,} {unit} in {taken:.2f} min"
        scores[name] = test_accuracy(partial(predict, net, device=device))
    notes = {name: f"ours {lengths[OURS]}, peer {lengths[name]}; seed {seed}" for name in (SMALLER, PEER)}
    table: list[Row] = []
    for judge in scores[OURS]:
        values = {name: [accuracies[judge]] for name, accuracies in scores.items()}
        table += compare(f"{dataset}, {minutes:g} minutes, {judge}", "test accuracy", values, OURS, True, notes=notes)
    for name in notes:
        for (own_minutes, own), (peer_minutes, other) in side_by_side(curves[OURS], curves[name]):
            note = {name: f"after {own_minutes:.1f} and {peer_minutes:.1f} minutes"}
            what, values = f"{dataset}, on the way, linear head", {OURS: [own], name: [other]}
            (row,) = compare(what, "val accuracy", values, OURS, True, notes=note)
            table.append({**row, "minutes": [own_minutes, peer_minutes]})
    return table


def picture(table: list[Row]) -> bytes:
    """Plot the curves of `accuracy` as a PNG."""
    points: dict[str, dict[float, float]] = {OURS: {}}
    for row in table:
        for minutes, side in zip(row.get("minutes", ()), ("ours", "peer"), strict=False):
            points.setdefault(row[side]["name"], {})[minutes] = row[side]["value"]
    colours = dict(zip(points, map(method_colour, ("attention", "linear", "uniform")), strict=False))
    curves = {name: pd.DataFrame(sorted(own.items()), columns=["x", "value"]) for name, own in points.items()}
    lines = [Line(name, colours[name], curve) for name, curve in curves.items()]
    return line_plot(lines, "Linear head", "minutes of training", "validation accuracy")


def measure(
    threads: int,
    repeats: int,
    like: str,
    ours_rows: int,
    long: int,
    most: int,
    compile: bool,
    widths: list[int] | None = None,
    batch: int | None = None,
    goal: tuple[float, str, int] | None = None,
) -> list[Row]:
    """Throughput with the settings of a dataset; accuracy after the same time, if there is a goal.

    Args:
        like: dataset whose settings are used.
        ours_rows, long: bank rows of ours, and the difference of the two lengths (epochs of ours, steps of the peer).
        most: maximum of rounds; the ResNet is slow.
        compile: whether to measure torch.compile.
        widths, batch: replace those of the settings.
        goal: minutes, dataset and seed of `accuracy`.
    """
    p = Params(dataset=like)
    device, t = use_device(p.device, threads), p.train_embedder
    changes = {"widths": widths, "batch_size": batch}
    t = t.model_copy(update={name: value for name, value in changes.items() if value is not None})
    if goal is not None:
        minutes, dataset, seed = goal
        split = SPLITS / dataset / str(seed)
        require(
            split.is_dir(),
            f"--accuracy: no {split}; add {dataset} to datasets, then `dvc repro prepare@{dataset}-{seed}`",
        )
    table = throughput(t, device, min(most, repeats), ours_rows, long)
    if compile:
        table += compiling(t, device, min(most, repeats), steps=4)
    if goal is not None:
        table += accuracy(Params(dataset=dataset).train_embedder, device, minutes, dataset, seed)
    return table
