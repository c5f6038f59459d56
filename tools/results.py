"""Write the results tables of README.md and RESULTS.md from metrics/ and plots/: `python tools/results.py`."""

import sys
from pathlib import Path

import typer

from attnknn.errors import InputError
from attnknn.files import new_file
from attnknn.plots import METRICS, method_name
from attnknn.report.build import environment
from attnknn.report.claims import answers, beyond, claims, headline
from attnknn.report.results import Run, everywhere, joined, read_runs
from attnknn.report.tables import Cell, as_markdown, claims_markdown, comparison, digits_for, p_value

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
            ours = (paired["method"] == "attention") & (paired["baseline"] == method) & (paired["metric"] == "nll")
            p = paired[ours]["p"]
            lines.append(f"| {name} | {method_name(method)} | {scores} | {p_value(p.max()) if len(p) else ''} |")
    return "\n".join(lines)


def main() -> None:
    """Replace what stands between the results marks in README.md, and all of RESULTS.md."""
    runs = found()
    tables, notes, digits = {}, {}, {}
    for dataset, of_dataset in runs.items():
        sizes = of_dataset[0].json["prepare"]
        intervals = joined(of_dataset, "intervals")
        base = intervals["method"].isin(of_dataset[0].json["evaluate"])
        digits[dataset] = digits_for(sizes["test"])
        tables[dataset] = comparison(intervals[base], digits[dataset])
        seeds = ", ".join(str(run.seed) for run in of_dataset)
        notes[dataset] = f"{sizes['test']:,} test rows, {sizes['bank']:,} bank rows, seed {seeds}."
    every = [run for of_dataset in runs.values() for run in of_dataset]
    found_claims = claims(everywhere(every, "paired"), everywhere(every, "validation"))
    answer = " ".join([*headline(answers(found_claims)), beyond(found_claims)])
    made = ", ".join(f"{name} {version}" for name, version in environment().items())
    readme = Path("README.md").read_text("utf-8")
    before, _, rest = readme.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise InputError(f"README.md: no {START} … {END} to write the results between; put the marks back")
    with new_file(Path("README.md")) as draft:
        text = f"{answer}\n\n{short(tables, runs)}\n\nMade with {made}."
        draft.write_text(f"{before}{START}\n{text}\n{END}{after}", "utf-8")
    head = "# Results\n\nAll methods on the test rows, with 95 % intervals. Written by `make results`.\n"
    first = f"## Claims\n\n{answer}\n\n{claims_markdown(found_claims, digits)}\n## Methods\n"
    parts = [as_markdown(name, cells, notes[name]) for name, cells in tables.items()]
    with new_file(Path("RESULTS.md")) as draft:
        draft.write_text("\n".join([head, first, *parts, f"Made with {made}.\n"]), "utf-8")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
