"""What a head is given: queries with their nearest bank rows, and what is known of these."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnknn.core.artifacts import BANK, Embeddings, Neighbours, NeighbourStatistics
from attnknn.core.errors import require
from attnknn.core.files import read_json, write_json
from attnknn.nn.votes import class_shares

_PARTS = ("embeddings", "neighbours", "statistics")
NEEDS = ("query", "keys", "agreement", "density")  # what is gathered only for heads that ask for it


@dataclass(frozen=True)
class NeighbourBatch:
    """Queries with their K nearest bank rows, nearest first.

    A missing neighbour has label −1 and similarity −inf. What no head asked for (see `heads.Head`) is None.

    Attributes:
        sims: the bank's similarities.
        labels: classes of the neighbours.
        query: embeddings of the queries.
        keys: embeddings of the neighbours.
        agreement: share of each neighbour's own neighbours that carry its label, at S sizes.
        density: mean similarity of each neighbour to its own neighbours.
        shares: class shares of the bank, all above 0.
        prototypes: mean embedding of each class in the bank, at unit length.
        log_weight: logarithm of each neighbour's own weight, whatever the query; None where all weigh the same.
        log_share, features: precomputed by a head, see `heads.attention.Attention.precompute`; else None.
    """

    sims: Float[Tensor, "B K"]
    labels: Int[Tensor, "B K"]
    shares: Float[Tensor, " C"]
    prototypes: Float[Tensor, "C D"]
    query: Float[Tensor, "B D"] | None = None
    keys: Float[Tensor, "B K D"] | None = None
    agreement: Float[Tensor, "B K S"] | None = None
    density: Float[Tensor, "B K"] | None = None
    log_weight: Float[Tensor, "B K"] | None = None
    log_share: Float[Tensor, "B K"] | None = None
    features: Float[Tensor, "B K F"] | None = None

    def require(self, name: str) -> Tensor:
        """What is here under that name; a head reads so what it asked for."""
        value = getattr(self, name)
        assert value is not None, f"{name} was not gathered; name it in the head's `needs`"
        return value

    def to(self, target: str | torch.dtype) -> "NeighbourBatch":
        """The same on another device, or with floats of another type."""

        def moved(value: Tensor | None) -> Tensor | None:
            kept = value is None or (isinstance(target, torch.dtype) and not value.is_floating_point())
            return value if kept else value.to(target)  # type: ignore[union-attr]

        return NeighbourBatch(**{f.name: moved(getattr(self, f.name)) for f in fields(self)})  # type: ignore[arg-type]

    def take(self, idx: Int[Tensor, " M"]) -> "NeighbourBatch":
        """The queries at some places, in that order."""
        of_bank = ("shares", "prototypes")

        def taken(name: str) -> Tensor | None:
            value = getattr(self, name)
            return value if value is None or name in of_bank else value[idx]

        return NeighbourBatch(**{f.name: taken(f.name) for f in fields(self)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class EmbeddingSpace:
    """Embeddings with the stored neighbours of their rows and the statistics of their bank.

    `log_weight` (N,) is the logarithm of each row's own weight, None where all weigh the same; it is not saved.
    """

    embeddings: Embeddings
    neighbours: Neighbours
    statistics: NeighbourStatistics
    log_weight: np.ndarray | None = None

    def save(self, folder: Path) -> None:
        """Write the three artifacts to folders inside `folder`."""
        for name in _PARTS:
            getattr(self, name).save(folder / name)

    @classmethod
    def load(cls, embeddings: Path, neighbours: Path, statistics: Path) -> "EmbeddingSpace":
        """Open the three artifacts.

        Raises:
            InputError: one is missing, damaged, or does not fit the others.
        """
        e, n, about = Embeddings.load(embeddings), Neighbours.load(neighbours), NeighbourStatistics.load(statistics)
        fits = len(e.z) == len(about.density) and int(n.ids.max()) < len(e.z) and int(n.rows[-1]) < len(e.z)
        require(fits, f"{statistics}: does not belong to {embeddings} and {neighbours}; run `dvc repro`")
        return cls(e, n, about)

    @classmethod
    def load_whole(cls, folder: Path) -> "EmbeddingSpace":
        """Open what `save` wrote to `folder`.

        Raises:
            InputError: as for `load`.
        """
        return cls.load(*(Path(folder) / name for name in _PARTS))

    @classmethod
    def load_all(cls, embeddings: Path, neighbours: Path) -> "list[EmbeddingSpace]":
        """Open the main space and those of the cross-fitting folds, whose folders bear the same names in both.

        Raises:
            InputError: as for `load`.
        """
        names = ["main", *(path.name for path in sorted(embeddings.glob("fold_*"), key=lambda p: int(p.name[5:])))]
        return [cls.load(embeddings / n, *(neighbours / n / part for part in _PARTS[1:])) for n in names]

    @staticmethod
    def save_folds(spaces: "Iterable[EmbeddingSpace]", folder: Path) -> None:
        """Write each to the folders 0, 1, … in `folder`, one after another, and how many they are to `folds.json`."""
        folds = 0
        Path(folder).mkdir(exist_ok=True)
        for folds, space in enumerate(spaces, 1):
            space.save(Path(folder) / str(folds - 1))
        write_json(Path(folder) / "folds.json", {"folds": folds})

    @classmethod
    def load_folds(cls, folder: Path) -> "list[EmbeddingSpace]":
        """Open what `save_folds` wrote.

        Raises:
            InputError: as for `load`.
        """
        folds = read_json(Path(folder) / "folds.json")["folds"]
        return [cls.load_whole(Path(folder) / str(fold)) for fold in range(folds)]

    @cached_property
    def shares(self) -> Float[Tensor, " C"]:
        """Class shares of the bank."""
        e, rows = self.embeddings, self.embeddings.rows(BANK)
        weights = None if self.log_weight is None else np.exp(self.log_weight[rows])
        return class_shares(np.asarray(e.y[rows]), len(e.classes), weights)

    @cached_property
    def prototypes(self) -> Float[Tensor, "C D"]:
        """Mean embedding of each class in the bank."""
        return torch.from_numpy(np.array(self.statistics.prototypes))

    def around(self, rows: np.ndarray, k: int, needs: Collection[str] = ()) -> NeighbourBatch:
        """The k stored neighbours of the given query rows.

        Args:
            needs: what to gather beside similarities and labels, out of `NEEDS`; it takes longer than a vote does.

        Raises:
            InputError: k is above the neighbours stored, or a row was never searched for.
        """
        ids, sims = self.neighbours.take(rows, k)
        e = self.embeddings
        of_rows = {"query": (e.z, rows), "keys": (e.z, ids)}
        of_rows |= {"agreement": (self.statistics.agreement, ids), "density": (self.statistics.density, ids)}
        gathered = {name: torch.from_numpy(np.asarray(of_rows[name][0][of_rows[name][1]])) for name in needs}
        labels = np.where(ids >= 0, e.y[ids], -1)
        if self.log_weight is not None:
            gathered["log_weight"] = torch.from_numpy(self.log_weight[ids])
        return NeighbourBatch(
            torch.from_numpy(sims), torch.from_numpy(labels), self.shares, self.prototypes, **gathered
        )


def part_rows(spaces: Sequence[EmbeddingSpace], part: int) -> list[tuple[EmbeddingSpace, np.ndarray]]:
    """Row ids (M,) of a part in each embedding space that has such rows, in the order of `spaces`."""
    parts = [(space, space.embeddings.rows(part)) for space in spaces]
    return [(space, rows) for space, rows in parts if len(rows)]


def classes_of(spaces: Sequence[EmbeddingSpace], part: int) -> np.ndarray:
    """True classes int64 (M,) of the rows of a part in all spaces, in the order of `part_rows`."""
    return np.concatenate([np.asarray(space.embeddings.y[rows]) for space, rows in part_rows(spaces, part)])


def part_neighbours(spaces: Sequence[EmbeddingSpace], part: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Similarities and labels (M, k) of the neighbours of the rows of a part, in the order of `part_rows`.

    Raises:
        InputError: a space stores fewer than k neighbours.
    """
    batches = [space.around(rows, k) for space, rows in part_rows(spaces, part)]
    return np.concatenate([b.sims.numpy() for b in batches]), np.concatenate([b.labels.numpy() for b in batches])
