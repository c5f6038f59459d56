"""The pipeline as people run it: dvc in a small copy of the project."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from stages.params import read_params

from attnknn.core.artifacts import Embeddings, Split
from attnknn.encoder.crossfit import fold_splits
from attnknn.encoder.encoder import embed
from import_closure import ROOT
from stages.train_embedder import train

QUICK = {
    "datasets": ["mine"],
    "train_embedder": {"epochs": 3},
    "train_attention": {"epochs": 5},
    "evaluate": {"resamples": 1000},
    "k_sweep": {"ks": [1, 5], "resamples": 100},
    "noise": {"kinds": ["symmetric"], "rates": [0.3], "repeats": 1},
    "imbalance": {"kinds": ["step"], "ratios": [0.1], "repeats": 1},
    "hard": {"repeats": 1},
    "explain": {"cases": 1},
    "profile": {"repeats": 1, "singles": 10, "resamples": 100},
    "peers": {"tries": 1},
    "splits": {"count": 2},
    "theory": {"resamples": 100},
    "ablation": {"repeats": 1, "resamples": 100},
}
# What never runs again because a number of neighbours or a condition changed: all that trains an encoder, embeds or
# searches.
UPSTREAM = {"prepare", "train_embedder", "embed", "build_index", "search", "crossfit", "views", "train_cnn"}
UPSTREAM |= {"train_attention", "train_peers", "train_splits", "train_field", "finetune_field", "field_latents"}

TRAINS = {"train_embedder", "crossfit", "train_cnn", "train_splits"}
OTHERS = {"train_splits", "grow", "probe"}  # which search anew
JUDGED = {
    "evaluate",
    "noise",
    "imbalance",
    "ablation",
    "k_sweep",
    "tta",
    "ensemble",
    "ensemble_seeds",
    "hard",
    "explain",
}
JUDGED |= {"profile", "splits", "grow", "probe"}


def a_table(n: int = 170) -> str:
    """A user's file: ids, text, missing values, a column of one value, and a class of 14 rows."""
    rng = np.random.default_rng(0)
    fate = np.repeat(["kept", "sent back", "lost"], [90, n - 104, 14])
    towns = rng.choice(["Bonn", "Paris", "São Paulo", ""], n)
    weight = np.where(rng.random(n) < 0.1, "", (rng.gamma(2.0, 3.0, n) + 5 * (fate == "lost")).round(2).astype(str))
    colour = np.where(fate == "kept", "red", rng.choice(["red", "blue"], n))
    rows = [
        f"A-{i:04d},{i},{t},{w},{c},EUR,{f}"
        for i, (t, w, c, f) in enumerate(zip(towns, weight, colour, fate, strict=True))
    ]
    return "\n".join(["parcel,row,town,weight,colour,currency,fate", *rng.permutation(rows)]) + "\n"


class Project:
    """A git and DVC repository that holds the project's code and quick params."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = str(Path(sys.executable).parent)
        self.env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        for name in ("attnknn", "stages", "presets"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("dvc.yaml", "params.yaml", ".gitignore", ".dvcignore"):
            shutil.copy(ROOT / name, folder / name)
        params = self.params()
        for key, value in QUICK.items():
            params[key] = {**params[key], **value} if isinstance(value, dict) else value
        (folder / "mine.csv").write_text(a_table())
        params["sources"]["mine"] = {"kind": "csv", "train": {"path": "mine.csv"}, "target": "fate"}
        params["overrides"]["mine"] = {block: {} for block in params["overrides"]["iris"]} | {
            "train_embedder": {"encoder": "mlp", "widths": [32], "embed_dim": 8, "epochs": 3, "batch_size": 32},
            "train_attention": {"batch_size": 64},
            "crossfit": {"folds": 3},
        }
        self.write(params)
        self("git", "init", "-q", "-b", "main")
        self("dvc", "init", "-q")
        self("dvc", "config", "core.analytics", "false")
        self.commit("start")

    def params(self) -> dict:
        return yaml.safe_load((self.folder / "params.yaml").read_text())

    def write(self, params: dict) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))

    def commit(self, message: str) -> None:
        self("git", "add", "-A")
        self("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", message)

    def __call__(self, *command: str, ok: bool = True) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=1200)
        assert (done.returncode == 0) == ok, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def would_run(self) -> set[str]:
        """Names of the stages that `dvc repro` would run now."""
        return set(re.findall(r"Running stage '([a-z_]+)", self("dvc", "repro", "--dry")))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("project"))
    made("dvc", "repro")
    made.commit("run")
    return made


def test_a_table_of_ones_own_goes_the_whole_way_with_no_code(project: Project) -> None:
    """What of a user's file the split says, and that the report is about it."""
    split = Split.load(project.folder / "data/split/mine/42")
    assert split.classes == ("kept", "lost", "sent back")
    assert np.bincount(split.y).tolist() == [90, 14, 66]
    assert sorted(split.schema["ids"]) == ["parcel", "row"]
    assert any("town" in name for name in split.features)
    assert not any("parcel" in name for name in split.features)
    assert "mine" in (project.folder / "report/index.html").read_text()


