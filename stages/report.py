"""Write the report from metrics and plot data: `python -m stages.report METRICS PLOTS OUT`."""

import subprocess
from pathlib import Path

from attnknn.report.build import write_report
from stages.params import check, run

CODE = ["attnknn", "stages", "params.yaml", "presets", "dvc.yaml"]


def revision() -> str:
    """The last commit that touched code or params: a commit of results alone does not change the page."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command, "--", *CODE], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("log", "-1", "--format=%h of %cs", "--abbrev=10", "--date=short")
        return f"{commit}, with changes not committed" if commit and git("status", "--porcelain") else commit
    except FileNotFoundError:
        return ""


def main(metrics: Path, plots: Path, out: Path) -> None:
    """Read the files of every dataset and seed in METRICS and PLOTS; write the page and tables to OUT."""
    base, _ = check()

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else value  # type: ignore[union-attr]

    params = {key: plain(value) for key, value in base}
    code = revision() or "not in a git repository"
    write_report(metrics, plots, out, base.datasets, base.seeds, params, code, workers=base.threads)


if __name__ == "__main__":
    run(main)
