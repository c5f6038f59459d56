"""Review a change as Markdown on standard output: `python -m tools.review [--base main]`.

Compares the work tree with a base revision: whether dvc.lock is up to date, which params and scores changed, and which
stages reran because of what. Exit codes: 0 up to date, 1 dvc.lock is not up to date, 2 nothing to compare with.
"""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
import vl_convert
import yaml

from attnknn.core.errors import InputError
from pipeline.settings import DATASETS, PARAMS, PRESETS, merge, with_preset
from tools.lock import Key, Locks, Stages, differing, flatten

PICTURES, MOST_PICTURES = Path("dvc_plots"), 24
ROWS = 40
NOT_BY_DATASET = ("preset", "datasets", "seeds")
ROUNDING = 1e-9  # relative; sums in another order differ by less


def git(*command: str, check: bool = True) -> str | None:
    """Standard output of a git command; None if it fails and `check` is false."""
    result = subprocess.run(["git", *command], capture_output=True, text=True)
    if result.returncode == 0:
        return result.stdout
    if check:
        raise InputError(f"git {' '.join(command)}: {' '.join(result.stderr.split())}")
    return None


def find_base(revision: str | None) -> str:
    """The revision to compare with: by default main or origin/main; on main HEAD, or HEAD~1 if all is committed.

    Raises:
        InputError: the repository has no such commit.
    """
    if git("rev-parse", "--show-toplevel", check=False) is None:
        raise InputError(f"{Path.cwd()}: not in a git repository; run from the project's root")
    branch = str(git("rev-parse", "--abbrev-ref", "HEAD", check=False) or "").strip()
    on_main = "HEAD" if git("status", "--porcelain", check=False) else "HEAD~1"
    candidates = [revision] if revision else [on_main] if branch == "main" else ["main", "origin/main"]
    for candidate in candidates:
        if git("rev-parse", "--verify", "--quiet", f"{candidate}^{{commit}}", check=False) is not None:
            return candidate
    if str(git("rev-parse", "--is-shallow-repository")).strip() != "true":
        hint = "name another with --base REVISION (make review BASE=REVISION)"
    elif candidates == ["HEAD~1"]:
        hint = "this clone is shallow: git fetch --deepen=1"
    else:
        hint = "this clone is shallow: git fetch --depth=1 origin main:main"
    raise InputError(f"{' or '.join(candidates)}: no such revision here; {hint}")


def read(base: str | None, path: str) -> str:
    """Text of a file at a revision, or in the work tree if base is None; empty if there is no such file."""
    if base is not None:
        return git("show", f"{base}:{path}", check=False) or ""
    return Path(path).read_text("utf-8") if Path(path).is_file() else ""


def parse(parser: Callable[[str], Any], text: str, path: str) -> dict[str, Any]:
    """Parse a file; an empty text gives an empty dict."""
    try:
        return (parser(text) if text.strip() else {}) or {}
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: damaged: {' '.join(str(error).split())}; restore it or run `dvc repro`") from None


def read_folder(base: str | None, folder: Path, suffix: str) -> dict[str, str]:
    """Texts of the files below a folder with a suffix, by path; see `read`."""
    if base is None:
        paths = [path.as_posix() for path in sorted(folder.rglob(f"*{suffix}"))]
    else:
        listed = str(git("ls-tree", "-r", "-z", "--name-only", base, f"{folder}/")).split("\0")
        paths = [path for path in listed if path.endswith(suffix)]
    return {path: read(base, path) for path in paths}


def table(head: list[str], rows: list[list[Any]], limit: int = ROWS) -> str:
    """A Markdown table; rows beyond `limit` are counted."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows[:limit]]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *cells]]
    if len(rows) > limit:
        lines += ["", f"… and {len(rows) - limit} more."]
    return "\n".join(lines)


def number(value: Any, sign: bool = False) -> str:
    """A number with four significant digits; anything else as code."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"`{value}`"
    return f"{value:{'+' if sign else ''}.4g}" if isinstance(value, float) else f"{value:{'+' if sign else ''}d}"


