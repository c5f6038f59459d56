"""Models from what people have: a table, embeddings, folders of pictures, or a split of the pipeline."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from rich.console import Console
from scipy.special import ndtr
from tqdm import tqdm

from attnknn.app.model.examples import Examples
from attnknn.app.model.inputs import Batch, Input, Pictures, Rows, Vectors, embedded
from attnknn.app.model.model import Cases, Model
from attnknn.app.model.reading import open_array, open_vectors
from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.core.artifacts import BANK, TEST, Split
from attnknn.core.errors import require
from attnknn.evaluation.metrics import scores

_CASES = 2000  # test cases that are kept to be looked at


def teach(
    source: Path,
    *,
    target: str | None = None,
    rows: Path | None = None,
    encoder: Path | None = None,
    layout: dict[str, Any] | None = None,
    drop: Sequence[str] = (),
    kinds_given: Mapping[str, Sequence[str]] = MappingProxyType({}),
    test: float = 0.1,
    seed: int = 0,
    **params: Any,
) -> tuple[Model, dict[str, Any]]:
    """A fitted model, and its scores on rows that it never saw.

    Args:
        source: a CSV file with a column `target`; a .npy file (N, D) whose labels are in `rows`; a folder with a folder
            of pictures a class, or with such folders under train/ and test/, and an `encoder`; or a `Split` of the
            pipeline with the encoder that was trained on its bank.
        target: column of the labels.
        rows: a CSV file with a row for each vector, or a file of labels alone.
        encoder: folder of an `Encoder`.
        layout: of CSV files: keyword arguments of `tables.row_chunks`.
        drop: columns to leave out.
        kinds_given: columns that are `numeric` or `categories`, whatever they look like; see `schema.column_kinds`.
        test: share of the rows that are kept out, of each class; a split, and a folder test/, say themselves.
        seed: draws these rows, and is the classifier's.
        params: of `AttnKNNClassifier`.

    Returns:
        The model; and rows in the memory (`memory`), `classes`, rows kept out (`test`), columns left out as ids
        (`left_out`) and, if rows were kept out, the `metrics.scores` on them.

    Raises:
        InputError: something is missing or does not fit.
    """
    require(0 <= test < 1, f"test: {test}; give a share of the rows from 0 to below 1")
    require(0 <= seed < 2**32, f"seed: {seed}; give a whole number from 0 to 4294967295")
    layout = layout or {}
    if source.is_dir():
        what = "a split" if (source / "meta.json").is_file() else "a folder of pictures"
        lacks = f"{source}: {what} needs --encoder, the folder of an encoder such as models/encoder/cifar10/42"
        require(encoder is not None, f"{lacks}; the pipeline trains one")
        assert encoder is not None
        require(
            (encoder / "config.json").is_file(),
            f"{encoder}: no encoder; give the folder of one, as the pipeline trains",
        )
        if what == "a split":
            return _of_split(Split.load(source), encoder, layout, seed, params)
        given, batch, labels, part = _of_folders(source, encoder, test, seed)
        return _fitted(given, given.vectors(batch), labels, part, given.examples(batch), seed, params)
    if source.suffix.lower() == ".npy":
        labels, beside = _labels_of(source, rows, target, layout)
        batch = _vectors(source, len(labels), rows)
        given = Vectors(batch.values.shape[1])
        part = kept_out(labels, test, seed)
        return _fitted(given, given.vectors(batch), labels, part, Examples(table=beside), seed, params)
    require(source.exists(), f"{source}: no such file or folder; correct the path")
    known = source.suffix.lower() in (".csv", ".tsv", ".txt", ".data")
    require(known, f"{source}: neither a .csv nor a .npy file nor a folder; give one of these")
    for name, other in (("--rows", rows), ("--encoder", encoder)):
        require(other is None, f"{name}: {other} given, but {source} is a table, which takes none; leave it out")
    given, batch, labels, part = _of_table(source, target, layout, drop, kinds_given, test, seed)
    model, about = _fitted(given, given.vectors(batch), labels, part, given.examples(batch), seed, params)
    return model, {**about, "left_out": list(given.schema.ids)}


def kept_out(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Rows to test on, bool (N,): a share of each class, rounded down, drawn by the seed."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, counts = np.unique(labels, return_counts=True)
    place = np.concatenate([np.arange(n) for n in counts])
    out = np.zeros(len(labels), dtype=bool)
    out[order] = place < np.repeat((counts * share + 1e-9).astype(int), counts)
    return out


def _fitted(
    given: Input,
    X: np.ndarray,
    labels: np.ndarray,
    part: np.ndarray,
    examples: Examples,
    seed: int,
    params: dict[str, Any],
    held_out: np.ndarray | None = None,
) -> tuple[Model, dict[str, Any]]:
    """Fit and score on vectors X (N, D); `part`, bool (N,), is kept out, and of `held_out` the head learns."""
    known = ~part if held_out is None else ~part & ~held_out
    classes = np.unique(labels[known])
    require(
        len(classes) > 1, f"labels: {classes[0] if len(classes) else 'none'} alone; give rows of two classes or more"
    )
    most = len(classes) <= max(2, int(known.sum()) // 2)
    require(
        most, f"labels: {len(classes)} different ones in {known.sum()} rows; they are no classes, so put classes there"
    )
    model = AttnKNNClassifier(random_state=seed, **params)
    learned_on = None if held_out is None else (X[held_out], labels[held_out])
    # A spinner, where somebody looks on: how many epochs it takes is not known.
    with Console(stderr=True).status("learning how much neighbours count …"):
        model.fit(X[known], labels[known], held_out=learned_on)
    test = np.flatnonzero(part & np.isin(labels, classes))
    about: dict[str, Any] = {"memory": int(known.sum()), "classes": len(classes), "test": len(test), "left_out": []}
    cases = None
    if len(test):
        probs = model.predict_proba(X[test])
        about |= scores(np.maximum(probs, np.finfo(np.float32).tiny), np.searchsorted(classes, labels[test]))
        some = np.sort(np.random.default_rng(seed).permutation(test)[:_CASES])
        cases = Cases(X[some], labels[some], examples.take(some))
    return Model(model, given, examples.take(np.flatnonzero(known)), cases), about


def _of_table(
    path: Path,
    target: str | None,
    layout: dict[str, Any],
    drop: Sequence[str],
    given: Mapping[str, Sequence[str]],
    test: float,
    seed: int,
) -> tuple[Rows, Batch, np.ndarray, np.ndarray]:
    from attnknn.data.read_csv import read_csv
    from attnknn.data.schema import column_kinds, fit_schema

    require(target is not None, f"{path}: which column is to be predicted? name it with --target")
    frame, found = read_csv(path, str(target), drop=drop, **layout)
    labels = found.to_numpy(str)
    part = kept_out(labels, test, seed)
    schema = fit_schema(frame, column_kinds(frame, **given), ~part)
    return Rows(schema, layout), Batch(list(frame.index), frame), labels, part


def _labels_of(path: Path, rows: Path | None, target: str | None, layout: dict[str, Any]) -> tuple[np.ndarray, Any]:
    require(path.exists(), f"{path}: no such file; correct the path")
    require(rows is not None, f"{path}: where are the labels? name their file with --rows")
    assert rows is not None
    labels, beside = read_labels(rows, target, layout)
    return labels, None if beside is None else beside.reset_index(drop=True)


def _vectors(path: Path, count: int, rows: Path | None) -> Batch:
    array = open_vectors(path)
    require(count == len(array), f"{rows}: {count} rows for {len(array)} vectors in {path}")
    return Batch([f"{path.name} row {i}" for i in range(count)], np.asarray(array, dtype=np.float64))


def _of_folders(folder: Path, encoder: Path, test: float, seed: int) -> tuple[Pictures, Batch, np.ndarray, np.ndarray]:
    given = _picture_input(encoder)
    tops = [folder / name for name in ("train", "test")]
    official = all(path.is_dir() for path in tops)
    of: list[tuple[Path, bool]] = []
    for top in tops if official else [folder]:
        classes = sorted(path for path in top.iterdir() if path.is_dir() and not path.name.startswith("."))
        few = f"{top}: {len(classes)} class folders in it; two or more are needed, with pictures of a class each"
        require(len(classes) > 1, few)
        of += [(path, official and top.name == "test") for path in classes]
    batches: list[Batch] = []
    labels: list[str] = []
    in_test: list[bool] = []
    with tqdm(desc="read", unit=" pictures", delay=2, disable=None) as bar:
        for path, tests in of:
            for batch in given.batches([str(path)]):
                batches.append(batch)
                labels += [path.name] * len(batch.names)
                in_test += [tests] * len(batch.names)
                bar.update(len(batch.names))
    names = np.array(labels)
    part = np.array(in_test) if official else kept_out(names, test, seed)
    found = [name for batch in batches for name in batch.names]
    return given, Batch(found, np.concatenate([batch.values for batch in batches])), names, part


def _picture_input(folder: Path) -> Pictures:
    from attnknn.encoder.encoder import Encoder

    encoder, about = Encoder.load(folder)
    require(len(encoder.config["shape"]) == 3, f"{folder}: an encoder of tables; give one of images")
    return Pictures(encoder, bool(about.get("bf16", False)))


def _of_split(
    split: Split, folder: Path, layout: dict[str, Any], seed: int, params: dict[str, Any]
) -> tuple[Model, dict[str, Any]]:
    """The bank becomes the memory; the head learns on fit and val rows, which the encoder was not trained on."""
    from attnknn.data.schema import Schema
    from attnknn.encoder.encoder import Encoder

    encoder, about = Encoder.load(folder)
    shape = tuple(encoder.config["shape"])
    require(shape == split.x.shape[1:], f"{folder}: reads rows of shape {shape}; the split's are {split.x.shape[1:]}")
    labels, part = np.array(split.classes)[split.y], np.asarray(split.part)
    given: Input
    if split.is_image:
        given = Pictures(encoder, bool(about.get("bf16", False)))
        examples = given.examples(Batch([], np.asarray(split.x)))
    else:
        schema = Schema.from_dict(split.schema)
        given = Rows(schema, layout, encoder)
        examples = Examples(table=decoded(schema, np.asarray(split.x)))
    test, taught = part == TEST, (part != TEST) & (part != BANK)
    require(taught.sum() > 1, "split: no fit and val rows to learn on; set prepare.fit and prepare.val above 0")
    z = embedded(encoder, np.asarray(split.x), bool(about.get("bf16", False)))
    return _fitted(given, z, labels, test, examples, seed, params, taught)


def decoded(schema: Any, x: np.ndarray) -> Any:
    """The columns (N, F) that a `Schema` made, as texts again: a data frame, NaN where a value was missing.

    Numbers come to six digits; of ranks as near as the quantiles lie. Rare categories are one.
    """
    import pandas as pd

    from attnknn.data.schema import MISSING

    place = {name: i for i, name in enumerate(schema.features)}
    columns: dict[str, Any] = {}
    for column in schema.numeric:
        v = x[:, place[column.name]].astype(np.float64)
        if column.quantiles:
            v = np.interp(ndtr(v), np.linspace(0, 1, len(column.quantiles)), column.quantiles)
        else:
            v = v * column.scale + column.mean
        texts = np.array([f"{value:.6g}" for value in v], dtype=object)
        if column.marked:
            texts[x[:, place[f"{column.name} missing"]] > 0.5] = np.nan
        columns[column.name] = texts
    for column in schema.categories:
        wide = x[:, [place[name] for name in column.names]]
        values = np.array([*column.values, *(["(rare)"] if column.rare else []), ""], dtype=object)
        texts = values[np.where(wide.any(1), wide.argmax(1), len(values) - 1)]
        columns[column.name] = np.where((texts == MISSING) | (texts == ""), np.nan, texts)
    return pd.DataFrame(columns)


def read_labels(path: Path, column: str | None, layout: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """Labels (N,) as texts of a file with a row each, and its other columns, if there are any.

    Args:
        path: a one-dimensional .npy file, or a CSV file.
        column: of the labels; None where there is one alone.

    Raises:
        InputError: the file or the column is missing, or a label is.
    """
    if path.suffix.lower() == ".npy":
        labels = open_array(path)
        require(labels.ndim == 1 and labels.dtype.kind in "iuUb", f"{path}: labels are whole numbers or texts (rows,)")
        return labels.astype(str), None
    from attnknn.data.read_csv import read_csv, read_rows

    if column is None:
        frame = read_rows(path, **layout)
        many = ", ".join(frame.columns)
        require(frame.shape[1] == 1, f"{path.name}: columns {many}; name that of the labels with --target")
        column = str(frame.columns[0])
        labels = frame[column]
        missing = labels.index[labels.isna()]
        require(not len(missing), f"{missing[0] if len(missing) else ''}: no label")
        return labels.to_numpy(str), None
    rest, labels = read_csv(path, column, **layout)
    return labels.to_numpy(str), rest
