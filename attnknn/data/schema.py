"""Table schema: kinds of columns and their encoding as numbers; fitted on bank rows, stored as JSON.

It is stored with the split and the encoder, so that rows of another file are validated and encoded alike.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from attnknn.core.errors import InputError, require
from attnknn.data.outliers import DWARFS, dwarfing_value

LARGE_TABLE = 1000  # minimum bank rows for which categories of fewer than RARE rows share one column
RARE = 10
MISSING = "(missing)"
QUANTILES = 1000  # maximum per column; one per 30 rows, at least ten
SCALES = ("standard", "quantile", "none")
_FEW = 20  # fewer rows may be monotonic or unique by chance
_EXACT = 2**53  # up to which all whole numbers differ in float64
_UNIQUE = 0.95  # minimum share of unique values in an id
_INFINITE = "infinite; give a finite value, or leave it empty"
_DAY, _MONTH = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = (
    rf"(?i:\d{{4}}[-/.]{_DAY}[-/.]{_DAY}(?:[T ].*)?|{_DAY}[-/.]{_DAY}[-/.](?:\d{{2}}|\d{{4}})(?: .*)?"
    rf"|\d{{4}}[-/](?:0[1-9]|1[0-2])|{_DAY}[- ]{_MONTH}[- ,]+(?:\d{{2}}|\d{{4}})(?: .*)?"
    rf"|{_DAY}/(?:0[1-9]|1[0-2])|[0-2]?\d:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?: ?[ap]m)?"
    rf"|{_MONTH} {_DAY},? \d{{4}}(?: .*)?|{_MONTH}[- ]\d{{2,4}})"
)
# Numbers with a comma, a percent or a currency sign.
_FORMATTED = r"[-+]?[$€£¥]?\s?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)\s?[%$€£¥]?"
_CODE, _CODES = r"0\d+", 0.05  # numbers with a leading 0, and their minimum share in a column of codes
_DATES = 0.8  # minimum share of dates in a column of dates
_NUMBERS = 0.9  # minimum share of numbers in a column for its other values to be errors
_WORDS = 5  # minimum mean number of words in a column of texts that hardly repeat, as sentences
_MARKERS = 3  # maximum number of distinct texts that may be missing-value markers among numbers


@dataclass(frozen=True)
class Number:
    """A numeric column; missing values are imputed by the median.

    A value v becomes Φ⁻¹(r), r its mid-rank among the bank's `quantiles`; without them, (v − mean) / scale.
    """

    name: str
    median: float
    mean: float
    scale: float
    quantiles: tuple[float, ...]  # of the bank, at evenly spaced levels; or none
    marked: bool  # whether values are missing in the bank, so that an indicator column is added

    def columns(self, values: Any) -> np.ndarray:
        """Encode a series: float64 (N,)."""
        v = as_floats(values).to_numpy()
        v = np.where(np.isnan(v), self.median, v)
        if not self.quantiles:
            return (v - self.mean) / self.scale
        q = np.asarray(self.quantiles)
        level = np.linspace(0, 1, len(q))
        # Mid-rank of ties: one interpolation takes the first of equal quantiles, the other the last.
        rank = (np.interp(v, q, level) + 1 - np.interp(-v, -q[::-1], level)) / 2
        return ndtri(rank.clip(0.5 / len(q), 1 - 0.5 / len(q)))


@dataclass(frozen=True)
class Category:
    """A categorical column, one-hot encoded; a missing value is a category."""

    name: str
    values: tuple[str, ...]  # categories with a column of their own
    rare: bool  # whether the others share a column; if not, they are encoded as zeros

    def columns(self, values: Any) -> np.ndarray:
        """Encode a series: float64 (N, V)."""
        codes = pd.Index(self.values).get_indexer(pd.Index(_texts(values)))
        one_hot = np.zeros((len(codes), len(self.values) + 1))
        one_hot[np.arange(len(codes)), codes] = 1  # code −1, an unknown value, is the last column
        return one_hot if self.rare else one_hot[:, :-1]

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [f"{self.name} = {value}" for value in (*self.values, *(["(rare)"] if self.rare else []))]


@dataclass(frozen=True)
class Schema:
    """The encoded columns of a table in their order, and the names of its id columns, which are dropped."""

    numeric: tuple[Number, ...]
    categories: tuple[Category, ...]
    ids: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the encoded columns: numbers, indicators of missing numbers, categories."""
        indicators = [f"{column.name} missing" for column in self.numeric if column.marked]
        categories = [name for column in self.categories for name in column.names]
        return (*(column.name for column in self.numeric), *indicators, *categories)

    def encode(self, frame: Any) -> np.ndarray:
        """Encode a data frame with these columns, strings or numbers, NaN where missing: float32 (N, F).

        Other columns are ignored; an unknown category counts as rare, or is encoded as zeros.

        Raises:
            InputError: a column is missing or duplicated; a value of a numeric column is no finite number, or too
                large; a value of a categorical one is no text.
        """
        names = [column.name for column in (*self.numeric, *self.categories)]
        missing = ", ".join(repr(name) for name in names if name not in frame.columns)
        require(not missing, f"{_file(frame)}: no column {missing}; the training table has it, so add it")
        duplicates = ", ".join(repr(name) for name in names if list(frame.columns).count(name) > 1)
        require(not duplicates, f"{_file(frame)}: column {duplicates} appears twice; rename one")
        for column in self.categories:  # pandas reads 1 beside a missing value as 1.0, and true as True
            v = frame[column.name]
            no_text = v.notna() & ~v.map(lambda value: isinstance(value, str))
            _refuse(v, no_text, "no text; read the column as text, as it stands in the file", numeric=False)
        for column in self.numeric:
            v = frame[column.name]
            _refuse(v, as_floats(v).isna() & v.notna(), "no number, and the column is numeric in the training table")
            _refuse(v, np.isinf(as_floats(v)), _INFINITE)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [column.columns(frame[column.name])[:, None] for column in self.numeric]
            parts += [frame[column.name].isna().to_numpy()[:, None] for column in self.numeric if column.marked]
            parts += [column.columns(frame[column.name]) for column in self.categories]
            x = np.concatenate(parts, axis=1).astype(np.float32)
        overflow = ~np.isfinite(x).all(axis=0)
        name = self.features[overflow.argmax()]
        require(not overflow.any(), f"column {name!r}: values too large for float32; give them in a larger unit")
        return x

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Schema":
        """Convert from `to_dict`; raise InputError if a key is missing or unknown."""
        try:
            numeric = [Number(**{**v, "quantiles": tuple(v["quantiles"])}) for v in values["numeric"]]
            categories = [Category(**{**v, "values": tuple(v["values"])}) for v in values["categories"]]
            return cls(tuple(numeric), tuple(categories), tuple(values["ids"]))
        except (KeyError, TypeError) as error:
            raise InputError(f"schema: damaged ({error}); run `dvc repro`") from None


