"""Typed artifacts that stages exchange: validated when constructed and loaded, written atomically.

An artifact is a folder: one `.npy` file per array, opened memory-mapped, and `meta.json` for the other values.
Row ids are positions in the dataset's `Split` and mean the same row in every artifact of that dataset and seed.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_folder, load_array, read_json, write_json

PARTS = ("bank", "fit", "val", "test")
BANK, FIT, VAL, TEST = range(4)


def _blocks(value: np.ndarray) -> Iterator[slice]:
    """Rows of 2²² values: checking a memory-mapped array takes little memory."""
    step = max(1, 2**22 * len(value) // max(1, value.size))
    return (slice(s, s + step) for s in range(0, len(value), step))


def check_array(name: str, value: np.ndarray, dtype: str, ndim: int) -> None:
    """Raise InputError unless an array has this dtype ("uint8 or float32"), dimensions and finite values."""
    require(value.dtype.name in dtype.split(" or "), f"{name}: dtype {value.dtype.name}; expected {dtype}")
    require(value.ndim == ndim, f"{name}: shape {value.shape}; expected {ndim} dimensions")
    if value.dtype.kind == "f":
        finite = all(np.isfinite(value[rows]).all() for rows in _blocks(value))
        require(finite, f"{name}: NaN or infinite values in an array of shape {value.shape}")


class Artifact:
    """A frozen dataclass of arrays and plain values, stored as a folder."""

    def save(self, folder: Path) -> None:
        """Write the artifact to `folder`, atomically."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        with atomic_folder(folder) as draft:
            for name, value in fields.items():
                if isinstance(value, np.ndarray):
                    np.save(draft / f"{name}.npy", value, allow_pickle=False)
            plain = {name: value for name, value in fields.items() if not isinstance(value, np.ndarray | None)}
            write_json(draft / "meta.json", {"artifact": type(self).__name__, **plain})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the artifact in `folder`; arrays are memory-mapped, read-only.

        Raises:
            InputError: the folder is missing, damaged, or holds another kind of artifact.
        """
        folder = Path(folder)
        meta = read_json(folder / "meta.json")
        kind = meta.pop("artifact", None)
        require(kind == cls.__name__, f"{folder}: holds {kind}, not {cls.__name__}; run `dvc repro`")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in meta.items()}
        for path in sorted(folder.glob("*.npy")):
            values[path.stem] = load_array(path, remedy=f"delete {folder} and run `dvc repro`")
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"{folder}: incomplete {cls.__name__} ({error}); run `dvc repro`") from None
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None


class _Parted(Artifact):
    part: np.ndarray

    def rows(self, part: int) -> np.ndarray:
        """Row ids of a part, ascending: int64 (M,)."""
        return np.flatnonzero(self.part == part)


@dataclass(frozen=True)
class Split(_Parted):
    """A dataset with the part of each row."""

    x: np.ndarray  # uint8 (N, C, H, W) images, or float32 (N, F) tables
    y: np.ndarray  # int64 (N,), class numbers 0 … C−1
    part: np.ndarray  # int8 (N,), positions in `PARTS`
    classes: tuple[str, ...]
    features: tuple[str, ...] = ()  # names of a table's F columns; empty for images
    schema: dict[str, Any] = dataclasses.field(default_factory=dict)  # `Schema.to_dict` of a table; empty for images
    groups: np.ndarray | None = None  # int64 (N,), rows of one group stay together; None without a column of groups

    def __post_init__(self) -> None:
        check_array("x", self.x, "uint8 or float32", 4 if self.is_image else 2)
        _check_labels(self.y, self.part, len(self.x), len(self.classes))
        named = self.is_image or len(self.features) == self.x.shape[1]
        require(named, f"features: {len(self.features)} names for {self.x.shape[1]} columns")
        if self.groups is not None:
            check_array("groups", self.groups, "int64", 1)
            require(len(self.groups) == len(self.y), f"groups: {len(self.groups)} for {len(self.y)} rows")
        empty = [name for part, name in enumerate(PARTS) if not (self.part == part).any()]
        require(not empty, f"part: no rows in {', '.join(empty)}; give more data or other shares")
        missing = np.setdiff1d(np.arange(len(self.classes)), self.y[self.part == BANK])
        names = ", ".join(self.classes[c] for c in missing)
        require(not names, f"part: the bank holds no row of class {names}; give more rows of it")

    @property
    def is_image(self) -> bool:
        """Whether x holds images."""
        return self.x.dtype == np.uint8


def _check_labels(y: np.ndarray, part: np.ndarray, n: int, n_classes: int) -> None:
    check_array("y", y, "int64", 1)
    check_array("part", part, "int8", 1)
    require(len(y) == n and len(part) == n, f"rows: {n} in x, {len(y)} in y, {len(part)} in part; they must agree")
    require(n > 0, "rows: none")
    require(n_classes >= 2, f"classes: {n_classes}; a classifier needs at least two")
    low, high = int(y.min()), int(y.max())
    require(low >= 0 and high < n_classes, f"y: values {low} … {high}; expected 0 … {n_classes - 1}")
    require(bool(np.isin(part, range(4)).all()), "part: values outside 0 … 3 (bank, fit, val, test)")


@dataclass(frozen=True)
class Embeddings(_Parted):
    """The encoder's embedding of every row of a `Split`."""

    z: np.ndarray  # float32 (N, D)
    y: np.ndarray  # int64 (N,)
    part: np.ndarray  # int8 (N,)
    classes: tuple[str, ...]
    logits: np.ndarray | None = None  # float32 (N, C) of the encoder's linear head, or None without one

    def __post_init__(self) -> None:
        check_array("z", self.z, "float32", 2)
        _check_labels(self.y, self.part, len(self.z), len(self.classes))
        if self.logits is not None:
            check_array("logits", self.logits, "float32", 2)
            expected = (len(self.z), len(self.classes))
            require(self.logits.shape == expected, f"logits: shape {self.logits.shape}; expected {expected}")


