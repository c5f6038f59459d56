"""A git and DVC repository in a folder, and commands that run in it."""

import os
import subprocess
import sys
from pathlib import Path


class Repository:
    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        names = {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        self.env = {**os.environ, **names, "PATH": path, "DVC_NO_ANALYTICS": "1", **environment}
        self("git", "init", "-q", "-b", "main")
        self("dvc", "init", "-q")

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        where = cwd or self.folder
        return subprocess.run(command, cwd=where, env=self.env, capture_output=True, text=True, timeout=1200)

    def __call__(self, *command: str, ok: bool = True) -> str:
        """Standard output and error of a command, which ends well or, if not `ok`, with an error."""
        done = self.run(*command)
        assert (done.returncode == 0) == ok, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def commit(self, message: str) -> None:
        self("git", "add", "-A")
        self("git", "commit", "-q", "-m", message)

    def with_hub(self, hub: Path, storage: Path) -> None:
        """Run the pipeline, and push it to a bare repository as `origin`, and to a DVC remote in a folder."""
        self("dvc", "remote", "add", "--default", "storage", str(storage))
        self("dvc", "repro")
        self.commit("base")
        self("git", "clone", "-q", "--bare", ".", str(hub))
        self("git", "remote", "add", "origin", str(hub))
        self("git", "fetch", "-q", "origin")
