"""`attnknn audit`, of data and of models."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_models import save_npy

from attnknn import AttnKNNClassifier
from attnknn.app.model.examples import Examples
from attnknn.app.model.issues_plot import plot_issues
from attnknn.app.model.model import Model
from command_line import refused, succeeded

WRONG = [3, 60, 130]  # rows whose label is changed


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """iris.csv in which three labels are wrong."""
    from sklearn.datasets import load_iris

    iris: Any = load_iris(as_frame=True)
    frame = iris.data.assign(kind=iris.target_names[iris.target])
    frame.loc[WRONG, "kind"] = ["virginica", "setosa", "setosa"]
    path = tmp_path_factory.mktemp("audit") / "iris.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_table_and_a_model_of_it(flowers: Path, tmp_path: Path) -> None:
    output = tmp_path / "issues.csv"
    out = succeeded("audit", flowers, "--target", "kind", "-o", output, "--top", 3)
    assert re.search(r"expected number of wrong labels \d+ \(\d+ … \d+\) of 150\nflagged: 6, the least credible; ", out)
    assert re.search("flagged most often, given → predicted: [a-z]+ → [a-z]+ .[0-9]", out)
    frame = pd.read_csv(output, index_col="row")
    assert len(frame) == 150
    assert set(WRONG) < set(np.flatnonzero(frame["is_label_issue"]))
    lines = [f"iris.csv line {row + 2}" for row in WRONG]
    assert set(frame["label_quality"].nsmallest(3).index) == set(lines)
    assert all(line in out for line in lines)
    assert set(frame.loc[lines, "contradicted_by"]) < set(frame.index)
    assert "exists" in refused("audit", flowers, "--target", "kind", "-o", output)
    succeeded("fit", flowers, "--target", "kind", "-o", tmp_path / "m", "--test", 0)
    answer = json.loads(succeeded("audit", tmp_path / "m", "--top", 3, "--json"))
    assert {issue["id"] for issue in answer["issues"]} == set(WRONG)
    assert 3 <= answer["flagged"] <= 8
    assert not answer["evident"], "50 rows a class are few"
    assert 0.3 < answer["flagged_precision"] <= 1
    assert answer["wrong_low"] <= answer["wrong"] <= answer["wrong_high"]
    assert answer["pairs"][0]["flagged"] >= 1


def test_inputs_are_not_replaced_and_options_are_checked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "z.npy", rng.normal(size=(40, 3)))
    labels = tmp_path / "rows.csv"
    pd.DataFrame({"kind": rng.choice(["a", "b"], 40)}).to_csv(labels, index=False)
    text, command = labels.read_text(), ("audit", tmp_path / "z.npy", "--rows", labels, "--target", "kind")
    assert "would replace" in refused(*command, "-o", labels, "--force")
    assert labels.read_text() == text
    assert "--metric: foo; give l2 or cosine" in refused(*command, "--metric", "foo")
    assert "--seed: -1" in refused(*command, "--seed", -1)


def test_the_number_is_a_guess_of_random_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abcd")).assign(kind=rng.choice(["p", "q"], 400))
    frame.to_csv(tmp_path / "random.csv", index=False)
    out = succeeded("audit", tmp_path / "random.csv", "--target", "kind", "--precision", 0.5)
    assert "label noise is not evident, as with few rows or where classes overlap: the number is a guess" in out
    review = int(re.findall("rows to review for an expected precision of 0.5: ([0-9]+)", out)[0])
    assert "give a share above 0, up to 1" in refused("audit", tmp_path / "random.csv", "--precision", 0)
    from attnknn import expected_precision, find_label_issues

    values = expected_precision(find_label_issues(frame[list("abcd")], frame["kind"], random_state=0))
    assert abs(review - (values >= 0.5).sum()) <= 10, "the table's columns are scaled"


def test_decisions_that_cannot_be_applied(flowers: Path, tmp_path: Path) -> None:
    succeeded("fit", flowers, "--target", "kind", "-o", tmp_path / "m", "--test", 0)
    decisions, model = tmp_path / "decisions.csv", (tmp_path / "m/model.json").read_bytes()
    for rows, line in (
        (["01,forget,", "1,keep,"], "repeated; decide each row once"),
        (["0,forget,", *(f"{i},relabel,setosa" for i in range(1, 150))], "all rows left would be of class setosa"),
    ):
        decisions.write_text("\n".join(["id,decision,label", *rows]))
        assert line in refused("audit", tmp_path / "m", "--apply", decisions)
    line = refused("audit", tmp_path / "m", "--apply", decisions, "--top", 3, "--seed", 4)
    assert "--top, --seed: without effect beside --apply" in line
    assert (tmp_path / "m/model.json").read_bytes() == model


def test_right_labels_are_no_evidence(flowers: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(flowers).drop(WRONG)
    frame.to_csv(tmp_path / "right.csv", index=False)
    out = succeeded("audit", tmp_path / "right.csv", "--target", "kind")
    assert "label noise is not evident" in out


def test_plots(flowers: Path, tmp_path: Path) -> None:
    from PIL import Image

    succeeded("audit", flowers, "--target", "kind", "--plot", tmp_path / "issues.png")
    assert Image.open(tmp_path / "issues.png").size == (544, 352)
    images = np.random.default_rng(0).integers(0, 255, (40, 1, 8, 8), dtype=np.uint8)
    issues = pd.DataFrame({"label_quality": np.linspace(0, 1, 40), "given_label": 1, "predicted_label": 2})
    drawn = Image.open(io.BytesIO(plot_issues(issues, Examples(images=images), 10)))
    assert drawn.size == (1600, 512)
    assert "give a .png" in refused("audit", flowers, "--target", "kind", "--plot", tmp_path / "issues.pdf")
    assert "exists" in refused("audit", flowers, "--target", "kind", "--plot", tmp_path / "issues.png")


def test_decisions_change_a_model(flowers: Path, tmp_path: Path) -> None:
    model, decisions = tmp_path / "m", tmp_path / "decisions.csv"
    succeeded("fit", flowers, "--target", "kind", "-o", model, "--test", 0)
    succeeded("audit", model, "-o", tmp_path / "issues.csv")
    before = AttnKNNClassifier.load(model)
    frame = pd.read_csv(tmp_path / "issues.csv", dtype=str).assign(decision="", label="")
    frame.loc[WRONG[:2], ["decision", "label"]] = [["relabel", "setosa"], ["relabel", "versicolor"]]
    frame.loc[[WRONG[2], 5], "decision"] = ["forget", "keep"]
    frame.to_csv(decisions, index=False)
    assert json.loads(succeeded("audit", model, "--apply", decisions, "--json")) == {
        "keep": 1, "relabel": 2, "forget": 1
    }  # fmt: skip
    after = AttnKNNClassifier.load(model)
    assert after.memory_.all_ids().tolist() == [*np.delete(np.arange(150), WRONG), 150, 151]
    np.testing.assert_array_equal(
        after.memory_.vectors_of(np.array([150, 151])), before.memory_.vectors_of(np.array(WRONG[:2]))
    )
    assert after.classes_[after.memory_.labels_of(np.array([150, 151]))].tolist() == ["setosa", "versicolor"]
    row = {key: float(value) for key, value in pd.read_csv(flowers).loc[WRONG[0]].drop("kind").items()}
    assert {key: float(value or "nan") for key, value in Model.load(model).rows_of([150])[0].items()} == row
    saved = (model / "model.json").read_bytes()
    for text, line in (
        ("id,decision\n1,keep\n", "no column label"),
        ("id,decision,label\nx,keep,\n", "line 2: id x"),
        ("id,decision,label\n1,move,\n", "line 2: decision move"),
        ("id,decision,label\n1,relabel,\n", "line 2: no label"),
        ("id,decision,label\n1,relabel,rose\n2,forget,\n", "rose: not a class"),
        ("id,decision,label\n1,forget,\n999,forget,\n", "999: not in the memory"),
        ("id,decision,label\n1,forget,\n1,keep,\n", "id 1 repeated"),
    ):
        decisions.write_text(text)
        assert line in refused("audit", model, "--apply", decisions)
        assert (model / "model.json").read_bytes() == saved
    assert "is no model" in refused("audit", flowers, "--target", "kind", "--apply", decisions)


def test_vectors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], 60)
    z = save_npy(tmp_path / "z.npy", rng.normal(size=(120, 3)) + 6 * (y == "b")[:, None])
    y[5] = "b"
    out = succeeded("audit", z, "--rows", save_npy(tmp_path / "y.npy", y), "--top", 1)
    assert "z.npy row 5" in out


def test_bad_input_is_one_line(flowers: Path, tmp_path: Path) -> None:
    succeeded("fit", flowers, "--target", "kind", "-o", tmp_path / "m", "--weights", "uniform")
    for line, *command in (
        ("no label column", flowers),
        ("no such file", tmp_path / "none.csv", "--target", "kind"),
        ("give a .csv file", flowers, "--target", "kind", "-o", tmp_path / "issues.txt"),
        ("give 0 or more", flowers, "--target", "kind", "--top", -1),
        ("--target, --metric: of labelled rows", tmp_path / "m", "--target", "kind", "--metric", "cosine"),
        ("would replace", flowers, "--target", "kind", "-o", flowers, "--force"),
    ):
        assert line in refused("audit", *command)