def as_floats(column: Any) -> Any:
    """Convert a column to floats, NaN where a value is no number."""
    return pd.to_numeric(column, errors="coerce").astype(float)


def _texts(column: Any) -> Any:
    return column.astype(object).where(column.notna(), MISSING).astype(str)


def _file(frame: Any) -> str:
    """File name of a frame of `read_csv.read_rows`, for errors."""
    parts = str(frame.index[0] if len(frame) else "").rsplit(" ", 2)
    return parts[0] if len(parts) == 3 and parts[1] in ("line", "row") else "table"


def _refuse(column: Any, mask: Any, reason: str, numeric: bool = True) -> None:
    """Raise InputError if the mask holds anywhere; the message names the first such line and value."""
    if mask.any():
        row = int(np.flatnonzero(mask)[0])
        value, where = column.iloc[row], column.index[row]
        infinite = numeric and np.isinf(as_floats(column).iloc[row])
        shown = value if infinite else repr(getattr(value, "item", lambda: value)())
        raise InputError(f"{where}: column {column.name!r} is {shown}, {reason}")


def refuse_dwarfing_numbers(frame: Any, kinds: Mapping[str, str]) -> None:
    """Raise InputError if a number dwarfs the others of its column; see `dwarfing_value`."""
    for name in (name for name, kind in kinds.items() if kind == "number"):
        v = as_floats(frame[name])
        rows = np.flatnonzero(np.isfinite(v))
        if len(rows) and (cell := dwarfing_value(v.to_numpy()[rows, None])) is not None:
            reason = f"over {DWARFS:g} times as far from the column's median as usual"
            remedy = "correct it, or name it in `missing` if it marks a missing value"
            _refuse(frame[name], np.arange(len(v)) == rows[cell[0]], f"{reason}; {remedy}")


