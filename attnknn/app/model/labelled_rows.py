"""Rows with labels, from a CSV file, vectors, an image folder or a split of the pipeline."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr
from tqdm import tqdm

from attnknn.app.model.examples import Examples
from attnknn.app.model.inputs import Batch, Input, Pictures, Rows, Vectors, embed_rows
from attnknn.app.model.read_files import has_vectors, image_files, open_vectors, parquet_vectors
from attnknn.core.artifacts import BANK, TEST, Split
from attnknn.core.duplicates import first_identical, split_groups
from attnknn.core.errors import InputError, require
from attnknn.core.files import display_name, load_array
from attnknn.data.read_csv import TABLES, read_csv, read_rows, refuse_continuous
from attnknn.data.schema import MISSING, Schema, column_kinds, fit_schema, refuse_dwarfing_numbers
from attnknn.encoder.encoder import Encoder


class LabelledRows(NamedTuple):
    """Rows to fit and test on."""

    input: Input  # encodes further rows like these
    X: np.ndarray  # (N, D)
    labels: np.ndarray  # (N,)
    is_test: np.ndarray  # bool (N,)
    examples: Examples
    first: np.ndarray  # (N,) of `first_identical`
    groups: np.ndarray  # (N,) of `split_groups`
    names: Sequence[str]  # of each row, for messages
    held_out: np.ndarray | None = None  # bool (N,), rows to fit the head on; None for folds of the memory
    left_out: tuple[str, ...] = ()  # columns left out as ids
    seen: int = 0  # pictures that the encoder was trained on


def load_rows(
    source: Path,
    target: str | None = None,
    rows: Path | None = None,
    encoder: Path | None = None,
    layout: dict[str, Any] | None = None,
    drop: Sequence[str] = (),
    numeric: Sequence[str] = (),
    categories: Sequence[str] = (),
    test: float = 0.0,
    seed: int = 0,
    stored: Sequence[str] = (),
    pictures: str = "",
) -> LabelledRows:
    """Read the rows and labels of a source; arguments and errors as of `fit_model`."""
    require(0 <= test < 1, f"test: {test}; give a share of the rows from 0 to below 1")
    require(0 <= seed < 2**32, f"seed: {seed}; give a whole number from 0 to 4294967295")
    layout = layout or {}
    is_table = source.name.lower().endswith(TABLES)
    is_vectors = (source.suffix.lower() == ".npy" and not source.is_dir()) or has_vectors(source)
    require(is_table or not stored, "--store: of tables; columns of --rows are all stored")
    require(is_vectors or not pictures, "--pictures: a column beside vectors; leave it out")
    if is_vectors:
        return _load_vectors(source, rows, target, layout, target in categories, test, seed, pictures)
    if source.is_dir():
        is_split = (source / "meta.json").is_file()
        kind = "a split" if is_split else "a folder of pictures"
        if encoder is None:
            needed = "needs --encoder, the folder of an encoder such as models/encoder/cifar10/42"
            raise InputError(
                f"{source}: {kind} {needed}; the pipeline trains one. Or embed pictures: attnknn embed --help"
            )
        is_encoder = (encoder / "config.json").is_file()
        require(is_encoder, f"{encoder}: not an encoder; give the folder of one, as the pipeline trains")
        return _load_split(source, encoder, layout) if is_split else _load_folders(source, encoder, test, seed)
    require(source.exists(), f"{source}: no such file or folder; correct the path")
    others = f"neither a .csv nor a .npy file nor a folder; names of tables end with {', '.join(TABLES)}"
    require(is_table, f"{source}: {others}")
    for name, value in (("--rows", rows), ("--encoder", encoder)):
        require(value is None, f"{name}: {value}: not used for a table such as {source}; leave it out")
    return _load_table(source, target, layout, drop, numeric, categories, test, seed, stored)


def stratified_mask(labels: np.ndarray, share: float, seed: int, first: np.ndarray | None = None) -> np.ndarray:
    """Draw a share of the rows of each class, rounded down: bool (N,).

    Args:
        first: (N,) of `split_groups`: of identical rows all are drawn, or none if they exceed the share of a class.
    """
    members: dict[int, list[int]] = {}
    for row, group in enumerate(range(len(labels)) if first is None else first.tolist()):
        members.setdefault(group, []).append(row)
    wanted = {label: int(n * share + 1e-9) for label, n in Counter(labels.tolist()).items()}
    mask = np.zeros(len(labels), dtype=bool)
    for group in np.random.default_rng(seed).permutation(len(labels)).tolist():
        rows = members.get(group, [])  # none if it is a copy
        counts = Counter(labels[rows].tolist())
        if all(n <= wanted[label] for label, n in counts.items()):
            mask[rows] = True
            for label, n in counts.items():
                wanted[label] -= n
    return mask


def _load_table(
    path: Path,
    target: str | None,
    layout: dict[str, Any],
    drop: Sequence[str],
    numeric: Sequence[str],
    categories: Sequence[str],
    test: float,
    seed: int,
    stored: Sequence[str],
) -> LabelledRows:
    """Rows of a CSV file, with a schema fitted on those that are not test cases."""
    require(target is not None, f"{path}: no label column; name it with --target")
    frame, label_column = read_csv(path, str(target), drop=drop, **layout)
    if target not in categories:
        refuse_continuous(label_column.rename(f"{path.name}, column {target!r}"))
    labels = label_column.to_numpy(str)
    missing = [name for name in stored if name not in frame]
    require(not missing, f"{path.name}: no column {', '.join(missing)} to store; correct --store")
    table, frame = frame, frame.drop(columns=list(stored))
    require(frame.shape[1] > 0, f"{path.name}: no column beside those to store; give at least one feature")
    columns = column_kinds(frame, numeric, [name for name in categories if name != target])
    refuse_dwarfing_numbers(frame, columns)
    x = fit_schema(frame, columns, np.ones(len(frame), bool)).encode(frame)
    first = first_identical(x)
    groups = split_groups(first, x)
    is_test = stratified_mask(labels, test, seed, groups)
    schema = fit_schema(frame, columns, ~is_test)
    model_input, batch = Rows(schema, layout, stored=tuple(stored)), Batch(list(table.index), table)
    X, examples = model_input.vectors(batch), model_input.examples(batch)
    return LabelledRows(model_input, X, labels, is_test, examples, first, groups, batch.names, left_out=schema.ids)


def _load_vectors(
    path: Path,
    rows: Path | None,
    target: str | None,
    layout: dict[str, Any],
    continuous: bool,
    test: float,
    seed: int,
    pictures: str,
) -> LabelledRows:
    """Vectors of a .npy file with the labels and columns of `rows`, or of Parquet files with theirs beside them."""
    if path.suffix.lower() == ".npy":
        require(path.exists(), f"{path}: no such file; correct the path")
        if rows is None:
            raise InputError(f"{path}: no labels; name their file with --rows")
        labels, columns = read_labels(rows, target, layout)
        array = open_vectors(path)
        require(
            len(labels) == len(array),
            f"{rows}: {len(labels)} rows below a header line for {len(array)} vectors in {path}",
        )
    else:
        require(rows is None, f"--rows: {rows}: {path} has the columns itself; leave it out")
        array, labels, columns = _read_parquet(path, target)
    file = rows or path
    if not continuous:
        refuse_continuous(pd.Series(labels, name=f"{file.name}, column {target!r}" if target else file.name))
    names = [f"{path.name} row {i}" for i in range(len(array))]
    model_input = Vectors(array.shape[1], pictures=pictures)
    X = model_input.vectors(Batch(names, np.asarray(array, dtype=np.float64)))
    examples = model_input.beside(columns, file if file.is_dir() else file.parent)
    first = first_identical(X)
    groups = split_groups(first, X)
    is_test = stratified_mask(labels, test, seed, groups)
    return LabelledRows(model_input, X, labels, is_test, examples, first, groups, names)


def _read_parquet(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray, pd.DataFrame | None]:
    """Vectors, labels, and the other columns as texts or None."""
    batches = list(parquet_vectors(str(path)))
    frame = pd.concat([beside for _, beside in batches])
    names = ", ".join(map(str, frame)) or "none"
    require(target is not None, f"{path}: no label column; name it with --target: {names}")
    require(target in frame, f"{path}: no column {target!r}; name that of the labels with --target: {names}")
    require(not frame[target].isna().any(), f"{path}: rows without a label in column {target!r}; leave them out")
    columns = frame.drop(columns=[str(target)]).reset_index(drop=True)
    dims = {vectors.shape[1] for vectors, _ in batches}
    require(len(dims) == 1, f"{path}: vectors of {' and '.join(map(str, sorted(dims)))} numbers; give one length")
    vectors = np.concatenate([vectors for vectors, _ in batches])
    return vectors, frame[target].to_numpy(str), columns if columns.shape[1] else None


def _load_folders(folder: Path, encoder_folder: Path, test: float, seed: int) -> LabelledRows:
    """Images in class folders; train/ and test/ are an official split."""
    encoder, config = Encoder.load(encoder_folder)
    require(len(encoder.config["shape"]) == 3, f"{encoder_folder}: an encoder of tables; give one of images")
    pictures = Pictures(encoder, bool(config.get("bf16", False)))
    official = all((folder / name).is_dir() for name in ("train", "test"))
    rows: list[tuple[Path, str, bool]] = []  # of each image: path, class, and whether it is in test/
    for top in (folder / "train", folder / "test") if official else (folder,):
        classes = sorted(path for path in top.iterdir() if path.is_dir() and not path.name.startswith("."))
        require(len(classes) > 1, f"{top}: {len(classes)} class folders; two or more are needed, one a class")
        for path in classes:
            rows += [(image, path.name, top.name == "test") for image in image_files([str(path)])]
    paths = tqdm([path for path, _, _ in rows], desc="read", unit=" pictures", delay=2, disable=None)
    images = Batch([], np.stack([pictures.read(path) for path in paths]))
    labels, first = np.array([name for _, name, _ in rows]), first_identical(images.values)
    groups = split_groups(first, images.values)
    is_test = np.array([in_test for _, _, in_test in rows]) if official else stratified_mask(labels, test, seed, groups)
    names = [display_name(path) for path, _, _ in rows]
    X, examples, seen = pictures.vectors(images), pictures.examples(images), _seen(encoder_folder, images.values)
    return LabelledRows(pictures, X, labels, is_test, examples, first, groups, names, seen=seen)


def _seen(encoder_folder: Path, images: np.ndarray) -> int:
    """How many of the images the encoder was trained on, if it lies in a pipeline beside its split."""
    folder = encoder_folder.resolve()
    if folder.parts[-4:-2] != ("models", "encoder"):
        return 0
    split_folder = folder.parents[3] / "data" / "split" / folder.parent.name / folder.name
    if not (split_folder / "meta.json").is_file():
        return 0
    split = Split.load(split_folder)
    if split.x.shape[1:] != images.shape[1:]:
        return 0
    bank = np.asarray(split.x)[np.asarray(split.part) == BANK]
    return int((first_identical(np.concatenate([bank, images]))[len(bank) :] < len(bank)).sum())


def _load_split(source: Path, encoder_folder: Path, layout: dict[str, Any]) -> LabelledRows:
    """Bank rows as the memory; the head is fitted on fit and val rows, which the encoder was not trained on."""
    split = Split.load(source)
    encoder, config = Encoder.load(encoder_folder)
    bf16 = bool(config.get("bf16", False))
    shape = tuple(encoder.config["shape"])
    shapes = f"reads rows of shape {shape}; the split's are {split.x.shape[1:]}"
    require(shape == split.x.shape[1:], f"{encoder_folder}: {shapes}")
    x, labels, part = np.asarray(split.x), np.array(split.classes)[split.y], np.asarray(split.part)
    model_input: Input
    if split.is_image:
        model_input = Pictures(encoder, bf16)
        examples = model_input.examples(Batch([], x))
    else:
        schema = Schema.from_dict(split.schema)
        model_input = Rows(schema, layout, encoder)
        examples = Examples(table=decode_columns(schema, x))
    held_out = (part != TEST) & (part != BANK)
    require(held_out.sum() > 1, f"{source}: no fit and val rows; set prepare.fit and prepare.val above 0")
    X, first = embed_rows(encoder, x, bf16), first_identical(x)
    names = [f"row {i}" for i in range(len(x))]
    groups = split_groups(first, x)
    return LabelledRows(model_input, X, labels, part == TEST, examples, first, groups, names, held_out)


def decode_columns(schema: Schema, x: np.ndarray) -> pd.DataFrame:
    """Decode the columns (N, F) of a `Schema` to a data frame of strings, NaN where a value was missing.

    Numbers have six digits; quantile-scaled ones are interpolated between quantiles. Rare categories are "(rare)".
    """
    index = {name: i for i, name in enumerate(schema.features)}
    columns: dict[str, Any] = {}
    for column in schema.numeric:
        values = x[:, index[column.name]].astype(np.float64)
        if column.quantiles:
            values = np.interp(ndtr(values), np.linspace(0, 1, len(column.quantiles)), column.quantiles)
        else:
            values = values * column.scale + column.mean
        texts = np.array([f"{value:.6g}" for value in values], dtype=object)
        if column.marked:
            texts[x[:, index[f"{column.name} missing"]] > 0.5] = np.nan
        columns[column.name] = texts
    for column in schema.categories:
        one_hot = x[:, [index[name] for name in column.names]]
        names = np.array([*column.values, *(["(rare)"] if column.rare else []), ""], dtype=object)
        texts = names[np.where(one_hot.any(1), one_hot.argmax(1), len(names) - 1)]
        columns[column.name] = np.where((texts == MISSING) | (texts == ""), np.nan, texts)
    return pd.DataFrame(columns)


def read_labels(path: Path, column: str | None, layout: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """Read a file of labels: strings (N,), and the other columns of a CSV file or None.

    Args:
        path: a one-dimensional .npy file, or a CSV file.
        column: of the labels; None if the CSV file has no other.

    Raises:
        InputError: the file, the column or a label is missing.
    """
    if path.suffix.lower() == ".npy":
        require(column is None, f"--target {column}: {path.name} holds labels alone; leave it out")
        labels = load_array(path)
        valid = labels.ndim == 1 and labels.dtype.kind in "iuUb"
        require(valid, f"{path}: {labels.dtype} of shape {labels.shape}; expected integers or strings (rows,)")
        return labels.astype(str), None
    frame = read_rows(path, **layout)
    names = ", ".join(frame.columns)
    require(
        column is not None or frame.shape[1] == 1, f"{path.name}: columns {names}; name the label column with --target"
    )
    if column is None or list(frame.columns) == [column]:
        labels = frame[frame.columns[0]]
        require(not labels.isna().any(), f"{labels.isna().idxmax()}: no label")
        return labels.to_numpy(str), None
    columns, labels = read_csv(path, column, **layout)
    return labels.to_numpy(str), columns
