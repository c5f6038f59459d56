"""Review a change as Markdown on standard output: `python -m tools.review [--base main]`.

Compares the work tree with a base revision: whether dvc.lock is up to date, which params and scores changed, and which
stages reran because of what. Exit codes: 0 up to date, 1 dvc.lock is not up to date, 2 no review; one line says why.
"""

import csv
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
import vl_convert
import yaml

from attnknn.core.errors import InputError, require
from pipeline.check import check
from pipeline.settings import BLOCKS, DATASETS, PARAMS, PRESETS, block_class, merge, with_preset
from tools.lock import Key, Locks, Stages, differing, flatten, hashes, stale

PICTURES = Path("dvc_plots")
ROWS = 6  # of most tables: a change of one setting is read on one page, at most 60 lines
NOT_BY_DATASET = ("preset", "datasets", "seeds")
ROUNDING = 1e-9  # relative; sums in another order differ by less
Files = Mapping[str, dict[str, Any]]  # of settings, by path
HELP = "The revision to compare with: main; on main HEAD, or HEAD~1 if all is committed"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")


def git(*command: str, check: bool = True) -> str:
    """Standard output of a git command; empty if it fails and `check` is false."""
    result = run("git", *command)
    if check and result.returncode:
        raise InputError(f"git {' '.join(command)}: {' '.join(result.stderr.split())}")
    return "" if result.returncode else result.stdout


def find_base(revision: str | None) -> str:
    """The revision to compare with: by default main or origin/main; on main HEAD, or HEAD~1 if all is committed."""
    if not git("rev-parse", "--show-toplevel", check=False):
        raise InputError(f"{Path.cwd()}: not in a git repository; run from the project's root")
    candidates = [revision] if revision else ["main", "origin/main"]
    if not revision and git("rev-parse", "--abbrev-ref", "HEAD", check=False).strip() == "main":
        candidates = ["HEAD" if git("status", "--porcelain", check=False) else "HEAD~1"]
    for candidate in candidates:
        if git("rev-parse", "--verify", "--quiet", f"{candidate}^{{commit}}", check=False):
            return candidate
    hint = "fetch it, or name another with --base REVISION (make review BASE=REVISION)"
    raise InputError(f"{' or '.join(candidates)}: no such revision here; {hint}")


def read(base: str | None, path: str) -> str:
    """Text of a file at a revision, or in the work tree if base is None; empty if there is no such file."""
    if base is not None:
        return git("show", f"{base}:{path}", check=False)
    return Path(path).read_text("utf-8", "replace") if Path(path).is_file() else ""


def parse(parser: Callable[[str], Any], text: str, path: str) -> dict[str, Any]:
    """Parse a file; an empty text gives an empty dict."""
    try:
        value = parser(text) or {} if text.strip() else {}
        require(isinstance(value, dict), "no mapping")
        return value
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: damaged: {error}; restore it or run `dvc repro`") from None


def read_folder(base: str | None, folder: Path, suffix: str) -> dict[str, str]:
    """Texts of the files below a folder with a suffix, by path; see `read`."""
    if base is None:
        paths = [path.as_posix() for path in sorted(folder.rglob(f"*{suffix}"))]
    else:
        listed = git("ls-tree", "-r", "-z", "--name-only", base, f"{folder}/").split("\0")
        paths = [path for path in listed if path.endswith(suffix)]
    return {path: read(base, path) for path in paths}


def table(head: list[str], rows: list[list[Any]], limit: int = ROWS) -> str:
    """A Markdown table; rows beyond `limit` are counted."""
    if not rows:
        return "None."
    more = [[f"… and {len(rows) - limit} more"]] if len(rows) > limit else []
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows[:limit] + more]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *cells])


