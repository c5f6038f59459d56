"""`attnknn fit`."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn.app.model.fit import fit_model
from attnknn.app.model.model import Model
from command_line import csv_rows, refused, succeeded


def test_summary_of_the_held_out_rows(folder: Path, tmp_path: Path) -> None:
    flags = ("--target", "target", "--weights", "distance", "--test", 0.2)
    summary = json.loads(succeeded("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags, "--json"))
    assert (summary["memory"], summary["test"]) == (120, 30)
    model = Model.load(tmp_path / "m")
    assert summary["accuracy"] == (model.classifier.predict(model.cases.vectors) == model.cases.labels).mean()
    out = succeeded("fit", folder / "iris.csv", "-o", tmp_path / "n", *flags)
    assert f"on 30 rows held out: accuracy {summary['accuracy']:.3f}, NLL {summary['nll']:.3f}" in out
    out = succeeded("fit", folder / "iris.csv", "-o", tmp_path / "all", "--target", "target", "--test", 0)
    assert out.splitlines() == [
        f"{tmp_path / 'all'}: 150 rows of 3 classes in memory",
        "duplicates, which are held out together: 1 (0 with another label)",
    ]


def test_tables_of_categories_are_held_out_row_by_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["low", "low", "high", "high"] * 100, "b": ["low", "high"] * 200})
    frame.assign(y=np.where(frame["a"] == frame["b"], "off", "on")).to_csv(tmp_path / "t.csv", index=False)
    out = succeeded("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m").splitlines()
    assert out[:3] == [
        f"{tmp_path / 'm'}: 360 rows of 2 classes in memory",
        "duplicates, which are most of the rows and held out one by one: 396 (0 with another label)",
        "test rows that are identical to rows in memory: 40",
    ]
    assert out[3].startswith("on 40 rows held out: accuracy 1.000")
    assert not Model.load(tmp_path / "m").cases_in_memory().any(), "new rows are copies too, so all stay held out"


def test_copies_of_rows_do_not_raise_the_accuracy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 4))).add_prefix("x").assign(y=rng.integers(0, 2, 200))
    frame.loc[200] = [*frame.loc[0, "x0":"x3"], 1 - frame.loc[0, "y"]]
    frame = pd.concat([frame, frame[2:]])  # half of the rows are distinct
    frame.to_csv(tmp_path / "t.csv", index=False)
    np.save(tmp_path / "t.npy", frame.filter(like="x"))
    np.save(tmp_path / "y.npy", frame["y"].astype(int))
    flags = ("--test", 0.3, "--weights", "distance", "-o", tmp_path / "m", "--force")
    for source in ((tmp_path / "t.csv", "--target", "y"), (tmp_path / "t.npy", "--rows", tmp_path / "y.npy")):
        summary = json.loads(succeeded("fit", *source, *flags, "--json"))
        assert summary["accuracy"] < 0.65, "labels are random; copies in the memory would answer their own test rows"
        expected = {"duplicates": 200, "conflicting_duplicates": 2, "test_duplicates": 0}
        assert summary == summary | expected


def test_force_overwrites_models_only(folder: Path, tmp_path: Path) -> None:
    command = ("fit", folder / "iris.csv", "--target", "target", "--weights", "distance", "-o")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years")
    for force in ((), ("--force",)):
        assert "exists and is not a model" in refused(*command, tmp_path / "mine", *force)
    assert (tmp_path / "mine/thesis.tex").read_text() == "years"
    succeeded(*command, tmp_path / "m")
    assert "holds a model already" in refused(*command, tmp_path / "m")
    succeeded(*command, tmp_path / "m", "--force", "--drop", "kind")
    assert "kind" not in Model.load(tmp_path / "m").input.columns


def test_options(folder: Path, tmp_path: Path) -> None:
    text = (folder / "iris.csv").read_text().replace(",", ";").replace("short", "?")
    (tmp_path / "t.csv").write_text(text)
    layout = ("--separator", ";", "--missing", "?", "--drop", "sepal width (cm)")
    flags = ("-k", 4, "--weights", "uniform", "--metric", "cosine", "--no-prototypes", "--seed", 3)
    flags += ("--index", "hnsw", "--device", "cpu")
    succeeded("fit", tmp_path / "t.csv", "-o", tmp_path / "m", "--target", "target", *layout, *flags)
    model = Model.load(tmp_path / "m")
    expected = {"n_neighbors": 4, "weights": "uniform", "metric": "cosine", "prototypes": False, "random_state": 3}
    expected |= {"index": "hnsw", "device": "cpu", "verbose": False}
    assert model.classifier.get_params() == model.classifier.get_params() | expected
    assert "sepal width (cm)" not in model.input.columns
    assert model.examples.table["kind"].dropna().unique().tolist() == ["long"]
    piped, read = (csv_rows("predict", tmp_path / "m", name, stdin=text) for name in ("-", tmp_path / "t.csv"))
    assert [row["label"] for row in piped] == [row["label"] for row in read]  # the model stores the separator


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_detected(separator: str, folder: Path, tmp_path: Path) -> None:
    """Also where a comma is in every value, and quoted ones hold the separator."""
    frame = pd.read_csv(folder / "iris.csv", dtype=str)
    frame["note, kind"] = [f"{kind}{separator}x, y" for kind in frame.pop("kind")]
    frame.to_csv(tmp_path / "t.csv", index=False, sep=separator)
    frame.to_csv(tmp_path / "t.csv.gz", index=False, sep=separator)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    answers = []
    for name in ("t.csv", "t.csv.gz", "t.parquet"):
        command = "fit", tmp_path / name, "--target", "target", "--weights", "distance", "-k", 4
        succeeded(*command, "-o", tmp_path / f"{name}-model")
        assert "note, kind" in Model.load(tmp_path / f"{name}-model").input.columns
        answers += [csv_rows("predict", tmp_path / f"{name}-model", tmp_path / other) for other in ("t.csv", name)]
    for rows in answers[1:]:
        assert [row["confidence"] for row in rows] == [row["confidence"] for row in answers[0]]
    assert answers[-1][2]["input"] == "t.parquet row 2"


def test_files_with_another_separator_than_that_of_fit(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "iris.csv", dtype=str)
    frame.to_csv(tmp_path / "t.csv", index=False, sep="^")
    (tmp_path / "plain.csv").write_text(frame.to_csv(index=False))
    fit = "fit", tmp_path / "t.csv", "--target", "target", "--weights", "uniform", "-o", tmp_path / "m"
    assert "no target column 'target'" in refused(*fit)
    succeeded(*fit, "--separator", "^")
    expected = csv_rows("predict", tmp_path / "m", tmp_path / "t.csv")
    line = refused("predict", tmp_path / "m", tmp_path / "plain.csv")
    assert "one column with the separator '^'; it looks like ',': give --separator ','" in line
    own = csv_rows("predict", tmp_path / "m", tmp_path / "plain.csv", "--separator", ",")
    assert [row["label"] for row in own] == [row["label"] for row in expected]
    added = json.loads(
        succeeded("add", tmp_path / "m", tmp_path / "plain.csv", "--target", "target", "--separator", ",", "--json")
    )
    assert len(added["added"]) == 150
    assert csv_rows("predict", tmp_path / "m", tmp_path / "t.csv")  # `add` left the separator of the model
    assert "pictures" in refused("predict", folder / "pictures", folder / "images", "--separator", ";")


def test_threads_of_a_fit(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    fit = "fit", folder / "iris.csv", "--target", "target", "--weights", "uniform", "-o", tmp_path / "m"
    succeeded(*fit, "--threads", 1)
    assert {os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")} == {"1"}


def test_a_linear_classifier_that_decides_alone_is_reported(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(400, 30))
    frame = pd.DataFrame(x).assign(target=np.where(x.sum(1) > 0, "a", "b"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = "fit", tmp_path / "t.csv", "--target", "target", "-o"
    text = succeeded(*fit, tmp_path / "linear", "--null-scores", "linear")
    assert Model.load(tmp_path / "linear").classifier.explain(x[:50]).null.sum(1).mean() > 0.9
    assert "weight of the linear classifier: " in text
    assert "of neighbours hardly any; --null-scores shares" in text
    assert "hardly any" not in succeeded(*fit, tmp_path / "distance", "--weights", "distance")


def test_a_model_written_during_a_fit_is_not_overwritten(folder: Path, tmp_path: Path, monkeypatch) -> None:
    def slow(*args: Any, **settings: Any) -> Any:
        shutil.copytree(folder / "vectors", tmp_path / "m")
        return fit_model(*args, **settings)

    monkeypatch.setattr("attnknn.app.model.fit.fit_model", slow)
    command = ("fit", folder / "iris.csv", "--target", "target", "--weights", "uniform", "-o", tmp_path / "m")
    assert "holds a model already" in refused(*command)
    assert Model.load(tmp_path / "m").input.kind == "vectors"


def test_id_columns_are_left_out_unless_included(tmp_path: Path) -> None:
    frame = pd.DataFrame({"second": np.arange(60), "x": np.arange(60) % 7, "y": np.repeat(["a", "b"], 30)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    flags = ("fit", tmp_path / "t.csv", "--target", "y", "--weights", "uniform", "-k", 3, "-o")
    assert "left out as ids: second (--categories or --numeric includes a column)" in succeeded(*flags, tmp_path / "m")
    summary = json.loads(succeeded(*flags, tmp_path / "n", "--numeric", "second", "--json"))
    assert summary["left_out"] == []
    assert summary["accuracy"] > 0.9
    assert Model.load(tmp_path / "n").input.columns == ("second", "x")


def test_label_noise_auto_counts_the_corrected_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    wrong = rng.random(300) < 0.3
    np.save(tmp_path / "z.npy", 8 * np.eye(3)[y] + rng.normal(size=(300, 3)))
    np.save(tmp_path / "y.npy", np.where(wrong, (y + 1) % 3, y))
    command = ("fit", tmp_path / "z.npy", "--rows", tmp_path / "y.npy", "--test", 0, "--force", "-o", tmp_path / "m")
    assert json.loads(succeeded(*command, "--weights", "uniform", "--json"))["labels_corrected"] == 0
    out = succeeded(*command, "--label-noise", "auto", "--null-scores", "shares").splitlines()
    memory = Model.load(tmp_path / "m").classifier.memory_
    corrected = memory.y != memory.given_y
    assert out[1] == f"labels corrected: {corrected.sum():,} of 300"
    assert (corrected == wrong).mean() > 0.9
    np.save(tmp_path / "q.npy", 8 * np.eye(3)[:1])
    shown = succeeded("explain", tmp_path / "m", tmp_path / "q.npy", "--shown", 50)
    neighbours = Model.load(tmp_path / "m").classifier.explain(8 * np.eye(3)[:1])
    assert shown.count("(given 1)") == (neighbours.given_labels != neighbours.labels).sum() > 5
    np.save(tmp_path / "y.npy", y)
    out = succeeded(*command, "--label-noise", "auto", "--null-scores", "shares").splitlines()
    assert out[1] == "label noise: none evident; labels are taken as given"
    assert "--label-noise: 'always'; give auto" in refused(*command, "--label-noise", "always")
    assert "label_noise: needs weights attention" in refused(*command, "--label-noise", "auto", "--weights", "uniform")


def test_a_fit_without_test_rows_says_why(tmp_path: Path) -> None:
    few = pd.DataFrame({"x": np.arange(24) % 11 / 7, "y": list("abc") * 8})
    copies = pd.DataFrame({"x": np.repeat(np.arange(20) ** 2 / 7, 2), "y": np.repeat(list("ab"), 20)})
    for frame, share, reason in (
        (few, 0.1, "0.1 of the largest class, of 8 rows, is less than one; give more rows or a larger --test"),
        (copies, 0.05, "identical rows are held out together, and exceed 0.05 of their class; give a larger --test"),
    ):
        frame.to_csv(tmp_path / "t.csv", index=False)
        command = ("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m", "--weights", "uniform", "--force")
        assert f"no test rows: {reason}" in succeeded(*command, "--test", share).splitlines()
        assert json.loads(succeeded(*command, "--test", share, "--json"))["no_test"] == reason
        assert "no test rows" not in succeeded(*command, "--test", 0)


def test_a_file_of_labels_alone_may_have_a_named_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "z.npy", rng.normal(size=(40, 3)))
    (tmp_path / "rows.csv").write_text("\n".join(["kind", *rng.choice(["a", "b"], 40)]))
    command = ("fit", tmp_path / "z.npy", "--rows", tmp_path / "rows.csv", "-o", tmp_path / "m", "--weights", "uniform")
    assert "rows of 2 classes" in succeeded(*command, "--target", "kind")
    assert "no target column 'other'" in refused(*command[:-3], tmp_path / "n", "--target", "other")


def test_errors_name_options_of_the_command(tmp_path: Path) -> None:
    days = pd.date_range("2020-01-01", periods=40).strftime("%Y-%m-%d")
    pd.DataFrame({"day": days, "a": range(40), "y": [0, 1] * 20}).to_csv(tmp_path / "t.csv", index=False)
    message = refused("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m")
    assert "name it in --drop, or in --categories" in message
    assert "day" in message
