"""Write the jobs of a sweep for many machines: `python -m tools.sweep OUTPUT k_eval=5,20 'seeds=[42],[43]'`.

Every combination of the values is one experiment, run by DVC in a clone of its own and pushed to the git remote and the
DVC remote. OUTPUT gets `jobs.txt`, one command a line, and what runs them: a shell, Slurm or SkyPilot.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import typer
from dvc.exceptions import DvcException
from dvc.utils.cli_parse import to_path_overrides
from dvc.utils.hydra import apply_overrides, get_hydra_sweeps
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from attnknn.core.errors import InputError, one_line, require
from attnknn.core.files import atomic_folder
from pipeline import check as settings
from pipeline.settings import DATASETS, PARAMS, PRESETS

JOB = """\
#!/bin/sh
# Run one experiment in a clone, and push it: sh job.sh NAME SETTING=VALUE …
# A job that was interrupted continues; one whose experiment is on the git remote already does nothing.
set -eu
name=$1; shift
for change; do shift; set -- "$@" -S "$change"; done
test -z "$(git ls-remote {hub} "refs/exps/*/$name")" || exit 0
if ! test -d "$name"; then
    rm -rf "$name.new"
    git clone -q {hub} "$name.new"
    git -C "$name.new" checkout -q {revision}
    mv "$name.new" "$name"
fi
cd "$name"
git checkout -q -- {settings}
{setup}
test -n "$(git for-each-ref "refs/exps/*/*/$name")" || dvc exp run --pull --allow-missing -n "$name" "$@"
dvc exp push {hub} "$name"
"""
SLURM = """\
#!/bin/sh
# sbatch slurm.sh
#SBATCH --array=1-{count}
#SBATCH --cpus-per-task={threads}
sh -c "$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" jobs.txt)"
"""
SKY = """\
# while read -r job; do sky jobs launch -y -d --env "JOB=$job" sky.yaml; done < jobs.txt
workdir: .
resources:
  cpus: {threads}+
envs:
  JOB: ""
run: sh -c "$JOB"
"""


def git(*command: str) -> str:
    result = subprocess.run(["git", *command], capture_output=True, text=True)
    require(result.returncode == 0, f"git {' '.join(command)}: {' '.join(result.stderr.split())}")
    return result.stdout.strip()


def job_name(prefix: str, changes: list[str]) -> str:
    """Name of an experiment: the last part of each key, and its value."""
    parts = [prefix, *(re.sub(r"^.*[.:+](?=[^=]*=)", "", change) for change in changes)]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(filter(None, parts))).strip("-.").removesuffix(".lock")


def check_job(job: Mapping[str, list[str]]) -> None:
    """Apply changes of settings to copies of their files, and check what they then hold."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PRESETS, Path(folder) / PRESETS)
        for file in {str(PARAMS), str(DATASETS), *job}:
            require(Path(file).is_file(), f"{file}: no such file of settings")
            shutil.copy(file, Path(folder) / file)
        for file, changes in job.items():
            apply_overrides(Path(folder) / file, changes)
        try:
            settings.check(Path(folder))
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", "")) from None


def combinations(changes: list[str]) -> list[list[str]]:
    """Values of `-S` of every experiment."""
    try:
        jobs = list(get_hydra_sweeps(to_path_overrides(changes)))
        for job in jobs:
            check_job(job)
    except (HydraException, OmegaConfBaseException, DvcException) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{' '.join(changes)}: {reason}; give SETTING=VALUE,VALUE, +SETTING for a new one") from None
    return [
        [change if file == "params.yaml" else f"{file}:{change}" for file, own in job.items() for change in own]
        for job in jobs
    ]


def write_jobs(output: Path, changes: list[str], name: str, hub: str, setup: str, threads: int) -> str:
    """Write the folder; return what to do with it."""
    require(not output.exists(), f"{output}: exists; name a new folder")
    changed = git("status", "--porcelain", "--untracked-files=no")
    require(not changed, "the work tree has changes that jobs would not see; commit or stash them")
    hub = hub or git("remote", "get-url", "origin")
    hub = str(Path(hub).resolve()) if Path(hub).exists() else hub
    revision = git("rev-parse", "HEAD")
    heads = {line.split()[0] for line in git("ls-remote", hub, "refs/heads/*").splitlines()}
    pushed = revision in heads or git("branch", "--remotes", "--contains", revision)
    require(bool(pushed), f"HEAD {revision[:10]} is not in {hub}; push it first")
    config = Path(".dvc/config")
    remote = config.is_file() and re.search(r"^\s*remote\s*=", config.read_text("utf-8"), re.MULTILINE)
    require(bool(remote), "no DVC remote that clones know; `dvc remote add --default storage URL`, commit .dvc/config")
    jobs = combinations(changes)
    names = [job_name(name, job) for job in jobs]
    own = f"refs/exps/{revision[:2]}/{revision[2:]}/"
    refs = [line.split()[1] for line in git("ls-remote", hub, "refs/exps/*").splitlines()]
    taken = {ref.rpartition("/")[2] for ref in refs if not ref.startswith(own)} & set(names)
    require(not taken, f"{', '.join(sorted(taken))}: in {hub} already, from another commit; give a --name")
    twice = {own for own in names if names.count(own) > 1}
    require(
        not twice, f"{', '.join(sorted(twice))}: two jobs of this name; values are repeated, or differ in signs only"
    )
    lines = [shlex.join(["sh", "job.sh", own, *job]) for own, job in zip(names, jobs, strict=True)]
    settings = shlex.join(to_path_overrides(changes))  # files that an interrupted job may have changed
    files = {
        "jobs.txt": "".join(f"{line}\n" for line in lines),
        "job.sh": JOB.format(hub=shlex.quote(hub), revision=revision, settings=settings, setup=setup),
        "slurm.sh": SLURM.format(count=len(jobs), threads=threads),
        "sky.yaml": SKY.format(threads=threads),
    }
    with atomic_folder(output) as draft:
        for file, text in files.items():
            (draft / file).write_text(text, "utf-8")
    return f"{len(jobs)} jobs in {output}. Run them in that folder: sh jobs.txt. Then here: dvc exp pull {hub}"


def sweep(
    output: Path = typer.Argument(help="A new folder."),
    changes: list[str] = typer.Argument(help="As after -S of `dvc exp run`, with values separated by commas."),
    name: str = typer.Option("", help="Start of the experiments' names."),
    hub: str = typer.Option("", help="Git repository to clone and push to; default: that of the remote origin."),
    setup: str = typer.Option(
        'make -s .venv/ready; PATH="$PWD/.venv/bin:$PATH"', help="Commands that prepare a clone to run DVC."
    ),
    threads: int = typer.Option(2, min=1, help="CPU cores of a job."),
) -> None:
    """Write the jobs of a sweep for many machines. Example: python -m tools.sweep jobs k_eval=5,20 'seeds=[42],[43]'"""
    try:
        print(write_jobs(output, changes, name, hub, setup, threads))
    except (InputError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(sweep)
