"""Save and load a fitted classifier: model.json, arrays.safetensors, and the bank with its FAISS index. No pickle.

Of a memory in a table, address and version are saved.
"""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from safetensors.numpy import load_file, save_file

from attnknn.classifier.linear import LinearClassifier
from attnknn.classifier.memory import Memory
from attnknn.classifier.nearest import BaseMemory
from attnknn.core.artifacts import check_array
from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_folder, leftovers, read_json, recover, usual_mode, write_json
from attnknn.heads.baselines import Distance, Uniform
from attnknn.heads.label_noise import DOUBT, check_transition
from attnknn.heads.registry import LearnedHead, restored_head
from attnknn.index.bank import Bank
from attnknn.index.faiss_index import similarities
from attnknn.index.validation import check_vectors

if TYPE_CHECKING:
    from attnknn.classifier.table_memory import TableMemory
    from attnknn.index.lance_bank import LanceBank

FORMAT = 5  # 4 has no tables, 3 no label noise, 2 no linear classifier
_DAMAGED = "{}: damaged (SHA-256 differs); copy it again, or fit and save again"
_MAX_ID = 2**62  # ids of rows to be added stay far from the end of int64
_META, _ARRAYS, _BANK = "model.json", "arrays.safetensors", "bank"
# Arrays of a memory: name on disk → attribute.
_NAMES = ("ids", "y", "weight", "near_ids", "near_sims", "sums")
_MEMORY_ARRAYS = {name: name.replace("near_", "neighbour_") for name in _NAMES}
T = TypeVar("T")
AnyHead = LearnedHead | Distance | Uniform
_BASELINES = {"distance": Distance, "uniform": Uniform}


