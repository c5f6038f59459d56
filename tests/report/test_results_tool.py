"""The tables of README.md and RESULTS.md are written from metrics and plot data."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from attnknn.report.tables import fixed
from import_closure import ROOT
from synthetic_results import WIN, write_ablation, write_conditions, write_results

TOOL = str(ROOT / "tools/results.py")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL], cwd=folder, capture_output=True, text=True)


def test_tables_are_written_between_the_marks(tmp_path: Path) -> None:
    write_results(tmp_path, "birds", 3, WIN)
    write_conditions(tmp_path, "birds", 3, WIN)
    write_ablation(tmp_path, "birds", 3)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    first = readme.read_text(), (tmp_path / "RESULTS.md").read_text()
    assert first[0].startswith("before\n<!-- results -->\n| dataset | better than kNN | attention |")
    assert "| birds | undecided |" in first[0]
    assert "| birds (300; 3) | Distance + vector scaling |" in first[0]
    assert "old" not in first[0]
    assert first[0].endswith("<!-- /results -->\nafter\n")
    assert first[1].index("| birds, clean | NLL |") < first[1].index("**birds**")
    for shown in (
        "## All methods",
        "| noise 0.3, 2 runs | Distance-weighted kNN |",
        "| One part alone | temperature |",
    ):
        assert shown in first[1], shown
    assert "| 3 | 300 | 900 | 5 | 0.861 | 0.942 | 0.987 | 50 |" in first[1], "rows and upper bounds"
    table = pd.read_csv(tmp_path / "plots" / "ablation" / "birds-3.csv")
    mine = table[(table["variant"] == "all evidence") & (table["metric"] == "nll")].mean(numeric_only=True)
    val, test, move = fixed(mine["validation"], 3), fixed(mine["value"], 3), fixed(mine["difference"], 4, True)
    assert f"all evidence | full | {val} | {test} | {move} (" in first[1]
    assert re.search(r"\| full \|  \| [\d.]+ \| [\d.]+ \|  \|  \|", first[1]), "itself has no difference"
    assert re.search(r"\| attention − distance \| [−+\d.]+ \(p ", first[1])
    assert run(tmp_path).returncode == 0
    assert (readme.read_text(), (tmp_path / "RESULTS.md").read_text()) == first


def test_opponents_are_chosen_on_validation_rows(tmp_path: Path) -> None:
    write_results(tmp_path, "birds", 3, WIN)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "README.md").write_text("<!-- results --><!-- /results -->")
    path = tmp_path / "plots" / "validation" / "birds-3.csv"
    val = pd.read_csv(path)
    for chosen, name in {"prototypes_isotonic": "Prototypes alone + isotonic", "linear": "Linear head"}.items():
        better = (val["method"] == chosen) & (val["metric"] == "nll")
        val.assign(value=val["value"].where(~better, 0.001)).to_csv(path, index=False)
        done = run(tmp_path)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / "README.md").read_text().partition("| group |")[2].splitlines()
        table = [line.split("|")[2].strip() for line in lines if "|" in line]
        assert table[2:] == ["Distance + vector scaling", "Attention", name], "there is no plain network"


def test_repeated_splits_have_their_own_table(tmp_path: Path) -> None:
    """A column per dataset; without the uncalibrated linear head; the highest accuracy shown is bold."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "README.md").write_text("<!-- results --><!-- /results -->")
    head = "method,metric,splits,value,sd,low,high\n"
    values = {
        "birds": {"distance": 0.8, "attention": 0.8125, "linear": 0.99},
        "fish": {"distance": 0.75, "attention": 0.5, "forest": 0.7},
    }
    for seed, (name, accuracies) in enumerate(values.items()):
        write_results(tmp_path, name, seed, WIN)
        rows = [
            f"{m},accuracy,10,{value},0.03125,0,1\n{m},nll,10,{1 - value},0.1,0,1\n{m},ece,10,0,0,0,1\n"
            for m, value in accuracies.items()
        ]
        (tmp_path / "plots/splits").mkdir(exist_ok=True)
        (tmp_path / "plots/splits_paired").mkdir(exist_ok=True)
        (tmp_path / f"plots/splits/{name}.csv").write_text(head + "".join(rows))
        paired = "".join(f"attention,distance,{metric},10,0,1,-1,1,1\n" for metric in ("accuracy", "nll", "ece"))
        (tmp_path / f"plots/splits_paired/{name}.csv").write_text(
            f"method,baseline,metric,splits,difference,sd,low,high,p\n{paired}"
        )
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "README.md").read_text().splitlines()
    start = lines.index("| method | birds | fish |")
    assert lines[start + 2 : start + 5] == [
        "| Distance-weighted kNN | 0.800 ± 0.031 (0.200) | **0.750 ± 0.031** (0.250) |",
        "| Attention | **0.812 ± 0.031** (0.188) | 0.500 ± 0.031 (0.500) |",
        "| Random forest |  | 0.700 ± 0.031 (0.300) |",
    ]


def test_errors(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no marks")
    done = run(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: params.yaml: no such file")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    done = run(tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: metrics: nothing evaluated yet; run `dvc repro`\n"
    write_results(tmp_path, "birds", 3, WIN)
    done = run(tmp_path)
    assert done.returncode == 2
    assert "put the marks back" in done.stderr
    assert (tmp_path / "README.md").read_text() == "no marks"
