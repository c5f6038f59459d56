"""A table's schema: which columns it has, and how they become numbers. It is learnt from bank rows, and plain JSON.

It goes with what is made of the table, so that rows of another file can be checked against it and encoded alike.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from attnknn.core.errors import InputError, require

LARGE_TABLE = 1000  # bank rows from which on categories of fewer than RARE rows share one column
RARE = 10
MISSING = "(missing)"
QUANTILES = 1000  # the most that are kept of a column; one for 30 rows, and ten at least
SCALES = ("standard", "quantile")
_FEW = 20  # rows below which a running number may be chance
_APART = 0.95  # share of different values from which on they tell rows apart
_DAY, _MONTH = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = (
    rf"(?i:\d{{4}}[-/.]{_DAY}[-/.]{_DAY}(?:[T ].*)?|{_DAY}[-/.]{_DAY}[-/.](?:\d{{2}}|\d{{4}})(?: .*)?"
    rf"|\d{{4}}[-/](?:0[1-9]|1[0-2])|{_DAY}[- ]{_MONTH}[- ,]+(?:\d{{2}}|\d{{4}})(?: .*)?"
    rf"|{_MONTH} {_DAY},? \d{{4}}(?: .*)?|{_MONTH}[- ]\d{{2,4}})"
)
_COMMA = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+,\d+)"
_CODE, _CODES = r"0\d+", 0.05  # numbers that begin with 0 are codes, where so large a share of a column does
_DATES = 0.8  # share of a column's values that look like dates, from which on it is one of dates
_NUMBERS = 0.9  # share of numbers among a column's values, from which on the others are faults
_MARKS = 3  # different texts, up to which they are marks beside numbers, of which there are many more


@dataclass(frozen=True)
class Number:
    """A numeric column; the median where a value is missing.

    Attributes:
        quantiles: of the bank, ascending, evenly spaced in rank; empty where values become (v − mean) / scale. With
            them they become Φ⁻¹(r), r the share of the bank below v, half of its equals among them.
        marked: the bank misses some, so another column says where.
    """

    name: str
    median: float
    mean: float
    scale: float
    quantiles: tuple[float, ...]
    marked: bool

    def columns(self, values: Any) -> np.ndarray:
        """float64 (N,) of a series, NaN filled."""
        v = as_floats(values).to_numpy()
        v = np.where(np.isnan(v), self.median, v)
        if not self.quantiles:
            return (v - self.mean) / self.scale
        q = np.asarray(self.quantiles)
        at = np.linspace(0, 1, len(q))
        # From both sides: among equal quantiles one interpolation finds the first, the other the last.
        rank = (np.interp(v, q, at) + 1 - np.interp(-v, -q[::-1], at)) / 2
        return ndtri(rank.clip(0.5 / len(q), 1 - 0.5 / len(q)))


@dataclass(frozen=True)
class Category:
    """A column of categories, one-hot; a missing value is one more.

    Attributes:
        values: those that have a column of their own.
        rare: whether all others share one; else they are none of them.
    """

    name: str
    values: tuple[str, ...]
    rare: bool

    def columns(self, values: Any) -> np.ndarray:
        """float64 (N, V) of a series."""
        at = pd.Index(self.values).get_indexer(pd.Index(_texts(values)))
        wide = np.zeros((len(at), len(self.values) + 1))
        wide[np.arange(len(at)), at] = 1  # −1, unknown, is the last
        return wide if self.rare else wide[:, :-1]

    @property
    def names(self) -> list[str]:
        """Of its columns."""
        return [f"{self.name} = {value}" for value in (*self.values, *(["(rare)"] if self.rare else []))]


@dataclass(frozen=True)
class Schema:
    """The columns of a table in their order, and those that were left out as ids."""

    numeric: tuple[Number, ...]
    categories: tuple[Category, ...]
    ids: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what `encode` gives: the numbers, the marks of missing ones, the categories."""
        marks = [f"{column.name} missing" for column in self.numeric if column.marked]
        of_categories = [name for column in self.categories for name in column.names]
        return (*(column.name for column in self.numeric), *marks, *of_categories)

    def encode(self, frame: Any) -> np.ndarray:
        """Numbers float32 (N, F) of a data frame with these columns, as strings or numbers, NaN where missing.

        Columns that the schema does not know are not looked at; a category that it does not know counts as rare, or as
        none of them.

        Raises:
            InputError: a column is not there or twice, or a value is no finite number where one is needed, or too large
                a one, or no text where a category is.
        """
        wanted = [column.name for column in (*self.numeric, *self.categories)]
        missing = [name for name in wanted if name not in frame.columns]
        lacks = ", ".join(map(repr, missing))
        require(not missing, f"{_file(frame)}: no column {lacks}; the table that was learnt from has it, so add it")
        twice = [name for name in wanted if list(frame.columns).count(name) > 1]
        require(not twice, f"{_file(frame)}: column {', '.join(map(repr, twice))} appears twice; rename one")
        for column in self.categories:  # 1 beside a missing value would have become 1.0, and true True
            v = frame[column.name]
            other = v.notna() & ~v.map(lambda value: isinstance(value, str))
            _refuse(v, other, "no text; categories are told apart by their text in the file, so read it as text", False)
        for column in self.numeric:
            v = frame[column.name]
            _refuse(v, as_floats(v).isna() & v.notna(), "no number, as it was in the table that was learnt from")
            _refuse(v, np.isinf(as_floats(v)), "infinite; give a finite value, or leave it empty")
        parts = [column.columns(frame[column.name])[:, None] for column in self.numeric]
        parts += [frame[column.name].isna().to_numpy()[:, None] for column in self.numeric if column.marked]
        parts += [column.columns(frame[column.name]) for column in self.categories]
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.concatenate(parts, axis=1).astype(np.float32)
        broken = ~np.isfinite(x).all(axis=0)
        if broken.any():
            name = self.features[broken.argmax()]
            raise InputError(f"column {name!r}: values too large for float32; give them in a larger unit")
        return x

    def to_dict(self) -> dict[str, Any]:
        """As plain values, which JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Schema":
        """What `to_dict` gave.

        Raises:
            InputError: something is missing, or too much.
        """
        try:
            numeric = [Number(**{**of, "quantiles": tuple(of["quantiles"])}) for of in values["numeric"]]
            categories = [Category(**{**of, "values": tuple(of["values"])}) for of in values["categories"]]
            return cls(tuple(numeric), tuple(categories), tuple(values["ids"]))
        except (KeyError, TypeError) as error:
            raise InputError(f"schema: damaged ({error}); run `dvc repro` to make it again") from None


def as_floats(column: Any) -> Any:
    """The column as floats, NaN where it holds no number."""
    return pd.to_numeric(column, errors="coerce").astype(float)


def _texts(column: Any) -> Any:
    return column.astype(object).where(column.notna(), MISSING).astype(str)


def _file(frame: Any) -> str:
    """The file that a frame of `tables.read_rows` came from."""
    file, line, _ = str(frame.index[0] if len(frame) else "").partition(" line ")
    return file if line else "table"


def _refuse(column: Any, wrong: Any, why: str, numeric: bool = True) -> None:
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        value, where = column.iloc[at], column.index[at]
        shown = (
            value if numeric and np.isinf(as_floats(column).iloc[at]) else repr(getattr(value, "item", lambda: value)())
        )
        raise InputError(f"{where}: column {column.name!r} is {shown}, {why}")


def column_kinds(frame: Any, numeric: Collection[str] = (), categories: Collection[str] = ()) -> dict[str, str]:
    """What each column of strings is: `number` where every value is one, `id`, or `category`.

    An id tells rows apart and says nothing of other rows: text that hardly ever repeats, or whole numbers that hardly
    ever do and fill half of their range or more; in twenty rows or more and beside other columns. Of other whole
    numbers that only rise, or fall, from row to row somebody has to say what they are. Numbers that begin with 0 are
    texts.

    Args:
        numeric, categories: columns for which this is said and not looked for.

    Raises:
        InputError: a column has no value at all, an infinite one, dates, numbers beside something else, or whole
            numbers in order, or one of those named does not exist, is named twice, or is named numeric and holds
            something else.
    """
    file, given = _file(frame), ", ".join(map(str, frame.columns))
    for key, named in (("numeric", numeric), ("categories", categories)):
        for name in named:
            require(name in frame.columns, f"{file}: {name!r} in `{key}` is no feature column (they are {given})")
    both = sorted(set(numeric) & set(categories))
    require(not both, f"{file}: {', '.join(both)} in both `numeric` and `categories`; take one out")
    found: dict[str, str] = {}
    for name, column in frame.items():
        there = column.dropna()
        if there.empty:
            raise InputError(f"{file}: column {name!r} has no value at all; remove it, or name it in `drop`")
        if name in categories:
            found[name] = "category"
            continue
        value = as_floats(column)
        no_number = value.isna() & column.notna()
        if name in numeric:
            _refuse(column, no_number, "no number; correct it, or take the column out of `numeric`")
        texts = there.astype(str)
        coded = name not in numeric and texts.str.fullmatch(_CODE).mean() >= _CODES
        if not no_number.any() and not coded:
            _refuse(column, np.isinf(value), "infinite; give a finite value, or leave it empty")
            if name not in numeric:
                _refuse_dates(file, there, _days(there).mean() >= _DATES)
            found[name] = "number" if name in numeric else _counted(file, there)
            continue
        _refuse_dates(file, there, texts.str.fullmatch(_DATE).mean() >= _DATES)
        mend = "correct it, name it in `missing` if it stands for no value, or the column in `categories`"
        marks, numbers = column[no_number].nunique(), value.nunique()
        if no_number.sum() <= (1 - _NUMBERS) * len(there) or (marks <= _MARKS and numbers > _FEW):
            _refuse(column, no_number, f"no number, as other values of the column are; {mend}")
        if (texts.str.fullmatch(_COMMA) | as_floats(texts).notna()).mean() >= _NUMBERS and not coded:
            _refuse(column, no_number, "a number with a comma; write 1.5 and 1000, or name the column in `categories`")
        found[name] = "id" if len(there) >= _FEW and there.nunique() >= _APART * len(there) else "category"
    if set(found.values()) == {"id"}:  # what counts rows may still say something, where there is nothing else
        found = {name: "id" if as_floats(frame[name]).isna().any() else "number" for name in found}
    require(
        set(found.values()) != {"id"},
        f"{file}: no text in {', '.join(map(repr, found))} ever repeats, so nothing can be learnt from it; "
        "name what is no id in `categories`",
    )
    return found


def _days(there: Any) -> Any:
    """Which of these numbers are days as 20210303: their digits name a month and a day of the last two centuries."""
    v = as_floats(there)
    month, day = v // 100 % 100, v % 100
    return (v % 1 == 0) & v.between(19000101, 21001231) & month.between(1, 12) & day.between(1, 31)


def _refuse_dates(file: str, there: Any, dates: bool) -> None:
    if dates:
        raise InputError(
            f"{file}: column {there.name!r} holds dates (such as {there.iloc[0]!r}); put numbers in its place (the "
            "year, days since some day), or name it in `drop`, or in `categories` if each date is one"
        )


def _counted(file: str, there: Any) -> str:
    """`id` or `number`: what numbers are, in the order of the rows; see `column_kinds`."""
    v = as_floats(there).to_numpy()
    apart, steps = len(np.unique(v)), np.diff(v)
    if len(v) < _FEW or not (v % 1 == 0).all() or apart < _APART * len(v):
        return "number"
    if v.max() - v.min() + 1 <= 2 * apart:
        return "id"
    if (steps >= 0).all() or (steps <= 0).all():
        way = "rise" if v[-1] > v[0] else "fall"
        raise InputError(
            f"{file}: column {there.name!r} holds whole numbers that only {way} from row to row; name it in `drop` if "
            "they count rows, or in `numeric` if they say something"
        )
    return "number"


def fit_schema(frame: Any, kind_of: Mapping[str, str], bank: np.ndarray, scale: str = "standard") -> Schema:
    """Learn how the columns become numbers from bank rows alone.

    Args:
        frame: a data frame of N rows.
        kind_of: what its columns are; see `column_kinds`.
        bank: bool (N,).
        scale: `standard` takes mean and standard deviation, `quantile` ranks.

    Raises:
        InputError: an unknown scale, or a column of values so large that their deviation is no number.
    """
    require(scale in SCALES, f"numeric: {scale}; allowed are {', '.join(SCALES)}")
    known = frame[bank]
    many = len(known) >= LARGE_TABLE
    numeric, categories = [], []
    for name, kind in kind_of.items():
        if kind == "number":
            v = as_floats(known[name]).to_numpy()
            there = v[~np.isnan(v)]
            median = float(np.median(there)) if len(there) else 0.0
            v = np.where(np.isnan(v), median, v)
            with np.errstate(over="ignore", invalid="ignore"):
                spread = float(v.std())
            large = f"column {name!r}: values as large as {np.abs(v).max(initial=0):.3g}; give them in a larger unit"
            require(math.isfinite(spread), large)
            levels = np.linspace(0, 1, max(min(len(v) // 30, QUANTILES), 10))
            quantiles = tuple(map(float, np.quantile(v, levels))) if scale == "quantile" else ()
            mean, spread = float(v.mean()), spread if spread > 1e-12 * np.abs(v).max(initial=0) else 1.0
            numeric.append(Number(str(name), median, mean, spread, quantiles, bool(known[name].isna().any())))
        elif kind == "category":
            counts = _texts(known[name]).value_counts()
            kept = sorted(counts.index[counts >= RARE] if many else counts.index)
            categories.append(Category(str(name), tuple(kept), len(kept) < len(counts)))
    left_out = tuple(str(name) for name, kind in kind_of.items() if kind == "id")
    return Schema(tuple(numeric), tuple(categories), left_out)
