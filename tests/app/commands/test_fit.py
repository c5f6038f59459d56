"""`attnknn fit`."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnknn.app.model.model import Model
from command_line import refused, succeeded


def test_fit_tells_what_was_measured_on_rows_kept_out(folder: Path, tmp_path: Path) -> None:
    flags = ("--target", "target", "--weights", "distance", "--test", 0.2)
    summary = json.loads(succeeded("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags, "--json"))
    assert (summary["memory"], summary["test"]) == (120, 30)
    cases = Model.load(tmp_path / "m").cases
    answers = Model.load(tmp_path / "m").classifier.predict(cases.vectors)
    assert summary["accuracy"] == (answers == cases.labels).mean()
    out = succeeded("fit", folder / "iris.csv", "-o", tmp_path / "n", *flags)
    assert f"on 30 rows held out: accuracy {summary['accuracy']:.3f}, NLL {summary['nll']:.3f}" in out
    out = succeeded("fit", folder / "iris.csv", "-o", tmp_path / "all", "--target", "target", "--test", 0)
    assert out == f"{tmp_path / 'all'}: 150 rows of 3 classes in memory\n"


def test_fit_replaces_nothing_unasked_and_never_anything_else(folder: Path, tmp_path: Path) -> None:
    flags = ("--target", "target", "--weights", "distance")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years")
    for force in ((), ("--force",)):
        assert "there already, and no model" in refused(
            "fit", folder / "iris.csv", "-o", tmp_path / "mine", *flags, *force
        )
    assert (tmp_path / "mine/thesis.tex").read_text() == "years"
    succeeded("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags)
    assert "a model is there already" in refused("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags)
    succeeded("fit", folder / "iris.csv", "-o", tmp_path / "m", *flags, "--force", "--drop", "kind")
    assert "kind" not in Model.load(tmp_path / "m").input.columns


def test_fit_hands_its_options_on(folder: Path, tmp_path: Path) -> None:
    text = (folder / "iris.csv").read_text().replace(",", ";").replace("short", "?")
    (tmp_path / "t.csv").write_text(text)
    layout = ("--separator", ";", "--missing", "?", "--drop", "sepal width (cm)")
    flags = ("-k", 4, "--weights", "uniform", "--metric", "cosine", "--no-prototypes", "--seed", 3)
    succeeded("fit", tmp_path / "t.csv", "-o", tmp_path / "m", "--target", "target", *layout, *flags)
    model = Model.load(tmp_path / "m")
    expected = {"n_neighbors": 4, "weights": "uniform", "metric": "cosine", "prototypes": False, "random_state": 3}
    assert {name: model.classifier.get_params()[name] for name in expected} == expected
    assert "sepal width (cm)" not in model.input.columns
    assert model.examples.table["kind"].dropna().unique().tolist() == ["long"]
    piped = succeeded("predict", tmp_path / "m", "-", stdin=text)  # it knows the separator
    labels = pd.read_csv(io.StringIO(piped))["label"].tolist()
    assert (
        labels == pd.read_csv(io.StringIO(succeeded("predict", tmp_path / "m", tmp_path / "t.csv")))["label"].tolist()
    )


def test_of_two_who_fit_at_once_the_slower_replaces_nothing(folder: Path, tmp_path: Path, monkeypatch) -> None:
    import shutil

    from attnknn.app.model import fit

    def slow(*args: Any, **settings: Any) -> Any:
        shutil.copytree(folder / "vectors", tmp_path / "m")
        return fit_it(*args, **settings)

    fit_it = fit.fit_model
    monkeypatch.setattr(fit, "fit_model", slow)
    command = ("fit", folder / "iris.csv", "--target", "target", "--weights", "uniform", "-o", tmp_path / "m")
    assert "a model is there already" in refused(*command)
    assert Model.load(tmp_path / "m").input.kind == "vectors"


def test_columns_that_are_left_out_are_told_and_can_be_taken_in(tmp_path: Path) -> None:
    frame = pd.DataFrame({"second": np.arange(60), "x": np.arange(60) % 7, "y": np.repeat(["a", "b"], 30)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    flags = ("fit", tmp_path / "t.csv", "--target", "y", "--weights", "uniform", "-k", 3, "-o")
    assert "left out as ids: second (--categories or --numeric takes one in)" in succeeded(*flags, tmp_path / "m")
    summary = json.loads(succeeded(*flags, tmp_path / "n", "--numeric", "second", "--json"))
    assert summary["left_out"] == []
    assert summary["accuracy"] > 0.9
    assert Model.load(tmp_path / "n").input.columns == ("second", "x")
