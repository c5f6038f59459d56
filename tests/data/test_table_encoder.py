"""The schema of tables as a transformer."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from attnknn import AttnKNNClassifier, TableEncoder
from attnknn.core.errors import InputError
from attnknn.data.read_csv import read_rows

N = 60
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": np.where(np.arange(N) % 7 == 0, np.nan, RNG.integers(20, 60, N)),
        "city": pd.Categorical(np.where(np.arange(N) % 9 == 0, None, RNG.choice(["Oslo", "Rome"], N))),
        "member": RNG.random(N) > 0.5,
        "rooms": pd.array(np.where(np.arange(N) % 11 == 0, None, RNG.integers(0, 9, N)), dtype="Int64"),
        "id": np.arange(N),
    },
    index=RNG.permutation(N),
)


def test_it_encodes_as_a_csv_file_is_read(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    encoder, texts = TableEncoder().fit(FRAME), read_rows(tmp_path / "t.csv")
    np.testing.assert_allclose(encoder.transform(FRAME), TableEncoder().fit_transform(texts), atol=1e-6)
    assert encoder.ids_ == ("id",)
    names = encoder.get_feature_names_out().tolist()
    assert names[:4] == ["age", "rooms", "age missing", "rooms missing"]
    assert {"city = (missing)", "city = Oslo", "member = True"} <= set(names)
    assert encoder.set_output(transform="pandas").transform(FRAME).columns.tolist() == names


def test_columns_in_another_order_and_unknown_categories() -> None:
    encoder = clone(TableEncoder(drop=["id"], categories=["rooms"])).fit(FRAME)
    np.testing.assert_array_equal(encoder.transform(FRAME[FRAME.columns[::-1]]), encoder.transform(FRAME))
    columns = [name.startswith("city") for name in encoder.get_feature_names_out()]
    assert (encoder.transform(FRAME.assign(city="Bern"))[:, columns] == 0).all()


def test_whole_numbers_are_the_same_category_beside_a_missing_value() -> None:
    frame = pd.DataFrame({"zip": pd.Categorical([1, 2, 3] * 20), "kind": [1, 2] * 30, "x": RNG.normal(size=60)})
    encoder = TableEncoder(categories=["kind"]).fit(frame)
    assert encoder.get_feature_names_out().tolist() == ["x", "zip = 1", "zip = 2", "zip = 3", "kind = 1", "kind = 2"]
    other = frame.astype({"zip": float, "kind": float})
    other.loc[0, "kind"] = None
    np.testing.assert_array_equal(encoder.transform(other)[1:], encoder.transform(frame)[1:])


def test_arrays_and_columns_named_by_numbers() -> None:
    frame = FRAME[["age", "city"]]
    encoder = TableEncoder().fit(frame.to_numpy())
    assert encoder.get_feature_names_out().tolist() == ["0", "0 missing", "1 = (missing)", "1 = Oslo", "1 = Rome"]
    expected = TableEncoder().fit_transform(frame)
    np.testing.assert_array_equal(encoder.transform(frame.to_numpy()), expected)
    numbered = frame.set_axis([0, 1], axis=1)
    np.testing.assert_array_equal(encoder.transform(numbered), expected)
    np.testing.assert_array_equal(TableEncoder().fit_transform(numbered), expected)


def test_columns_without_a_value_are_left_out() -> None:
    with pytest.warns(UserWarning, match="X: no value in column city; left out"):
        encoder = TableEncoder(drop=["id"]).fit(FRAME.assign(city=None))
    np.testing.assert_array_equal(encoder.transform(FRAME), TableEncoder(drop=["id", "city"]).fit_transform(FRAME))


def test_a_classifier_names_the_encoder_that_texts_need() -> None:
    with pytest.raises(ValueError, match=r"could not convert string to float: .*TableEncoder"):
        AttnKNNClassifier().fit(FRAME[["city"]].astype(str), [0, 1] * 30)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="age"), "no column 'age'"),
        (lambda frame: frame.assign(age="old"), "row 0: column 'age' is 'old', no number"),
        (lambda frame: frame.assign(age=np.inf), "column 'age' is inf"),
        (lambda frame: frame["age"].to_numpy(), "X: ndarray; give a pandas data frame"),
        (lambda frame: frame[:0], "X: no rows"),
        (lambda frame: pd.concat([frame, frame[["age"]]], axis=1), "two columns of the same name"),
        (lambda frame: frame.assign(age=frame["age"] * 1j), "column 'age' is of type complex128"),
    ],
)
def test_frames_that_do_not_fit_are_refused(change, message) -> None:
    with pytest.raises(InputError, match=message):
        TableEncoder().fit(FRAME).transform(change(FRAME))


def test_columns_to_decide_about_are_named() -> None:
    with pytest.raises(InputError, match="X: no column size"):
        TableEncoder(drop=["size"]).fit(FRAME)
    with pytest.raises(InputError, match="drop: a text; give a list"):
        TableEncoder(drop="age").fit(FRAME)
    with pytest.raises(InputError, match="X: no column left"):
        TableEncoder(drop=list(FRAME)).fit(FRAME)
    with pytest.raises(InputError, match="holds dates"):
        TableEncoder().fit(FRAME.assign(day=pd.Timestamp("2020-01-01")))


def test_a_pipeline_and_a_grid_search() -> None:
    y = np.where(FRAME["age"].fillna(40) > 40, "old", "young")
    pipe = make_pipeline(TableEncoder(), AttnKNNClassifier(5, weights="distance", random_state=0))
    search = GridSearchCV(pipe, {"tableencoder__scale": ["standard", "quantile"]}, cv=3).fit(FRAME, y)
    assert search.best_score_ > 0.7
    assert search.predict(FRAME[:2]).shape == (2,)