def number(value: Any) -> str:
    """A number with four significant digits; anything else as code."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"`{value}`"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def change_text(old: Any, new: Any, digits: int = 4) -> str:
    """`old → new`, in as many significant digits as tell them apart."""
    texts = [f"{v:.{digits}g}" if isinstance(v, float) else number(v) for v in (old, new)]
    return change_text(old, new, digits + 1) if texts[0] == texts[1] and digits < 17 else " → ".join(texts)


def named(names: list[str], most: int) -> str:
    """The first names as code."""
    return ", ".join(f"`{name}`" for name in names[:most]) + (" …" if len(names) > most else "")


def lock_status() -> tuple[bool, str]:
    """Whether `dvc repro` would do nothing, and a sentence. Not by a dry run, which fails in a clone without data."""
    result = run(sys.executable, "-m", "dvc", "status", "--json")
    if result.returncode:
        lines = sorted(result.stderr.splitlines(), key=lambda line: not line.startswith("ERROR")) or ["no output"]
        return False, f"**Not known**: `dvc status` failed: {lines[0]}"
    status, stages = json.loads(result.stdout), lock_stages(None)
    paths = {path for entry in stages.values() for key in ("deps", "outs") for path in hashes(entry, key)}
    ignored = set(git("check-ignore", *paths, check=False).splitlines())
    names, inputs, outputs = stale(status, stages, ignored)
    if names:
        text = f"at least {len(names)} would rerun: {named(names, 12)}."
        text += f" Changed: {named(inputs, 6)}." if inputs else ""
        text += f" Results that differ from what dvc.lock records: {named(outputs, 6)}." if outputs else ""
        return False, f"**Not up to date**: {text} Run `dvc repro`; commit dvc.lock, metrics/ and plots/."
    if files := git("ls-files", "--others", "--exclude-from=.dvcignore", "--", "metrics", "plots").splitlines():
        text = f"not in git: {len(files)} files, {named(files, 6)}. Add or remove them."
        return False, f"**Not up to date in a clone**: {text}"
    return True, "**Up to date**: dvc.lock fits code, params and data."


def settings(base: str | None) -> Files:
    """params.yaml, datasets.yaml and the presets, by path."""
    texts = {str(path): read(base, str(path)) for path in (PARAMS, DATASETS)} | read_folder(base, PRESETS, ".yaml")
    return {path: parse(yaml.safe_load, text, f"{base}:{path}" if base else path) for path, text in texts.items()}


def effective(files: Files) -> dict[str, dict[str, Any]]:
    """Settings of each dataset that runs: this version's defaults, params.yaml, the dataset's entry, the preset."""
    raw, own = files[str(PARAMS)], files[str(DATASETS)]
    defaults = {block: block_class(block)().model_dump() for block in BLOCKS}
    common = merge(defaults, {k: v for k, v in raw.items() if k not in NOT_BY_DATASET and v is not None})
    preset, names = files.get(f"{PRESETS}/{raw.get('preset')}.yaml", {}), raw.get("datasets")
    running = [n for n in names if isinstance(own.get(str(n)), dict)] if isinstance(names, list) else []
    return {name: with_preset(merge(common, own[name]), preset) for name in running}


def no_effect(path: str, key: Key, preset: str, unchanged: Mapping[str, Mapping[Key, Any]]) -> str:
    """Say where a changed setting has no effect, given what stays in effect for each dataset; empty if nowhere."""
    name = ("" if path == str(PARAMS) else f"{path}:") + ".".join(key)
    if path == str(DATASETS):
        if key[0] not in unchanged:
            return f"⚠ `{path}:{key[0]}` has no effect: it is not among datasets."
        unchanged, key = {key[0]: unchanged[key[0]]}, key[1:]
    elif path == preset:
        key = tuple(part for part in key if part != "mlp")  # laid over train_embedder, of MLPs only
    elif path != str(PARAMS):
        return f"⚠ `{path}` has no effect: it is not the preset."
    stays = ", ".join(f"{dataset} (stays {own[key]})" for dataset, own in unchanged.items() if key in own)
    return f"⚠ `{name}` has no effect on {stays}." if stays else ""


def params(old: Files, new: Files) -> str:
    """Settings that differ from the base, and where they have no effect."""
    before, after = ({name: flatten(own) for name, own in effective(side).items()} for side in (old, new))
    unchanged = {d: {k: v for k, v in own.items() if before.get(d, {}).get(k, ...) == v} for d, own in after.items()}
    rows, notes = [], []
    for path in dict.fromkeys([*old, *new]):
        if path not in old or path not in new:
            rows.append([f"`{path}`", *(("–", "a new file") if path in new else ("a file", "–"))])
            continue
        a, b = flatten(old[path]), flatten(new[path])
        for key in differing(a, b):
            name = ("" if path == str(PARAMS) else f"{path}:") + ".".join(key)
            rows.append([f"`{name}`", *(number(side[key]) if key in side else "–" for side in (a, b))])
            notes.append(no_effect(path, key, f"{PRESETS}/{new[str(PARAMS)].get('preset')}.yaml", unchanged))
    return "\n\n".join([table(["param", "old", "new"], rows, 40), *dict.fromkeys(filter(None, notes))])


def lock_stages(base: str | None) -> Stages:
    """Entries of dvc.lock by stage."""
    return parse(yaml.safe_load, read(base, "dvc.lock"), "dvc.lock").get("stages", {})


def metric_values(base: str | None) -> dict[Key, Any]:
    """Every metric, by (dataset, seed, file, …)."""
    values: dict[Key, Any] = {}
    for path, text in read_folder(base, Path("metrics"), ".json").items():
        values |= flatten(parse(json.loads, text, path), Path(path).relative_to("metrics").with_suffix("").parts)
    return values


def interval(key: Key) -> tuple[float, float]:
    """Confidence interval of one of the work tree's scores; NaN if it has none."""
    for row in csv.DictReader(read(None, f"plots/intervals/{key[0]}-{key[1]}.csv").splitlines()):
        if (row["method"], row["metric"]) == key[3:]:
            return float(row["low"]), float(row["high"])
    return math.nan, math.nan


