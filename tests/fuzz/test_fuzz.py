"""Random inputs of every kind break nothing; and what is broken is reported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import runner
from tests.fuzz.planted import CAUSES
from tests.fuzz.runner import Case, _Worker

ROOT = Path(__file__).parents[2]


def test_random_inputs() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "300", "--workers", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


def test_the_judge_reports_what_is_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = _Worker(tmp_path / "0", tmp_path)
    try:
        causes = [cause for cause, _ in worker.run(Case("planted", 1, 0))]
        crash = worker.run(Case("planted", 1, 1))
        monkeypatch.setattr(runner, "SECONDS", 0.1)
        hang = worker.run(Case("planted", 1, 4))
    finally:
        worker.end()
    assert len(causes) == len(CAUSES), causes
    assert all(cause.startswith(start) for cause, start in zip(causes, CAUSES, strict=True)), causes
    assert [cause[:12] for cause, _ in (*crash, *hang)] == ["exit code -6", "no end in 0."]
