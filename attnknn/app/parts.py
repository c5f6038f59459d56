"""Tables of many rows: read in blocks, and written as a folder of Parquet files, one a block.

An interrupted job continues with the blocks whose files are missing.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnknn.app.model.embedders import open_embedder
from attnknn.app.model.inputs import Vectors
from attnknn.app.model.model import Model
from attnknn.core.cluster import run_tasks
from attnknn.core.errors import InputError, require
from attnknn.core.files import load_array

try:
    import pyarrow as pa
    import pyarrow.parquet
    from pyarrow.fs import FileSelector
except ImportError:
    raise InputError("pyarrow: not installed; run `pip install attnknn[tables]`") from None

from attnknn.core.tables import absolute, file_system, is_lance, parquet_files, to_arrow, to_vectors

_IMAGES, _ROWS = 2048, 16_384  # rows of a block
_JOB = "_job.json"  # readers of Parquet folders pass over names that begin with _


class Source(NamedTuple):
    """Rows start … stop of a .npy file or a Lance table, or of these row groups of a Parquet file in a folder."""

    kind: str
    folder: str
    address: str
    state: str  # version of a table; size and time of a file
    start: int = 0
    stop: int = 0


def embed_images(
    encoder: str, weights: Path | None, images: Sequence[Path], folder: str, cluster: str | None = None
) -> None:
    """Write the columns `vector`, `label` (name of the image's folder) and `path` of images; see `open_embedder`."""
    paths = [absolute(path) for path in images]
    pieces = [tuple(paths[start : start + _IMAGES]) for start in range(0, len(paths), _IMAGES)]
    encoder = encoder if ":" in encoder else os.path.realpath(encoder)
    files = open_embedder(encoder, weights).files
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    states = [_state(path) for path in paths]
    job = {"encoder": digest, "images": _digest([*pieces, states])}
    _write_parts(partial(_embed_block, encoder, weights and weights.resolve()), pieces, folder, job, cluster, "embed")


def predict_table(
    folder: Path, source: str, output: str, probabilities: bool = False, cluster: str | None = None
) -> None:
    """Write predictions of vectors: `label`, `confidence`, `distance_percentile`, and the source's other columns.

    Args:
        source: .npy file, Parquet file or folder, or address of a Lance table, with vectors in the column `vector` or
            numbers in the columns of the model.
        probabilities: whether to add a column for each class.
    """
    places = [address if "://" in address else os.path.realpath(address) for address in map(absolute, (output, source))]
    inside = f"{places[0]}/".startswith(f"{places[1]}/")
    require(not inside, f"--output: {output} is in the folder of the input {source}; give another")
    pieces = list(_blocks(absolute(source)))
    meta, version = (folder / "model.json").read_bytes(), _table_version(_model(str(folder.resolve())))
    job = {"model": hashlib.sha256(meta).hexdigest(), "rows": _digest(pieces), "probabilities": probabilities}
    job["version"] = version
    call = partial(_predict_block, str(folder.resolve()), version, probabilities)
    _write_parts(call, pieces, output, job, cluster, "predict")


def _digest(pieces: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(pieces).encode()).hexdigest()


def _write_parts(
    compute: Callable[[Any], dict[str, Any]],
    pieces: Sequence[Any],
    folder: str,
    job: dict[str, Any],
    cluster: str | None,
    name: str,
) -> None:
    """Write the columns that `compute` returns of each piece to `part-….parquet`; skip those that are there.

    Raises:
        InputError: the folder holds files of something else.
    """
    system, root = file_system(folder)
    system.create_dir(root, recursive=True)
    names = {Path(info.path).name for info in system.get_file_info(FileSelector(root))}
    present = {name for name in names if not name.startswith(".")}  # others are drafts
    text = json.dumps({"job": name, "blocks": len(pieces), **job}, indent=2).encode()
    if present - {_JOB}:
        require(_JOB in present, f"{folder}: holds other files; name another folder")
        with system.open_input_file(f"{root}/{_JOB}") as file:
            same = file.read() == text
        require(same, f"{folder}: holds the results of another job, or of other files; name another folder")
    else:
        with system.open_output_stream(f"{root}/.{_JOB}") as file:
            file.write(text)
        system.move(f"{root}/.{_JOB}", f"{root}/{_JOB}")
    names = [f"part-{i:06}.parquet" for i in range(len(pieces))]
    tasks = [(part, piece) for part, piece in zip(names, pieces, strict=True) if part not in present]
    for _ in run_tasks(partial(_write_part, compute, absolute(folder)), tasks, cluster, name):
        pass


def _write_part(compute: Callable[[Any], dict[str, Any]], folder: str, task: tuple[str, Any]) -> None:
    part, piece = task
    system, root = file_system(folder)
    table = pa.table(compute(piece))
    draft = f"{root}/.{part}"  # the same for a task that runs again
    pyarrow.parquet.write_table(table, draft, filesystem=system)
    system.move(draft, f"{root}/{part}")


_embedder = lru_cache(1)(open_embedder)


def _embed_block(encoder: str, weights: Path | None, paths: tuple[str, ...]) -> dict[str, Any]:
    z = _embedder(encoder, weights)([Path(path) for path in paths])
    return {"vector": to_arrow(z), "label": [Path(path).parent.name for path in paths], "path": list(paths)}


@lru_cache(1)
def _model(folder: str) -> Model:
    return Model.load(Path(folder))


def _table_version(model: Model) -> int:
    """Version of the table that holds the model's rows, or 0."""
    return getattr(getattr(model.classifier.memory_, "bank", None), "version", 0)


def _predict_block(folder: str, version: int, probabilities: bool, source: Source) -> dict[str, Any]:
    model = _model(folder)
    require(_table_version(model) == version, f"{folder}: rows were forgotten meanwhile; write to another folder")
    require(isinstance(model.input, Vectors), f"{folder}: reads {model.input.kind}; predict those to a file")
    vectors, columns = _read(source, getattr(model.classifier, "feature_names_in_", ()))
    n, shape = model.classifier.n_features_in_, vectors.shape
    fits = shape[1:] == (n,) and vectors.dtype.kind in "biuf"
    require(fits, f"{source.address}: {vectors.dtype} of shape {shape}; the model takes {n} numbers a row")
    finite = np.isfinite(vectors.astype(float, copy=False)).all(axis=1)
    group, first = (f"row group {source.start}, ", 0) if source.kind == "parquet" else ("", source.start)
    row = first + int(finite.argmin())
    require(bool(finite.all()), f"{source.address}: {group}row {row}: NaN or infinite values; remove the row")
    probs, percentiles, _ = model.classifier.predict_with_novelty(model.with_names(vectors))
    own = {"label": model.classifier.classes_[probs.argmax(1)], "confidence": probs.max(1)}
    own["distance_percentile"] = percentiles
    if probabilities:
        own |= {f"p({label})": p for label, p in zip(model.classifier.classes_, probs.T, strict=True)}
    repeated = ", ".join(columns.keys() & own.keys())
    require(not repeated, f"{source.address}: column {repeated}: predictions have one of this name; rename it")
    return columns | own


def _blocks(source: str) -> Iterator[Source]:
    """Blocks of a table: of rows, or of Parquet the row groups of each file."""
    if source.endswith(".npy"):
        require("://" not in source, f"{source}: a .npy file must be on this machine; give Parquet or Lance")
        kind, n, state = "npy", len(load_array(Path(source))), _state(source)
    elif is_lance(source):
        table = _lance(source)
        state = f"{table.version} {table.versions()[-1]['timestamp']}"  # the second tells tables apart
        kind, n = "lance", table.count_rows()
    else:
        prefix = source.partition("://")[0] + "://" if "://" in source else ""
        for file in (prefix + name for name in sorted(parquet_files(source).files)):
            groups = _fragment(file, source)[0].num_row_groups
            require(groups > 0, f"{file}: no rows; leave it out")
            yield from (Source("parquet", source, file, _state(file), i, i + 1) for i in range(groups))
        return
    require(n > 0, f"{source}: no rows")
    yield from (Source(kind, source, source, state, start, min(start + _ROWS, n)) for start in range(0, n, _ROWS))


def _fragment(file: str, folder: str) -> tuple[Any, Any]:
    """Arrow's fragment of a Parquet file, and the columns with those of its place in the folder."""
    table = parquet_files(file, folder)
    return next(table.get_fragments()), table.schema


def _state(file: str) -> str:
    """Size and time of a file, which differ after a change."""
    system, path = file_system(file)
    info = system.get_file_info(path)
    return f"{info.size} {info.mtime_ns}"


def _lance(address: str, version: int | None = None) -> Any:
    from attnknn.index.lance_table import open_table

    return open_table(address, version)


_version_of = cache(_lance)


def _read(source: Source, features: Sequence[str]) -> tuple[np.ndarray, dict[str, Any]]:
    """Vectors (M, D) of a block, and its other columns; `features` are the columns of vectors that are no list."""
    kind, folder, address, state, start, stop = source
    if kind == "npy":
        return np.asarray(load_array(Path(address))[start:stop]), {"row": np.arange(start, stop)}
    if kind == "lance":
        table = _version_of(address, int(state.split()[0])).to_table(offset=start, limit=stop - start)
    else:
        fragment, schema = _fragment(address, folder)
        table = fragment.subset(row_group_ids=list(range(start, stop))).to_table(schema=schema)
    require(table.num_rows > 0, f"{address}: no rows; leave it out")
    names = ["vector"] if "vector" in table.column_names else list(features)
    missing = [name for name in names if name not in table.column_names]
    expected = "give vectors in a column `vector`, or the columns that the model was fitted on"
    require(bool(names) and not missing, f"{address}: no column {', '.join(missing[:5]) or 'vector'}; {expected}")
    vectors = to_vectors(table, names, address)
    columns = {name: table[name] for name in table.column_names if name not in {"label", *names}}
    if "label" in table.column_names:
        require("given_label" not in columns, f"{address}: columns label and given_label; rename one of them")
        columns["given_label"] = table["label"]
    return vectors, columns