def reaches(locks: Locks, metric: Key) -> bool:
    """Whether the change can have moved a metric; one of the summary by its dataset's `evaluate`."""
    files = ("/".join(("metrics", *metric[:n])) + ".json" for n in (1, 2, 3))
    file = next((file for file in files if file in locks.producers), "")
    if metric[0] == "summary" and (own := [n for n in locks.new if n.startswith(f"evaluate@{metric[1]}-")]):
        return locks.edited(file) or any(name in locks.reached for name in own)
    return locks.reaches(file)


def metrics(base: str, locks: Locks) -> str:
    """The summary, the scores that changed most, those outside their interval first, and how many other values did.

    What moved although the change does not reach its stage is counted, not listed.
    """
    old, new = metric_values(base), metric_values(None)
    unreached = {key for key in differing(old, new) if not reaches(locks, key)}
    parts = []
    if n := len(locks.unexplained):
        parts.append(
            f"⚠ Made on another machine: {n} stages gave other bytes from the same code, settings and inputs, e.g. "
            f"`{locks.unexplained[0]}`. {len(unreached)} values differ by this alone and are left out; "
            "others may have moved by it too. To compare with a run of the base on this machine: docs/guide/review.md."
        )

    def change(key: Key) -> float:
        a, b = old[key], new[key]
        return b - a if isinstance(a, int | float) and isinstance(b, int | float) else math.inf

    changed = [key for key in new if key in old and new[key] != old[key] and key not in unreached]
    moved = [k for k in changed if math.isinf(change(k)) or not math.isclose(old[k], new[k], rel_tol=ROUNDING)]
    moved.sort(key=lambda key: (-abs(change(key)), key))
    summary, scores, others = {}, [], []
    for key in moved:
        values = change_text(old[key], new[key])
        if key[0] == "summary":
            summary.setdefault(" ".join(key[1:-1]), []).append(f"{key[-1]} {values}")
        elif len(key) == 5 and key[2] == "evaluate" and math.isfinite(change(key)):
            low, high = interval(key)
            ends = "–" if math.isnan(low) else f"{low:.4f} … {high:.4f}"
            digits = max(4, 1 - math.floor(math.log10(abs(change(key)))))  # two of the change, at least four
            values = [f"{old[key]:.{digits}f}", f"{new[key]:.{digits}f}", f"{change(key):+z.{digits}f}"]
            scores.append([*key[:2], *key[3:], *values, ends, "⚠" if old[key] < low or old[key] > high else ""])
        else:
            others.append(f"`{' '.join(key)}` {values}")
    if summary:
        rows = [[name, ", ".join(sorted(changes))] for name, changes in sorted(summary.items())]
        parts.append(table(["summary, means over seeds", "old → new"], rows, 8))
    if scores:
        scores.sort(key=lambda row: not row[-1])
        n = sum(bool(row[-1]) for row in scores)
        parts.append(f"{len(scores)} scores changed; {n} old values are outside the new interval (⚠).")
        head = ["dataset", "seed", "method", "metric", "old", "new", "change", "interval of new", "old outside"]
        parts.append(table(head, scores))
    rest = (
        [f"{len(others)} other values changed: {', '.join(others[:ROWS])}{' …' * (len(others) > ROWS)}."]
        if others
        else []
    )
    if len(changed) > len(moved):
        rest.append(f"Changed by rounding only, less than {ROUNDING:g} of the value: {len(changed) - len(moved)}.")
    for word, keys in (("New", new.keys() - old.keys()), ("Gone", old.keys() - new.keys())):
        if keys := keys - unreached:
            rest.append(f"{word}: {len(keys)} in {named(sorted({'/'.join(key[:3]) for key in keys}), 12)}.")
    return "\n\n".join([*parts, *([" ".join(rest)] if rest else [])]) or "None."


