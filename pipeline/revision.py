"""The commit that made the results."""

import subprocess

CODE = ("attnknn", "pipeline", "stages", "params.yaml", "datasets.yaml", "presets", "dvc.yaml")


def revision() -> str:
    """The last commit that touched code or settings: a commit of results alone does not change the report."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command, "--", *CODE], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("log", "-1", "--format=%h of %cs", "--abbrev=10", "--date=short")
        changed = ", with changes not committed" if commit and git("status", "--porcelain") else ""
        return commit + changed or "not in a git repository"
    except FileNotFoundError:
        return "not in a git repository"
