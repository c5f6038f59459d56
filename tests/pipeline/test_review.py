"""`make review` in a small git and DVC project: two branches, one changed setting."""

import copy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import Repository

from attnknn.experiments.config import Tta
from import_closure import ROOT
from tools import review
from tools.lock import OTHER_BYTES, Locks

SCRIPT = """\
import json, pathlib, yaml
k = yaml.safe_load(open("params.yaml"))["k_eval"]
for folder in ("metrics/iris/42", "plots/intervals"):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
scores = {"attention": {"accuracy": 0.9, "nll": 0.5 - k / 100, "ece": 0.1 + k / 10000}}
if k > 5:
    scores["linear"] = {"accuracy": 0.8}
json.dump(scores, open("metrics/iris/42/evaluate.json", "w"))
json.dump({"distance": {"k": k}}, open("metrics/iris/42/tuned.json", "w"))
rows = ["method,metric,value,low,high"]
for name, value in scores["attention"].items():
    rows.append(f"attention,{name},{value},{value - 0.01},{value + 0.01}")
open("plots/intervals/iris-42.csv", "w").write("\\n".join(rows) + "\\n")
"""
DVC_YAML = """\
stages:
  evaluate:
    cmd: python evaluate.py
    deps: [evaluate.py, other.txt]
    params: [k_eval]
    outs:
      - metrics/iris/42/evaluate.json: {cache: false}
      - metrics/iris/42/tuned.json: {cache: false}
      - plots/intervals/iris-42.csv: {cache: false}
  other:
    cmd: python -c "print(1)" > other.txt
    deps: [params.yaml.note]
    outs: [other.txt]
plots:
  - plots/intervals: {x: method, y: value}
"""
PARAMS = (ROOT / "params.yaml").read_text()
DATASETS = "[digits, winequality_red]"
OTHER = "path: other.txt\n      hash: md5\n      md5: "
EDITED = "Results that differ from what dvc.lock records: `metrics/iris/42/evaluate.json`. Run"


class Project(Repository):
    def review(self, *options: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "tools.review", *options, cwd=cwd)


def part(markdown: str, title: str) -> str:
    """The section under one heading."""
    return markdown.split(f"## {title}\n")[1].split("\n## ")[0]


