"""Small synthetic data sets shared by the tests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours, Split
from attnknn.encoder.crossfit import fold_splits
from attnknn.heads.classify import classify_part
from attnknn.neighbours.search import memory, retrieve, search
from attnknn.neighbours.space import EmbeddingSpace, NeighbourBatch, classes_of
from attnknn.neighbours.statistics import neighbour_statistics

FITTING: dict[str, Any] = {
    "kind": "attention",
    "epochs": 2,
    "batch_size": 64,
    "lr": 0.01,
    "weight_decay": 0.01,
    "patience": 2,
    "label_smoothing": 0.0,
    "hard_weight": 1.0,
    "entropy_weight": 0.0,
    "calibration_weight": 0.0,
}  # for `fit_head`, with the parts of a head


SCORING: dict[str, Any] = {"bins": 10, "resamples": 100, "confidence": 0.95}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def parts(n: int, seed: int = 0) -> np.ndarray:
    """int8 (n,) parts, about ½ bank and a sixth each of the others, in random order."""
    share = np.array([BANK, BANK, BANK, FIT, VAL, TEST], dtype=np.int8)
    return np.random.default_rng(seed).permutation(np.resize(share, n))


def blobs(n: int = 300, dim: int = 7, classes: int = 3, noise: float = 1.0, seed: int = 0) -> Split:
    """A table of Gaussian classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = rng.normal(size=(classes, dim))
    x = (centres[y] + noise * rng.normal(size=(n, dim))).astype(np.float32)
    names = tuple("abcdefghij"[:classes])
    return Split(x, y, parts(n, seed), names, tuple(f"f{i}" for i in range(dim)))


def pictures(n: int = 96, size: int = 8, classes: int = 3, seed: int = 0) -> Split:
    """Noisy images with a bright bar whose row depends on the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = rng.integers(0, 120, size=(n, 1, size, size))
    x[np.arange(n), 0, 2 * y + 1] += 100
    return Split(x.astype(np.uint8), y, parts(n, seed), tuple("abc"[:classes]))


def fold_parts(y: np.ndarray, part: np.ndarray, folds: int, seed: int, refit: bool = False) -> list[np.ndarray]:
    """`part` of each fold's split; rows and labels are unchanged."""
    x, names = np.arange(len(y), dtype=np.float32)[:, None], tuple("abc"[: int(y.max()) + 1])
    split = Split(x, y, part, names, ("f",))
    splits = fold_splits(split, folds, seed, refit)
    assert all(fold.x is split.x and fold.y is split.y for fold in splits)
    return [fold.part for fold in splits]


def nearest(z: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the k nearest rows of each query and their similarities, from the distances to all rows."""
    distances = cdist(queries, z, "sqeuclidean")
    positions = distances.argsort(1)[:, :k]
    return positions, -np.take_along_axis(distances, positions, 1)


def embedded(split: Split, noise: float = 0.0, seed: int = 0) -> Embeddings:
    """The table's rows at unit length as embeddings, with synthetic logits."""
    z = np.asarray(split.x) / np.linalg.norm(split.x, axis=1, keepdims=True)
    logits = np.random.default_rng(seed).normal(size=(len(z), len(split.classes))) + 2 * np.eye(3)[split.y]
    return Embeddings(z.astype(np.float32), split.y, split.part, split.classes, logits.astype(np.float32))


def crossfit_spaces(
    main: Embeddings, folds: int = 2, k: int = 20, sizes: tuple[int, ...] = (3, 20)
) -> list[EmbeddingSpace]:
    """The space of the main embeddings, and those of folds whose embeddings have their columns rotated."""
    spaces = [main]
    for i, part in enumerate(fold_parts(main.y, main.part, folds, seed=0)):
        spaces.append(replace(main, z=np.roll(main.z, 1 + i, axis=1), part=part))
    return [retrieve(e, k, sizes) for e in spaces]


def searched(embeddings: Embeddings, k: int = 20) -> Neighbours:
    """Exact neighbours of every row."""
    return search(memory(embeddings), embeddings, k)


def retrieved(embeddings: Embeddings, k: int = 20, sizes: tuple[int, ...] = (3, 7)) -> EmbeddingSpace:
    """Embeddings with exact neighbours and their statistics."""
    neighbours = searched(embeddings, k)
    return EmbeddingSpace(embeddings, neighbours, neighbour_statistics(embeddings, neighbours, sizes))


def relabelled(data: EmbeddingSpace, part: int) -> EmbeddingSpace:
    """The same rows with the labels of one part shuffled."""
    y = np.array(data.embeddings.y)
    mask = data.embeddings.part == part
    y[mask] = np.random.default_rng(0).permutation(y[mask])
    return replace(data, embeddings=replace(data.embeddings, y=y))


def part_nll(head: Any, spaces: Sequence[EmbeddingSpace], part: int, k: int) -> float:
    """Mean NLL of a head over the rows of a part of all spaces."""
    probs, y = classify_part(head, spaces, part, k), classes_of(spaces, part)
    return -float(np.log(probs[np.arange(len(y)), y]).mean())


def neighbourhood(
    b: int = 5,
    k: int = 11,
    d: int = 7,
    c: int = 3,
    s: int = 2,
    seed: int = 0,
    missing: bool = False,
    metric: str = "l2",
) -> NeighbourBatch:
    """Random queries and neighbours, nearest first; with `missing` the first query lacks its last two."""
    g = torch.Generator().manual_seed(seed)
    query = torch.randn(b, d, generator=g)
    keys = query[:, None] + torch.randn(b, k, d, generator=g)
    dot = (keys @ query[:, :, None]).squeeze(2)
    sims = dot if metric == "ip" else -(query[:, None] - keys).square().sum(2)
    order = sims.argsort(1, descending=True)
    keys, sims = keys.gather(1, order[:, :, None].expand_as(keys)), sims.gather(1, order)
    labels = torch.randint(c, (b, k), generator=g)
    agreement, density = torch.rand(b, k, s, generator=g), -torch.rand(b, k, generator=g)
    prototypes = torch.nn.functional.normalize(torch.randn(c, d, generator=g))
    if missing:
        sims[0, -2:], labels[0, -2:] = -torch.inf, -1
    shares = torch.arange(c, 0, -1).float() / (c * (c + 1) / 2)
    logits = torch.randn(b, c, generator=g)
    region = torch.randint(3, (b, k), generator=g)
    of_region = -torch.rand(b, 3, generator=g)
    of_neighbour = of_region.gather(1, region)
    if missing:
        region[0, -2:] = -1
    fields = query, keys, agreement, density, logits, region, of_neighbour
    return NeighbourBatch(sims, labels, shares, prototypes, *fields)


def clustered_split(n_classes: int = 5, n: int = 600) -> Split:
    """A table of a cluster for each class."""
    rng = np.random.default_rng(1)
    y = np.arange(n) % n_classes
    x = (3 * rng.normal(size=(n_classes, 6))[y] + rng.normal(size=(n, 6))).astype(np.float32)
    part = (np.arange(n) // n_classes % 4).astype(np.int8)
    return Split(x, y, part, tuple("abcdef"[:n_classes]), tuple("uvwxyz"))
