"""`make review` in a small git and DVC project: two branches, one changed setting."""

import subprocess
import sys
from pathlib import Path

import pytest
from repository import Repository

from import_closure import ROOT
from tools import review
from tools.lock import OTHER_BYTES, Locks

SCRIPT = """\
import json, pathlib, yaml
k = yaml.safe_load(open("params.yaml"))["k"]
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
    deps: [evaluate.py]
    params: [k]
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
        "params.yaml": "k: 5\nunused: a|b\n",
        "params.yaml.note": "1",
        ".gitignore": "/dvc_plots\n",
    }.items():
        (result.folder / name).write_text(text)
    result("dvc", "repro")
    result.commit("first")
    result("git", "switch", "-q", "-c", "change")
    (result.folder / "params.yaml").write_text("k: 20\nunused: a|b\nadded: 1\n")
    result("dvc", "repro")
    result.commit("k 20")
    return result


@pytest.fixture(scope="module")
def text(project: Project) -> str:
    done = project.review()
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lock_changed_params_and_stages_of_a_branch_compared_with_main(text: str) -> None:
    assert text.startswith("# Review against `main`")
    assert "**Up to date**" in part(text, "Lock")
    assert cells(part(text, "Params")) == [["`k`", "5", "20"], ["`added`", "–", "1"]]
    assert cells(part(text, "Stages that reran")) == [["`evaluate`", "`k`"]]


def test_a_changed_plot_is_drawn_as_a_picture_that_needs_no_network(project: Project, text: str) -> None:
    assert part(text, "Plots").strip() == "![intervals-iris-42](dvc_plots/intervals-iris-42.png)"
    assert (project.folder / "dvc_plots/intervals-iris-42.png").read_bytes().startswith(b"\x89PNG")


PRESET = "k: {}\nunset: null\ntrain_embedder: {{epochs: 9, mlp: {{epochs: {}}}}}\n"
SETTINGS = """\
datasets: [digits, iris]
preset: {}
k: {}
unset: 1
train_embedder: {{encoder: convnet, epochs: 5}}
"""
DATASETS = {"datasets.yaml": "digits: {}\niris: {train_embedder: {encoder: mlp}}\n"}


def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: dict[str, str], new: dict[str, str]) -> str:
    """Output of `params` for two sets of files."""
    old, new = DATASETS | old, DATASETS | new
    for path, text in new.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(review, "git", lambda *command, **_: "\0".join(p for p in old if p.startswith(command[-1])))
    monkeypatch.setattr(review, "read", lambda base, path: (old if base else new).get(path, ""))
    return review.params("main")


def test_an_edited_preset_is_listed_without_effect_unless_it_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"params.yaml": SETTINGS.format("none", 5), "presets/p.yaml": PRESET.format(7, 3)}
    new = old | {"presets/p.yaml": PRESET.format(8, 3), "presets/q.yaml": PRESET.format(1, 1)}
    text = shown(tmp_path, monkeypatch, old, new)
    assert cells(text) == [["`presets/p.yaml:k`", "7", "8"], ["`presets/q.yaml`", "–", "a new file"]]
    assert "In effect" not in text


def test_a_chosen_preset_is_listed_with_its_effect_on_each_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`k` of params.yaml moves and is hidden by the preset; the block `mlp` holds for the dataset of an mlp alone."""
    old = {"params.yaml": SETTINGS.format("none", 5), "presets/p.yaml": PRESET.format(7, 3)}
    chosen = {"params.yaml": SETTINGS.format("p", 6), "presets/p.yaml": PRESET.format(7, 3)}
    before, after = shown(tmp_path, monkeypatch, old, chosen).split("In effect, with the preset (none → p):")
    assert cells(before) == [["`preset`", "`none`", "`p`"], ["`k`", "5", "6"]]
    assert cells(after) == [
        ["`k`", "digits, iris", "5", "7"],
        ["`train_embedder.epochs`", "digits", "5", "9"],
        ["`train_embedder.epochs`", "iris", "5", "3"],
    ]
    edited = chosen | {"params.yaml": SETTINGS.format("p", 9), "presets/p.yaml": PRESET.format(7, 4)}
    before, after = shown(tmp_path, monkeypatch, chosen, edited).split("In effect, with the preset (p):")
    assert cells(before) == [["`k`", "6", "9"], ["`presets/p.yaml:train_embedder.mlp.epochs`", "3", "4"]]
    assert cells(after) == [["`train_embedder.epochs`", "iris", "3", "4"]]


def test_scores_are_sorted_by_change_and_other_values_and_new_ones_listed_apart(text: str) -> None:
    """NLL falls from .45 to .30, outside .30 ± .01; ECE from .1005 to .1020, inside; accuracy stays."""
    metrics = part(text, "Metrics")
    assert [row[2:] for row in cells(metrics) if row[:2] == ["iris", "42"]] == [
        ["attention", "nll", "0.4500", "0.3000", "-0.1500", "0.2900 … 0.3100", "⚠"],
        ["attention", "ece", "0.1005", "0.1020", "+0.0015", "0.0920 … 0.1120", ""],
    ]
    assert "| `iris 42 tuned distance k` | 5 | 20 | +15 |" in metrics
    assert "New: 1 in `iris/42/evaluate`." in metrics
    assert "Gone" not in metrics