def head_to_arrays(head: AnyHead) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Configuration and weights of a head, to be saved."""
    if isinstance(head, Distance | Uniform):
        return {"kind": type(head).__name__.lower(), **dataclasses.asdict(head)}, {}
    weights = {name: tensor.cpu().numpy() for name, tensor in head.state_dict().items()}
    return {"kind": "attention", **head.config}, weights


def head_from_arrays(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> AnyHead:
    """Head from `head_to_arrays`: on the CPU, float64, in evaluation mode."""
    import torch

    config = dict(config)
    kind = config.pop("kind")
    if kind in _BASELINES:
        return _BASELINES[kind](**config)
    weights = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return restored_head(config, weights).double()


class Parts(NamedTuple):
    """Contents of a saved model."""

    memory: BaseMemory  # the training rows
    head: AnyHead  # float64
    arrays: dict[str, np.ndarray]  # other fitted arrays
    values: dict[str, Any]  # other fitted values, JSON-serialisable


class LockedError(InputError):
    """Another process holds the lock of a model."""


@contextmanager
def model_lock(folder: Path, timeout: float = 60) -> Iterator[None]:
    """Hold the lock of a model's folder, under which every process and thread changes it. Reentrant in a thread.

    Raises:
        LockedError: the lock was held elsewhere for `timeout` seconds.
    """
    from filelock import FileLock, Timeout

    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), is_singleton=True)
    try:
        lock.acquire(timeout)
    except Timeout:
        raise LockedError(f"{folder}: another process is changing it; try again") from None
    try:
        yield
    finally:
        lock.release()


def save_parts(
    parts: Parts, folder: Path, write_more: Callable[[Path], None] | None, read_back: Callable[[Path], object]
) -> None:
    """Write to `folder`, atomically, with checksums, also of the files that `write_more` adds to the new folder.

    Args:
        read_back: reads the new folder before it takes the place of the earlier one, and raises where it cannot.

    Raises:
        InputError: `folder` holds something other than a model, or another process keeps changing it.
    """
    from attnknn import __version__

    folder = folder.resolve()  # a symbolic link is kept
    config, weights = head_to_arrays(parts.head)
    memory = parts.memory
    if isinstance(memory, Memory):
        table, arrays = None, {f"memory.{name}": getattr(memory, own) for name, own in _MEMORY_ARRAYS.items()}
        if memory.given_y is not memory.y:
            arrays["memory.given_y"] = memory.given_y
    else:
        table, arrays = cast("TableMemory", memory).to_arrays()
    if memory.strength is not None:
        arrays |= {f"linear.{name}": array for name, array in vars(memory.linear_classifier()).items()}
    arrays |= {f"head.{name}": array for name, array in weights.items()}
    arrays |= {f"own.{name}": array for name, array in parts.arrays.items()}
    with model_lock(folder):
        recover(folder)
        check_destination(folder, with_input=write_more is not None)
        with atomic_folder(folder, sync=True) as draft:
            if isinstance(memory, Memory):
                memory.bank.save(draft / _BANK)
            with usual_mode(draft / _ARRAYS):
                save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, draft / _ARRAYS)
            if write_more is not None:
                write_more(draft)
            files = (path for path in sorted(draft.rglob("*")) if path.is_file())
            digests = {path.relative_to(draft).as_posix(): _digest(path) for path in files}
            meta = {"format": FORMAT, "attnknn": __version__, "head": config, "next_id": memory.next_id}
            meta = {**meta, "strength": memory.strength, "about": parts.values, "table": table, "sha256": digests}
            write_json(draft / _META, {**meta, "own_sha256": _meta_digest(meta)})
            read_back(draft)


def check_destination(folder: Path, with_input: bool = True) -> None:
    """Check that saving to `folder` would overwrite nothing but a model.

    Args:
        with_input: whether files beside the classifier's, such as the schema of `attnknn fit`, are written too.

    Raises:
        InputError: it is a file, a folder without a model, a folder with other files beside a model, one that is or
            holds the working directory, which would be lost, or a model whose other files would be lost.
    """
    with suppress(FileNotFoundError):  # the working directory was removed
        used = Path.cwd().is_relative_to(folder.resolve())
        require(not used, f"{folder}: is or holds the working directory, and would be replaced; cd out of it first")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        meta = json.loads((folder / _META).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        meta = {}
    is_model = isinstance(meta, dict) and isinstance(meta.get("sha256"), dict) and "format" in meta
    require(is_model, f"{folder}: exists and is not a model; name another folder")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    others = sorted(files - {*meta["sha256"], _META})
    require(not others, f"{folder}: holds {', '.join(others[:3])} beside a model, which would be lost; move it away")
    lost = sorted({name.partition("/")[0] for name in meta["sha256"]} - {_ARRAYS, _BANK})
    lines = f"{folder}: a model of the command line, whose {', '.join(lost)}/ would be lost"
    require(with_input or not lost, f"{lines}; save to another folder, or change it by `attnknn add` or `forget`")


def read_consistently(folder: Path, read: Callable[[], T], retries: int = 20) -> T:
    """Call `read`, again if another process replaced the folder meanwhile, so that files of two models never mix.

    Recovers first from a save that was killed.
    """
    recover_unlocked(folder)
    before = file_identity(folder)
    try:
        result = read()
        if not retries or file_identity(folder) == before:
            return result
    except (InputError, OSError):
        if not retries or (before is not None and file_identity(folder) == before):
            raise
    time.sleep(0.01)
    # No folder at first: a save may be between moving the old one away and moving the new one in.
    return read_consistently(folder, read, 0 if before is None else retries - 1)


def recover_unlocked(folder: Path) -> None:
    """Recover from a save that was killed, unless another process holds the lock."""
    if leftovers(folder.resolve()):
        with suppress(LockedError, OSError), model_lock(folder, timeout=0):
            recover(folder.resolve())


def file_identity(path: Path) -> tuple[int, int] | None:
    """Inode and modification time of a file or folder; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def load_parts(folder: Path, storage: str | Path | None = None) -> Parts:
    """Read a model saved by `save_parts`, after checking the checksums; `storage` is the address of a moved table.

    Raises:
        InputError: not a model, a later format, or a missing or damaged file.
    """
    meta = _read_meta(folder)
    for name, digest in meta["sha256"].items():
        path = folder / name
        require(path.is_file(), f"{path}: missing; copy the whole folder again, or fit and save again")
        require(_digest(path) == digest, _DAMAGED.format(path))
    bank = _open_table(meta["table"], storage) if meta.get("table") else None
    try:
        arrays = load_file(folder / _ARRAYS)
        memory = _memory(meta, arrays, Bank.load(folder / _BANK)) if bank is None else _table(meta, arrays, bank)
        own, weights, linear = (_with_prefix(arrays, prefix) for prefix in ("own.", "head.", "linear."))
        for name, array in (own | weights | linear).items():
            require(array.dtype.kind != "f" or bool(np.isfinite(array).all()), f"{name}: NaN or infinite values")
        head = head_from_arrays(meta["head"], weights)
        if "logits" in head.needs:
            assert isinstance(memory, Memory), "a table has no linear classifier"
            memory.strength, memory.linear = meta["strength"], LinearClassifier(**linear)
            _check_linear(memory.strength, memory.linear, memory.sums.shape)
        return Parts(memory, head, own, meta["about"])
    except Exception as error:  # values of other types and shapes raise anything
        raise incomplete(folder, error) from None