def test_the_whole_way_then_nothing(project: Project) -> None:
    for out in ("metrics/mine/42/evaluate.json", "plots/selective/mine-42.csv", "report/tables/claims.tex"):
        assert (project.folder / out).stat().st_size > 0
    assert "Data and pipelines are up to date." in project("dvc", "repro")
    assert "up to date" in project("dvc", "status")
    assert not (project.folder / "data/resume").exists() or not list((project.folder / "data/resume").iterdir())
    assert project("git", "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("attnknn/evaluation/metrics.py", JUDGED | {"selective", "theory", "field_report", "report"}),
        ("attnknn/experiments/ablation.py", {"ablation"}),
        ("attnknn/experiments/corruption.py", {"noise", "imbalance"}),
        ("attnknn/neighbours/statistics.py", {"evidence", "crossfit", "noise", "imbalance", *OTHERS}),
        ("attnknn/data/fetch.py", {"download", "prepare", "train_splits"}),
        ("attnknn/data/read_csv.py", {"prepare", "train_splits"}),
        ("attnknn/encoder/losses.py", TRAINS),
        ("attnknn/encoder/encoder.py", TRAINS | {"embed", "views", "probe", "field_report"}),
        ("attnknn/neighbours/views.py", {"views", "tta"}),
        ("attnknn/heads/attention.py", (JUDGED - {"ensemble_seeds"}) | {"train_attention", "theory"}),
        (
            "attnknn/experiments/fields/perceiver.py",
            {"train_field", "finetune_field", "field_latents", "probe", "field_report"},
        ),
        ("attnknn/nn/optim.py", {"train_field", "finetune_field"}),
        ("attnknn/experiments/fields/probe.py", {"probe"}),
        ("attnknn/report/page.html", {"report"}),
        ("stages/params.py", set()),
    ],
)
def test_an_edit_invalidates_what_uses_it(project: Project, file: str, expected: set[str]) -> None:
    """What follows those stages reruns only if their outputs come out different."""
    path = project.folder / file
    before = path.read_text()
    path.write_text(before + "\n# a comment\n")
    try:
        assert project.would_run() == expected
    finally:
        path.write_text(before)


def test_each_fold_has_an_encoder_that_was_trained_on_its_own_split(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder)
    settings = read_params("mine", "train_embedder").train_embedder
    folds = fold_splits(Split.load(Path("data/split/mine/42")), 3, 42)
    for fold, split in enumerate(folds):
        made = Embeddings.load(Path(f"data/crossfit/mine/42/{fold}/embeddings"))
        np.testing.assert_array_equal(made.part, split.part)
        z = [embed(train(one, settings, 42, "cpu", "", None)[0], split.x, "cpu")[0] for one in (split, folds[fold - 1])]
        np.testing.assert_allclose(made.z, z[0], atol=1e-5)
        assert np.abs(made.z - z[1]).max() > 1e-3


def ran(out: str) -> set[str]:
    return set(re.findall(r"Running stage '([a-z_]+)", out))


