"""Write the published results from metrics/, plots/ and data/results/: `python -m tools.results`.

README.md, RESULTS.md and docs/assets/results.png hold every dataset in metrics/; docs/results/<dataset>.md is written
for datasets whose full tables are on this machine, the others keep theirs. docs/results/provenance.json says
what made the numbers of each dataset; its entry is renewed when they change.
"""

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from attnknn.core.errors import InputError
from attnknn.core.files import atomic_file, read_json, write_json
from attnknn.report.page import environment, flatten, sections
from attnknn.report.results import Run, read_runs
from attnknn.report.sections.methods import summary, summary_figure
from attnknn.report.tables import Section, as_markdown
from attnknn.report.verdicts import every_claim
from pipeline.revision import CODE, revision
from pipeline.settings import report_settings

START, END = "<!-- results -->", "<!-- /results -->"
PAGES, PICTURE = Path("docs/results"), Path("docs/assets/results.png")
PROVENANCE = PAGES / "provenance.json"
NO_VERSIONS = ("digest", "tables", "settings", "revision", "date")  # of an entry
# Tables of a dataset's page, besides the verdicts of every section but these.
SHOWN = (
    *("methods", "means", "by_rate", "label_issues", "cleaning", "expected", "new_classes", "novelty", "drift"),
    *("conclusions", "field_tests", "representations", "psnr", "finetune"),
)
WITHOUT_VERDICTS = ("evaluate", "calibration", "noise", "imbalance", "profile", "training")
HEAD = """# Results

Accuracy / NLL on test rows, means over seeds; opponents are the best in NLL on validation rows. Verdicts are of the
NLL: p < .01 by Holm's method within the conditions of a dataset and opponent that have 20 errors; intervals are 95 %.
[How to read them](docs/guide/report.md). Written by `make results`.
"""


def published() -> dict[str, list[int]]:
    """Datasets with results in metrics/, and their seeds."""
    seeds: dict[str, list[int]] = {}
    for path in sorted(Path("metrics").glob("*/*/prepare.json")):
        seeds.setdefault(path.parts[1], []).append(int(path.parts[2]))
    return seeds


def provenance(datasets: Mapping[str, Sequence[int]]) -> dict[str, dict[str, Any]]:
    """What made the numbers of each dataset: as stored where they are the same, else of this machine and moment.

    `digest` is that of the files in git, `tables` those of the stages in data/results/ that are on this machine.
    """

    def digest(paths: Iterable[Path]) -> str:
        return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()

    stored, origins, settings = read_json(PROVENANCE) if PROVENANCE.is_file() else {}, {}, report_settings()
    for name, seeds in datasets.items():
        files = [*Path("metrics", name).rglob("*.json"), *Path("plots").glob(f"*/{name}-*.csv")]
        folders = sorted(Path("data/results").glob(f"*/{name}"))
        now = {"digest": digest(files), "tables": {f.parts[2]: digest(f.rglob("*.csv")) for f in folders}}
        origins[name] = old = stored.get(name, {})
        if now["digest"] != old.get("digest") or not now["tables"].items() <= old.get("tables", {}).items():
            common = flatten({k: v for k, v in settings.items() if k not in ("sources", "overrides", "datasets")})
            own = common | flatten(settings["overrides"].get(name, {})) | {"seeds": list(seeds)}
            now |= {"revision": revision(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            origins[name] = {**now, **environment(), "settings": own}
    write_json(PROVENANCE, origins)
    return origins


def changed_since(commit: str) -> bool:
    """Whether code or settings differ from those of a commit, or the commit is not here."""
    command = ["git", "diff", "--quiet", commit.split(" ")[0], "--", *CODE]
    return subprocess.run(command, capture_output=True).returncode != 0


def page(run: Run, parts: Sequence[Section], origin: dict[str, Any]) -> str:
    """The results of a dataset as Markdown."""
    versions = ", ".join(f"{k} {v}" for k, v in origin.items() if k not in NO_VERSIONS)
    lines = [f"# {run.dataset}", "", f"Revision {origin['revision']}, run {origin['date']}; {versions}.", ""]
    for part in parts:
        tables = [table for table in part.tables if table.name in SHOWN and table.rows]
        if part.name not in WITHOUT_VERDICTS:
            tables[:0] = part.verdicts
        if tables:
            lines += [f"## {part.title}", ""]
        for table in tables:
            lines += [*([table.caption, ""] if len(tables) > 1 else []), as_markdown(table)]
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as draft:
        draft.write_text(text, "utf-8")


def main() -> None:
    """Write README.md's results, RESULTS.md, docs/results/ and the picture."""
    if not Path("params.yaml").is_file():
        raise InputError(f"params.yaml: no such file in {Path.cwd()}; run from the project's root")
    seeds = published()
    by_name = {name: read_runs(Path(), [name], own, ()) for name, own in seeds.items()}
    runs = [run for own in by_name.values() for run in own]
    evaluated = [run for run in runs if "intervals" in run.tables]
    if not evaluated:
        raise InputError("metrics: nothing evaluated yet; run `dvc repro`")
    before, _, rest = Path("README.md").read_text("utf-8").partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise InputError(f"README.md: no {START} … {END} to write the results between; put the marks back")
    claimed = every_claim(evaluated)
    table = as_markdown(summary(evaluated, claimed))
    origins = provenance(seeds)
    lines = [HEAD, table, "| dataset | revision | run |", "| --- | --- | --- |"]
    for name, own in by_name.items():
        if any(Path("data/results").glob(f"*/{name}")):
            shown = claimed[claimed["dataset"] == name] if "intervals" in own[0].tables else pd.DataFrame()
            path, text = PAGES / f"{name}.md", page(own[0], sections(own, shown), origins[name])
            earlier = path.read_text("utf-8").splitlines() if path.is_file() else []
            if lost := [line[3:] for line in earlier if line.startswith("## ") and line not in text.splitlines()]:
                print(f"{path}: kept, because the results here lack {', '.join(lost)}; remove it to write it without")
            else:
                write(path, text)
        if changed_since(origins[name]["revision"]):
            print(f"{name}: code or settings have changed since its results ({origins[name]['revision']})")
        lines.append(f"| [{name}](docs/results/{name}.md) | {origins[name]['revision']} | {origins[name]['date']} |")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(PICTURE) as draft:
        draft.write_bytes(summary_figure(claimed))
    write(Path("RESULTS.md"), "\n".join([*lines, ""]))
    write(Path("README.md"), f"{before}{START}\n{table}{END}{after}")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