def _open_table(table: dict[str, Any], storage: str | Path | None) -> "LanceBank":
    from attnknn.index.lance_bank import LanceBank

    uri = table["uri"] if storage is None else storage
    try:
        bank = LanceBank.open(uri)
    except InputError as error:
        raise InputError(f"{error}; if the table was moved, give its address as storage, else fit again") from None
    with suppress(InputError):  # deleted, as rows of it were forgotten
        return LanceBank.open(uri, table["version"])
    return bank


def _table(meta: dict[str, Any], arrays: dict[str, np.ndarray], bank: "LanceBank") -> "TableMemory":
    from attnknn.classifier.table_memory import TableMemory

    values = meta["about"]
    labels = np.array(values["classes"], dtype=np.dtype(values["classes_dtype"]))
    own = {name: arrays[f"memory.{name}"] for name in ("counts", "sums", "mean")}
    memory = TableMemory(bank, labels, **own, next_id=meta["next_id"], **meta["table"]["values"])
    for name, dtype, shape in (("counts", "int64", (len(labels),)), ("mean", "float64", (bank.dimensions,))):
        check_array(name, own[name], dtype, 1)
        require(own[name].shape == shape, f"{name}: {len(own[name])} values; expected {shape[0]}")
    check_array("sums", memory.sums, "float64", 2)
    require(memory.sums.shape == (len(labels), bank.dimensions), "sums: not of all classes and dimensions")
    if bank.version != meta["table"]["version"]:
        memory.recount()
    require(len(memory) == len(bank) and own["counts"].min() >= 0, f"counts: not those of the {len(bank)} rows")
    require(0 < memory.unit < math.inf and 0 <= memory.known <= memory.next_id <= _MAX_ID, "unit, known or next_id")
    return memory


def _memory(meta: dict[str, Any], arrays: dict[str, np.ndarray], bank: Bank) -> Memory:
    columns = {attribute: arrays[f"memory.{name}"] for name, attribute in _MEMORY_ARRAYS.items()}
    _check_memory(columns, bank, meta["next_id"])
    memory = Memory(bank=bank, next_id=meta["next_id"], **columns)
    memory.given_y = arrays.get("memory.given_y", memory.y)
    check_array("given_y", memory.given_y, "int64", 1)
    in_range = len(memory.given_y) == len(memory)
    in_range = in_range and 0 <= memory.given_y.min() <= memory.given_y.max() < len(memory.sums)
    require(in_range, "given: not a class number of each row")
    return memory


def incomplete(folder: Path, error: Exception) -> InputError:
    """The error of a model whose parts do not fit."""
    reason = f"{type(error).__name__} {error}".removeprefix("InputError ").partition("; ")[0]
    return InputError(f"{folder}: incomplete model ({reason[:200]}); fit and save again")


def _check_memory(arrays: dict[str, np.ndarray], bank: Bank, next_id: Any) -> None:
    """Check the types, shapes, ranges and finite values of the arrays of a memory."""
    for name, dtype, ndim in (("ids", "int64", 1), ("y", "int64", 1), ("weight", "float32", 1), ("sums", "float64", 2)):
        check_array(name, arrays[name], dtype, ndim)
    check_array("neighbour_ids", arrays["neighbour_ids"], "int32 or int64", 2)
    z = check_vectors("vectors", bank.z)
    ids, y, weight, neighbours, sims, sums = (arrays[attribute] for attribute in _MEMORY_ARRAYS.values())
    order = np.argsort(bank.ids, kind="stable")[len(bank.ids) - len(ids) :]
    rising = len(ids) > 1 and bool((np.diff(ids) > 0).all())
    in_range = rising and type(next_id) is int and 0 <= ids[0] <= ids[-1] < next_id <= _MAX_ID
    require(in_range and len(bank) == len(ids) and np.array_equal(bank.ids[order], ids), "ids: not those of the index")
    require(len(y) == len(ids) and 0 <= y.min() <= y.max() < len(sums), "y: not a class number of each row")
    require(len(weight) == len(ids) and weight.min() > 0, "weight: not a number above 0 of each row")
    require(sums.shape[1] == z.shape[1], f"sums: {sums.shape[1]} dimensions; the index has {z.shape[1]}")
    fits = len(neighbours) == len(ids) and neighbours.shape[1] > 0
    fits = fits and neighbours.shape == sims.shape and sims.dtype == np.float32
    fits = fits and bool((np.isin(neighbours, ids) | (neighbours == -1)).all())
    fits = fits and bool(np.where(neighbours >= 0, np.isfinite(sims), sims == -np.inf).all())
    require(fits, "neighbours: not rows of the memory with their similarities")
    nearest = similarities(z[order], z[order], np.searchsorted(ids, neighbours[:, :1]), bank.metric)
    same = np.isclose(nearest, sims[:, :1], rtol=1e-3) | (neighbours[:, :1] < 0)
    require(bool(same.all()), "neighbours: other similarities than the vectors have")


