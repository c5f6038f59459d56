"""Random inputs of every kind break nothing; and what is broken is reported."""

import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.judge import Judge

ROOT = Path(__file__).parents[2]


def test_random_inputs() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "200", "--workers", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


def test_the_judge_reports_tracebacks_changed_files_and_what_is_no_probability(tmp_path: Path) -> None:
    judge = Judge(tmp_path / "case", tmp_path)
    file = judge.folder / "a.csv"
    judge.call("allowed", lambda: int("a"))
    judge.call("declared", lambda: [file.write_text("1")], writes=[file])
    judge.probabilities([[0.5, 0.5]])
    assert judge.violations == []
    judge.call("traceback", lambda: {}["a"])
    judge.call("not declared", lambda: [file.write_text("2")])
    judge.probabilities([0.5, 0.4])
    causes = [cause for cause, _ in judge.violations]
    assert causes[0].startswith("KeyError in")
    assert causes[1:] == ["success changed .csv", "no probabilities"]
