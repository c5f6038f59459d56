"""Compare with other libraries in the same run, and print the ratios: `make bench`, or

    python -m benchmarks [--only search,votes] [--quick] [--accuracy MINUTES DATASET] [--embeddings FOLDER]

Results go to results.json and RESULTS.md in this folder. A suite that is measured again replaces its earlier results;
the others stay, each with the machine, versions, date and revision of its measurement. `--quick` takes tiny sizes, to
see that everything runs: its numbers mean nothing and are written only with `--out`.
"""

import argparse
import importlib
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_file, read_json, write_json
from attnknn.experiments.profile import machine
from attnknn.index.faiss_index import set_threads
from attnknn.report.tables import Table, as_markdown
from benchmarks.comparison import Row

DEFAULT = ("search", "votes", "metrics", "attention_cost", "training")
ON_REQUEST = (
    "large_bank",
    "large_table",
    "cluster",
    "classifier",
    "changes",
    "label_noise",
    "gpu",
    "hierarchical",
)  # by --only, since they are slow
WITH_EMBEDDINGS = ("search",)
PACKAGES = ("scikit-learn", "cleanlab", "torchmetrics", "torchvision", "hnswlib", "usearch")
CURVE = "accuracy.png"
HERE = Path(__file__).parent
CODE = ("attnknn", "benchmarks/*.py", "stages", "params.yaml")
HEAD = """# Benchmarks

Comparisons with other libraries in the same run, by `make bench`. The ratio says how many times as good ours is, above
1 it is faster or more accurate: median over rounds (minimum … maximum), each ratio within a round in which all methods
are measured in turn. Times are medians over the same rounds, after a warm-up round.
"""


def revision() -> str:
    """The commit, and whether the code has uncommitted changes."""

    def git(*command: str) -> str:
        result = subprocess.run(["git", *command], cwd=HERE.parent, capture_output=True, text=True)
        return result.stdout.strip() if result.returncode == 0 else ""

    commit = git("rev-parse", "--short=10", "HEAD") or "not in a git repository"
    return f"{commit}, with changes not committed" if git("status", "--porcelain", "--", *CODE) else commit


def versions() -> dict[str, str]:
    """Versions of the peers."""
    result: dict[str, str] = dict.fromkeys(PACKAGES, "not installed")
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            result[name] = metadata.version(name)
    return result


def number(value: float) -> str:
    """Three significant digits, and all before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def comparison_table(rows: list[Row]) -> Table:
    """Rows of `comparison.compare` as a table, with a column of recalls if there are any."""
    recalls = any("recall" in side for row in rows for side in (row["ours"], row["peer"]))

    def cell(side: dict[str, Any], unit: str) -> str:
        return f"{side['name']}: {number(side['value'])} {unit}" if "value" in side else side["name"]

    lines = []
    for row in rows:
        ratio, sides = row["ratio"], (row["ours"], row["peer"])
        text = f"{number(ratio['value'])} ({number(ratio['low'])} … {number(ratio['high'])})" if ratio else ""
        cells = [row["what"], *(cell(side, row["unit"]) for side in sides), text]
        if recalls:
            values = [f"{side['recall']:.4f}" if "recall" in side else "" for side in sides]
            cells.append(" / ".join(values) if any(values) else "")
        lines.append([*cells, row["note"]])
    head = ["what", "ours", "peer", "ratio", *(["recall, ours / peer"] if recalls else []), "note"]
    return Table("", "", head, lines)


def plain_table(rows: list[Row]) -> Table:
    """Rows without a peer as a table."""
    cells = [[value if isinstance(value, str) else number(value) for value in row.values()] for row in rows]
    return Table("", "", list(rows[0]), cells)


def markdown(name: str, suite: dict[str, Any]) -> str:
    """A suite's table, and the machine and versions of its measurement."""
    about, rows = suite["about"], suite["rows"]
    table = comparison_table(rows) if "ratio" in rows[0] else plain_table(rows)
    origin = "; ".join(f"{key} {value}" for key, value in about.items() if key != "says")
    curve = f"![Accuracy against minutes of training]({CURVE})\n\n" if has_curve(rows) else ""
    return f"## {name}\n\n{about['says']}\n\n{as_markdown(table)}\n{curve}Measured with: {origin}.\n"


