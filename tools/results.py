"""Write the results tables of README.md and RESULTS.md from metrics/ and plots/: `python tools/results.py`."""

import sys
from pathlib import Path

import typer

from attnknn.errors import InputError
from attnknn.files import new_file
from attnknn.plots import METRICS, method_name
from attnknn.report.build import environment
from attnknn.report.results import Run, joined, read_runs
from attnknn.report.tables import Cell, as_markdown, comparison, digits_for, p_value

METHODS = ("distance_vector", "attention", "linear_temperature")
SCORES = ("accuracy", "nll", "ece")
START, END = "<!-- results -->", "<!-- /results -->"


def found() -> dict[str, list[Run]]:
    """Every dataset that has been evaluated, with its seeds."""
    runs: dict[str, list[Run]] = {}
    for path in sorted(Path("metrics").glob("*/*/evaluate.json")):
        dataset, seed = path.parts[1], int(path.parts[2])
        runs.setdefault(dataset, []).extend(read_runs(Path("metrics"), Path("plots"), [dataset], [seed]))
    if not runs:
        raise InputError("metrics: nothing evaluated yet; run `dvc repro`")
    return runs


def short(tables: dict[str, dict[str, dict[str, Cell]]], runs: dict[str, list[Run]]) -> str:
    """One Markdown table: per dataset the baseline to beat, attention and the linear head."""
    lines = ["| dataset (test rows; seeds) | method | " + " | ".join(METRICS[s] for s in SCORES) + " | p, NLL |"]
    lines.append("|---" * (len(SCORES) + 3) + "|")
    for dataset, cells in tables.items():
        test, seeds = runs[dataset][0].json["prepare"]["test"], ", ".join(str(run.seed) for run in runs[dataset])
        paired = joined(runs[dataset], "paired")
        for method in (m for m in METHODS if m in cells):
            name = f"{dataset} ({test:,}; {seeds})" if method == METHODS[0] else ""
            scores = " | ".join(f"{cells[method][s].value} ({cells[method][s].around})" for s in SCORES)
            p = paired[(paired["baseline"] == method) & (paired["metric"] == "nll")]["p"]
            lines.append(f"| {name} | {method_name(method)} | {scores} | {p_value(p.max()) if len(p) else ''} |")
    return "\n".join(lines)


def main() -> None:
    """Replace what stands between the results marks in README.md, and all of RESULTS.md."""
    runs = found()
    tables, notes = {}, {}
    for dataset, of_dataset in runs.items():
        sizes = of_dataset[0].json["prepare"]
        tables[dataset] = comparison(joined(of_dataset, "intervals"), digits_for(sizes["test"]))
        seeds = ", ".join(str(run.seed) for run in of_dataset)
        notes[dataset] = f"{sizes['test']:,} test rows, {sizes['bank']:,} bank rows, seed {seeds}."
    made = ", ".join(f"{name} {version}" for name, version in environment().items())
    readme = Path("README.md").read_text("utf-8")
    before, _, rest = readme.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise InputError(f"README.md: no {START} … {END} to write the results between; put the marks back")
    with new_file(Path("README.md")) as draft:
        draft.write_text(f"{before}{START}\n{short(tables, runs)}\n\nMade with {made}.\n{END}{after}", "utf-8")
    head = "# Results\n\nAll methods on the test rows, with 95 % intervals. Written by `make results`.\n"
    parts = [as_markdown(name, cells, notes[name]) for name, cells in tables.items()]
    with new_file(Path("RESULTS.md")) as draft:
        draft.write_text("\n".join([head, *parts, f"Made with {made}.\n"]), "utf-8")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
