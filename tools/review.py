"""What a reviewer needs, as Markdown on standard output: `python tools/review.py [--base main]`.

The work tree is compared with a base revision: is dvc.lock up to date, which params changed, which scores moved and
by how much of their interval, which stages reran and why. Exit codes: 0 fine, 1 the lock is not up to date, 2 there
is nothing to compare with.
"""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml

from attnknn.errors import InputError

ROWS = 40
OTHER_BYTES = "nothing it depends on: it gave other bytes"
TIMING = "profile@"  # stages that write timings, which no run repeats


def git(*command: str, check: bool = True) -> str | None:
    """What a git command prints; None where it fails and that is no error."""
    done = subprocess.run(["git", *command], capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    if check:
        raise InputError(f"git {' '.join(command)}: {' '.join(done.stderr.split())}")
    return None


def exists(revision: str) -> bool:
    """Whether the repository holds this commit."""
    return git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", check=False) is not None


def find_base(given: str | None) -> str:
    """The revision to compare with: the one given, else main (or origin/main).

    On main itself: HEAD if something is not committed yet, else HEAD~1.

    Raises:
        InputError: the repository holds no such revision.
    """
    if git("rev-parse", "--show-toplevel", check=False) is None:
        raise InputError(f"{Path.cwd()}: not in a git repository; run from the project's root")
    branch = str(git("rev-parse", "--abbrev-ref", "HEAD", check=False) or "").strip()
    on_main = "HEAD" if git("status", "--porcelain", check=False) else "HEAD~1"
    wanted = [given] if given else [on_main] if branch == "main" else ["main", "origin/main"]
    for revision in wanted:
        if exists(revision):
            return revision
    shallow = str(git("rev-parse", "--is-shallow-repository")).strip() == "true"
    if not shallow:
        mend = "name another with --base REVISION (make review BASE=REVISION)"
    elif wanted == ["HEAD~1"]:
        mend = "this clone is shallow: git fetch --deepen=1"
    else:
        mend = "this clone is shallow: git fetch --depth=1 origin main:main"
    raise InputError(f"{' or '.join(wanted)}: no such revision here; {mend}")


def flatten(value: Any, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Nested dicts as one dict, its keys the paths to the leaves."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {path: leaf for key, inner in value.items() for path, leaf in flatten(inner, (*prefix, str(key))).items()}


def at(base: str, path: str) -> str:
    """A file's text at the base; empty where it did not exist."""
    return git("show", f"{base}:{path}", check=False) or ""


def here(path: str) -> str:
    """A file's text in the work tree; empty where it does not exist."""
    return Path(path).read_text("utf-8") if Path(path).is_file() else ""


def load(parse: Callable[[str], Any], text: str, path: str) -> dict[str, Any]:
    """A parsed file; one that is empty or absent holds nothing."""
    try:
        return (parse(text) if text.strip() else {}) or {}
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: damaged: {' '.join(str(error).split())}; mend it or run `dvc repro`") from None


def table(head: list[str], rows: list[list[Any]], limit: int = ROWS) -> str:
    """A Markdown table, cut after `limit` rows with a count of the rest."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows[:limit]]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *cells]]
    if len(rows) > limit:
        lines += ["", f"… and {len(rows) - limit} more."]
    return "\n".join(lines)


def number(value: Any, sign: bool = False) -> str:
    """A number in four digits, anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"`{value}`"
    return f"{value:{'+' if sign else ''}.4g}" if isinstance(value, float) else f"{value:{'+' if sign else ''}d}"


def gate() -> tuple[bool, str]:
    """Whether `dvc repro` would do nothing, and that in words."""
    command = [sys.executable, "-m", "dvc", "repro", "--allow-missing", "--dry"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "Data and pipelines are up to date." in done.stdout:
        return True, "**Up to date**: dvc.lock fits code, params and data."
    stages = re.findall(r"Running stage '([^']+)'", done.stdout)
    if stages:
        names = ", ".join(f"`{name}`" for name in stages)
        return False, f"**Not up to date**: {len(stages)} would rerun: {names}. Run `dvc repro` and commit dvc.lock."
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.split("\n")
    return False, f"**Not known**: `dvc repro --dry` failed: {said[0] if said else 'no output'}"


def params(base: str) -> str:
    """Settings that differ from the base."""
    old, new = (
        flatten(load(yaml.safe_load, text, "params.yaml")) for text in (at(base, "params.yaml"), here("params.yaml"))
    )
    rows = [
        [f"`{'.'.join(key)}`", number(old[key]) if key in old else "–", number(new[key]) if key in new else "–"]
        for key in dict.fromkeys([*old, *new])
        if (key in old) != (key in new) or old.get(key) != new.get(key)
    ]
    return table(["param", "old", "new"], rows) if rows else "None."


def metric_values(base: str | None) -> dict[tuple[str, ...], Any]:
    """Every metric, by (dataset, seed, file, …): at the base, or in the work tree where none is given."""
    if base is None:
        files = sorted(path.as_posix() for path in Path("metrics").rglob("*.json"))
        texts = {path: here(path) for path in files}
    else:
        listed = str(git("ls-tree", "-r", "-z", "--name-only", base, "metrics/")).split("\0")
        texts = {path: at(base, path) for path in listed if path.endswith(".json")}
    found: dict[tuple[str, ...], Any] = {}
    for path, text in texts.items():
        where = Path(path).relative_to("metrics").with_suffix("").parts
        found |= flatten(load(json.loads, text, path), where)
    return found


def intervals(names: set[tuple[str, str]]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Intervals of the work tree's scores, keyed as their metrics are."""
    found = {}
    for dataset, seed in names:
        for row in csv.DictReader(here(f"plots/intervals/{dataset}-{seed}.csv").splitlines()):
            key = (dataset, seed, "evaluate", row["method"], row["metric"])
            found[key] = float(row["low"]), float(row["high"])
    return found


def metrics(base: str) -> str:
    """Scores that moved, the most first, then other recorded values, then what is new or gone."""
    old, new = metric_values(base), metric_values(None)
    moved = [key for key in new if key in old and new[key] != old[key]]

    def change(key: tuple[str, ...]) -> float:
        a, b = old[key], new[key]
        return b - a if isinstance(a, int | float) and isinstance(b, int | float) else float("inf")

    moved.sort(key=lambda key: (-abs(change(key)), key))
    around = intervals({(key[0], key[1]) for key in moved if len(key) > 2})
    scored = [key for key in moved if len(key) == 5 and key[2] == "evaluate"]
    parts, rows, outside = [], [], 0
    for key in scored:
        low, high = around.get(key, (float("nan"), float("nan")))
        out = old[key] < low or old[key] > high
        outside += out
        where = f"{low:.4f} … {high:.4f}" if key in around else "–"
        values = [f"{old[key]:.4f}", f"{new[key]:.4f}", f"{change(key):+.4f}", where, "⚠" if out else ""]
        rows.append([key[0], key[1], key[3], key[4], *values])
    if rows:
        head = ["dataset", "seed", "method", "metric", "old", "new", "change", "interval of new", "old outside"]
        parts.append(f"{len(rows)} scores moved; for {outside} the old value lies outside the new one's interval (⚠).")
        parts.append(table(head, rows))
    rest = [key for key in moved if key not in scored]
    if rest:
        rows = [[f"`{' '.join(k)}`", number(old[k]), number(new[k]), number(change(k), True)] for k in rest]
        parts.append("Other recorded values:\n\n" + table(["value", "old", "new", "change"], rows, 20))
    for word, keys in (("New", set(new) - set(old)), ("Gone", set(old) - set(new))):
        if keys:
            where = sorted({"/".join(key[:3]) for key in keys})
            shown = ", ".join(f"`{name}`" for name in where[:12]) + (" …" if len(where) > 12 else "")
            parts.append(f"{word}: {len(keys)} in {shown}.")
    return "\n\n".join(parts) or "None."


def why(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs between two lock entries of one stage."""

    def hashes(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
        return {item["path"]: item.get("md5") or item.get("hash") for item in entry.get(key, [])}

    def settings(entry: Mapping[str, Any]) -> dict[str, Any]:
        # A key's first part is the file's name.
        return {".".join(key[1:]): value for key, value in flatten(entry.get("params", {})).items()}

    causes = ["its command"] if old.get("cmd") != new.get("cmd") else []
    for a, b in ((hashes(old, "deps"), hashes(new, "deps")), (settings(old), settings(new))):
        causes += [f"`{n}`" for n in dict.fromkeys([*a, *b]) if (n in a) != (n in b) or a.get(n) != b.get(n)]
    if not causes:
        return OTHER_BYTES if hashes(old, "outs") != hashes(new, "outs") else ""
    return ", ".join(causes[:6]) + (f" and {len(causes) - 6} more" if len(causes) > 6 else "")


def reran(base: str) -> str:
    """Stages whose lock entry is new, gone or other, and the deps or params that differ.

    That a stage of timings gave others is no news.
    """
    old, new = (
        load(yaml.safe_load, text, "dvc.lock").get("stages", {}) for text in (at(base, "dvc.lock"), here("dvc.lock"))
    )
    causes = {name: "new" if name not in old else why(old[name], new[name]) for name in new}
    told = {n: cause for n, cause in causes.items() if cause and not (n.startswith(TIMING) and cause == OTHER_BYTES)}
    rows = [[f"`{name}`", cause] for name, cause in told.items()]
    rows += [[f"`{name}`", "gone from dvc.lock"] for name in old if name not in new]
    return table(["stage", "because of"], rows) if rows else "None."


def review(
    base: str | None = typer.Option(
        None, help="The revision to compare with [main; on main HEAD, or HEAD~1 if all is committed]"
    ),
) -> None:
    """Compare the work tree with a base revision, as Markdown. Example: python tools/review.py --base HEAD~3"""
    try:
        revision = find_base(base)
        commit = str(git("log", "-1", "--format=%h %s", revision)).strip()
        fine, lock = gate()
        parts = [
            f"# Review against `{revision}` ({commit})",
            f"## Lock\n\n{lock}",
            f"## Params\n\n{params(revision)}",
            f"## Metrics\n\n{metrics(revision)}",
            f"## Stages that reran\n\n{reran(revision)}",
        ]
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    print("\n\n".join(parts))
    raise typer.Exit(0 if fine else 1)


if __name__ == "__main__":
    typer.run(review)
