"""Kinds of columns, and their encoding as numbers, fitted on bank rows alone."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler

from attnknn.core.errors import InputError
from attnknn.data.schema import Schema, column_kinds, fit_schema

N = 60


def encode(frame, bank, scale="standard"):
    """Encoded columns and their names, by a schema read back from JSON."""
    fitted = fit_schema(frame, column_kinds(frame), bank, scale)
    schema = Schema.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert schema == fitted
    return schema.encode(frame), schema.features


def schema_of(frame, **kinds):
    return fit_schema(frame, column_kinds(frame, **kinds), np.ones(len(frame), bool))


def table(n=N, **columns):
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=n), "c": rng.choice(list("xyz"), n), **columns}
    return pd.DataFrame(columns, index=[f"t.csv line {i + 2}" for i in range(n)])


def test_a_column_is_numeric_only_where_every_value_is():
    frame = pd.DataFrame({"n": ["1", None, "2e3"], "c": ["1", "two", "3"], "b": ["True", "False", "True"]})
    assert column_kinds(frame) == {"n": "number", "c": "category", "b": "category"}


def test_kinds_can_be_given():
    frame = table(zip_code=[f"{10000 + i % 7}" for i in range(N)], running=range(N))
    assert column_kinds(frame) == {"a": "number", "c": "category", "zip_code": "number", "running": "id"}
    kinds = column_kinds(frame, numeric=["running"], categories=["zip_code"])
    assert (kinds["running"], kinds["zip_code"]) == ("number", "category")
    features = fit_schema(frame, kinds, np.ones(N, bool)).features
    assert features[:2] == ("a", "running")
    assert "zip_code = 10003" in features


@pytest.mark.parametrize(
    "values",
    [
        [f"p{i * 7919 % 104729}" for i in range(N)],
        list(range(5, N + 5)),
        [str(i) for i in range(N, 0, -1)],
        [f"p{i % (N - 1)}" for i in range(N)],  # one twice
        [None, *(f"p{i}" for i in range(N - 1))],  # one missing
        [i + (i > 30) for i in range(N, 0, -1)],  # a gap
        [min(i * 7 % 61, 59) for i in range(1, N + 1)],  # in any order, with a repeat
        [*range(N - 1), N - 2],
        [None, *range(N - 1)],
        [None, *range(2 * N, 2, -2)],
    ],
)
def test_ids_are_left_out(values):
    frame = table(key=values)
    assert column_kinds(frame)["key"] == "id"
    schema = schema_of(frame)
    assert schema.ids == ("key",)
    assert not any("key" in name for name in schema.features)
    schema.encode(frame.drop(columns="key"))  # not needed for encoding


def test_repeated_values_are_no_ids():
    for values in (
        [i / 2 for i in range(N)],  # no whole numbers
        [f"p{i % (N * 9 // 10)}" for i in range(N)],  # a tenth of them twice
        [7 * i % 61 * 50 for i in range(1, N + 1)],  # whole, all different, and anywhere
    ):
        assert column_kinds(table(key=values))["key"] != "id"
    assert column_kinds(table(10, key=range(10)))["key"] == "number"  # of ten rows that may be chance
    assert column_kinds(table(key=range(N))[["key"]]) == {"key": "number"}  # there is nothing else


@pytest.mark.parametrize(
    "day",
    [
        *("2021-03-{:02d}", "2021-03-{:02d}T10:00:00Z", "{}.3.2021", "3/{}/21", "2021/3/{} 10:15", "{} Mar 2021"),
        *("{}-March-21", "MAR {}, 2021", "20210{:01d}03", "202103{:02d}", "3/0{}", "1{}:30"),
    ],
)
def test_dates_are_refused(day):
    frame = table(signed_up=[day.format(1 + i % 9) for i in range(N)])
    expected = r"^t.csv: column 'signed_up' holds dates or times \(such as .*name it in `drop`, or"
    with pytest.raises(InputError, match=expected):
        column_kinds(frame)
    assert column_kinds(frame, categories=["signed_up"])["signed_up"] == "category"


HALF = [f"{i / 7}" for i in range(N // 2)]


@pytest.mark.parametrize(
    ("frame", "kinds", "line"),
    [
        (table(b=[None] * N), {}, ": column 'b' has no value at all"),
        (
            table(b=[*HALF, *HALF[:-3], "?", "1", "1"]),
            {},
            " line 59: column 'b' is '?', no number, unlike other values",
        ),
        (table(b=[*HALF, *["?", "unknown"] * (N // 4)]), {}, " line 32: column 'b' is '?'"),
        (table(b=[i * i for i in range(N)]), {}, ": column 'b' holds whole numbers that only rise from row to row"),
        (table(b=[None, *(-i * i for i in range(N - 1))]), {}, ": column 'b' holds whole numbers that only fall"),
        (table(b=[*(f"202103{1 + i % 28:02d}" for i in range(N - 1)), "0"]), {}, ": column 'b' holds dates or times"),
        (
            table(b=[f"{i},5" for i in range(N)]),
            {},
            " line 2: column 'b' is '0,5', a number with a comma, % or currency; write",
        ),
        (
            table(b=["12,345"] * N),
            {},
            " line 2: column 'b' is '12,345', a number with a comma, % or currency; write 1.5 and",
        ),
        (table(b=[f"{i}.5%" for i in range(N)]), {}, " line 2: column 'b' is '0.5%', a number with a comma, % or"),
        (table(b=[f"${i}" for i in range(N)]), {}, " line 2: column 'b' is '$0', a number with a comma, % or currency"),
        (
            table(b=[str(10**18 + i % 2) for i in range(N)]),
            {},
            " line 2: column 'b' is '1000000000000000000', the same",
        ),
        (
            table(b=[f"2021-{1 + i % 12:02d}" for i in range(N)]),
            {},
            ": column 'b' holds dates or times (such as '2021-01')",
        ),
        (table(b=[np.inf, *range(N - 1)]), {}, " line 2: column 'b' is inf, infinite"),
        (table(), {"numeric": ["c"]}, " line 2: column 'c' is 'y', no number; correct it, or"),
        (table(), {"numeric": ["d"]}, ": 'd' in `numeric` is no feature column (they are a, c)"),
        (table(), {"numeric": ["a"], "categories": ["a"]}, ": a in both `numeric` and `categories`"),
        (table()[[]].assign(k=[f"p{i}" for i in range(N)]), {}, ": all columns are ids ('k'); name"),
    ],
)
def test_columns_and_kinds_that_cannot_be(frame, kinds, line):
    with pytest.raises(InputError, match="^t.csv" + re.escape(line)):
        column_kinds(frame, **kinds)


def test_texts_like_dates_or_numbers_are_categories():
    for texts in ("12-34-5678 99-14-2000", "2019-20 2020-21", "1,2,3 4,1,3,1", "01234 90210", "5+ 3"):
        assert column_kinds(table(b=texts.split() * (N // 2)))["b"] == "category"
    assert column_kinds(table(b=["01234", "90210"] * (N // 2)), numeric=["b"])["b"] == "number"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_values_too_large_for_a_deviation_or_for_float32_are_refused_without_warnings(scale: str) -> None:
    for b, largest in (([f"{7 * i % 61}e200" for i in range(N)], "6e+201"), (["1.7e308", "-1.7e308"] * 30, "1.7e+308")):
        line = f"column 'b': values as large as {largest}; give them in a larger unit"
        with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
            encode(table(b=b), np.ones(N, bool), scale)
    with pytest.raises(InputError, match=r"column 'a': .* larger unit"):
        encode(pd.DataFrame({"a": [1.0, 2.0, 1e300]}), np.array([True, True, False]))


def test_categories_are_texts_and_columns_are_there_once():
    """pandas makes 1 beside nothing 1.0, and true True: as categories they would be none, without a word."""
    frame = table(k=["1", None, "2"] * (N // 3), t=["true", "false"] * (N // 2))
    schema = schema_of(frame, categories=["k"])
    no_text = "no text; read the column as text"
    for other, line in (
        (frame.assign(k=[1.0, np.nan, 2.0] * (N // 3)), f"t.csv line 2: column 'k' is 1.0, {no_text}"),
        (frame.assign(t=[True, False] * (N // 2)), f"t.csv line 2: column 't' is True, {no_text}"),
        (pd.concat([frame, frame[["a"]]], axis=1), "t.csv: column 'a' appears twice; rename one"),
        (frame.drop(columns="k").reset_index(drop=True), "table: no column 'k'; the training table has it, so add it"),
        (frame.drop(columns="c"), "t.csv: no column 'c'; the training table has it, so add it"),
        (frame.assign(a="much"), "t.csv line 2: column 'a' is 'much', no number, and the column is numeric"),
        (frame.assign(a="-inf"), "t.csv line 2: column 'a' is -inf, infinite"),
    ):
        with pytest.raises(InputError, match="^" + re.escape(line)):
            schema.encode(other)
    as_texts = frame.assign(a=frame["a"].astype(str), more=1)  # other columns are ignored
    np.testing.assert_array_equal(schema.encode(as_texts), schema.encode(frame))


def test_a_damaged_schema_is_refused():
    with pytest.raises(InputError, match=r"schema: damaged .*dvc repro"):
        Schema.from_dict({"numeric": [{"name": "a"}], "categories": [], "ids": []})


def test_as_scikit_learn_encodes():
    rng = np.random.default_rng(1)
    n = 3000
    frame = pd.DataFrame({"a": rng.lognormal(size=n), "b": rng.integers(0, 5, n) * 1.0, "c": rng.geometric(0.3, n)})
    frame["c"] = [f"c{v}" for v in frame["c"]]
    frame.loc[rng.random(n) < 0.1, "a"] = np.nan
    bank = rng.random(n) < 0.5
    scale = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10, sparse_output=False)
    oracle = ColumnTransformer([("n", scale, ["a", "b"]), ("c", one_hot, ["c"])]).fit(frame[bank])
    x, names = encode(frame, bank)
    np.testing.assert_allclose(np.delete(x, names.index("a missing"), 1), oracle.transform(frame), atol=1e-5)
    np.testing.assert_array_equal(x[:, names.index("a missing")], frame["a"].isna())


def test_quantiles_by_hand_and_by_scikit_learn():
    # 300 bank values in ten quantiles; 0 is the smallest six tenths of them, so its rank is in their middle.
    v = np.concatenate([np.zeros(180), np.arange(1, 121)])
    x, _ = encode(pd.DataFrame({"v": v}), np.ones(300, bool), "quantile")
    levels = np.linspace(0, 1, 10)
    last = levels[np.flatnonzero(np.quantile(v, levels) == 0)[-1]]
    np.testing.assert_allclose(x[0, 0], norm.ppf(last / 2), atol=1e-6)
    np.testing.assert_allclose(x[-1, 0], norm.ppf(1 - 1 / 20), atol=1e-6)
    assert (np.diff(x[179:, 0]) >= 0).all()
    rng = np.random.default_rng(2)
    v = rng.lognormal(size=(30_000, 1))
    x, _ = encode(pd.DataFrame({"v": v[:, 0]}), np.ones(30_000, bool), "quantile")
    oracle = QuantileTransformer(n_quantiles=1000, output_distribution="normal", subsample=None).fit_transform(v)
    inside = np.abs(oracle) < 3
    np.testing.assert_allclose(x[inside[:, 0]], oracle[inside][:, None], atol=1e-4)
    assert np.abs(x).max() < 3.5  # no row lies far out because it is the largest
    with pytest.raises(InputError, match="scale: rank; allowed are standard, quantile"):
        fit_schema(pd.DataFrame({"v": v[:, 0]}), {"v": "number"}, np.ones(30_000, bool), "rank")


def test_encoding_by_hand():
    frame = pd.DataFrame(
        {"age": [1.0, np.nan, 3.0, 5.0, np.nan, 9.0], "constant": [2.0] * 6, "job": ["a", "b", np.nan, "a", "z", "b"]}
    )
    x, names = encode(frame, np.array([True] * 4 + [False] * 2))
    assert names == ("age", "constant", "age missing", "job = (missing)", "job = a", "job = b")
    assert x.dtype == np.float32
    # Bank ages 1, (median 3), 3, 5: mean 3, variance 8/4.
    s = 2**0.5
    np.testing.assert_allclose(x[:, 0], [-2 / s, 0, 0, 2 / s, 0, 6 / s], rtol=1e-6)
    np.testing.assert_array_equal(x[:, 1], 0)
    np.testing.assert_array_equal(x[:, 2], [0, 1, 0, 0, 1, 0])
    # The bank has no z.
    np.testing.assert_array_equal(x[:, 3:], [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]])


def test_rows_outside_the_bank_never_touch_the_bank():
    rng = np.random.default_rng(0)
    frame = table(200, b=rng.normal(size=200)).reset_index(drop=True)
    frame.loc[rng.random(200) < 0.1, "a"] = np.nan
    bank = rng.random(200) < 0.6
    x, names = encode(frame, bank)
    frame.loc[~bank, ["a", "b", "c"]] = [1e9, np.nan, "never seen"]
    other, other_names = encode(frame, bank)
    assert names == other_names
    assert x[bank].tobytes() == other[bank].tobytes()
    assert not np.array_equal(x[~bank], other[~bank])


def test_rare_and_unseen_categories_share_a_column_in_large_tables():
    category = ["common"] * 991 + ["rare"] * 9 + ["unseen", "common"]
    frame = pd.DataFrame({"c": category})
    x, names = encode(frame, np.arange(1002) < 1000)
    assert names == ("c = common", "c = (rare)")
    np.testing.assert_array_equal(x[[0, 995, 1000, 1001]], [[1, 0], [0, 1], [0, 1], [1, 0]])
    _, names = encode(frame, np.arange(1002) < 999)  # a small table keeps them
    assert names == ("c = common", "c = rare")


def test_a_column_that_only_the_bank_lacks_becomes_constant():
    x, names = encode(pd.DataFrame({"a": [np.nan, np.nan, 3.0], "b": [1.0, 2.0, 3.0]}), np.arange(3) < 2)
    assert names[0] == "a"
    assert np.isfinite(x).all()
    np.testing.assert_array_equal(x[:2, 0], 0)
