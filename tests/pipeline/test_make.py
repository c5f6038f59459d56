"""What people start from a shell: `make repro`, and stages without an activated environment."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from repository import Repository

from import_closure import ROOT

MAKE_REPRO = ("make", "--no-print-directory", "repro")  # the suite itself may run below a make
DVC = """\
#!/bin/sh
echo '{"nll": 0.2}' > metrics/digits.json
echo new > report
"""


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    """A project with a published number, whose `dvc repro` writes another and a report."""
    repository = Repository(tmp_path)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".gitignore").write_text(".venv\nreport\n")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots/noise.csv").write_text("x\n1\n")
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/digits.json").write_text('{"nll": 0.1}\n')
    (tmp_path / "dvc.lock").write_text("")
    repository.commit("published")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/dvc").write_text(DVC)
    (tmp_path / ".venv/bin/dvc").chmod(0o755)
    (tmp_path / ".venv/ready").touch()
    return repository


def test_make_repro_names_the_published_files_that_it_changed_and_takes_them_back(project: Repository) -> None:
    text = project(*MAKE_REPRO)
    assert "metrics/digits.json" in text
    assert "plots/noise.csv" not in text
    assert "this run's numbers" in text
    (project.folder / ".venv/bin/dvc").write_text(DVC + "exit 3\n")
    failed = subprocess.run(MAKE_REPRO, cwd=project.folder, capture_output=True, text=True)
    assert (failed.returncode, failed.stdout) == (2, text), "a run that fails half-way has changed results too"
    project(*text.rpartition(": ")[2].split())
    assert project("git", "status", "--porcelain") == ""
    (project.folder / ".venv/bin/dvc").write_text("#!/bin/sh\n")
    assert project(*MAKE_REPRO) == "dvc repro\n"
    shutil.rmtree(project.folder / ".git")  # a downloaded archive
    assert project(*MAKE_REPRO) == "dvc repro\n"


def test_make_clean_leaves_what_git_holds(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    tracked = ["data/README.md", "data/source/README.md", "data/source/winequality-red.csv", "models/README.md"]
    outputs = ["data/raw/digits/x.npy", "data/params_checked", "models/encoder/digits/42/a", "report/index.html"]
    for name in ["Makefile", "pyproject.toml", "constraints.txt", ".gitignore", *tracked]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for path in map(tmp_path.joinpath, outputs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    repository.commit("start")
    assert repository("git", "ls-files", "data", "models", "report").split() == tracked
    repository("make", "--no-print-directory", "clean")
    assert repository("git", "status", "--porcelain", "--ignored", "data", "models", "report") == ""


def test_stages_run_by_the_projects_environment_or_name_what_is_missing(tmp_path: Path) -> None:
    """A Python without packages, as `python` is where no environment is activated."""
    venv.create(tmp_path / "bare")
    (tmp_path / "stages").mkdir()
    shutil.copy(ROOT / "stages/__init__.py", tmp_path / "stages")
    (tmp_path / "stages/example.py").write_text("import sys, torch\nprint(sys.argv[1:])\n")
    command = [tmp_path / "bare/bin/python", "-m", "stages.example", "digits", "42"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run() -> tuple[int, str, str]:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    code, out, message = run()
    assert (code, out, message.count("\n")) == (2, "", 1)
    assert "bare/bin/python has no pydantic, torch, typer; activate the environment" in message
    (tmp_path / ".venv").symlink_to(sys.prefix)
    assert run() == (0, "['digits', '42']\n", "")