def column_kinds(frame: Any, numeric: Collection[str] = (), categories: Collection[str] = ()) -> dict[str, str]:
    """Infer the kind of each column of strings: `number` (every value is one), `id` or `category`.

    An id column has twenty rows or more, other columns beside it, and 95 % unique values: texts, or whole numbers that
    fill half of their range or more. Other monotonic columns of unique whole numbers are ambiguous and must be named.
    Numbers with a leading 0 are texts.

    Args:
        numeric, categories: columns of known kind.

    Raises:
        InputError: a column has no value, an infinite one, dates, sentences, both numbers and texts, or ambiguous whole
            numbers; or a named column does not exist, is named twice, or is named numeric and holds texts.
    """
    file, names = _file(frame), ", ".join(map(str, frame.columns))
    for key, named in (("numeric", numeric), ("categories", categories)):
        for name in named:
            require(name in frame.columns, f"{file}: {name!r} in `{key}` is no feature column (they are {names})")
    both = sorted(set(numeric) & set(categories))
    require(not both, f"{file}: {', '.join(both)} in both `numeric` and `categories`; take one out")
    result: dict[str, str] = {}
    for name, column in frame.items():
        present = column.dropna()
        require(not present.empty, f"{file}: column {name!r} has no value at all; remove it, or name it in `drop`")
        if name in categories:
            result[name] = "category"
            continue
        floats = as_floats(column)
        no_number = floats.isna() & column.notna()
        if name in numeric:
            _refuse(column, no_number, "no number; correct it, or take the column out of `numeric`")
        texts = present.astype(str)
        coded = name not in numeric and texts.str.fullmatch(_CODE).mean() >= _CODES
        if not no_number.any() and not coded:
            _refuse(column, np.isinf(floats), _INFINITE)
            large = column[floats.abs() > _EXACT].drop_duplicates()
            merged = column.isin(large[as_floats(large).duplicated(keep=False)])
            _refuse(
                column, merged, "the same as another number in float64; subtract a constant, or name it in `categories`"
            )
            if name not in numeric:
                _refuse_dates(file, present, _date_like(present).mean() >= _DATES)
            result[name] = "number" if name in numeric else _number_or_id(file, present)
            continue
        _refuse_dates(file, present, texts.str.fullmatch(_DATE).mean() >= _DATES)
        markers, numbers = column[no_number].nunique(), floats.nunique()
        if no_number.sum() <= (1 - _NUMBERS) * len(present) or (markers <= _MARKERS and numbers > _FEW):
            remedy = "correct it, name it in `missing` if it marks a missing value, or the column in `categories`"
            _refuse(column, no_number, f"no number, unlike other values of the column; {remedy}")
        if (texts.str.fullmatch(_FORMATTED) | as_floats(texts).notna()).mean() >= _NUMBERS and not coded:
            reason = "a number with a comma, % or currency; write 1.5 and 1000, or name the column in `categories`"
            _refuse(column, no_number, reason)
        unique = present.nunique() / len(present)
        prose = len(present) >= _FEW and unique >= 0.5 and texts.str.count(r"\S+").mean() >= _WORDS
        text = f"{file}: column {name!r} holds texts (such as {texts.iloc[0][:40]!r}); embed them with a language model"
        require(not prose, f"{text} and fit its vectors, or name it in `drop`, or in `categories`")
        result[name] = "id" if len(present) >= _FEW and unique >= _UNIQUE else "category"
    if set(result.values()) == {"id"}:  # without other columns, ids that are numbers become features
        result = {name: "id" if as_floats(frame[name]).isna().any() else "number" for name in result}
    ids = f"{file}: all columns are ids ({', '.join(map(repr, result))}); name the other ones in `categories`"
    require(set(result.values()) != {"id"}, ids)
    return result


