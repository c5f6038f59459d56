"""A sweep of three clones by the commands that tools/sweep.py writes, its results gathered by DVC."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from repository import Repository

from import_closure import BLOCK, ROOT

PAGE = (ROOT / "docs/guide/sweeps.md").read_text("utf-8")

DVC_YAML = """\
stages:
  train:
    cmd: mkdir -p models && cp data.txt models/encoder
    deps: [data.txt]
    outs: [models/encoder]
  evaluate:
    cmd: mkdir -p metrics && cat params.yaml models/encoder > metrics/summary.yaml
    deps: [models/encoder]
    params: [k_eval, evaluate]
    outs:
      - metrics/summary.yaml: {cache: false}
metrics: [metrics/summary.yaml]
"""


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    """A project with a bare hub, a DVC remote, and its outputs pushed."""
    (tmp_path / "project").mkdir()
    project = Repository(tmp_path / "project", PYTHONPATH=str(ROOT))
    for name, text in {"dvc.yaml": DVC_YAML, "data.txt": "rows: 3\n", ".gitignore": "/models\n"}.items():
        (project.folder / name).write_text(text)
    for name in ("params.yaml", "datasets.yaml"):
        shutil.copy(ROOT / name, project.folder)
    shutil.copytree(ROOT / "presets", project.folder / "presets")
    project.with_hub(tmp_path / "hub", tmp_path / "storage")
    project("dvc", "push")
    return project


def write(project: Repository, *arguments: str, ok: bool = True) -> str:
    return project(sys.executable, "-m", "tools.sweep", *arguments, ok=ok)


def test_three_clones_and_one_pull(project: Repository, tmp_path: Path) -> None:
    """By the commands of docs/guide/sweeps.md."""
    write_jobs, gather = (block for language, block in BLOCK.findall(PAGE) if language == "sh")
    parallel = next(line for line in re.findall("`(.*?)`", PAGE) if line.startswith("xargs"))
    jobs, names = tmp_path / "jobs", [f"k-eval-{k}-resamples-500" for k in (5, 20, 50)]

    def run(command: str, folder: Path) -> str:
        done = project.run("sh", "-ec", command, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(f"{write_jobs.strip()} --setup :", project.folder)
    assert [line.split()[2] for line in (jobs / "jobs.txt").read_text().splitlines()] == names
    (jobs / f"{names[0]}.new").mkdir()
    (jobs / f"{names[0]}.new" / "part").write_text("of a killed clone")
    assert "Running stage 'train'" not in run(parallel, jobs), "the encoder is that of the remote"
    assert run("sh jobs.txt", jobs) == "", "experiments on the hub are not run again"
    assert all(name in run(gather, project.folder) for name in names)
    settings = yaml.safe_load((project.folder / "params.yaml").read_text())
    assert (settings["k_eval"], settings["evaluate"]["resamples"]) == (20, 500)
    assert "k_eval: 20" in (project.folder / "metrics/summary.yaml").read_text()
    assert "up to date" in project("dvc", "status")


def test_an_interrupted_job_continues(project: Repository, tmp_path: Path) -> None:
    """With a setting that the killed run has added."""
    write(project, str(tmp_path / "jobs"), "+statistics.sizes=[7]", "--setup", ":")
    clone = tmp_path / "jobs/sizes-7"
    project("git", "clone", "-q", str(tmp_path / "hub"), str(clone))
    settings = (clone / "params.yaml").read_text()
    (clone / "params.yaml").write_text(settings.replace("statistics: {}", "statistics: {sizes: [7]}"))
    done = project.run("sh", "jobs.txt", cwd=tmp_path / "jobs")
    assert done.returncode == 0, done.stdout + done.stderr
    project("dvc", "exp", "pull", str(tmp_path / "hub"))
    assert "sizes-7" in project("dvc", "exp", "list")


def test_names_of_another_commit_are_refused(project: Repository, tmp_path: Path) -> None:
    write(project, str(tmp_path / "a"), "k_eval=5", "--setup", ":")
    assert project.run("sh", "jobs.txt", cwd=tmp_path / "a").returncode == 0
    write(project, str(tmp_path / "again"), "k_eval=5")
    project("git", "commit", "-q", "--allow-empty", "-m", "next")
    project("git", "push", "-q", "origin", "main")
    assert "k-eval-5: in " in write(project, str(tmp_path / "b"), "k_eval=5", ok=False)
    write(project, str(tmp_path / "b"), "k_eval=5", "--name", "b")


def test_slurm_and_skypilot_run_a_line_of_the_jobs(project: Repository, tmp_path: Path) -> None:
    write(project, str(tmp_path / "jobs"), "k_eval=5,20", "--threads", "4", "--setup", "echo ready; exit 0")
    slurm, sky = ((tmp_path / "jobs" / name).read_text() for name in ("slurm.sh", "sky.yaml"))
    assert "--array=1-2\n#SBATCH --cpus-per-task=4\n" in slurm
    assert "cpus: 4+" in sky
    for command in (["sh", "slurm.sh"], ["sh", "-c", 'JOB="$(tail -n 1 jobs.txt)"; sh -c "$JOB"']):
        done = project.run("env", "SLURM_ARRAY_TASK_ID=2", *command, cwd=tmp_path / "jobs")
        assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    assert (tmp_path / "jobs/k-eval-20/dvc.yaml").is_file()


def test_bad_input_is_one_line(project: Repository, tmp_path: Path) -> None:
    jobs = str(tmp_path / "jobs")
    for changes, line in {
        "k_evl=5": "give SETTING=VALUE,VALUE",
        "k_eval": "give SETTING=VALUE,VALUE",
        "other.yaml:k_eval=5": "other.yaml: no such file of settings",
        "mirror=a/b,a-b": "two jobs of this name",
        "k_eval=5,5": "two jobs of this name",
        "k_eval=": "k_eval",
        "k_eval=5,abc": "k_eval",
        "prepare.val=.2,-.2": "prepare.val",
    }.items():
        output = write(project, jobs, changes, ok=False)
        assert line in output
        assert output.startswith("error: ")
        assert output.count("\n") == 1
    assert "exists; name a new folder" in write(project, str(tmp_path), "k_eval=5", ok=False)
    assert "/proc/" in write(project, "/proc/jobs", "k_eval=5", ok=False)
    with (project.folder / "params.yaml").open("a") as file:
        file.write("# a change\n")
    assert "commit or stash" in write(project, jobs, "k_eval=5", ok=False)
    project.commit("not pushed")
    assert "push it first" in write(project, jobs, "k_eval=5", ok=False)
    project("git", "push", "-q", "origin", "main")
    project("git", "fetch", "-q", "origin")
    (project.folder / ".dvc/config").write_text("")
    project.commit("no remote")
    project("git", "push", "-q", "origin", "main")
    assert "no DVC remote" in write(project, jobs, "k_eval=5", ok=False)
    assert not (tmp_path / "jobs").exists()
