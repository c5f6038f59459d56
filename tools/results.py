"""Write RESULTS.md and the results in README.md from metrics/, plots/ and params.yaml: `python tools/results.py`."""

import sys
from pathlib import Path

import pandas as pd
import typer
import yaml

from attnknn.core.errors import InputError
from attnknn.core.files import atomic_file
from attnknn.evaluation.opponents import OURS, ROLES
from attnknn.report.build import environment, read_all, sections
from attnknn.report.claims import Claim, claims
from attnknn.report.results import CLEAN, SPLITS, Run, all_conditions, joined
from attnknn.report.section import Cell, Section, Table, as_markdown
from attnknn.report.sections.evaluate import claim_rows, opponent, summary
from attnknn.report.tables import comparison, digits_of, fixed, method_cell, p_value

SCORES = ("accuracy", "nll", "ece")
SHOWN = ("conditions", "ablation", "calibrated_nll", "calibrated_ece")  # folded on the page, in full in RESULTS.md
HEAD = """# Results

All experiments on all datasets, with 95 % intervals; written by `make results`. Pictures are in `report/index.html`.
p values of claims are combined over runs and Holm-adjusted in two families, clean bank and modified banks; elsewhere
the table or note names the correction.
"""
SPLIT_DIGITS = 3
LEFT_OUT = ("distance_vector", "linear", "cnn", "cnn_temperature")  # of the table over splits
OVER_SPLITS = """Small tables: mean accuracy ± standard deviation over {} random splits, NLL in brackets. The highest
accuracy is bold; RESULTS.md has the tests."""
START, END = "<!-- results -->", "<!-- /results -->"


def read_results() -> tuple[list[Run], list[Run]]:
    """Runs that were evaluated, and runs in which only representations were compared."""
    evaluated, probed = [], []
    for folder in sorted(Path("metrics").glob("*/*/")):
        complete = (folder / "evaluate.json").is_file()
        if complete or (folder / "probe.json").is_file():
            _, dataset, seed = folder.parts
            runs = read_all(Path("metrics"), Path("plots"), [dataset], [int(seed)], complete)
            (evaluated if complete else probed).extend(runs)
    if not evaluated:
        raise InputError("metrics: nothing evaluated yet; run `dvc repro`")
    return evaluated, probed


def main_table(runs: list[Run], tested: list[Claim]) -> Table:
    """Attention and its opponents in NLL on each dataset, with all their scores."""
    rows: list[list[str | Cell]] = []
    for name in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == name]
        scores = joined(mine, "intervals")
        scores = scores[scores["role"] != ""].assign(method=lambda table: table["role"])
        cells = comparison(scores, digits_of(mine))
        nll = {c.role: c for c in tested if c.setting == (name, CLEAN) and c.metric == "nll"}
        seeds = ", ".join(str(run.seed) for run in mine)
        rows.append([f"{name} ({mine[0].json['prepare']['test']:,}; {seeds})"])
        for role in (OURS, *ROLES):
            values = [Cell(cells[role][s].value, cells[role][s].around) for s in SCORES]
            p = p_value(nll[role].p) if role in nll else ""
            rows.append([opponent(nll[role]) if role in nll else method_cell(OURS), *values, p])
    return Table("short", "", ["method", "Accuracy", "NLL", "ECE", "p, NLL"], rows)


def splits_table(tables: dict[str, pd.DataFrame]) -> Table:
    """Accuracy ± standard deviation over repeated splits, and NLL, of every method: a column per dataset."""
    cells: dict[str, dict[str, Cell]] = {}
    for name, table in tables.items():
        nll = table[table["metric"] == "nll"].set_index("method")["value"]
        accuracy = table[(table["metric"] == "accuracy") & ~table["method"].isin(LEFT_OUT)]
        highest = fixed(accuracy["value"].max(), SPLIT_DIGITS)
        for row in accuracy.to_dict("records"):
            value = fixed(row["value"], SPLIT_DIGITS)
            text = f"{value} ± {fixed(row['sd'], SPLIT_DIGITS)}"
            cell = Cell(text, fixed(nll[row["method"]], SPLIT_DIGITS), value == highest)
            cells.setdefault(row["method"], {})[name] = cell
    rows = [[method_cell(method), *(row.get(name, "") for name in tables)] for method, row in cells.items()]
    return Table("over_splits", "", ["method", *tables], rows)


def section_text(section: Section) -> str:
    """A section as Markdown."""
    lines = [f"## {section.title}", "", section.question, ""]
    for part in section.parts:
        lines += [f"**{part.dataset}**" + (f": {part.verdict}" if part.verdict else ""), ""]
        for table in part.tables:
            if not table.folded or table.name in SHOWN:
                lines += [f"{table.caption}, {part.dataset}:", "", as_markdown(table)]
    return "\n".join([*lines, section.note, ""])


def main() -> None:
    """Write RESULTS.md, and the text between the results marks of README.md."""
    if not Path("params.yaml").is_file():
        raise InputError(f"params.yaml: no such file in {Path.cwd()}; run from the project's root")
    params = yaml.safe_load(Path("params.yaml").read_text("utf-8"))
    runs, probed = read_results()
    tested = claims(all_conditions(runs))
    resamples = params["evaluate"]["resamples"]
    versions = f"Made with {', '.join(f'{name} {version}' for name, version in environment().items())}."
    before, _, rest = Path("README.md").read_text("utf-8").partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise InputError(f"README.md: no {START} … {END} to write the results between; put the marks back")
    table = summary(runs, tested)
    first = f"{as_markdown(table)}\n{table.note}\n"
    results = [first, as_markdown(main_table(runs, tested))]
    if over_splits := {run.dataset: run.tables[SPLITS] for run in runs if SPLITS in run.tables}:
        splits = max(int(table["splits"].max()) for table in over_splits.values())
        results += [OVER_SPLITS.format(splits), "", as_markdown(splits_table(over_splits))]
    with atomic_file(Path("README.md")) as draft:
        draft.write_text("\n".join([f"{before}{START}", *results, versions, f"{END}{after}"]), "utf-8")
    digits = {name: digits_of([r for r in runs if r.dataset == name]) for name in {r.dataset for r in runs}}
    parts = map(section_text, sections(runs, tested, None, params["preset"], resamples, only_probed=probed))
    with atomic_file(Path("RESULTS.md")) as draft:
        lines = [HEAD, "## Claims", "", first, as_markdown(claim_rows(tested, digits)), *parts, versions, ""]
        draft.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
