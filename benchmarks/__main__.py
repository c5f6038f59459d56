"""Measure ours beside real peers in the same run, and print the ratios: `make bench`, or

    python -m benchmarks [--only search,votes] [--quick] [--accuracy MINUTES DATASET] [--embeddings FOLDER]

Results go to results.json and RESULTS.md in this folder. A suite that is measured again takes the place of what it
found before; the others stay, each with the machine, versions, date and revision that it was measured with. `--quick`
takes tiny sizes, to see that everything runs: its numbers mean nothing and are written only where `--out` says.
"""

import argparse
import importlib
import subprocess
import sys
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
from attnknn.report.section import Table, as_markdown
from benchmarks.compared import Row

DEFAULT = ("search", "votes", "metrics", "attention_cost", "training")
ON_REQUEST = ("large_bank", "classifier", "changes")  # by --only alone, since they take long
PACKAGES = ("scikit-learn", "torchmetrics", "torchvision", "hnswlib", "usearch")
CURVE = "accuracy.png"
HERE = Path(__file__).parent
CODE = ("attnknn", "benchmarks/*.py", "stages", "params.yaml")
HEAD = """# Benchmarks

Ours beside real peers, measured in the same run by `make bench`. A ratio says how many times as good ours is, above 1
it is faster or reaches more: the median over rounds (least … most), each taken within a round in which everybody is
measured in turn. Times are medians over the same rounds, after one that is not counted.
"""


def revision() -> str:
    """The commit that was measured, and whether its code was as committed."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=HERE.parent, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short=10", "HEAD") or "not in a git repository"
    return f"{commit}, with changes not committed" if git("status", "--porcelain", "--", *CODE) else commit


def versions() -> dict[str, str]:
    """Of the peers."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def number(value: float) -> str:
    """Three digits that count, and all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def beside(rows: list[Row]) -> Table:
    """Rows of `compared` for people; a column of recalls where somebody has one."""
    recalls = any("recall" in side for row in rows for side in (row["ours"], row["peer"]))

    def side(of: dict[str, Any], unit: str) -> str:
        return f"{of['name']}: {number(of['value'])} {unit}" if "value" in of else of["name"]

    shown = []
    for row in rows:
        ratio, sides = row["ratio"], (row["ours"], row["peer"])
        text = f"{number(ratio['value'])} ({number(ratio['low'])} … {number(ratio['high'])})" if ratio else ""
        cells = [row["what"], *(side(of, row["unit"]) for of in sides), text]
        if recalls:
            found = [f"{of['recall']:.4f}" if "recall" in of else "" for of in sides]
            cells.append(" / ".join(found) if any(found) else "")
        shown.append([*cells, row["note"]])
    return Table(
        "", "", ["what", "ours", "peer", "ratio", *(["recall, ours / peer"] if recalls else []), "note"], shown
    )


def as_they_are(rows: list[Row]) -> Table:
    """Rows of one shape without a peer, as of a suite that compares ours with ours."""
    shown = [[value if isinstance(value, str) else number(value) for value in row.values()] for row in rows]
    return Table("", "", list(rows[0]), shown)


def markdown(name: str, suite: dict[str, Any]) -> str:
    """A suite's table, with what it was measured on."""
    about, rows = suite["about"], suite["rows"]
    table = beside(rows) if "ratio" in rows[0] else as_they_are(rows)
    told = "; ".join(f"{key} {value}" for key, value in about.items() if key != "says")
    curve = f"![Accuracy against minutes of training]({CURVE})\n\n" if has_curve(rows) else ""
    return f"## {name}\n\n{about['says']}\n\n{as_markdown(table)}\n{curve}Measured with: {told}.\n"


def has_curve(rows: list[Row]) -> bool:
    """Whether accuracy was read on the way, which `--accuracy` does."""
    return any("minutes" in row for row in rows)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line's."""
    parser = argparse.ArgumentParser("benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = ", ".join((*DEFAULT, *ON_REQUEST))
    parser.add_argument("--only", default=",".join(DEFAULT), help=f"suites out of {known}; default %(default)s")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--threads", type=int, default=2, help="of everybody; default %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="that are counted; default %(default)s")
    parser.add_argument(
        "--embeddings", type=Path, help="search these, as data/embeddings/cifar10/42; else made-up ones"
    )
    parser.add_argument("--accuracy", nargs=2, metavar=("MINUTES", "DATASET"), help="train both as long, and compare")
    parser.add_argument(
        "--seed", type=int, default=42, help="of the split that --accuracy trains on; default %(default)s"
    )
    parser.add_argument("--out", type=Path, help="folder of the results; default is that of this file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Measure the suites asked for, print their tables, and write them with those measured before.

    Raises:
        InputError: a suite that is not known, or an option that does not go with those asked for.
    """
    a = arguments(argv)
    names = a.only.split(",")
    unknown = [name for name in names if name not in (*DEFAULT, *ON_REQUEST)]
    require(not unknown, f"--only: {', '.join(unknown)} unknown; there are {', '.join((*DEFAULT, *ON_REQUEST))}")
    for option, suite in (("accuracy", "training"), ("embeddings", "search")):
        require(not getattr(a, option) or suite in names, f"--{option}: of the suite {suite}, which --only leaves out")
    require(a.rounds >= 1, f"--rounds: {a.rounds}; give 1 or more")
    out = a.out or (None if a.quick else HERE)
    path = out / "results.json" if out else None
    suites = read_json(path) if path and path.is_file() else {}
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    about = machine()  # with the load before there is ours
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "revision": revision(), **about, **versions()}
    about |= {"threads": a.threads, "rounds": a.rounds, "sizes": "quick" if a.quick else "full"}
    set_threads(a.threads)
    torch.set_num_threads(a.threads)
    for name, module in modules.items():
        more: dict[str, Any] = dict(module.SIZES[about["sizes"]])
        if name == "search":
            more["embeddings"] = a.embeddings
        if name == "training" and a.accuracy:
            more["goal"] = (float(a.accuracy[0]), a.accuracy[1], a.seed)
        with threadpool_limits(a.threads):  # of numpy and scikit-learn
            rows = module.measure(a.threads, a.rounds, **more)
        stored = {"embeddings": str(a.embeddings)} if more.get("embeddings") else {}
        suites[name] = {"about": {"says": " ".join(str(module.__doc__).split()), **about, **stored}, "rows": rows}
        print(markdown(name, suites[name]), flush=True)
        if path:
            write_json(path, suites)
            if has_curve(rows):
                with atomic_file(path.with_name(CURVE)) as draft:
                    draft.write_bytes(module.picture(rows))
            with atomic_file(path.with_name("RESULTS.md")) as draft:
                draft.write_text("\n".join([HEAD, *(markdown(*of) for of in suites.items())]), "utf-8")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