def test_k_eval_trains_no_encoder_and_embeds_nothing_and_shows_in_diffs(project: Project) -> None:
    out = project("dvc", "exp", "run", "-S", "k_eval=20")
    found = ran(out)
    for name, of in json.loads((project.folder / "metrics/mine/42/tuned.json").read_text()).items():
        warned = f"{name}: best k on val is 20, the largest that k_eval allows; raise k_eval (stored: 73)" in out
        assert warned == (of.get("k") == 20)
    assert {"evaluate", "noise", "imbalance", "tta", "ensemble", "hard", "explain", "report"} <= found
    assert not found & UPSTREAM
    assert re.search(r"k_eval\s*\|\s*50\s*\|\s*20", project("dvc", "params", "diff", "--md"))
    assert "evaluate.json" in project("dvc", "metrics", "diff", "--md", "--all")
    project("git", "checkout", "-q", ".")
    project("dvc", "checkout", "-q")
    assert "up to date" in project("dvc", "status")


def test_other_rates_of_noise_run_the_noise_and_the_report_alone(project: Project) -> None:
    params = project.params()
    params["noise"]["rates"] = [0, 0.5]
    project.write(params)
    try:
        assert project.would_run() == {"check", "noise", "report"}
    finally:
        project("git", "checkout", "-q", ".")


def test_training_on_noise_is_asked_for_by_one_key(project: Project) -> None:
    def asked() -> set[str]:
        return {name for name in project("dvc", "stage", "list", "--name-only").split() if "noise" in name}

    assert asked() == {"noise@mine-42"}
    params = project.params()
    params["noise"]["train_seeds"] = [42]
    project.write(params)
    try:
        assert asked() == {"noise@mine-42", "train_noise@mine-42-0.4", "noise_trained@mine-42"}
    finally:
        project("git", "checkout", "-q", ".")


def test_a_preset_reaches_what_it_changes(project: Project) -> None:
    project.write({**project.params(), "preset": "experiment5"})
    try:
        found = project.would_run()
    finally:
        project("git", "checkout", "-q", ".")
    assert {"train_embedder", "build_index", "train_attention", "evaluate"} <= found
    assert not found & {"download", "prepare"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k_eval": 0}, "k_eval: 0 given"),
        ({"k_eval": "many"}, "k_eval: 'many' given"),
        ({"k_eval": 257}, "k_eval: 257 is above k_max: 256"),
        ({"k_eval": 90}, "k_eval: 90 is above the 73 neighbours stored"),
        ({"device": "cuda:7"}, "device: cuda:7 asked for"),
        ({"datasets": ["nope"]}, "datasets: nope has no entry in sources"),
    ],
)
def test_bad_params_stop_in_one_line_and_leave_results_alone(project: Project, change: dict, message: str) -> None:
    def results() -> dict[Path, bytes]:
        folders = ("metrics", "plots", "report", "models", "data/predictions", "data/neighbours")
        return {p: p.read_bytes() for f in folders for p in (project.folder / f).rglob("*") if p.is_file()}

    before = results()
    params = project.params()
    project.write({**params, **change})
    try:
        out = project("dvc", "repro", ok=False)
        assert "Traceback" not in out
        assert message in out, out
        # Only a stage that knows the bank can refuse as many neighbours; its outputs wait in git and in DVC's cache.
        lost = {path.relative_to(project.folder) for path in set(before) - set(results())}
        assert not lost or (change == {"k_eval": 90} and "stages.evaluate mine" in out)
        assert all(before[path] == now for path, now in results().items())
    finally:
        project("git", "checkout", "-q", ".")
        project("dvc", "checkout", "-q")
    assert results() == before


def test_sigkill_half_way_then_the_same_bytes(project: Project, tmp_path: Path) -> None:
    params = project.params()
    params["overrides"]["mine"]["train_embedder"] |= {"epochs": 60}
    project.write(params)
    state = tmp_path / "state.safetensors"

    def command(out: Path) -> list[str]:
        split = "data/split/mine/42"
        files = [str(state), str(out), str(out.with_suffix(".json")), str(out.with_suffix(".csv"))]
        return ["python", "-m", "stages.train_embedder", "mine", "42", split, *files]

    try:
        project(*command(tmp_path / "whole"))
        assert not state.exists()
        running = subprocess.Popen(command(tmp_path / "killed"), cwd=project.folder, env=project.env, stderr=-3)
        deadline = time.monotonic() + 60
        while not state.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, "it ended before it could be killed"
        assert state.exists()
        assert not (tmp_path / "killed").exists()
        project(*command(tmp_path / "killed"))
    finally:
        project("git", "checkout", "-q", ".")
    for name in ("weights.safetensors", "config.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