def test_rounding_is_counted_and_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"ece": 0.1 + 0.2, "nll": 0.3}, {"ece": 0.3, "nll": 0.3003}
    old, new = ({("iris", "42", "evaluate", "attention", name): v for name, v in scores.items()} for scores in values)
    monkeypatch.setattr(review, "metric_values", lambda base: old if base else new)
    text = review.metrics("main", Locks({}, {}, {}, {}))
    assert [row[3] for row in cells(text) if row[0] == "iris"] == ["nll"]
    assert "Changed by rounding only, less than 1e-09 of the value: 1." in text


def test_a_stale_lock_exits_with_1_and_shows_all_parts(project: Project) -> None:
    script = project.folder / "evaluate.py"
    script.write_text(SCRIPT + "# changed\n")
    try:
        done = project.review()
    finally:
        script.write_text(SCRIPT)
    assert done.returncode == 1
    assert "**Not up to date**: 1 would rerun: `evaluate`" in done.stdout
    assert "## Stages that reran" in done.stdout


def test_results_that_git_does_not_hold_make_the_lock_stale_in_a_clone(project: Project) -> None:
    """Even if git ignores them: a stage that depends on the folder counts them. Drafts are in .dvcignore."""
    names = ("plots/intervals/wine-42.csv", "metrics/ignored.json", "plots/.a.draft")
    (project.folder / ".git/info/exclude").write_text("ignored.json\n")
    (project.folder / ".dvcignore").write_text(".*.draft\n")
    for name in names:
        (project.folder / name).write_text("{}")
    try:
        done = project.review()
    finally:
        for name in names:
            (project.folder / name).unlink()
        project("git", "checkout", "-q", ".dvcignore")
    assert done.returncode == 1
    message = f"**Not up to date in a clone**: not in git: 2 files, `{names[1]}`, `{names[0]}`. Add or remove them."
    assert part(done.stdout, "Lock").strip() == message


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy without git")
def test_the_lock_is_up_to_date_in_a_clone_of_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make review` sees it in the workflow: without DVC's cache and without files that git does not hold."""
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True)
    monkeypatch.chdir(tmp_path / "clone")
    assert review.lock_status() == (True, "**Up to date**: dvc.lock fits code, params and data.")


def test_the_same_revision_shows_nothing(project: Project) -> None:
    done = project.review("--base", "HEAD")
    assert [part(done.stdout, title).strip() for title in ("Params", "Metrics", "Plots", "Stages that reran")] == [
        "None."
    ] * 4


def test_nothing_to_compare_with_is_one_line(project: Project, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    project("git", "clone", "-q", "--branch", "main", str(project.folder), str(clone))
    another = "name another with --base REVISION (make review BASE=REVISION)"
    for options, cwd, message in (
        (["--base", "nope"], None, f"nope: no such revision here; {another}\n"),
        ([], clone, "HEAD~1: no such revision"),  # on main the base is the commit before
        ([], tmp_path, f"{tmp_path}: not in a git repository"),
    ):
        done = project.review(*options, cwd=cwd)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("branch", "base", "hint"),
    [("change", "main", "git fetch --depth=1 origin main:main"), ("main", "HEAD~1", "git fetch --deepen=1")],
)
def test_a_shallow_clone_gets_a_hint_that_works(
    project: Project, tmp_path: Path, branch: str, base: str, hint: str
) -> None:
    clone = tmp_path / "clone"
    project("git", "clone", "-q", "--depth", "1", "--branch", "change", f"file://{project.folder}", str(clone))
    project("git", "-C", str(clone), "branch", "-q", "-m", branch)
    done = project.review(cwd=clone)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith(f": {hint}\n")
    project.run(*hint.split(), cwd=clone)
    done = project.review(cwd=clone)
    assert f"# Review against `{base}`" in done.stdout
    assert cells(part(done.stdout, "Stages that reran")) == [["`evaluate`", "`k`"]]
    # Cached outputs are not in a fresh clone; that alone makes nothing stale.
    assert (done.returncode, "**Up to date**" in done.stdout) == (0, True)


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
    assert [row[0] for row in cells(text)] == ["`iris 42 noise attention nll`"]
    assert "rounding" not in text


def test_another_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "plots/profile_about/iris-42.csv"
    lock = {"profile@iris-42": {"outs": [{"path": table, "md5": "a"}]}}
    names = {"main": "AMD", None: "Intel"}
    monkeypatch.setattr(review, "read", lambda base, path: f"quantity,value\nprocessor,{names[base]}\nload,{base}\n")
    assert review.another_machine("main", Locks(lock, lock, {}, {})) == "processor `AMD` → `Intel`"


def test_a_setting_that_datasets_override_is_said_to_have_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"params.yaml": SETTINGS.format("none", 5), "presets/none.yaml": "k: null\n"}
    for encoder in ("encoder: resnet18, ", ""):  # another, and none
        new = {"params.yaml": old["params.yaml"].replace("encoder: convnet, ", encoder)}
        text = shown(tmp_path, monkeypatch, old, old | new)
        assert "⚠ train_embedder.encoder has no effect on iris: datasets.yaml or the preset overrides it." in text
        assert "digits" not in text
    new = {"datasets.yaml": DATASETS["datasets.yaml"] + "wine: {k: 3}\n"}
    assert "⚠ datasets.yaml: wine is not among datasets, no effect." in shown(tmp_path, monkeypatch, old, old | new)
