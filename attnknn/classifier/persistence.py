"""Save and load a fitted classifier: model.json, arrays.safetensors, and the bank with its FAISS index. No pickle.

Of a memory in a table, address and version are saved.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from safetensors.numpy import load_file, save_file

from attnknn.classifier.checks import MAX_ID, MEMORY_ARRAYS, check_linear, check_memory
from attnknn.classifier.linear import LinearClassifier
from attnknn.classifier.locking import model_lock
from attnknn.classifier.memory import Memory
from attnknn.classifier.nearest import BaseMemory
from attnknn.core.artifacts import check_array
from attnknn.core.errors import ChangedError, InputError, require
from attnknn.core.files import atomic_folder, read_json, recover, usual_mode, write_json
from attnknn.heads.baselines import Distance, Uniform
from attnknn.heads.registry import LearnedHead, restored_head
from attnknn.index.bank import Bank

if TYPE_CHECKING:
    from attnknn.classifier.table_memory import TableMemory
    from attnknn.index.lance_bank import LanceBank

FORMAT = 5  # 4 has no tables, 3 no label noise, 2 no linear classifier
_DAMAGED = "{}: damaged (SHA-256 differs); copy it again, or fit and save again"
_META, _ARRAYS, _BANK = "model.json", "arrays.safetensors", "bank"
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
        table, arrays = None, {f"memory.{name}": getattr(memory, own) for name, own in MEMORY_ARRAYS.items()}
        first_added = memory.first_added
        if memory.given_y is not memory.y:
            arrays["memory.given_y"] = memory.given_y
    else:
        first_added, (table, arrays) = None, cast("TableMemory", memory).to_arrays()
    if memory.strength is not None:
        linear = vars(memory.linear_classifier())
        arrays |= {f"linear.{name}": array for name, array in linear.items() if array.size}
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
            meta |= {"strength": memory.strength, "about": parts.values, "first_added": first_added}
            meta |= {"table": table, "sha256": digests}
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
    bank = _open_table(meta, storage) if meta.get("table") else None
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
            check_linear(memory.strength, memory.linear, memory.sums.shape)
        return Parts(memory, head, own, meta["about"])
    except Exception as error:  # values of other types and shapes raise anything
        raise incomplete(folder, error) from None


def _open_table(meta: dict[str, Any], storage: str | Path | None) -> "LanceBank":
    from attnknn.classifier.table_memory import probes_of
    from attnknn.index.lance_bank import LanceBank
    from attnknn.index.lance_rows import CACHE_BYTES

    table, params = meta["table"], meta["about"]["params"]
    options = {
        "cache_bytes": params.get("storage_cache", CACHE_BYTES),
        "probes": probes_of(params.get("index", "auto")),
    }
    uri = table["uri"] if storage is None else storage
    try:
        bank = LanceBank.open(uri, **options)
    except InputError as error:
        moved = "if the table was moved, give its address to `load` as storage and save the model, else fit again"
        raise InputError(f"{error}; {moved}") from None
    require(bank.uuid == table["uuid"], f"{uri}: another table than this model's; give its address as storage")
    with suppress(InputError):  # deleted, as rows of it were forgotten
        return LanceBank.open(uri, table["version"], **options)
    return bank


def _table(meta: dict[str, Any], arrays: dict[str, np.ndarray], bank: "LanceBank") -> "TableMemory":
    from attnknn.classifier.table_memory import TableMemory

    values = meta["about"]
    labels = np.array(values["classes"], dtype=np.dtype(values["classes_dtype"]))
    own = {name: arrays[f"memory.{name}"] for name in ("counts", "sums", "mean")}
    memory = TableMemory(bank, labels, **own, next_id=meta["next_id"], unit=meta["table"]["unit"])
    for name, dtype, shape in (("counts", "int64", (len(labels),)), ("mean", "float64", (bank.dimensions,))):
        check_array(name, own[name], dtype, 1)
        require(own[name].shape == shape, f"{name}: {len(own[name])} values; expected {shape[0]}")
    check_array("sums", memory.sums, "float64", 2)
    require(memory.sums.shape == (len(labels), bank.dimensions), "sums: not of all classes and dimensions")
    if bank.version != meta["table"]["version"]:
        memory.take_latest()
    require(len(memory) == len(bank) and own["counts"].min() >= 0, f"counts: not those of the {len(bank)} rows")
    require(0 < memory.unit < math.inf and 0 <= memory.next_id <= MAX_ID, "unit or next_id")
    return memory


def _memory(meta: dict[str, Any], arrays: dict[str, np.ndarray], bank: Bank) -> Memory:
    columns = {attribute: arrays[f"memory.{name}"] for name, attribute in MEMORY_ARRAYS.items()}
    check_memory(columns, bank, meta["next_id"])
    memory = Memory(bank=bank, next_id=meta["next_id"], **columns)
    memory.first_added = meta.get("first_added", memory.next_id)
    in_range = type(memory.first_added) is int and 0 <= memory.first_added <= memory.next_id
    require(in_range, f"first_added: {memory.first_added}, not an id up to {memory.next_id}")
    memory.given_y = arrays.get("memory.given_y", memory.y)
    check_array("given_y", memory.given_y, "int64", 1)
    in_range = len(memory.given_y) == len(memory)
    in_range = in_range and 0 <= memory.given_y.min() <= memory.given_y.max() < len(memory.sums)
    require(in_range, "given: not a class number of each row")
    return memory


def incomplete(folder: Path, error: Exception) -> InputError:
    """The error of a model whose parts do not fit."""
    if isinstance(error, ChangedError):
        return error
    reason = f"{type(error).__name__} {error}".removeprefix("InputError ").partition("; ")[0]
    return InputError(f"{folder}: incomplete model ({reason[:200]}); fit and save again")


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
