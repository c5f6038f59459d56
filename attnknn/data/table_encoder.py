"""`TableEncoder`: the schema of tables as a transformer of scikit-learn."""

import warnings
from collections.abc import Collection, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from attnknn.core.errors import InputError, require
from attnknn.data.schema import column_kinds, fit_schema


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode data frames of numbers, categories and missing values as numbers on one scale, as `attnknn fit` does.

    Numbers are standardised, missing ones replaced by the median and marked by a column of their own. Texts, columns of
    pandas' categorical type and booleans are one-hot encoded, missing ones as a category; unknown ones are zeros, or
    those of rare categories in tables of 1,000 rows or more. Columns of ids are left out, and with a warning those
    without any value. Dates, sentences and other ambiguous columns are refused with what to do. Arrays are taken as
    columns named 0, 1, …

    Parameters
    ----------
    drop : sequence of str, default=()
        Columns to leave out.
    numeric, categories : sequence of str, default=()
        Columns to read as that kind.
    scale : {'standard', 'quantile', 'none'}, default='standard'
        How numbers are scaled: by mean and standard deviation, by normal scores of their ranks, or not.

    Attributes
    ----------
    schema_ : Schema
        The encoded columns.
    ids_ : tuple of str
        Columns left out as ids.

    Examples
    --------
    >>> import pandas as pd
    >>> from attnknn import TableEncoder
    >>> frame = pd.DataFrame({"age": [20, 30, None], "city": ["Oslo", "Rome", "Oslo"]})
    >>> TableEncoder(scale="none").fit_transform(frame)
    array([[20.,  0.,  1.,  0.],
           [30.,  0.,  0.,  1.],
           [25.,  1.,  1.,  0.]], dtype=float32)
    """

    def __init__(
        self,
        drop: Sequence[str] = (),
        numeric: Sequence[str] = (),
        categories: Sequence[str] = (),
        scale: str = "standard",
    ) -> None:
        self.drop = drop
        self.numeric = numeric
        self.categories = categories
        self.scale = scale

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the kinds of the columns, their scales and categories."""
        texts = [name for name in ("drop", "numeric", "categories") if isinstance(getattr(self, name), str)]
        require(not texts, f"{', '.join(texts)}: a text; give a list of columns")
        named = {*self.categories, *_categorical(X)} - {*self.drop, *self.numeric}
        frame = _as_texts(X, named)
        missing = [name for name in [*self.drop, *self.categories, *self.numeric] if name not in frame]
        require(not missing, f"X: no column {', '.join(missing)}; it has {', '.join(frame.columns)}")
        self.feature_names_in_ = np.asarray(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        frame = frame.drop(columns=list(self.drop))
        empty = [name for name in frame if frame[name].isna().all() and name not in (*named, *self.numeric)]
        if empty:
            warnings.warn(f"X: no value in column {', '.join(map(str, empty))}; left out", stacklevel=2)
            frame = frame.drop(columns=empty)
        require(frame.shape[1] > 0, "X: no column left; give one with values that is not in drop")
        kinds = column_kinds(frame, self.numeric, sorted(named))
        self.schema_ = fit_schema(frame, kinds, np.ones(len(frame), bool), self.scale)
        self.ids_ = self.schema_.ids
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Encode a data frame with these columns, in any order: float32 (N, F)."""
        check_is_fitted(self)
        return self.schema_.encode(_as_texts(X, [column.name for column in self.schema_.categories]))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the encoded columns."""
        check_is_fitted(self)
        return np.asarray(self.schema_.features, dtype=object)


def _categorical(X: Any) -> list[str]:
    """Columns of pandas' categorical type."""
    return [] if not isinstance(X, pd.DataFrame) else list(map(str, X.select_dtypes("category").columns))


def _as_texts(X: Any, categories: Collection[str]) -> pd.DataFrame:
    """A data frame of numbers, and of texts in categories and where a column has others; NaN where missing."""
    frame = pd.DataFrame(X).infer_objects() if isinstance(X, np.ndarray) and X.ndim == 2 else X
    kind = f"X: {type(X).__name__}; give a pandas data frame, or an array (rows, columns)"
    if not isinstance(frame, pd.DataFrame):
        raise InputError(kind)
    require(len(frame) > 0, "X: no rows")
    X = frame.rename(columns=str)
    require(X.columns.is_unique, "X: two columns of the same name; rename one")
    columns = {}
    for name, column in X.items():
        kind = getattr(column.dtype, "kind", "O")
        require(kind not in "cm", f"X: column {name!r} is of type {column.dtype}; give numbers or texts")
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        if numeric and name not in categories:
            columns[name] = column.astype("float64" if column.isna().any() else column.dtype)
        else:
            columns[name] = column.astype(object).map(_text, na_action="ignore").where(column.notna(), np.nan)
    frame = pd.DataFrame(columns)
    frame.index = pd.Index([f"row {i}" for i in range(len(frame))])
    return frame


def _text(value: Any) -> str:
    """1.0 as 1, since pandas has whole numbers beside a missing value as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