def cells(markdown: str) -> list[list[str]]:
    """Rows of the tables in a Markdown text, without heads and rules."""
    lines = markdown.splitlines()
    rows = [[c.strip() for c in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    rules = [i for i, row in enumerate(rows) if set(row) <= {"---", "| ---"} or row[0].strip("| -") == ""]
    return [row for i, row in enumerate(rows) if i not in rules and i + 1 not in rules]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    result = Project(tmp_path_factory.mktemp("review"), PYTHONPATH=str(ROOT))
    for name, text in {
        "evaluate.py": SCRIPT,
        "dvc.yaml": DVC_YAML,
        "params.yaml": PARAMS.replace("k_eval: 256", "k_eval: 5"),
        "params.yaml.note": "1",
        ".gitignore": "/dvc_plots\n",
    }.items():
        (result.folder / name).write_text(text)
    shutil.copy(ROOT / "datasets.yaml", result.folder)
    shutil.copytree(ROOT / "presets", result.folder / "presets")
    result("dvc", "repro")
    result.commit("first")
    result("git", "switch", "-q", "-c", "change")
    (result.folder / "params.yaml").write_text(
        PARAMS.replace("k_eval: 256", "k_eval: 20").replace("tune: {}", "tune: {ks: [5]}")
    )
    result("dvc", "repro")
    result.commit("k_eval 20")
    return result


@pytest.fixture(scope="module")
def text(project: Project) -> str:
    done = project.review()
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_branch_compared_with_main(project: Project, text: str) -> None:
    """NLL falls from .45 to .30, outside .30 ± .01; ECE from .1005 to .1020, inside; accuracy stays."""
    assert text.startswith("# Review against `main`")
    assert "**Up to date**" in part(text, "Lock")
    assert cells(part(text, "Params")) == [["`k_eval`", "5", "20"], ["`tune.ks`", "–", "`[5]`"]]
    assert cells(part(text, "Stages that reran")) == [["`evaluate`", "`k_eval`"]]
    metrics = part(text, "Metrics")
    assert [row[2:] for row in cells(metrics) if row[:2] == ["iris", "42"]] == [
        ["attention", "nll", "0.4500", "0.3000", "-0.1500", "0.2900 … 0.3100", "⚠"],
        ["attention", "ece", "0.1005", "0.1020", "+0.0015", "0.0920 … 0.1120", ""],
    ]
    assert "1 other values changed: `iris 42 tuned distance k` 5 → 20. New: 1 in `iris/42/evaluate`." in metrics
    assert "Gone" not in metrics
    assert part(text, "Plots").strip() == "![intervals-iris-42](dvc_plots/intervals-iris-42.png)"
    assert (project.folder / "dvc_plots/intervals-iris-42.png").read_bytes().startswith(b"\x89PNG")
    same = project.review("--base", "HEAD").stdout
    assert [part(same, title).strip() for title in ("Params", "Metrics", "Plots", "Stages that reran")] == ["None."] * 4


CROPS = Tta().crops
SETTINGS: dict[str, dict[str, Any]] = {
    "params.yaml": {
        "datasets": ["digits", "iris"],
        "preset": "p",
        "k_eval": 5,
        "train_embedder": {"encoder": "resnet18", "lr": 0.1},
        "tta": {},
    },
    "datasets.yaml": {"digits": {"tta": {}}, "iris": {"train_embedder": {"encoder": "mlp"}}, "wine": {"tta": {}}},
    "presets/p.yaml": {"k_eval": 7, "train_embedder": {}},
    "presets/q.yaml": {"k_eval": None, "train_embedder": {}},
}


def edited(dotted: str, value: Any) -> review.Files:
    """SETTINGS with one value changed, or removed if it is `...`."""
    result = copy.deepcopy(SETTINGS)
    path, _, keys = dotted.rpartition(":")
    block: Any = result[path or "params.yaml"]
    *above, last = keys.split(".")
    for key in above:
        block = block.setdefault(key, {})
    block.pop(last, None)
    if value is not ...:
        block[last] = value
    return result


@pytest.mark.parametrize("swapped", [False, True], ids=["added or changed", "removed or changed back"])
@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        ("k_eval", 6, "on digits (stays 7), iris (stays 7)"),
        ("k_eval", ..., "on digits (stays 7), iris (stays 7)"),
        ("train_embedder.encoder", "convnet", "on iris (stays mlp)"),
        ("train_embedder.encoder", ..., "on iris (stays mlp)"),
        ("train_embedder.lr", 0.2, ""),
        ("tta.crops", CROPS, f"on digits (stays {CROPS}), iris (stays {CROPS})"),
        ("tta.crops", CROPS + 1, ""),
        ("train_embedder.unknown", None, ""),
        ("seeds", [1], ""),
        ("datasets.yaml:digits.tta.crops", CROPS + 1, ""),
        ("datasets.yaml:digits.tta.crops", CROPS, f"on digits (stays {CROPS})"),
        ("datasets.yaml:digits.source", {"kind": "sklearn"}, ""),
        ("datasets.yaml:wine.tta.crops", 2, "wine: it is not among datasets"),
        ("presets/p.yaml:k_eval", 8, ""),
        ("presets/p.yaml:k_train", None, ""),
        ("presets/p.yaml:train_embedder.mlp.lr", 0.3, "on digits (stays 0.1)"),
        ("presets/q.yaml:k_eval", 8, "it is not the preset"),
    ],
)
def test_changed_settings_without_effect_are_named(key: str, value: Any, note: str, swapped: bool) -> None:
    """The preset hides k_eval on all datasets, iris its encoder; wine does not run, preset q is not chosen."""
    sides = [SETTINGS, edited(key, value)]
    text = review.params(*(reversed(sides) if swapped else sides))
    assert cells(text)[0][0].startswith(f"`{key}")
    notes = [line for line in text.splitlines() if line.startswith("⚠")]
    expected = {
        "wine: it is not among datasets": "⚠ `datasets.yaml:wine` has no effect: it is not among datasets.",
        "it is not the preset": "⚠ `presets/q.yaml` has no effect: it is not the preset.",
    }
    assert notes == ([expected.get(note, f"⚠ `{key}` has no effect {note}.")] if note else [])