def _date_like(values: Any) -> Any:
    """Mask of numbers that look like dates as 20210303, of the last two centuries."""
    v = as_floats(values)
    month, day = v // 100 % 100, v % 100
    return (v % 1 == 0) & v.between(19000101, 21001231) & month.between(1, 12) & day.between(1, 31)


def _refuse_dates(file: str, values: Any, dates: bool) -> None:
    remedy = "replace them by numbers (year, days since a date), or name it in `drop`"
    remedy += ", or in `categories` if each date is a category"
    require(not dates, f"{file}: column {values.name!r} holds dates or times (such as {values.iloc[0]!r}); {remedy}")


@np.errstate(over="ignore", invalid="ignore")  # checked where the numbers are fitted and encoded
def _number_or_id(file: str, values: Any) -> str:
    """Kind of a column of numbers, in the order of the rows: `id` or `number`; see `column_kinds`."""
    v = as_floats(values).to_numpy()
    unique, steps = len(np.unique(v)), np.diff(v)
    if len(v) < _FEW or not (v % 1 == 0).all() or unique < _UNIQUE * len(v):
        return "number"
    if v.max() - v.min() + 1 <= 2 * unique:
        return "id"
    if (steps >= 0).all() or (steps <= 0).all():
        numbers = f"whole numbers that only {'rise' if v[-1] > v[0] else 'fall'} from row to row"
        remedy = "name it in `drop` if it is an id, or in `numeric` if it is a feature"
        raise InputError(f"{file}: column {values.name!r} holds {numbers}; {remedy}")
    return "number"


def fit_schema(frame: Any, kinds: Mapping[str, str], bank: np.ndarray, scale: str = "standard") -> Schema:
    """Fit a schema on bank rows.

    Args:
        frame: a data frame of N rows.
        kinds: kind of each column; see `column_kinds`.
        bank: bool (N,).
        scale: `standard` (mean and standard deviation), `quantile` (ranks) or `none` (as they are).

    Raises:
        InputError: an unknown scale, or a column of values so large that their standard deviation is not finite.
    """
    require(scale in SCALES, f"scale: {scale}; allowed are {', '.join(SCALES)}")
    rows = frame[bank]
    numeric = tuple(_fit_number(rows[name], scale) for name, kind in kinds.items() if kind == "number")
    categories = tuple(_fit_category(rows[name]) for name, kind in kinds.items() if kind == "category")
    return Schema(numeric, categories, tuple(str(name) for name, kind in kinds.items() if kind == "id"))


@np.errstate(over="ignore", invalid="ignore")
def _fit_number(column: Any, scale: str) -> Number:
    v = as_floats(column).to_numpy()
    present = v[~np.isnan(v)]
    median = float(np.median(present)) if len(present) else 0.0
    v = np.where(np.isnan(v), median, v)
    std, largest = float(v.std()), np.abs(v).max(initial=0)
    too_large = f"column {column.name!r}: values as large as {largest:.3g}; give them in a larger unit"
    require(math.isfinite(std), too_large)
    levels = np.linspace(0, 1, max(min(len(v) // 30, QUANTILES), 10))
    quantiles = tuple(map(float, np.quantile(v, levels))) if scale == "quantile" else ()
    std = std if std > 1e-12 * largest else 1.0
    mean, std = (0.0, 1.0) if scale == "none" else (float(v.mean()), std)
    return Number(str(column.name), median, mean, std, quantiles, bool(column.isna().any()))


def _fit_category(column: Any) -> Category:
    counts = _texts(column).value_counts()
    values = sorted(counts.index[counts >= RARE] if len(column) >= LARGE_TABLE else counts.index)
    return Category(str(column.name), tuple(values), len(values) < len(counts))