def lock_status() -> tuple[bool, str]:
    """Whether `dvc repro` would do nothing, and a sentence."""
    command = [sys.executable, "-m", "dvc", "repro", "--allow-missing", "--dry"]
    result = subprocess.run(command, capture_output=True, text=True)
    if "Data and pipelines are up to date." in result.stdout:
        others = str(git("ls-files", "--others", "--exclude-from=.dvcignore", "--", "metrics", "plots")).split("\n")[
            :-1
        ]
        if others:
            names = ", ".join(f"`{name}`" for name in others[:6]) + (" …" if len(others) > 6 else "")
            return (
                False,
                f"**Not up to date in a clone**: not in git: {len(others)} files, {names}. Add or remove them.",
            )
        return True, "**Up to date**: dvc.lock fits code, params and data."
    stages = re.findall(r"Running stage '([^']+)'", result.stdout)
    if stages:
        names = ", ".join(f"`{name}`" for name in stages)
        return False, f"**Not up to date**: {len(stages)} would rerun: {names}. Run `dvc repro` and commit dvc.lock."
    lines = result.stderr.splitlines()
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no output"]
    return False, f"**Not known**: `dvc repro --dry` failed: {errors[0]}"


def settings(base: str | None) -> dict[str, dict[str, Any]]:
    """params.yaml and the presets, by path."""
    texts = {str(path): read(base, str(path)) for path in (PARAMS, DATASETS)} | read_folder(base, PRESETS, ".yaml")
    return {path: parse(yaml.safe_load, text, path) for path, text in texts.items()}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Old and new value of each setting that differs, by its dotted key."""
    a, b = flatten(old), flatten(new)
    values = {key: tuple(number(side[key]) if key in side else "–" for side in (a, b)) for key in differing(a, b)}
    return {".".join(key): (before, after) for key, (before, after) in values.items()}


def effective(files: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Settings of each dataset that runs: params.yaml, the dataset's overrides, the preset."""
    raw = files[str(PARAMS)]
    common = {key: value for key, value in raw.items() if key not in NOT_BY_DATASET}
    preset = files.get(f"{PRESETS}/{raw.get('preset')}.yaml", {})
    own = files[str(DATASETS)]
    return {name: with_preset(merge(common, own.get(name, {})), preset) for name in raw.get("datasets", [])}


def params(base: str) -> str:
    """Settings that differ from the base; with a preset also the effective ones."""
    old, new = settings(base), settings(None)
    rows = []
    for path in dict.fromkeys([*old, *new]):
        if path not in old or path not in new:
            rows.append([f"`{path}`", *(("–", "a new file") if path in new else ("a file", "–"))])
            continue
        prefix = "" if path == str(PARAMS) else f"{path}:"
        rows += [[f"`{prefix}{key}`", *values] for key, values in changes(old[path], new[path]).items()]
    if not rows:
        return "None."
    parts = [table(["param", "old", "new"], rows)]
    parts += [f"⚠ {line}." for line in without_effect(old, new)]
    presets = [files[str(PARAMS)].get("preset", "none") for files in (old, new)]
    if presets != ["none", "none"]:
        a, b = effective(old), effective(new)
        datasets: dict[Key, list[str]] = {}
        for name in (name for name in b if name in a):
            for key, values in changes(a[name], b[name]).items():
                datasets.setdefault((f"`{key}`", *values), []).append(name)
        rows = [[key, ", ".join(names), *values] for (key, *values), names in datasets.items()]
        parts.append(f"In effect, with the preset ({' → '.join(dict.fromkeys(presets))}):")
        parts.append(table(["param", "datasets", "old", "new"], rows) if rows else "None.")
    return "\n\n".join(parts)