def has_curve(rows: list[Row]) -> bool:
    """Whether the rows hold a curve of accuracy, from `--accuracy`."""
    return any("minutes" in row for row in rows)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser("benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = ", ".join((*DEFAULT, *ON_REQUEST))
    parser.add_argument("--only", default=",".join(DEFAULT), help=f"suites out of {known}; default %(default)s")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--threads", type=int, default=2, help="threads of all methods; default %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the warm-up; default %(default)s")
    parser.add_argument(
        "--embeddings",
        type=Path,
        help="an artifact such as data/embeddings/digits/42/main for the search",
    )
    parser.add_argument("--accuracy", nargs=2, metavar=("MINUTES", "DATASET"), help="compare at equal training time")
    parser.add_argument("--seed", type=int, default=42, help="of the split for --accuracy; default %(default)s")
    parser.add_argument("--out", type=Path, help="folder of the results; default: this folder")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Measure the selected suites, print their tables, and write them beside earlier results.

    Raises:
        InputError: an unknown suite, or an option of a suite that is not selected.
    """
    a = arguments(argv)
    names = a.only.split(",")
    unknown = [name for name in names if name not in (*DEFAULT, *ON_REQUEST)]
    require(not unknown, f"--only: {', '.join(unknown)} unknown; there are {', '.join((*DEFAULT, *ON_REQUEST))}")
    for option, of_suites in (("accuracy", ("training",)), ("embeddings", WITH_EMBEDDINGS)):
        used = not getattr(a, option) or not set(of_suites).isdisjoint(names)
        require(used, f"--{option}: of {' and '.join(of_suites)}, which --only leaves out")
    for option in ("rounds", "threads"):
        require(getattr(a, option) >= 1, f"--{option}: {getattr(a, option)}; give 1 or more")
    if a.accuracy:
        minutes = a.accuracy[0]
        positive = minutes.replace(".", "", 1).isdecimal() and float(minutes) > 0
        require(positive, f"--accuracy: {minutes} minutes; give a number above 0")
    out = a.out or (None if a.quick else HERE)
    path = out / "results.json" if out else None
    suites = read_json(path) if path and path.is_file() else {}
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    about = machine()  # first, for the load before the benchmarks
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "revision": revision(), **about, **versions()}
    about |= {"threads": a.threads, "rounds": a.rounds, "sizes": "quick" if a.quick else "full"}
    set_threads(a.threads)
    torch.set_num_threads(a.threads)
    for name, module in modules.items():
        options: dict[str, Any] = dict(module.SIZES[about["sizes"]])
        if name in WITH_EMBEDDINGS:
            options["embeddings"] = a.embeddings
        if name == "training" and a.accuracy:
            options["goal"] = (float(a.accuracy[0]), a.accuracy[1], a.seed)
        with threadpool_limits(a.threads):  # numpy and scikit-learn
            rows = module.measure(a.threads, a.rounds, **options)
        stored = {"embeddings": str(a.embeddings)} if options.get("embeddings") else {}
        suites[name] = {"about": {"says": " ".join(str(module.__doc__).split()), **about, **stored}, "rows": rows}
        print(markdown(name, suites[name]), flush=True)
        if path:
            write_json(path, suites)
            if has_curve(rows):
                with atomic_file(path.with_name(CURVE)) as draft:
                    draft.write_bytes(module.picture(rows))
            with atomic_file(path.with_name("RESULTS.md")) as draft:
                draft.write_text("\n".join([HEAD, *(markdown(*suite) for suite in suites.items())]), "utf-8")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