def _check_linear(strength: Any, linear: LinearClassifier, shape: tuple[int, ...]) -> None:
    """Check the types and shapes of the linear classifier of a memory of `shape` (C, D)."""
    require(type(strength) is float and 0 < strength < math.inf, "strength: not a number above 0")
    check_array("coef", linear.coef, "float64", 2)
    check_array("intercept", linear.intercept, "float64", 1)
    fits = linear.coef.shape == shape and len(linear.intercept) == shape[0]
    require(fits, f"coef, intercept: not of {shape[0]} classes and {shape[1]} dimensions")


def check_classifier(
    memory: BaseMemory, values: dict[str, Any], arrays: dict[str, np.ndarray], held_out: np.ndarray
) -> None:
    """Check the types, shapes and ranges of what else a saved classifier holds: conformity scores `held_out` (M,)."""
    n_classes, dim = memory.sums.shape
    for name, size in (("origin", dim), ("scale", n_classes), ("bias", n_classes)):
        check_array(name, arrays[name], "float64", 1)
        require(len(arrays[name]) == size, f"{name}: {len(arrays[name])} values; expected {size}")
    labels, names, fitted = values["classes"], values["feature_names"], values["fitted"]
    classes = np.unique(np.array(labels, dtype=np.dtype(values["classes_dtype"])))
    require(classes.tolist() == labels and len(labels) == n_classes, f"classes: not {n_classes} sorted labels")
    named = isinstance(names, list) and len(names) in (0, dim) and all(type(name) is str for name in names)
    require(named, f"feature_names: not {dim} names")
    require(type(fitted["n_iter_"]) is int and fitted["n_features_in_"] == dim, "n_iter_ or n_features_in_: wrong")
    require(fitted["_unit"] > 0 and fitted["_usual_weight"] > 0, "scale of rows or weights: not above 0")
    if "transition" in arrays:
        check_transition(arrays["transition"], n_classes)
    usual = arrays.get("usual_distances", held_out[:0])
    for name, array in (("held_out", held_out), ("usual_distances", usual)):
        check_array(name, array, "float64", 1)
    require(bool((np.diff(usual, prepend=0) >= 0).all()), "usual_distances: negative, or not ascending")
    positive = values["params"]["calibration"] == "vector" or float(arrays["scale"].min()) > 0
    require(positive, "scale: not above 0")
    n = len(held_out)
    require(round(1 / fitted["_doubt"]) in (n + 1, round(1 / DOUBT)), f"held_out: {n} scores, not as many as fitted")


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / _META
    try:
        require(path.is_file(), f"{folder}: no saved model ({_META} is missing); give the folder that `save` wrote")
        meta = read_json(path, "copy it again, or fit and save again")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    number = meta.get("format")
    if type(number) is not int or number < 1 or "sha256" not in meta:
        raise InputError(f"{path}: not a model of Attn-KNN; give a folder that `save` wrote")
    version = f"{folder}: format {number}, written by attnknn {meta.get('attnknn')}"
    require(number <= FORMAT, f"{version}; this version reads up to {FORMAT}: upgrade")
    digest = meta.pop("own_sha256", None)
    intact = digest == _meta_digest(meta) and isinstance(meta["sha256"], dict)
    intact = intact and not any(".." in Path(name).parts or Path(name).is_absolute() for name in meta["sha256"])
    require(intact, _DAMAGED.format(path))
    return meta


def _meta_digest(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
