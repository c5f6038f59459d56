"""Write the results of README.md and RESULTS.md from metrics/, plots/ and params.yaml: `python tools/results.py`."""

import sys
from pathlib import Path

import typer
import yaml

from attnknn.core.errors import InputError
from attnknn.core.files import atomic_file
from attnknn.report.answers import beyond, headline, out_of_reach
from attnknn.report.build import environment, read_all, sections
from attnknn.report.claims import OURS, TO_BEAT, Claim, claims
from attnknn.report.results import CLEAN, OF_SPLITS, Run, everywhere, joined
from attnknn.report.section import Cell, Section, Table, as_markdown, said_markdown
from attnknn.report.sections.evaluate import claim_rows
from attnknn.report.tables import comparison, digits_of, fixed, method_cell, p_value

SCORES = ("accuracy", "nll", "ece")
ROLES = ("without neighbours", "plain network", "other classifiers")  # whose best on val, by NLL, is shown
# Tables that the page folds and RESULTS.md shows; all others are files beside the report.
SHOWN = ("conditions", "ablation", "calibrated_nll", "calibrated_ece")
HEAD = """# Results

Every experiment on every dataset that was run, with 95 % intervals. Written by `make results`; the pictures are in
`report/index.html`. p values of claims are combined over runs and Holm-adjusted in two families, those on
the clean memory and those under changed memories; elsewhere the text says what was done.
"""
SPLIT_DIGITS = 3
LEFT_OUT = ("distance_vector", "linear", "cnn", "cnn_temperature")  # of the table over splits, which is long enough
OVER_SPLITS = """A test set of thirty rows says little. Small tables are split, trained on and tested anew, {} times:
accuracy ± standard deviation over the splits, in brackets the NLL. The highest accuracy is bold, which is no claim:
RESULTS.md has the tests."""
START, END = "<!-- results -->", "<!-- /results -->"


def found() -> tuple[list[Run], list[Run]]:
    """Every dataset and seed that has been evaluated, and those of which only representations were compared."""
    runs: tuple[list[Run], list[Run]] = ([], [])
    for folder in sorted(Path("metrics").glob("*/*/")):
        evaluated = (folder / "evaluate.json").is_file()
        if evaluated or (folder / "probe.json").is_file():
            _, dataset, seed = folder.parts
            runs[not evaluated].extend(read_all(Path("metrics"), Path("plots"), [dataset], [int(seed)], evaluated))
    if not runs[0]:
        raise InputError("metrics: nothing evaluated yet; run `dvc repro`")
    return runs


def short(runs: list[Run], made: list[Claim]) -> Table:
    """Per dataset the baseline to beat, attention, and the claims' opponents: of each of `ROLES` the best on val."""
    rows: list[list[str | Cell]] = []
    for name in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == name]
        intervals, paired = joined(mine, "intervals"), joined(mine, "paired")
        cells = comparison(intervals, digits_of(mine))
        nll = [c for c in made if c.setting == (name, CLEAN) and c.metric == "nll"]
        chosen = [c.baseline for role in ROLES for c in nll if role in c.roles]
        seeds = ", ".join(str(run.seed) for run in mine)
        rows.append([f"{name} ({mine[0].json['prepare']['test']:,}; {seeds})"])
        for method in (TO_BEAT, OURS, *chosen):
            against = (paired["method"] == OURS) & (paired["baseline"] == method) & (paired["metric"] == "nll")
            p = p_value(paired[against]["p"].max()) if against.any() else ""
            scores = [Cell(cells[method][s].value, cells[method][s].around) for s in SCORES]
            rows.append([method_cell(method), *scores, p])
    return Table("short", "", ["method", "Accuracy", "NLL", "ECE", "p, NLL"], rows)


def over_splits(runs: list[Run]) -> Table | None:
    """Every method over repeated splits, a column a dataset: accuracy ± deviation, and NLL; None without any."""
    found = {run.dataset: run.tables[OF_SPLITS] for run in runs if OF_SPLITS in run.tables}
    cells: dict[str, dict[str, Cell]] = {}
    for name, of in found.items():
        nll = of[of["metric"] == "nll"].set_index("method")["value"]
        accuracy = of[(of["metric"] == "accuracy") & ~of["method"].isin(LEFT_OUT)]
        for row in accuracy.to_dict("records"):
            shown = f"{fixed(row['value'], SPLIT_DIGITS)} ± {fixed(row['sd'], SPLIT_DIGITS)}"
            best = fixed(row["value"], SPLIT_DIGITS) == fixed(accuracy["value"].max(), SPLIT_DIGITS)
            cells.setdefault(row["method"], {})[name] = Cell(shown, fixed(nll[row["method"]], SPLIT_DIGITS), best)
    rows = [[method_cell(method), *(of.get(name, "") for name in found)] for method, of in cells.items()]
    return Table("over_splits", "", ["method", *found], rows) if found else None


def text(section: Section) -> str:
    """A section as Markdown."""
    lines = [f"## {section.title}", "", section.question, ""]
    for part in section.parts:
        lines += [f"**{part.dataset}.**" + ("\n\n" if "\n" in part.sentence else " ") + said_markdown(part), ""]
        for table in part.tables:
            if not table.folded or table.name in SHOWN:
                lines += [f"{table.caption}, {part.dataset}:", "", as_markdown(table)]
    return "\n".join([*lines, section.note, ""])


def main() -> None:
    """Replace what stands between the results marks in README.md, and all of RESULTS.md."""
    if not Path("params.yaml").is_file():
        raise InputError(f"params.yaml: no such file in {Path.cwd()}; run from the project's root")
    params = yaml.safe_load(Path("params.yaml").read_text("utf-8"))
    runs, beside = found()
    made = claims(everywhere(runs, "paired"), everywhere(runs, "validation"))
    resamples = params["evaluate"]["resamples"]
    answer = [*headline(made, params["k_eval"]), *out_of_reach(made, resamples)]
    in_full = "\n".join(f"- {line}" for line in (*answer, beyond(made)))
    versions = ", ".join(f"{name} {version}" for name, version in environment().items())
    before, _, rest = Path("README.md").read_text("utf-8").partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise InputError(f"README.md: no {START} … {END} to write the results between; put the marks back")
    with atomic_file(Path("README.md")) as draft:
        results = "\n".join(f"- {line}" for line in answer)
        results = f"{results}\n\n{as_markdown(short(runs, made))}"
        if anew := over_splits(runs):
            times = max(int(run.tables[OF_SPLITS]["splits"].max()) for run in runs if OF_SPLITS in run.tables)
            results += f"\n{OVER_SPLITS.format(times)}\n\n{as_markdown(anew)}"
        results += f"\nMade with {versions}."
        draft.write_text(f"{before}{START}\n{results}\n{END}{after}", "utf-8")
    digits = {name: digits_of([r for r in runs if r.dataset == name]) for name in {r.dataset for r in runs}}
    parts = [text(section) for section in sections(runs, made, None, params["preset"], resamples, beside=beside)]
    table = as_markdown(claim_rows(made, digits))
    with atomic_file(Path("RESULTS.md")) as draft:
        whole = [HEAD, "## Claims", "", in_full, "", table, *parts, f"Made with {versions}.", ""]
        draft.write_text("\n".join(whole), "utf-8")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