def test_files_of_settings_that_are_new_or_gone() -> None:
    old = {path: text for path, text in SETTINGS.items() if path != "presets/q.yaml"}
    assert cells(review.params(old, SETTINGS)) == [["`presets/q.yaml`", "–", "a new file"]]
    assert cells(review.params(SETTINGS, old)) == [["`presets/q.yaml`", "a file", "–"]]
    assert review.params(SETTINGS, SETTINGS) == "None."
    new = copy.deepcopy(SETTINGS)
    new["params.yaml"]["datasets"].append("wine")
    new["datasets.yaml"]["wine"]["tta"]["crops"] = CROPS
    assert "⚠" not in review.params(SETTINGS, new), "wine did not run before"


def test_many_changes_are_counted_beyond_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2 datasets: 240 scores, 24 values of the summary and 40 others; 40 stages with three causes."""
    keys = [(d, "42", "evaluate", f"m{i}", f"s{j}") for d in ("a", "b") for i in range(20) for j in range(6)]
    keys += [("summary", d, f"m{i}", f"s{j}") for d in ("a", "b") for i in range(4) for j in range(3)]
    keys += [(d, "42", "tuned", f"m{i}") for d in ("a", "b") for i in range(20)]
    sides = [{key: start + i / 1000 * start for i, key in enumerate(keys)} for start in (1.0, 2.0)]
    monkeypatch.setattr(review, "metric_values", lambda base: sides[0] if base else sides[1])
    monkeypatch.setattr(review, "interval", lambda key: (0.0, 9.0) if key[3] != "m3" else (2.0, 9.0))
    text = review.metrics("main", Locks({}, {}, {}, {}))
    rows = cells(text)
    assert [row[0] for row in rows[:8]] == [f"{d} m{i}" for d in ("a", "b") for i in range(4)]
    assert rows[0][1] == "s0 1.24 → 2.48, s1 1.241 → 2.482, s2 1.242 → 2.484"
    assert [row[2] for row in rows[8:14]] == ["m3"] * 6
    assert rows[14] == ["… and 234 more"]
    assert "240 scores changed; 12 old values are outside" in text
    assert "40 other values changed: `b 42 tuned m19` 1.303 → 2.606, " in text
    old = {f"noise@d-{i}": entry(f"n{i}") for i in range(40)}
    new = {name: entry(f"n{i}", code=f"c{2 + i % 3}", k=i % 3) for i, name in enumerate(old)}
    stages = review.reran(Locks(old, new, {}, {}))
    assert len(text.splitlines()) + len(stages.splitlines()) <= 33
    assert cells(stages)[0][0] == "`noise@d-0`, `noise@d-1`, `noise@d-2`, `noise@d-3` …"


def test_rounding_is_counted_and_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed by more is listed with the digits that show it."""
    values = {"ece": 0.1 + 0.2, "nll": 0.3}, {"ece": 0.3, "nll": 0.300001234}
    old, new = ({("iris", "42", "evaluate", "attention", name): v for name, v in scores.items()} for scores in values)
    monkeypatch.setattr(review, "metric_values", lambda base: old if base else new)
    text = review.metrics("main", Locks({}, {}, {}, {}))
    assert [row[3] for row in cells(text) if row[0] == "iris"] == ["nll"]
    assert "| 0.3000000 | 0.3000012 | +0.0000012 |" in text
    assert review.change_text(0.029261, 0.029259) == "0.029261 → 0.029259"
    assert review.change_text(5, 20) == "5 → 20"
    assert "Changed by rounding only, less than 1e-09 of the value: 1." in text


def test_a_stale_lock_and_results_that_git_does_not_hold_exit_with_1(project: Project) -> None:
    """Results count even if git ignores them: a stage that depends on the folder counts them. Drafts are ignored."""
    (project.folder / "evaluate.py").write_text(SCRIPT + "# changed\n")
    done = project.review()
    project("git", "checkout", "-q", ".")
    assert (done.returncode, done.stdout.count("\n## ")) == (1, 5)
    assert "**Not up to date**: at least 1 would rerun: `evaluate`. Changed: `evaluate.py`. Run" in done.stdout
    names = ("plots/intervals/wine-42.csv", "metrics/ignored.json", "plots/.a.draft")
    (project.folder / ".git/info/exclude").write_text("ignored.json\n")
    (project.folder / ".dvcignore").write_text(".*.draft\n")
    for name in names:
        (project.folder / name).write_text("{}")
    done = project.review()
    for name in names:
        (project.folder / name).unlink()
    project("git", "checkout", "-q", ".dvcignore")
    assert done.returncode == 1
    message = f"**Not up to date in a clone**: not in git: 2 files, `{names[1]}`, `{names[0]}`. Add or remove them."
    assert part(done.stdout, "Lock").strip() == message