def reran(locks: Locks) -> str:
    """Stages whose lock entry changed, by the deps or params that did; timings that differ do not count."""
    causes: dict[str, list[str]] = {}
    for name in locks.new | locks.old:
        if text := locks.describe(name) if name in locks.new else "gone from dvc.lock":
            causes.setdefault(text, []).append(name)
    return table(["stages", "because of"], [[named(names, 4), text] for text, names in causes.items()])


def pictures(base: str, locks: Locks) -> str:
    """Draw the plots of dvc.yaml that the change can have moved, old and new, in `dvc_plots/`; their links."""
    changed = git("diff", "--name-only", "-z", base, "--", "plots").split("\0")[:-1]
    names = [path for path in changed if locks.reaches(path)]
    if not names:
        return "None."
    result = run(sys.executable, "-m", "dvc", "plots", "diff", base, "--json")
    if result.returncode:
        raise InputError(f"dvc plots diff: {' '.join(result.stderr.split())}")
    plots = json.loads(result.stdout).get("data", {})
    names = [name for name in names if plots.get(name)]  # intervals are no plot
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    links = []
    for name in names:
        path = PICTURES / f"{'-'.join(Path(name).with_suffix('').parts[1:])}.png"
        path.write_bytes(vl_convert.vegalite_to_png(plots[name][0]["content"]))
        links.append(f"![{path.stem}]({path})")
    return " ".join(links) or "None."


def review(base: str | None = typer.Option(None, help=HELP)) -> None:
    """Compare the work tree with a base revision, as Markdown. Example: python -m tools.review --base HEAD~3"""
    try:
        revision = find_base(base)
        check()
        up_to_date, lock = lock_status()
        old, new = settings(revision), settings(None)
        locks = Locks(lock_stages(revision), lock_stages(None), effective(old), effective(new))
        sections = {"Lock": lock, "Params": params(old, new), "Metrics": metrics(revision, locks)}
        sections |= {"Plots": pictures(revision, locks), "Stages that reran": reran(locks)}
        title = f"# Review against `{revision}` ({git('log', '-1', '--format=%h %s', revision).strip()})"
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    print("\n\n".join([title, *(f"## {name}\n\n{text}" for name, text in sections.items())]))
    raise typer.Exit(0 if up_to_date else 1)


if __name__ == "__main__":
    typer.run(review)
