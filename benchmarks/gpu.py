"""What a GPU is for, by `make bench-gpu`: encoder, exact search, fit of the classifier, and a step of the full field.

Without a GPU the same code runs on the CPU. Encoders are trained from scratch on the split of `cifar10`, or else of
`cifar10_jpeg`, for several numbers of epochs and seeds, with `flip_average`: medians (lowest, highest) over seeds.
Minutes include compilation. `reached` is the highest of .90, .94 and .96 that kNN's accuracy on test rows is not below.
Search and fit are on synthetic clusters, beside the same on the CPU.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier

from attnknn import AttnKNNClassifier
from attnknn.core.artifacts import BANK, TEST, Split
from attnknn.core.device import use_device
from attnknn.core.errors import require
from attnknn.encoder.config import TrainEmbedder
from attnknn.experiments.fields.config import TrainField
from attnknn.experiments.fields.train import train_variant
from attnknn.index.bank import build
from benchmarks import training
from benchmarks.comparison import Row, spread
from benchmarks.synthetic import clustered
from pipeline.settings import Params

GOALS = (0.90, 0.94, 0.96)
DATASETS = ("cifar10", "cifar10_jpeg")
SIZES: dict[str, dict[str, Any]] = {
    "full": {
        "real": True,
        "epochs": (8, 16, 40, 80),
        "seeds": 3,
        "changes": {"batch_size": 2000, "bf16": True, "compile": True},
        "rows": 50_000,
        "queries": 10_000,
        "dim": 256,
        "field": "full",
        "steps": 8,
    },
    "quick": {
        "real": False,
        "epochs": (1,),
        "seeds": 2,
        "changes": {"widths": [4], "batch_size": 8},
        "rows": 200,
        "queries": 20,
        "dim": 8,
        "field": "small",
        "steps": 2,
    },
}


def row(what: str, unit: str, values: Sequence[float], device: str, reached: str = "") -> Row:
    """A line of the table."""
    return {"what": what, "unit": unit, "device": device, **spread(values), "reached": reached}


def prepared() -> Split:
    """The split of CIFAR-10 at hand."""
    paths = [training.SPLITS / name / "42" for name in DATASETS]
    path = next((path for path in paths if (path / "meta.json").is_file()), None)
    remedy = f"`dvc exp run -S 'datasets=[{DATASETS[0]}]' prepare@{DATASETS[0]}-42` makes one"
    require(path is not None, f"bench-gpu: no split of {' or '.join(DATASETS)}; {remedy}")
    return Split.load(Path(str(path)))


def encoders(split: Split, t: TrainEmbedder, epochs: Sequence[int], seeds: int, device: str) -> list[Row]:
    """Minutes of training, and test accuracy of the linear head and of kNN."""
    bank, test, rows = split.rows(BANK), split.rows(TEST), []
    for length in epochs:
        minutes, linear, knn = [], [], []
        for seed in range(seeds):
            encoder, taken, _ = training.ours(split, t, length, seed, device)
            z, logits = training.outputs(encoder, split.x[test], device, t)
            memory = training.outputs(encoder, split.x[bank], device, t)[0]
            votes = KNeighborsClassifier(t.k_val).fit(memory, split.y[bank])
            minutes.append(taken)
            linear.append(float((logits.argmax(1) == split.y[test]).mean()))
            knn.append(float(votes.score(z, split.y[test])))
        reached = max((f"{goal:.2f}" for goal in GOALS if np.median(knn) >= goal), default="none")
        what = f"encoder, {length} epochs"
        rows.append(row(f"{what}, training", "minutes", minutes, device))
        rows.append(row(f"{what}, linear head", "test accuracy", linear, device))
        rows.append(row(f"{what}, kNN", "test accuracy", knn, device, reached))
    return rows


def timed(call: Callable[[], object], repeats: int, per: float = 1) -> list[float]:
    """Seconds of each call after a first one, divided by `per`."""
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        call()
        seconds.append((time.perf_counter() - start) / per)
    return seconds[1:]


def field_step(size: str, steps: int, device: str, threads: int, repeats: int) -> list[Row]:
    """Seconds of a training step of a field, in each epoch after the first, which compiles; with the epoch's PSNR."""
    settings = TrainField(size=size).model_dump()
    own = settings["sizes"][size]
    own["epochs"] = 1 + repeats
    ends: list[float] = []

    @contextmanager
    def track(name: str, epochs: int) -> Iterator[Callable[[dict[str, float]], None]]:
        yield lambda row: ends.append(time.perf_counter())

    split = training.noise_images(steps * own["batch_size"], 32)
    train_variant(split, "full", settings, 0, device, threads, None, track=track)
    seconds = (np.diff(ends) / steps).tolist()
    return [row(f"field {size}, batches of {own['batch_size']}", "seconds a step", seconds, device)]


def measure(
    threads: int,
    repeats: int,
    real: bool,
    epochs: Sequence[int],
    seeds: int,
    changes: dict[str, Any],
    rows: int,
    queries: int,
    dim: int,
    field: str,
    steps: int,
) -> list[Row]:
    """All lines; `real` takes images of CIFAR-10, else noise."""
    p = Params(dataset="cifar10")
    device, t = use_device("auto", threads), p.train_embedder.model_copy(update={**changes, "flip_average": True})
    split = prepared() if real else training.noise_images(64, 32)
    table = encoders(split, t, epochs, seeds, device)
    z, y = clustered(rows + queries, dim)
    bank = build(z[:rows], np.arange(rows))
    for name in dict.fromkeys((device, "cpu")):
        took = timed(lambda name=name: bank.search(z[rows:], 50, device=name), repeats, queries / 1000)
        table.append(row(f"exact search, {rows:,} × {dim}, k 50", "ms a query", took, name))
    for name in dict.fromkeys((device, "cpu")):
        took = timed(lambda name=name: AttnKNNClassifier(random_state=0, device=name).fit(z[:rows], y[:rows]), 1)
        table.append(row(f"fit of the classifier, {rows:,} × {dim}", "seconds", took, name))
    table += field_step(field, steps, device, threads, min(repeats, 2))
    if device != "cpu":
        table.append(row("memory of the GPU, at most", "GB", [torch.cuda.max_memory_allocated() / 1e9], device))
    return table
