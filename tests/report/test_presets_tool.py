"""The study's experiments, scaled down: their settings, and their numbers beside the study's."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from attnknn.core.errors import InputError
from attnknn.evaluation.opponents import score_tables
from attnknn.report.results import Run
from attnknn.report.tables import as_frame
from import_closure import ROOT
from synthetic_results import LOSS, WIN, predictions
from tools.presets import SIZES, call, changes, run_preset, tables
from tools.sweep import combinations


def test_each_experiment_is_one_with_settings_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert sorted(SIZES) == [path.stem for path in sorted(Path("presets").glob("experiment*.yaml"))]
    for preset, size in SIZES.items():
        assert len(combinations(changes(preset, **size))) == 1
    assert "presets/experiment4.yaml:train_embedder.epochs=3" in changes("experiment4", **SIZES["experiment4"])
    assert "+tune.ks=[1, 3, 5, 10, 16]" in changes("experiment5", **SIZES["experiment5"]), "as many as attention"


def test_our_numbers_stand_beside_those_of_the_same_experiment() -> None:
    runs = {}
    for preset, strengths in (("experiment2", WIN), ("experiment5", LOSS)):
        probs = predictions(strengths, 400)
        compared = pd.DataFrame(score_tables(probs, probs, 15, 200, 0.95, 0)[1]["intervals"]).fillna({"role": ""})
        views = compared.query("method == 'attention'").assign(views=5)
        json = {"prepare": {"bank": 8000, "test": 2000}, "train_embedder": {"val_accuracy": 0.5}}
        runs[preset] = Run("cifar10_jpeg", 42, json, {"intervals": compared, "tta": views})
    sizes, scores, conclusions = map(as_frame, tables(runs, {"experiment2": 15.87, "experiment5": 3.0}))
    assert sizes.iloc[0].tolist() == ["experiment2", "15.9", "8000", "2000", "3", "64", "0.500", "yes"]
    rows = scores.set_index(["experiment", "method"])
    study = rows.iloc[:, 0]
    assert study["experiment2", "Uniform kNN"] == "0.8861 / 0.8193 / 0.0165"
    assert study["experiment5", "Attention + TTA"] == "0.8720 / 0.9670 / 0.0283"
    assert ("experiment2", "Attention + TTA") not in rows.index, "not in that experiment"
    for preset, run in runs.items():
        own = run.tables["intervals"].query("method == 'uniform' and metric == 'nll'")["value"].iloc[0]
        assert rows.loc[(preset, "Uniform kNN"), "NLL"].startswith(f"{own:.3f}")
    assert list(conclusions)[1:] == list(runs)
    row = conclusions[conclusions.iloc[:, 0].str.startswith("Attention outperforms")].iloc[0]
    assert row["experiment2"].startswith("supported")
    assert not row["experiment5"].startswith("supported")


def test_only_this_run_s_results_are_read_and_what_has_run_is_not_run_again(tmp_path: Path, monkeypatch) -> None:
    """A clone holds published results of the same dataset."""
    clone, calls = tmp_path / "experiment1", []
    published = [clone / "plots/ablation/cifar10_jpeg-42.csv", clone / "metrics/cifar10_jpeg/42/noise.json"]
    other = clone / "plots/ablation/cifar10_jpeg_12k-42.csv"
    for path in (*published, other):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr("tools.presets.call", lambda *command, **_: calls.append(command))
    for _ in range(2):
        run_preset(tmp_path, "experiment1")
    assert [command[:2] for command in calls] == [("git", "checkout"), (sys.executable, "-m")]
    assert "preset=experiment1" in calls[1]
    assert [path.exists() for path in (*published, other)] == [False, False, True]


def test_a_failure_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^false now: exit code 1; see above\. The same call continues$"):
        call("false", "now")
