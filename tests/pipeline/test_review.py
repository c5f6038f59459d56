"""`make review` in a small git and DVC project: two branches, one changed setting."""

import subprocess
import sys
from pathlib import Path

import pytest
from repository import Repository

from import_closure import ROOT
from tools import review

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
    text = review.metrics("main")
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


def test_the_same_revision_shows_nothing(project: Project) -> None:
    done = project.review("--base", "HEAD")
    assert [part(done.stdout, title).strip() for title in ("Params", "Metrics", "Stages that reran")] == ["None."] * 3


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


def test_other_timings_are_left_out_and_other_bytes_of_other_stages_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "  {}: {{cmd: x, deps: [{{path: code.py, md5: {}}}], outs: [{{path: out, md5: {}}}]}}\n"
    names = ("evaluate@iris-42", "profile@iris-42", "profile@digits-42")

    def lock(*md5s: tuple[str, str]) -> str:
        return "stages:\n" + "".join(entry.format(name, *md5) for name, md5 in zip(names, md5s, strict=True))

    old, new = lock(*[("a1", "b1")] * 3), lock(("a1", "b2"), ("a1", "b2"), ("a2", "b2"))
    monkeypatch.setattr(review, "read", lambda base, _: old if base else new)
    causes = {row[0]: row[1] for row in cells(review.reran("main"))}
    assert causes == {"`evaluate@iris-42`": review.OTHER_BYTES, "`profile@digits-42`": "`code.py`"}