@pytest.mark.parametrize(
    ("path", "edit", "message"),
    [
        ("params.yaml", ("k_eval: 20", "k_eval: 21"), "1 would rerun: `evaluate`. Changed: `k_eval`. Run"),
        ("params.yaml.note", ("1", "2"), "1 would rerun: `other`. Changed: `params.yaml.note`. Run"),
        ("evaluate.py", ("import json", ""), "1 would rerun: `evaluate`. Changed: `evaluate.py`. Run"),
        ("evaluate.py", None, "1 would rerun: `evaluate`. Changed: `evaluate.py`. Run"),
        ("dvc.yaml", ("> other", ">other"), "1 would rerun: `other`. Changed: `its command`. Run"),
        ("metrics/iris/42/evaluate.json", ("0.9", "0.95"), f"1 would rerun: `evaluate`. {EDITED}"),
        ("metrics/iris/42/evaluate.json", None, f"1 would rerun: `evaluate`. {EDITED}"),
        ("dvc.lock", (OTHER, f"{OTHER}0"), "1 would rerun: `evaluate`. Changed: `other.txt`. Run"),
    ],
)
def test_what_is_stale_in_a_clone_without_data(
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    edit: tuple[str, str] | None,
    message: str,
) -> None:
    """Edited or removed (None) files; the lock's case is one merged from two, whose stages read each other's data."""
    clone = tmp_path / "clone"
    project("git", "clone", "-q", "--branch", "change", str(project.folder), str(clone))
    monkeypatch.chdir(clone)
    assert review.lock_status() == (True, "**Up to date**: dvc.lock fits code, params and data.")
    file = clone / path
    if edit:
        file.write_text(file.read_text().replace(*edit, 1))
    else:
        file.unlink()
    assert review.lock_status()[1].startswith(f"**Not up to date**: at least {message}")
    if edit and path.startswith("metrics/"):
        locks = Locks(review.lock_stages("HEAD"), review.lock_stages(None), {}, {})
        assert "| 0.9000 | 0.9500 | +0.0500 |" in review.metrics("HEAD", locks), "an edit that no stage explains"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy without git")
