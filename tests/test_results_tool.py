"""README.md's and RESULTS.md's tables come from metrics and plot data."""

import shutil
import subprocess
import sys
from pathlib import Path

from closure import ROOT
from results import WIN, write_ablation, write_conditions, write_results

TOOL = str(ROOT / "tools/results.py")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL], cwd=folder, capture_output=True, text=True)


def test_the_tables_are_written_between_the_marks_and_again_the_same(tmp_path: Path) -> None:
    write_results(tmp_path, "birds", 3, WIN)
    write_conditions(tmp_path, "birds", 3, WIN)
    write_ablation(tmp_path, "birds", 3)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    assert run(tmp_path).returncode == 0
    first = readme.read_text(), (tmp_path / "RESULTS.md").read_text()
    assert first[0].startswith("before\n<!-- results -->\nLearned attention ")
    assert "\n\n| dataset" in first[0]
    assert first[1].index("| birds | NLL | Distance") < first[1].index("### birds")
    assert first[0].endswith("<!-- /results -->\nafter\n")
    assert "birds (300; 3)" in first[0]
    assert "old" not in first[0]
    for shown in (
        "### birds",
        "| noise 0.3 (2) | Attention |",
        "| NLL | attention − distance |",
        "| alone | agreement | distance |",
    ):
        assert shown in first[1], shown
    assert "one of the nearest 5 for 0.942" in first[1]
    assert run(tmp_path).returncode == 0
    assert (readme.read_text(), (tmp_path / "RESULTS.md").read_text()) == first


def test_what_is_missing_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no marks")
    done = run(tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: metrics: nothing evaluated yet; run `dvc repro`\n"
    write_results(tmp_path, "birds", 3, WIN)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    done = run(tmp_path)
    assert done.returncode == 2
    assert "put the marks back" in done.stderr
    assert (tmp_path / "README.md").read_text() == "no marks"
