"""The tables of README.md and RESULTS.md are written from metrics and plot data."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from attnknn.core.errors import InputError
from attnknn.core.files import write_csv
from attnknn.report.tables import fixed
from import_closure import ROOT
from synthetic_results import WIN, write_ablation, write_conditions, write_results
from tools.results import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the tool runs."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "README.md").write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_are_written_between_the_marks(folder: Path) -> None:
    write_results(folder, "birds", 3, WIN)
    write_conditions(folder, "birds", 3, WIN)
    write_ablation(folder, "birds", 3)
    main()
    first = Path("README.md").read_text(), Path("RESULTS.md").read_text()
    assert first[0].startswith("before\n<!-- results -->\n| dataset | best kNN | attention |")
    assert re.search(r"\| birds \| [\d.]+ / [\d.]+ \(", first[0])
    assert "| birds (300; 3) | Attention |" in first[0]
    assert "old" not in first[0]
    assert first[0].endswith("<!-- /results -->\nafter\n")
    assert first[1].index("| birds, clean | NLL |") < first[1].index("**birds**")
    for shown in (
        "## All methods",
        "| noise 0.3 | Attention |",
        "| One part alone | temperature |",
        "| 3 | 300 | 900 | 5 | 0.861 | 0.942 | 0.987 | 50 |",  # rows and upper bounds
    ):
        assert shown in first[1], shown
    table = pd.read_csv("plots/ablation/birds-3.csv")
    mine = table[(table["variant"] == "all evidence") & (table["metric"] == "nll")].mean(numeric_only=True)
    val, test, move = fixed(mine["validation"], 3), fixed(mine["value"], 3), fixed(mine["difference"], 4, True)
    assert f"all evidence | full | {val} | {test} | {move} (" in first[1]
    assert re.search(r"\| full \|  \| [\d.]+ \| [\d.]+ \|  \|  \|", first[1]), "itself has no difference"
    main()
    assert (Path("README.md").read_text(), Path("RESULTS.md").read_text()) == first


def test_repeated_splits_have_their_own_table(folder: Path) -> None:
    """A column per dataset; without the uncalibrated linear head; the highest accuracy shown is bold."""
    accuracies = {
        "birds": {"distance": 0.8, "attention": 0.8125, "linear": 0.99},
        "fish": {"distance": 0.75, "attention": 0.5, "forest": 0.7},
    }
    for seed, (name, values) in enumerate(accuracies.items()):
        write_results(folder, name, seed, WIN)
        row = {"splits": 10, "sd": 0.03125, "low": 0, "high": 1}
        scores = [
            {"method": method, "metric": metric, "value": score, **row}
            for method, value in values.items()
            for metric, score in {"accuracy": value, "nll": 1 - value, "ece": 0}.items()
        ]
        pair = {"method": "attention", "baseline": "distance", "difference": 0, "p": 1, **row}
        paired = [{**pair, "metric": metric} for metric in ("accuracy", "nll", "ece")]
        for table, rows in {"splits": scores, "splits_paired": paired}.items():
            write_csv(folder / f"plots/{table}/{name}.csv", rows)
    main()
    lines = Path("README.md").read_text().splitlines()
    start = lines.index("| method | birds | fish |")
    assert lines[start + 2 : start + 5] == [
        "| Distance-weighted kNN | 0.800 ± 0.031 (0.200) | **0.750 ± 0.031** (0.250) |",
        "| Attention | **0.812 ± 0.031** (0.188) | 0.500 ± 0.031 (0.500) |",
        "| Random forest |  | 0.700 ± 0.031 (0.300) |",
    ]


def test_errors(folder: Path) -> None:
    Path("README.md").write_text("no marks")
    done = subprocess.run([sys.executable, ROOT / "tools/results.py"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "error: metrics: nothing evaluated yet; run `dvc repro`\n")
    write_results(folder, "birds", 3, WIN)
    with pytest.raises(InputError, match="put the marks back"):
        main()
    assert Path("README.md").read_text() == "no marks"
    Path("params.yaml").unlink()
    with pytest.raises(InputError, match=r"^params\.yaml: no such file"):
        main()