def test_the_lock_is_up_to_date_in_a_clone_of_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make review` sees it in the workflow: without DVC's cache and without files that git does not hold."""
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True)
    monkeypatch.chdir(tmp_path / "clone")
    assert review.lock_status() == (True, "**Up to date**: dvc.lock fits code, params and data.")


def test_nothing_to_compare_with_is_one_line(project: Project, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    project("git", "clone", "-q", "--branch", "main", str(project.folder), str(clone))
    another = "fetch it, or name another with --base REVISION (make review BASE=REVISION)"
    for options, cwd, message in (
        (["--base", "nope"], None, f"nope: no such revision here; {another}\n"),
        ([], clone, "HEAD~1: no such revision"),  # on main the base is the commit before
        ([], tmp_path, f"{tmp_path}: not in a git repository"),
    ):
        done = project.review(*options, cwd=cwd)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("path", "content", "base_is_read"),
    [
        ("params.yaml", PARAMS.encode("utf-16"), False),
        ("params.yaml", PARAMS.replace(DATASETS, "[[a]]").encode(), True),
        ("datasets.yaml", b"digits: 5", True),
    ],
)
def test_invalid_settings_are_one_line(
    project: Project, tmp_path: Path, path: str, content: bytes, base_is_read: bool
) -> None:
    clone = tmp_path / "clone"
    project("git", "clone", "-q", "--branch", "change", str(project.folder), str(clone))
    (clone / path).write_bytes(content)
    done = project.review("--base", "HEAD", cwd=clone)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {path}: ")
    project("git", "-C", str(clone), "commit", "-qam", "bad")
    project("git", "-C", str(clone), "checkout", "-q", "HEAD~1", "--", path)
    done = project.review("--base", "HEAD", cwd=clone)
    if base_is_read:
        assert (done.returncode, done.stdout.count("\n## ")) == (0, 5), done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"error: HEAD:{path}: damaged: ")


def entry(name: str, code: str = "c1", deps: str = "", outs: str = "o1", **params: object) -> dict[str, object]:
    """A lock entry whose output is a metrics file of that name; `deps` is another stage's name and its checksum."""
    stage, _, md5 = deps.partition(" ")
    paths = {"code.py": code} | ({f"metrics/iris/42/{stage}.json": md5} if deps else {})
    return {
        "cmd": "x",
        "deps": [{"path": path, "md5": md5} for path, md5 in paths.items()],
        "outs": [{"path": f"metrics/iris/42/{name}.json", "md5": outs}],
        "params": {"params.yaml": params},
    }


def test_other_timings_are_left_out_and_other_bytes_of_other_stages_listed() -> None:
    names = ("evaluate@iris-42", "profile@iris-42", "profile@digits-42")
    old = {name: entry(name) for name in names}
    new = {names[0]: entry(names[0], outs="o2"), names[1]: entry(names[1], outs="o2"), names[2]: entry(names[2], "c2")}
    causes = {row[0]: row[1] for row in cells(review.reran(Locks(old, new, {}, {})))}
    assert causes == {"`evaluate@iris-42`": OTHER_BYTES, "`profile@digits-42`": "`code.py`"}


def run_of(lr: float, effective: float, machine: str, code: str) -> dict[str, dict[str, object]]:
    """Locks of a head fitted on an encoder's output, its evaluation, and another stage of that encoder."""
    embedder, head = f"train_embedder {machine}", f"train_attention {machine}-{effective}"
    return {
        "train_embedder@iris-42": entry("train_embedder", outs=machine),
        "train_attention@iris-42": entry(
            "train_attention", deps=embedder, outs=head.split()[1], train_attention={"lr": lr}
        ),
        "evaluate@iris-42": entry("evaluate", deps=head, outs=head.split()[1]),
        "noise@iris-42": entry("noise", code, deps=embedder, outs=machine + code),
    }


@pytest.mark.parametrize(
    ("lr", "effective", "machine", "code", "reached", "unexplained"),
    [
        (0.02, 0.003, "a", "c1", [], []),  # the dataset overrides the setting
        (0.02, 0.02, "a", "c1", ["train_attention", "evaluate"], []),
        (0.02, 0.003, "b", "c1", [], ["train_embedder"]),
        (0.02, 0.003, "b", "c2", ["noise"], ["train_embedder"]),
    ],
)
def test_what_a_change_reaches_and_what_another_machine_moved(
    lr: float, effective: float, machine: str, code: str, reached: list[str], unexplained: list[str]
) -> None:
    sides = [{"iris": {"train_attention": {"lr": value}}} for value in (0.003, effective)]
    locks = Locks(run_of(0.01, 0.003, "a", "c1"), run_of(lr, effective, machine, code), *sides)
    assert locks.reached == {f"{name}@iris-42" for name in reached}
    assert locks.unexplained == [f"{name}@iris-42" for name in unexplained]
    text = locks.describe("train_attention@iris-42")
    assert text.endswith("`train_attention.lr`" if effective == 0.02 else "`train_attention.lr` (no effect)")


def test_values_that_another_machine_moved_are_counted_and_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of `noise` changed and the encoder gave other bytes: none of evaluate's scores is listed."""
    locks = Locks(run_of(0.01, 0.003, "a", "c1"), run_of(0.01, 0.003, "b", "c2"), {}, {})
    keys = [("iris", "42", name, "attention", "nll") for name in ("evaluate", "noise")]
    sides = [dict.fromkeys([*keys, ("summary", "iris", "attention", "nll")], v) for v in (0.3, 0.4)]
    monkeypatch.setattr(review, "metric_values", lambda base: sides[0] if base else sides[1])
    text = review.metrics("main", locks)
    assert "1 stages gave other bytes from the same code, settings and inputs, e.g. `train_embedder@iris-42`" in text
    assert "2 values differ by this alone and are left out" in text
    assert text.endswith("\n1 other values changed: `iris 42 noise attention nll` 0.3 → 0.4.")
    assert not cells(text)
    assert "rounding" not in text