def embedding_folders(folder: Path) -> list[Path]:
    """Folders of the main embeddings and of those of the cross-fitting folds, in their order."""
    return [folder / "main", *sorted(folder.glob("fold_*"), key=lambda path: int(path.name[5:]))]


@dataclass(frozen=True)
class Neighbours(Artifact):
    """The K nearest bank rows of each query row, nearest first; a smaller k is a slice `[:, :k]`."""

    rows: np.ndarray  # int32 (M,), the query rows, ascending
    ids: np.ndarray  # int32 (M, K), bank rows; −1 pads where an approximate index returned fewer than K
    sims: np.ndarray  # float32 (M, K), −‖q − k‖² (or q·k under inner product), descending; −inf where ids is −1
    metric: str  # `l2` or `ip`

    def __post_init__(self) -> None:
        check_array("rows", self.rows, "int32", 1)
        check_array("ids", self.ids, "int32", 2)
        require(self.sims.dtype == np.float32, f"sims: dtype {self.sims.dtype}; expected float32")
        require(self.metric in ("l2", "ip"), f"metric: {self.metric}; expected l2 or ip")
        agree = self.ids.shape == self.sims.shape and len(self.ids) == len(self.rows)
        require(agree, f"shapes: rows {self.rows.shape}, ids {self.ids.shape}, sims {self.sims.shape} do not agree")
        for rows in _blocks(self.ids):
            valid = np.isfinite(self.sims[rows]) == (self.ids[rows] >= 0)
            require(bool(valid.all()), "sims: must be finite exactly where ids is not −1")
        require(bool((self.ids[:, :1] >= 0).all()), "ids: a query has no neighbour")
        require(bool((np.diff(self.rows) > 0).all()), "rows: must ascend")

    def take(self, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and similarities (B, k) of query rows.

        Raises:
            InputError: k is above the K stored, or a row has no stored neighbours.
        """
        stored = self.ids.shape[1]
        require(1 <= k <= stored, f"k: {k} neighbours requested, {stored} stored; raise k_max, or lower k")
        idx = np.searchsorted(self.rows, rows)
        missing = int((self.rows[np.minimum(idx, len(self.rows) - 1)] != rows).sum())
        require(not missing, f"rows: {missing} rows have no stored neighbours")
        return self.ids[idx, :k], self.sims[idx, :k]


@dataclass(frozen=True)
class NeighbourStatistics(Artifact):
    """Label agreement and density of each bank row (0 for other rows), and class prototypes."""

    agreement: np.ndarray  # float32 (N, S), share of a row's `sizes[s]` nearest other bank rows with its label
    density: np.ndarray  # float32 (N,), mean similarity of a row to its `sizes[-1]` nearest other bank rows
    prototypes: np.ndarray  # float32 (C, D), mean embedding of each class's bank rows, at unit length
    sizes: tuple[int, ...]  # the S neighbourhood sizes, ascending

    def __post_init__(self) -> None:
        check_array("agreement", self.agreement, "float32", 2)
        check_array("density", self.density, "float32", 1)
        check_array("prototypes", self.prototypes, "float32", 2)
        expected = (len(self.density), len(self.sizes))
        require(self.agreement.shape == expected, f"agreement: shape {self.agreement.shape}; expected {expected}")
        low, high = float(self.agreement.min()), float(self.agreement.max())
        require(low >= 0 and high <= 1, f"agreement: values {low:.3g} … {high:.3g}; expected shares")


# By method: probabilities of fit, val and test rows.
PartProbs = Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Predictions(Artifact):
    """Class probabilities of every method on the same rows."""

    rows: np.ndarray  # int32 (N,)
    y: np.ndarray  # int64 (N,), the true classes
    probs: np.ndarray  # float32 (M, N, C), rows sum to 1
    methods: tuple[str, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_array("rows", self.rows, "int32", 1)
        check_array("y", self.y, "int64", 1)
        check_array("probs", self.probs, "float32", 3)
        expected = (len(self.methods), len(self.rows), len(self.classes))
        require(self.probs.shape == expected, f"probs: shape {self.probs.shape}; expected {expected}")
        require(len(self.y) == len(self.rows), f"y: {len(self.y)} labels for {len(self.rows)} rows")
        error = float(np.abs(self.probs.sum(-1) - 1).max())
        valid = error < 1e-4 and float(self.probs.min()) >= 0
        require(valid, f"probs: rows must be ≥ 0 and sum to 1; off by {error:.2g}")


@dataclass(frozen=True)
class PeerPredictions(Artifact):
    """Class probabilities of other classifiers: of fit and val rows of all embedding spaces, and of test rows."""

    methods: tuple[str, ...]
    fit: np.ndarray  # float32 (M, F, C)
    val: np.ndarray  # float32 (M, V, C)
    test: np.ndarray  # float32 (M, N, C)

    def __post_init__(self) -> None:
        for name in ("fit", "val", "test"):
            check_array(name, getattr(self, name), "float32", 3)
            n = len(getattr(self, name))
            require(n == len(self.methods), f"{name}: {n} methods; expected {len(self.methods)}")

    @classmethod
    def from_probs(cls, probs: PartProbs) -> "PeerPredictions":
        return cls(tuple(probs), *(np.stack(by_part) for by_part in zip(*probs.values(), strict=True)))

    @property
    def by_method(self) -> PartProbs:
        return dict(zip(self.methods, zip(self.fit, self.val, self.test, strict=True), strict=True))
