"""CSV files as they are published."""

import io

import numpy as np
import pandas as pd
import pytest

from attnknn.core.errors import InputError
from attnknn.data.read_csv import class_numbers, read_csv, read_rows, row_chunks

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


def test_classes_by_map_and_by_value():
    labels = pd.Series(["b", "a", "c"], name="file, column y")
    y, classes = class_numbers(labels, mapping={"a": "first", "b": "second", "c": "first"})
    assert (y.tolist(), classes) == ([1, 0, 0], ("first", "second"))
    y, classes = class_numbers(labels)
    assert (y.tolist(), classes) == ([1, 0, 2], ("a", "b", "c"))
    y, classes = class_numbers(pd.Series(["10", "9", "10"]))
    assert (y.tolist(), classes) == ([1, 0, 1], ("9", "10"))


def test_none_is_not_a_missing_value(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\nnone,None\nn/a,mild\n")
    frame, labels = read_csv(path, "y")
    assert labels.tolist() == ["None", "mild"]
    assert frame["a"].iloc[0] == "none"
    assert frame["a"].isna().tolist() == [False, True]
    with_target, alone = read_rows(path), read_rows(path, missing=["none"])
    assert list(with_target.columns) == ["a", "y"]
    assert alone["a"].isna().all()


def test_files_and_pipes_with_any_line_ends_and_byte_order_marks(tmp_path):
    text = 'a , b\n1, "two\nlines, ""quoted"""\n\n 3 ,4\n'
    for mark in ("", "\ufeff"):
        for end in ("\n", "\r\n", "\r"):
            path = tmp_path / "t.csv"
            path.write_bytes((mark + text.replace("\n", end)).encode())
            piped = io.TextIOWrapper(io.BytesIO(path.read_bytes()), encoding="utf-8")
            ((piped_frame,), frame) = row_chunks(piped), read_rows(path)
            for table, name in ((frame, "t.csv"), (piped_frame, "standard input")):
                assert table.to_dict("list") == {"a": ["1", "3"], "b": ['two\nlines, "quoted"', "4"]}
                assert table.index.tolist() == [f"{name} line 3", f"{name} line 5"]


def test_chunks(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "".join(f"{i}\n" for i in range(6)))
    for size, expected in ((2, [["0", "1"], ["2", "3"], ["4", "5"]]), (4, [["0", "1", "2", "3"], ["4", "5"]])):
        assert [chunk["a"].tolist() for chunk in row_chunks(path, size=size)] == expected
    path.write_text("a\n")
    with pytest.raises(InputError, match=r"t\.csv: no rows"):
        list(row_chunks(path, size=2))


def test_continuous_labels_are_refused_unless_a_rule_makes_classes() -> None:
    labels = pd.Series(["0.5", "1", "2.25", "1e-3"], name="a.csv, column density")
    with pytest.raises(
        InputError, match=r"^a\.csv, column density: continuous numbers \(0\.5, 2\.25, 1e-3, …\), not classes"
    ):
        class_numbers(labels)
    assert class_numbers(labels, threshold=1.0)[0].tolist() == [0, 1, 1, 0]


MEASURED = np.random.default_rng(0).permutation(np.repeat(np.arange(103), 5)) / 7 + 1000


@pytest.mark.parametrize(
    ("labels", "continuous"),
    [
        (["36,2", "36,5", "37,0"], True),
        (["36.2 %", "40%", "-3.5%"], True),
        (["36,2 %", "1.234,5"] + ["36,3 %"] * 18, True),
        (["0.5", "0.25", "0.75"] + ["0.5"] * 15 + ["?", "?"], True),
        (["0.5", "0.25", "0.75"] + ["0.5"] * 15 + ["?", "?", "?"], False),
        ([f"{value:.3f}" for value in MEASURED], True),
        ([f"${value:,.2f}" for value in MEASURED], True),
        ([f"{value:,.2f} €".translate(str.maketrans(",.", ".,")) for value in MEASURED], True),
        ([f"{value:.2f}" for value in np.arange(20) / 8] * 2, False),
        ([f"{value:.2f}" for value in np.arange(21) / 8] * 2, True),
        ([f"0{chapter},{n}" for chapter in range(1, 10) for n in range(1, 10)], False),
        (["01,02", "1,2", "0.5/1.5", "1.10", "1.9"] * 2, False),
        (["250.00", "250.01", "A01.1"] * 9, False),
        (["1,234", "5,678"], False),
        (["1,234.5", "5,678"], True),
        (["10 %", "20 %", "?"], False),
        (["3,0", "4,0"], False),
        (["1,2,3", "2,3,4"], False),
        (["a,5", "b,5"], False),
        (["%", "?"], False),
        (["1", "2", "3"] * 9 + ["?"], False),
        (["1.0", "2", "3e0"], False),
        (["0.5", "inf"], False),
    ],
)
def test_continuous_labels_are_many_numbers_with_fractions_however_written(labels: list[str], continuous: bool) -> None:
    if continuous:
        with pytest.raises(InputError, match=r"continuous numbers .* name the column in `categories`"):
            class_numbers(pd.Series(labels, name="y"))
    names = class_numbers(pd.Series(labels, name="y"), continuous=continuous)[1]
    assert sorted(names) == sorted(set(labels))