def without_effect(old: Mapping[str, dict[str, Any]], new: Mapping[str, dict[str, Any]]) -> list[str]:
    """Name changed settings that change nothing for some of the datasets that run."""
    before, after = ({name: flatten(own) for name, own in effective(side).items()} for side in (old, new))
    lines = []
    for key in differing(flatten(old[str(PARAMS)]), flatten(new[str(PARAMS)])):
        same = [name for name in after if name in before and before[name].get(key) == after[name].get(key)]
        if same and key[0] not in NOT_BY_DATASET:
            lines.append(f"{'.'.join(key)} has no effect on {', '.join(same)}: {DATASETS} or the preset overrides it")
    changed = differing(old[str(DATASETS)], new[str(DATASETS)])
    return [*lines, *(f"{DATASETS}: {name} is not among datasets, no effect" for name in changed if name not in after)]


def lock_stages(base: str | None) -> Stages:
    """Entries of dvc.lock by stage."""
    return parse(yaml.safe_load, read(base, "dvc.lock"), "dvc.lock").get("stages", {})


def metric_values(base: str | None) -> dict[Key, Any]:
    """Every metric, by (dataset, seed, file, …)."""
    values: dict[Key, Any] = {}
    for path, text in read_folder(base, Path("metrics"), ".json").items():
        prefix = Path(path).relative_to("metrics").with_suffix("").parts
        values |= flatten(parse(json.loads, text, path), prefix)
    return values


def intervals(runs: set[tuple[str, str]]) -> dict[Key, tuple[float, float]]:
    """Confidence intervals of the work tree's scores, keyed as their metrics."""
    result = {}
    for dataset, seed in runs:
        for row in csv.DictReader(read(None, f"plots/intervals/{dataset}-{seed}.csv").splitlines()):
            key = (dataset, seed, "evaluate", row["method"], row["metric"])
            result[key] = float(row["low"]), float(row["high"])
    return result


def reaches(locks: Locks, metric: Key) -> bool:
    """Whether the change reaches the stage that wrote a metric, or no stage of dvc.lock did.

    A dataset's numbers in the summary are those of its `evaluate`.
    """
    if metric[0] == "summary" and (own := [n for n in locks.new if n.startswith(f"evaluate@{metric[1]}-")]):
        return any(name in locks.reached for name in own)
    files = ("/".join(("metrics", *metric[:n])) + ".json" for n in (1, 2, 3))
    stages = [stage for file in files if (stage := locks.producers.get(file))]
    return not stages or stages[0] in locks.reached


def metrics(base: str, locks: Locks) -> str:
    """The summary, changed scores by size, other changed values, and values that are new or gone.

    What moved although the change does not reach its stage is counted, not listed.
    """
    old, new = metric_values(base), metric_values(None)
    unreached = [key for key in differing(old, new) if not reaches(locks, key)]
    old, new = ({key: side[key] for key in side.keys() - set(unreached)} for side in (old, new))
    changed = [key for key in new if key in old and new[key] != old[key]]

    def rounded(key: Key) -> bool:
        a, b = old[key], new[key]
        return isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=ROUNDING)

    def change(key: Key) -> float:
        a, b = old[key], new[key]
        return b - a if isinstance(a, int | float) and isinstance(b, int | float) else float("inf")

    moved = sorted((key for key in changed if not rounded(key)), key=lambda key: (-abs(change(key)), key))
    parts = []
    if n := len(locks.unexplained):
        parts.append(
            f"⚠ Made on another machine: {n} stages gave other bytes from the same code, settings and inputs, e.g. "
            f"`{locks.unexplained[0]}`. {len(unreached)} values differ by this alone and are left out; "
            "others may have moved by it too. To compare with a run of the base on this machine: docs/guide/review.md."
        )
    if summary := [key for key in moved if key[0] == "summary"]:
        rows = [[" ".join(k[1:]), number(old[k]), number(new[k]), number(change(k), True)] for k in summary]
        parts.append("Summary, means over seeds:\n\n" + table(["value", "old", "new", "change"], rows))
    bounds = intervals({(key[0], key[1]) for key in moved if len(key) > 2})
    scores = [key for key in moved if len(key) == 5 and key[2] == "evaluate"]
    rows, n_outside = [], 0
    for key in scores:
        low, high = bounds.get(key, (float("nan"), float("nan")))
        outside = old[key] < low or old[key] > high
        n_outside += outside
        interval = f"{low:.4f} … {high:.4f}" if key in bounds else "–"
        values = [f"{old[key]:.4f}", f"{new[key]:.4f}", f"{change(key):+.4f}", interval, "⚠" if outside else ""]
        rows.append([key[0], key[1], key[3], key[4], *values])
    if rows:
        head = ["dataset", "seed", "method", "metric", "old", "new", "change", "interval of new", "old outside"]
        parts.append(f"{len(rows)} scores changed; {n_outside} old values are outside the new interval (⚠).")
        parts.append(table(head, rows))
    others = [key for key in moved if key not in (*scores, *summary)]
    if others:
        rows = [[f"`{' '.join(k)}`", number(old[k]), number(new[k]), number(change(k), True)] for k in others]
        parts.append("Other recorded values:\n\n" + table(["value", "old", "new", "change"], rows, 20))
    if len(changed) > len(moved):
        parts.append(f"Changed by rounding only, less than {ROUNDING:g} of the value: {len(changed) - len(moved)}.")
    for word, keys in (("New", new.keys() - old.keys()), ("Gone", old.keys() - new.keys())):
        if keys:
            files = sorted({"/".join(key[:3]) for key in keys})
            names = ", ".join(f"`{name}`" for name in files[:12]) + (" …" if len(files) > 12 else "")
            parts.append(f"{word}: {len(keys)} in {names}.")
    return "\n\n".join(parts) or "None."


