"""Raw files → `Split`: labels, subset, parts, then the values of the selected rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.duplicates import first_identical, split_groups
from attnknn.core.errors import InputError, require
from attnknn.core.files import load_array, read_json


def prepare(
    source: dict[str, Any],
    raw: Path,
    seed: int,
    *,
    test: float,
    val: float,
    fit: float,
    subset: int = 0,
    numeric: str = "standard",
) -> Split:
    """Read the raw files of a source and assign the parts; see `assign_parts`.

    Identical rows, and those of equal `groups` in the source, get the same part.

    Args:
        source: see `data/config.py`.
        raw: the folder that `download` filled.
        test, val, fit: shares; see `assign_parts`.
        subset: maximum number of rows, the same ones for every seed; 0 takes all.
        numeric: scaling of a table's numbers, arrays aside; see `schema.fit_schema`.

    Raises:
        InputError: a file is missing or malformed, or a class has too few rows.
    """
    readers = {
        "sklearn": _bundled,
        "torchvision": _official,
        "image_folder": _image_folder,
        "csv": _csv,
        "arrays": _arrays,
    }
    data = readers[source["kind"]](source, Path(raw))
    rows = subset_rows(data.y, data.test, subset)
    y, official = data.y[rows], None if data.test is None else data.test[rows]
    if data.images is not None:
        table, x = None, data.images(rows)
    else:
        from attnknn.data.schema import fit_schema  # imports pandas

        table = data.table.iloc[rows]
        x = fit_schema(table, data.kinds, np.ones(len(rows), bool)).encode(table)
    groups = None if data.groups is None else data.groups[rows]
    first = split_groups(first_identical(x), x, groups)
    shares = {"test": test, "val": val, "fit": fit}
    try:
        part = assign_parts(y, data.classes, seed, **shares, official=official, first=first, named=groups is not None)
    except InputError as error:
        hint = f" (subset: {subset} keeps {len(rows)} of {len(data.y)} rows)" if subset else ""
        raise InputError(f"{data.where}: {error}{hint}") from None
    if table is None:
        return Split(x, y, part, data.classes)
    schema = fit_schema(table, data.kinds, part == BANK, data.scale or numeric)
    return Split(schema.encode(table), y, part, data.classes, schema.features, schema.to_dict(), groups)


def prepare_repeats(
    source: dict[str, Any], raw: Path, seeds: Sequence[int], largest: int, **settings: Any
) -> dict[int, Split]:
    """`prepare` a small table with each seed, so that test rows differ; `settings` are its arguments.

    Empty for images, for more than `largest` rows, and with an official test set.
    """
    official = source.get("test") or source.get("test_x")
    if source["kind"] not in ("csv", "sklearn", "arrays") or official or not seeds:
        return {}
    first = prepare(source, raw, seeds[0], **settings)
    if first.is_image or len(first.y) > largest:
        return {}
    return {seeds[0]: first} | {seed: prepare(source, raw, seed, **settings) for seed in seeds[1:]}


def part_counts(n: int, *, test: float, val: float, fit: float) -> tuple[int, int, int, int]:
    """Rows of a class of n in (bank, fit, val, test): shares rounded down, at least one row each.

    test is a share of n, or 0 with an official test set; val and fit are shares of the others; the rest is the bank.
    """

    def share(rows: int, part: float) -> int:
        return max(1, int(rows * part + 1e-9)) if part else 0  # 1e-9: 0.29 · 100 is a little below 29

    n_test = share(n, test)
    n_val, n_fit = share(n - n_test, val), share(n - n_test, fit)
    return n - n_test - n_val - n_fit, n_fit, n_val, n_test


def assign_parts(
    y: np.ndarray,
    classes: tuple[str, ...],
    seed: int,
    *,
    test: float,
    val: float,
    fit: float,
    official: np.ndarray | None = None,
    first: np.ndarray | None = None,
    named: bool = False,
) -> np.ndarray:
    """Assign each row to a part at random, stratified by class: int8 (N,).

    Shares are of distinct rows, and duplicates follow, unless a class has too few distinct rows. A named group is never
    divided: its class is that of one row drawn from it, and where a class has too few groups, none are stratified.

    Args:
        y: int64 (N,).
        classes: the C class names.
        test: share of all rows; unused with `official`.
        val, fit: shares of the training rows; the rest is the bank.
        official: bool (N,), the official test rows, which are the test part.
        first: (N,) of `split_groups`; None if all rows differ.
        named: whether `first` has groups that the source names.

    Raises:
        InputError: a class has too few rows for one in each part, or there are too few groups.
    """
    test = test if official is None else 0.0
    official = np.zeros(len(y), bool) if official is None else official
    part = np.where(official, TEST, BANK).astype(np.int8)
    shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(~official))
    lead = np.arange(len(shuffled)) if first is None else first_identical(first[shuffled])
    distinct = shuffled[lead == np.arange(len(lead))]
    fewest = int(np.bincount(y[distinct], minlength=len(classes)).min())
    strata, unit = [f"class {name!r}" for name in classes], "training rows" if official.any() else "rows"
    if named and part_counts(fewest, test=test, val=val, fit=fit)[0] < 1:
        y, strata, unit = np.zeros_like(y), ["the table"], "groups"
    for number, name in enumerate(strata):
        rows = distinct[y[distinct] == number]
        if not named and part_counts(len(rows), test=test, val=val, fit=fit)[0] < 1:  # columns of few values: no copies
            alone = np.flatnonzero(y[shuffled] == number)
            rows, lead[alone] = shuffled[alone], alone
        n = len(rows)
        bank, n_fit, n_val, n_test = part_counts(n, test=test, val=val, fit=fit)
        if bank < 1:
            least = next(m for m in count(n + 1) if part_counts(m, test=test, val=val, fit=fit)[0] >= 1)
            remedy = "give more, or leave out `groups`" if named else "give more rows of it, or leave it out"
            raise InputError(f"{name} has {n} {unit}; its parts need at least {least}; {remedy}")
        # Test rows first, so that they do not depend on the other shares.
        part[rows] = np.repeat([TEST, VAL, FIT, BANK], [n_test, n_val, n_fit, bank])
    part[shuffled] = part[shuffled[lead]]
    return part


def subset_rows(y: np.ndarray, official: np.ndarray | None, subset: int) -> np.ndarray:
    """Draw at most `subset` rows with a fixed seed, stratified by class and official test set: ids, ascending."""
    if not 0 < subset < len(y):
        return np.arange(len(y))
    stratum = y if official is None else y + official * (y.max() + 1)
    shuffled = np.random.default_rng(0).permutation(len(y))
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    # Rounding the cumulative sum down keeps each stratum within one row of its share, and the total exact.
    ends = np.cumsum(np.bincount(stratum))
    sizes = np.diff(ends * subset // len(y), prepend=0)
    strata = np.split(order, ends[:-1])
    return np.sort(np.concatenate([rows[:n] for rows, n in zip(strata, sizes, strict=True)]))


@dataclass(frozen=True)
class _Labelled:
    """A source before the parts are assigned: labels, and a reader of images or a table."""

    where: str
    y: np.ndarray
    classes: tuple[str, ...]
    test: np.ndarray | None = None
    images: Callable[[np.ndarray], np.ndarray] | None = None
    table: Any = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    groups: np.ndarray | None = None  # int64 (N,)
    scale: str = ""  # of the table's numbers, whatever `numeric` says


def _bundled(source: dict[str, Any], raw: Path) -> _Labelled:
    import pandas as pd

    names = read_json(raw / "names.json")
    x, y = (load_array(raw / f"{name}.npy", mmap=False, remedy="download it again") for name in "xy")
    labels = source["loader"], y.astype(np.int64), tuple(names["classes"])
    if x.ndim == 3:  # digits: 0 … 16
        pixels = np.rint(x * (255 / 16)).astype(np.uint8)[:, None]
        return _Labelled(*labels, images=lambda rows: pixels[rows])
    table = pd.DataFrame(x, columns=names["features"])
    return _Labelled(*labels, table=table, kinds=dict.fromkeys(names["features"], "number"))


def _official(source: dict[str, Any], raw: Path) -> _Labelled:
    from attnknn.data.torchvision_datasets import read_official

    images, y, classes, test = read_official(source["name"], raw)
    return _Labelled(source["name"], y, classes, test, lambda rows: np.ascontiguousarray(images[rows]))


def _image_folder(source: dict[str, Any], raw: Path) -> _Labelled:
    from attnknn.data.image_folder import list_images, read_images

    archives = sorted(path for path in raw.glob("*") if not path.name.startswith("."))
    require(len(archives) == 1, f"{raw}: {len(archives)} files; expected one archive; download it again")
    listing = list_images(archives[0])

    def images(rows: np.ndarray) -> np.ndarray:
        return read_images(archives[0], tuple(listing.names[row] for row in rows), source.get("size", 0))

    return _Labelled(archives[0].name, listing.y, listing.classes, listing.test, images)


def _csv(source: dict[str, Any], raw: Path) -> _Labelled:
    import pandas as pd

    from attnknn.data.download import csv_files
    from attnknn.data.fetch import base_name
    from attnknn.data.read_csv import class_numbers, read_csv
    from attnknn.data.schema import column_kinds

    keys = ("columns", "separator", "comment", "missing", "target_strip", "drop")
    layout = {"separator": ","} | {key: source[key] for key in keys if key in source}
    files = [raw / base_name(file["path"]) for file in csv_files(source)]
    tables, labels = zip(*(read_csv(path, source["target"], **layout) for path in files), strict=True)
    for path, table in zip(files, tables, strict=True):
        same = list(table.columns) == list(tables[0].columns)
        require(same, f"{path.name}: columns differ from {files[0].name}; give both the same header")
    groups = None
    if name := source.get("groups"):
        columns = [_pop_groups(path, table, name) for path, table in zip(files, tables, strict=True)]
        groups = pd.factorize(pd.concat(columns))[0].astype(np.int64)
    # Inferred from the first file, because both may number their rows from 1.
    target, categories = source["target"], list(source.get("categories", ()))
    features = [name for name in categories if name != target]
    kinds = column_kinds(tables[0], source.get("numeric", ()), features)
    rule, where = source.get("rule", {}), f"{files[0].name}, column {target}"
    all_labels = pd.concat(labels).rename(where)
    y, classes = class_numbers(all_labels, rule.get("threshold"), rule.get("map"), target in categories)
    test = np.repeat([False, True], list(map(len, tables))) if len(files) > 1 else None
    return _Labelled(where, y, classes, test, table=pd.concat(tables), kinds=kinds, groups=groups)


def _arrays(source: dict[str, Any], raw: Path) -> _Labelled:
    import pandas as pd

    from attnknn.data.read_csv import class_numbers

    xs, ys = [], []
    for part in ("", "test_") if source.get("test_x") else ("",):
        x, y = (load_array(raw / f"{part}{name}.npy", mmap=False) for name in "xy")
        where = f"{part}x: {source[f'{part}x']}"
        floats = f"{where}: {x.dtype} of shape {x.shape}; give floats of shape (rows, columns)"
        require(x.ndim == 2 and x.dtype.kind == "f", floats)
        x = x.astype(np.float32)
        require(bool(np.isfinite(x).all()), f"{where}: NaN or infinite values in float32; leave these rows out")
        fine = y.ndim == 1 and y.dtype.kind in "iuU" and len(y) == len(x)
        labels = f"{y.dtype} of shape {y.shape}; give {len(x)} whole numbers or strings, one a row of {part}x"
        require(fine, f"{part}y: {source[f'{part}y']}: {labels}")
        xs.append(x)
        ys.append(y.astype(str))
    same = all(x.shape[1] == xs[0].shape[1] for x in xs)
    require(same, f"test_x: {xs[-1].shape[1]} columns, x has {xs[0].shape[1]}; give both those of one model")
    y, classes = class_numbers(pd.Series(np.concatenate(ys), name=f"y: {source['y']}"))
    test = np.repeat([False, True], list(map(len, xs))) if len(xs) > 1 else None
    names = [f"x{i}" for i in range(xs[0].shape[1])]
    table, kinds = pd.DataFrame(np.concatenate(xs), columns=names), dict.fromkeys(names, "number")
    return _Labelled(source["x"], y, classes, test, table=table, kinds=kinds, scale="none")


def _pop_groups(path: Path, table: Any, name: str) -> Any:
    """Take the column of groups out of a table of features."""
    require(name in table, f"{path.name}: {name!r} in `groups` is no feature column (they are {', '.join(table)})")
    require(table.shape[1] > 1, f"{path.name}: no column beside the target and {name!r}; give at least one feature")
    column = table.pop(name)
    for where in column.index[column.isna()]:
        raise InputError(f"{where}: no value in column {name!r}, which `groups` names; give it one")
    return column
