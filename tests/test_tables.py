"""CSV files as they are published, and encodings that are learnt from bank rows alone."""

import numpy as np
import pandas as pd
import pytest

from attnknn.errors import InputError
from attnknn.tables import class_numbers, encode, read_csv, typed

ADULT = """|1x3 Cross validator
25, Private, 11th, ? , <=50K.
38,  ? , HS-grad, United|States, >50K.

"""


def test_reads_adult_as_published(tmp_path):
    path = tmp_path / "adult.test"
    path.write_text(ADULT)
    columns = ["age", "workclass", "education", "country", "income"]
    frame, labels = read_csv(
        path, "income", columns=columns, comment="|", missing=["?"], target_strip=".", drop=["education"]
    )
    assert list(frame.columns) == ["age", "workclass", "country"]
    assert labels.tolist() == ["<=50K", ">50K"]
    assert frame["workclass"].isna().tolist() == [False, True]
    assert frame["country"].tolist()[1] == "United|States"
    assert frame.index.tolist() == ["adult.test line 2", "adult.test line 3"]


def test_reads_red_wine_as_published(tmp_path):
    path = tmp_path / "wine.csv"
    path.write_text('"fixed acidity";"pH";"quality"\n7.4;3.51;5\n7.8;3.2;6\n11.2;3.16;7\n')
    frame, labels = read_csv(path, "quality", separator=";")
    y, classes = class_numbers(labels, threshold=6)
    assert y.tolist() == [0, 1, 1]
    assert classes == ("< 6", "≥ 6")
    assert typed(frame)["fixed acidity"].tolist() == [7.4, 7.8, 11.2]


def test_classes_by_map_and_by_value():
    labels = pd.Series(["b", "a", "c"], name="file, column y")
    y, classes = class_numbers(labels, mapping={"a": "first", "b": "second", "c": "first"})
    assert (y.tolist(), classes) == ([1, 0, 0], ("first", "second"))
    y, classes = class_numbers(labels)
    assert (y.tolist(), classes) == ([1, 0, 2], ("a", "b", "c"))
    y, classes = class_numbers(pd.Series(["10", "9", "10"]))
    assert (y.tolist(), classes) == ([1, 0, 1], ("9", "10"))


def test_a_column_is_numeric_only_where_every_value_is():
    frame = pd.DataFrame({"n": ["1", None, "2e3"], "c": ["1", "two", "3"], "b": ["True", "False", "True"]})
    frame = typed(frame.astype(object))
    assert [pd.api.types.is_numeric_dtype(frame[name]) for name in "ncb"] == [True, False, False]
    assert frame["n"].tolist()[2] == 2000.0


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
    np.testing.assert_array_equal(
        x[:, 3:], [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    )  # the bank has no z


def test_rows_outside_the_bank_never_touch_the_bank():
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(list("xyz"), n)})
    frame.loc[rng.random(n) < 0.1, "a"] = np.nan
    bank = rng.random(n) < 0.6
    x, names = encode(frame, bank)
    wild = frame.copy()
    wild.loc[~bank, "a"] = 1e9
    wild.loc[~bank, "b"] = np.nan
    wild.loc[~bank, "c"] = "never seen"
    other, other_names = encode(wild, bank)
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
    frame = pd.DataFrame({"a": [np.nan, np.nan, 3.0], "b": [1.0, 2.0, 3.0]})
    x, names = encode(frame, np.array([True, True, False]))
    assert names[0] == "a"
    assert np.isfinite(x).all()
    np.testing.assert_array_equal(x[:2, 0], 0)


def test_values_too_large_for_float32():
    with pytest.raises(InputError, match=r"column 'a': .* larger unit"):
        encode(pd.DataFrame({"a": [1.0, 2.0, 1e300]}), np.array([True, True, False]))
