"""Embedding spaces with stored neighbours, and batches of queries with their neighbours: the input of every head."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.artifacts import BANK, Embeddings, Neighbours, NeighbourStatistics, embedding_folders
from attnknn.core.errors import require
from attnknn.core.files import read_json, write_json
from attnknn.nn.votes import class_shares, shares_of_counts

_FOLDERS = ("embeddings", "neighbours", "statistics")
# Fields of a batch that are gathered on request.
NEEDS = ("query", "keys", "agreement", "density", "logits", "region", "region_sims")


@dataclass(frozen=True)
class NeighbourBatch:
    """Queries with their K nearest bank rows, nearest first.

    A missing neighbour has label −1 and similarity −inf. Fields of `NEEDS` that were not requested are None.
    """

    sims: Float[Tensor, "B K"]
    labels: Int[Tensor, "B K"]
    shares: Float[Tensor, " C"]  # of the bank's classes, all above 0
    prototypes: Float[Tensor, "C D"]  # mean embedding of each class in the bank, at unit length
    query: Float[Tensor, "B D"] | None = None  # embeddings of the queries
    keys: Float[Tensor, "B K D"] | None = None  # embeddings of the neighbours
    agreement: Float[Tensor, "B K S"] | None = None  # share of a neighbour's own neighbours that have its label
    density: Float[Tensor, "B K"] | None = None  # mean similarity of a neighbour to its own neighbours
    logits: Float[Tensor, "B C"] | None = None  # of the encoder's linear head
    region: Int[Tensor, "B K"] | None = None  # cluster of the bank that a neighbour lies in
    region_sims: Float[Tensor, "B K"] | None = None  # similarity of the query to the centroid of that cluster
    log_weight: Float[Tensor, "B K"] | None = None  # of the neighbours' sample weights; None for equal weights
    log_share: Float[Tensor, "B K"] | None = None  # precomputed by a head, see `Attention.precompute`
    features: Float[Tensor, "B K F"] | None = None  # likewise

    def require(self, name: str) -> Tensor:
        """The field of that name, which must have been gathered."""
        value = getattr(self, name)
        assert value is not None, f"{name} was not gathered; name it in the head's `needs`"
        return value

    def to(self, target: str | torch.dtype) -> "NeighbourBatch":
        """Move all tensors to a device, or cast those of floats to a type."""
        integers = ("labels", "region") if isinstance(target, torch.dtype) else ()
        return replace(self, **{name: t.to(target) for name, t in self._tensors().items() if name not in integers})

    def take(self, idx: Int[Tensor, " M"]) -> "NeighbourBatch":
        """Select queries by position."""
        of_bank = ("shares", "prototypes")
        return replace(self, **{name: t[idx] for name, t in self._tensors().items() if name not in of_bank})

    def _tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class EmbeddingSpace:
    """Embeddings with the stored neighbours of their rows and the statistics of their bank."""

    embeddings: Embeddings
    neighbours: Neighbours
    statistics: NeighbourStatistics
    log_weight: np.ndarray | None = None  # (N,), of the rows' sample weights; None for equal weights; not saved
    counts: np.ndarray | None = None  # (C,) bank rows by class, of a bank that has more rows than these; not saved

    def save(self, folder: Path) -> None:
        """Write the three artifacts to folders inside `folder`."""
        for name in _FOLDERS:
            getattr(self, name).save(folder / name)

    @classmethod
    def load(cls, embeddings: Path, neighbours: Path, statistics: Path) -> "EmbeddingSpace":
        """Load the three artifacts; InputError if one is missing or damaged, or they do not match."""
        e, n, s = Embeddings.load(embeddings), Neighbours.load(neighbours), NeighbourStatistics.load(statistics)
        match = len(e.z) == len(s.density) and int(n.ids.max()) < len(e.z) and int(n.rows[-1]) < len(e.z)
        require(match, f"{statistics}: does not belong to {embeddings} and {neighbours}; run `dvc repro`")
        return cls(e, n, s)

    @classmethod
    def load_whole(cls, folder: Path) -> "EmbeddingSpace":
        """Load a space written by `save`; errors as in `load`."""
        return cls.load(*(Path(folder) / name for name in _FOLDERS))

    @classmethod
    def load_all(cls, embeddings: Path, neighbours: Path) -> "list[EmbeddingSpace]":
        """Load the main space and those of the cross-fitting folds; errors as in `load`."""
        names = [path.name for path in embedding_folders(embeddings)]
        return [cls.load(embeddings / n, *(neighbours / n / folder for folder in _FOLDERS[1:])) for n in names]

    @staticmethod
    def save_folds(spaces: "Iterable[EmbeddingSpace]", folder: Path) -> None:
        """Write the spaces to folders 0, 1, … inside `folder`, one by one, and their number to `folds.json`."""
        folds, folder = 0, Path(folder)
        folder.mkdir(exist_ok=True)
        for folds, space in enumerate(spaces, 1):
            space.save(folder / str(folds - 1))
        write_json(folder / "folds.json", {"folds": folds})

    @classmethod
    def load_folds(cls, folder: Path) -> "list[EmbeddingSpace]":
        """Load the spaces written by `save_folds`; errors as in `load`."""
        folds = read_json(Path(folder) / "folds.json")["folds"]
        return [cls.load_whole(Path(folder) / str(fold)) for fold in range(folds)]

    # Kept for training, whatever asks first: autograd takes no tensors that were made in inference mode.
    @cached_property
    @torch.inference_mode(False)
    def shares(self) -> Float[Tensor, " C"]:
        """Class shares of the bank."""
        if self.counts is not None:
            return shares_of_counts(self.counts)
        e, rows = self.embeddings, self.embeddings.rows(BANK)
        weights = None if self.log_weight is None else np.exp(self.log_weight[rows])
        return class_shares(np.asarray(e.y[rows]), len(e.classes), weights)

    @cached_property
    @torch.inference_mode(False)
    def prototypes(self) -> Float[Tensor, "C D"]:
        """Mean embedding of each class in the bank."""
        return torch.from_numpy(np.array(self.statistics.prototypes))

    @cached_property
    def regions(self) -> tuple[np.ndarray, np.ndarray]:
        """√N clusters of the N bank rows by k-means: cluster of each row, and their centroids (R, D)."""
        from sklearn.cluster import KMeans

        bank = np.asarray(self.embeddings.z[self.embeddings.rows(BANK)])
        count = round(math.sqrt(len(bank)))
        options: dict[str, Any] = {"init": "random", "n_init": 1, "max_iter": 10, "random_state": 0}
        clusters = KMeans(count, **options).fit(bank)
        return np.asarray(clusters.predict(np.asarray(self.embeddings.z))), clusters.cluster_centers_

    def around(self, rows: np.ndarray, k: int, needs: Collection[str] = ()) -> NeighbourBatch:
        """Batch of query rows with their k stored neighbours, and the fields of `NEEDS` that are named.

        Raises:
            InputError: fewer than k neighbours are stored, or none for a row.
        """
        ids, sims = self.neighbours.take(rows, k)
        e, s = self.embeddings, self.statistics
        of_queries = {"query": e.z, "logits": e.logits}
        of_neighbours = {"keys": e.z, "agreement": s.agreement, "density": s.density}
        arrays = {name: np.asarray(of_neighbours[name][ids]) for name in of_neighbours.keys() & needs}
        arrays |= {name: np.asarray(of_queries[name][rows]) for name in of_queries.keys() & needs}  # type: ignore[index]
        if "region" in needs:
            regions, centroids = self.regions
            arrays["region"] = np.where(ids >= 0, regions[ids], -1)
            z = np.asarray(e.z[rows])
            products = z @ centroids.T  # (B, R)
            squares = (z**2).sum(1)[:, None] - 2 * products + (centroids**2).sum(1)
            coarse = products if self.neighbours.metric == "ip" else -squares
            arrays["region_sims"] = np.take_along_axis(coarse, regions[ids], 1)
        if self.log_weight is not None:
            arrays["log_weight"] = self.log_weight[ids]
        gathered = {name: torch.from_numpy(array) for name, array in arrays.items()}
        sims, labels = torch.from_numpy(sims), torch.from_numpy(np.where(ids >= 0, e.y[ids], -1))
        return NeighbourBatch(sims, labels, self.shares, self.prototypes, **gathered)


def part_rows(spaces: Sequence[EmbeddingSpace], part: int) -> list[tuple[EmbeddingSpace, np.ndarray]]:
    """Row ids (M,) of a part in each embedding space that has such rows, in the order of `spaces`."""
    parts = [(space, space.embeddings.rows(part)) for space in spaces]
    return [(space, rows) for space, rows in parts if len(rows)]


def classes_of(spaces: Sequence[EmbeddingSpace], part: int) -> np.ndarray:
    """True classes int64 (M,) of the rows of a part in all spaces, in the order of `part_rows`."""
    return np.concatenate([np.asarray(space.embeddings.y[rows]) for space, rows in part_rows(spaces, part)])


def part_neighbours(spaces: Sequence[EmbeddingSpace], part: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Similarities and labels (M, k) of the neighbours of the rows of a part, in the order of `part_rows`."""
    batches = [space.around(rows, k) for space, rows in part_rows(spaces, part)]
    return np.concatenate([b.sims.numpy() for b in batches]), np.concatenate([b.labels.numpy() for b in batches])


def label_votes(space: EmbeddingSpace, y: np.ndarray, rows: np.ndarray, k: int) -> Float[np.ndarray, "M C"]:
    """Share of each label among the k nearest bank rows, the row itself excluded.

    Args:
        y: (N,) labels.
        rows: (M,) row ids of the queries.
        k: lowered to the neighbours stored.
    """
    ids = space.neighbours.take(rows, min(k, space.neighbours.ids.shape[1]))[0]  # (M, K)
    c, rows_idx = len(space.embeddings.classes), np.arange(len(rows))[:, None]
    votes = np.bincount((rows_idx * c + y[ids])[ids >= 0], minlength=len(rows) * c).reshape(len(rows), c)
    return votes / votes.sum(1, keepdims=True)
