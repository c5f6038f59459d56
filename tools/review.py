"""What a reviewer needs, as Markdown on standard output: `python -m tools.review [--base main]`.

The work tree is compared with a base revision: is dvc.lock up to date, which params changed, which scores moved and
by how much of their interval, which stages reran and why. Exit codes: 0 fine, 1 the lock is not up to date, 2 there
is nothing to compare with.
"""

import csv
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml

from attnknn.core.errors import InputError
from stages.params import PARAMS, PRESETS, merge, with_preset

ROWS = 40
OTHER_BYTES = "nothing it depends on: it gave other bytes"
ROUNDING = 1e-9  # a share of a value; sums in another order move less
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


def texts(base: str | None, folder: Path, end: str) -> dict[str, str]:
    """The files under a folder whose names end so, by path: at the base, or in the work tree where none is given."""
    if base is None:
        return {path.as_posix(): here(path.as_posix()) for path in sorted(folder.rglob(f"*{end}"))}
    listed = str(git("ls-tree", "-r", "-z", "--name-only", base, f"{folder}/")).split("\0")
    return {path: at(base, path) for path in listed if path.endswith(end)}


def settings(base: str | None) -> dict[str, dict[str, Any]]:
    """params.yaml and the presets, by path."""
    own = here(str(PARAMS)) if base is None else at(base, str(PARAMS))
    found = {str(PARAMS): own} | texts(base, PRESETS, ".yaml")
    return {path: load(yaml.safe_load, text, path) for path, text in found.items()}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Old and new value of each setting that differs, by its dotted key."""
    a, b = flatten(old), flatten(new)
    return {
        ".".join(key): (number(a[key]) if key in a else "–", number(b[key]) if key in b else "–")
        for key in dict.fromkeys([*a, *b])
        if (key in a) != (key in b) or a.get(key) != b.get(key)
    }


def in_effect(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What holds for each dataset that runs: its overrides over params.yaml, and the chosen preset over both."""
    raw = found[str(PARAMS)]
    apart = ("preset", "datasets", "seeds", "sources", "overrides")
    common = {key: value for key, value in raw.items() if key not in apart}
    preset = found.get(f"{PRESETS}/{raw.get('preset')}.yaml", {})
    overrides = raw.get("overrides", {})
    return {name: with_preset(merge(common, overrides.get(name, {})), preset) for name in raw.get("datasets", [])}


def params(base: str) -> str:
    """Settings that differ from the base, and where a preset is or was chosen, what differs with it laid over."""
    old, new = settings(base), settings(None)
    rows = []
    for path in dict.fromkeys([*old, *new]):
        if path not in old or path not in new:
            rows.append([f"`{path}`", *(("–", "a new file") if path in new else ("a file", "–"))])
            continue
        prefix = "" if path == str(PARAMS) else f"{path}:"
        rows += [[f"`{prefix}{key}`", *values] for key, values in changes(old[path], new[path]).items()]
    said = [table(["param", "old", "new"], rows)] if rows else []
    chosen = [found[str(PARAMS)].get("preset", "none") for found in (old, new)]
    if rows and chosen != ["none", "none"]:
        a, b = in_effect(old), in_effect(new)
        where: dict[tuple[str, str, str], list[str]] = {}
        for name in (name for name in b if name in a):
            for key, values in changes(a[name], b[name]).items():
                where.setdefault((f"`{key}`", *values), []).append(name)
        laid_over = [[key, ", ".join(names), *values] for (key, *values), names in where.items()]
        said.append(f"In effect, with the preset laid over ({' → '.join(dict.fromkeys(chosen))}):")
        said.append(table(["param", "datasets", "old", "new"], laid_over) if laid_over else "None.")
    return "\n\n".join(said) or "None."


def metric_values(base: str | None) -> dict[tuple[str, ...], Any]:
    """Every metric, by (dataset, seed, file, …): at the base, or in the work tree where none is given."""
    found: dict[tuple[str, ...], Any] = {}
    for path, text in texts(base, Path("metrics"), ".json").items():
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
    differ = [key for key in new if key in old and new[key] != old[key]]

    def rounded(key: tuple[str, ...]) -> bool:
        a, b = old[key], new[key]
        return isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=ROUNDING)

    moved = [key for key in differ if not rounded(key)]

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
    if len(differ) > len(moved):
        parts.append(f"Moved by rounding alone, less than {ROUNDING:g} of the value: {len(differ) - len(moved)}.")
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

    def values(entry: Mapping[str, Any]) -> dict[str, Any]:
        # A key's first part is the file's name.
        return {".".join(key[1:]): value for key, value in flatten(entry.get("params", {})).items()}

    causes = ["its command"] if old.get("cmd") != new.get("cmd") else []
    for a, b in ((hashes(old, "deps"), hashes(new, "deps")), (values(old), values(new))):
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
    """Compare the work tree with a base revision, as Markdown. Example: python -m tools.review --base HEAD~3"""
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
