"""Write the results of README.md and RESULTS.md from what is measured and params.yaml: `python tools/results.py`."""

import json
import sys
from pathlib import Path

import typer
import yaml

from attnknn.errors import InputError
from attnknn.files import new_file
from attnknn.plots import METRICS, method_name
from attnknn.report.build import beside_linear, carried, environment, headroom
from attnknn.report.claims import answers, beyond, claims, headline, out_of_reach
from attnknn.report.results import Run, everywhere, joined, read_runs
from attnknn.report.tables import (
    Cell,
    ablated,
    ablation,
    ablation_markdown,
    as_markdown,
    calibrations,
    calibrations_markdown,
    claims_markdown,
    comparison,
    conditions,
    conditions_markdown,
    digits_for,
    p_value,
)

METHODS = ("distance_vector", "attention", "linear_temperature")
SCORES = ("accuracy", "nll", "ece")
HEAD = """# Results

All methods on the test rows, with 95 % intervals. Written by `make results`.

p values of claims are combined over runs and Holm-adjusted over all claims, and their intervals reach from the lowest
end of the runs' to the highest; p values elsewhere are as measured. In an ablation p is of the test rows given these
heads, and does not hold how fits differ: on a clean balanced bank `class_prior` is constant, so what `without
class_prior` moves is the spread of fits. Its NLL on val is of the rows of all folds too where there are folds, but for
what is fitted on the main embeddings alone: compare that with `full, without folds`.
"""
COST = Path("benchmarks/attention_cost.json")
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


def section(runs: list[Run], cells: dict[str, dict[str, Cell]], digits: int) -> str:
    """All that is known of one dataset, as Markdown."""
    sizes, own = runs[0].json["prepare"], joined(runs, "intervals")
    seeds = ", ".join(str(run.seed) for run in runs)
    note = f"{sizes['test']:,} test rows, {sizes['bank']:,} bank rows, seed {seeds}. {headroom(runs, digits)}"
    parts = [as_markdown(runs[0].dataset, cells, f"{note} {beside_linear(runs)}".strip())]
    under = conditions(everywhere(runs, "intervals"), digits)
    if len(under) > 1:
        parts.append(f"Under conditions of the memory (ends of the runs' intervals):\n\n{conditions_markdown(under)}")
    calibrated = calibrations_markdown(calibrations(own, joined(runs, "paired"), digits))
    if calibrated:
        parts.append(f"With calibration added (p as measured):\n\n{calibrated}")
    if any("ablation" in run.tables for run in runs):
        found = ablated(joined(runs, "ablation"))
        parts.append(f"Ablation. {carried(found, digits)}\n\n{ablation_markdown(ablation(found, digits))}")
    return "\n".join(parts)


def cost() -> str:
    """What attention costs, in a sentence and a table; nothing where it was not measured."""
    if not COST.exists():
        return ""
    found = json.loads(COST.read_text("utf-8"))
    about, rows = found["about"], {row["head"]: row for row in found["rows"]}
    ours, plain = rows["attention (default parts)"], rows["distance"]
    sentence = (
        f"On {about['threads']} CPU threads, neighbours already found, {about['queries']:,} queries of {about['k']} "
        f"neighbours, {about['dim']} dimensions: attention takes {ours['batched_ms_per_query']:.4f} ms a query in "
        f"batches, distance weighting {plain['batched_ms_per_query']:.4f}; one query alone takes "
        f"{ours['single_p50_ms']:.2f} ms against {plain['single_p50_ms']:.2f} (median)."
    )
    lines = ["| head | ms a query, batched | ms, one query, p50 | p99 |", "|---" * 4 + "|"]
    for name, row in rows.items():
        numbers = [f"{row['batched_ms_per_query']:.4f}", f"{row['single_p50_ms']:.3f}", f"{row['single_p99_ms']:.3f}"]
        lines.append(f"| {name} | {' | '.join(numbers)} |")
    made = f"Measured by `python {COST.with_suffix('.py')}` on {about['machine']}, torch {about['torch']}."
    return "\n".join(["## Cost", "", sentence, "", *lines, "", made]) + "\n"


def main() -> None:
    """Replace what stands between the results marks in README.md, and all of RESULTS.md."""
    runs = found()
    tables, digits = {}, {}
    for dataset, of_dataset in runs.items():
        intervals = joined(of_dataset, "intervals")
        base = intervals["method"].isin(of_dataset[0].json["evaluate"])
        digits[dataset] = digits_for(of_dataset[0].json["prepare"]["test"])
        tables[dataset] = comparison(intervals[base], digits[dataset])
    every = [run for of_dataset in runs.values() for run in of_dataset]
    found_claims = claims(everywhere(every, "paired"), everywhere(every, "validation"))
    resamples = yaml.safe_load(Path("params.yaml").read_text("utf-8"))["evaluate"]["resamples"]
    answer = " ".join([*headline(answers(found_claims)), *out_of_reach(found_claims, resamples), beyond(found_claims)])
    made = ", ".join(f"{name} {version}" for name, version in environment().items())
    readme = Path("README.md").read_text("utf-8")
    before, _, rest = readme.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise InputError(f"README.md: no {START} … {END} to write the results between; put the marks back")
    with new_file(Path("README.md")) as draft:
        text = f"{answer}\n\n{short(tables, runs)}\n\nMade with {made}."
        draft.write_text(f"{before}{START}\n{text}\n{END}{after}", "utf-8")
    first = f"## Claims\n\n{answer}\n\n{claims_markdown(found_claims, digits)}\n## Methods\n"
    parts = [section(runs[name], cells, digits[name]) for name, cells in tables.items()]
    with new_file(Path("RESULTS.md")) as draft:
        draft.write_text("\n".join([HEAD, first, *parts, cost(), f"Made with {made}.\n"]), "utf-8")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