def reran(locks: Locks) -> str:
    """Stages whose lock entry changed, and the deps or params that did; timings that differ do not count."""
    rows = [[f"`{name}`", text] for name in locks.new if (text := locks.describe(name))]
    rows += [[f"`{name}`", "gone from dvc.lock"] for name in locks.old if name not in locks.new]
    return table(["stage", "because of"], rows) if rows else "None."


def pictures(base: str, locks: Locks) -> str:
    """Draw the plots of dvc.yaml that the change can have moved, old and new, in `dvc_plots/`; their links."""
    changed = str(git("diff", "--name-only", "-z", base, "--", "plots")).split("\0")[:-1]
    names = [path for path in changed if locks.producers.get(path) in {None, *locks.reached}]
    if not names:
        return "None."
    result = subprocess.run(
        [sys.executable, "-m", "dvc", "plots", "diff", base, "--json"], capture_output=True, text=True
    )
    if result.returncode:
        raise InputError(f"dvc plots diff: {' '.join(result.stderr.split())}")
    plots = json.loads(result.stdout).get("data", {})
    names = [name for name in names if plots.get(name)]  # the others are tables of the report
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    links = [f"… and {len(names) - MOST_PICTURES} more: `dvc plots diff {base}`."] if len(names) > MOST_PICTURES else []
    for name in reversed(names[:MOST_PICTURES]):
        path = PICTURES / f"{'-'.join(Path(name).with_suffix('').parts[1:])}.png"
        path.write_bytes(vl_convert.vegalite_to_png(plots[name][0]["content"]))
        links.insert(0, f"![{path.stem}]({path})")
    return "\n".join(links) or "None."


def review(
    base: str | None = typer.Option(
        None, help="The revision to compare with [main; on main HEAD, or HEAD~1 if all is committed]"
    ),
) -> None:
    """Compare the work tree with a base revision, as Markdown. Example: python -m tools.review --base HEAD~3"""
    try:
        revision = find_base(base)
        commit = str(git("log", "-1", "--format=%h %s", revision)).strip()
        up_to_date, lock = lock_status()
        in_effect = (effective(settings(side)) for side in (revision, None))
        locks = Locks(lock_stages(revision), lock_stages(None), *in_effect)
        parts = [
            f"# Review against `{revision}` ({commit})",
            f"## Lock\n\n{lock}",
            f"## Params\n\n{params(revision)}",
            f"## Metrics\n\n{metrics(revision, locks)}",
            f"## Plots\n\n{pictures(revision, locks)}",
            f"## Stages that reran\n\n{reran(locks)}",
        ]
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    print("\n\n".join(parts))
    raise typer.Exit(0 if up_to_date else 1)


if __name__ == "__main__":
    typer.run(review)
