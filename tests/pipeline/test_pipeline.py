"""The pipeline as people run it: dvc in a small copy of the project."""

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from kills import kill_runs
from repository import Repository

from attnknn.core.artifacts import VAL, Embeddings, Split
from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from attnknn.encoder.crossfit import fold_splits
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.fit import fit_and_embed
from import_closure import ROOT
from pipeline.run import Run
from pipeline.settings import OVERRIDES, Params
from stages.download import download
from stages.noise import noise
from stages.prepare import prepare
from stages.train_embedder import train_embedder

QUICK = {
    "datasets": ["mine"],
    "threads": 1,  # so that no stage starts processes of its own
    "train_embedder": {"epochs": 3},
    "train_attention": {"epochs": 5},
    "evaluate": {"resamples": 200},
    "k_sweep": {"ks": [1, 5], "resamples": 100},
    "noise": {"kinds": ["symmetric"], "rates": [0.3], "repeats": 1},
    "audit": {"kinds": ["symmetric"], "rates": [0.3], "repeats": 1},
    "new_classes": {"rows": [1], "repeats": 1},
    "novelty": {"repeats": 1},
    "drift": {"labels": [5], "repeats": 1},
    "imbalance": {"kinds": ["step"], "ratios": [0.1], "repeats": 1},
    "profile": {"repeats": 1, "singles": 10, "resamples": 100},
    "peers": {"tries": 1, "methods": ["raw-uniform", "logistic"]},
    "splits": {"datasets": ["mine"], "count": 2},
    "theory": {"resamples": 100},
    "ablation": {"repeats": 1, "resamples": 100},
}
TRAINS = {"train_embedder", "train_ablation", "train_corrupted", "train_splits"}
UNSEEN = {"new_classes", "novelty", "drift"}  # use encoder and classifier on rows unlike those of training
# What reads the predictions of heads and baselines.
JUDGED = {
    "evaluate", "noise", "audit", "new_classes", "novelty", "drift", "imbalance",
    "ablation", "encoder_ablation", "finetune", "k_sweep", "theory", "tta",
    "ensemble",
    "ensemble_seeds", "splits", "grow", "profile", "corrupted", "probe", "report",
}  # fmt: skip


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


class Project(Repository):
    """The project's code and quick params."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ("attnknn", "pipeline", "stages", "presets"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("dvc.yaml", "params.yaml", "datasets.yaml", ".gitignore", ".dvcignore"):
            shutil.copy(ROOT / name, folder / name)
        params = self.params()
        for key, value in QUICK.items():
            params[key] = {**params[key], **value} if isinstance(value, dict) else value
        (folder / "mine.csv").write_text(a_table())
        mine = {block: {} for block in OVERRIDES} | {
            "source": {"kind": "csv", "train": {"path": "mine.csv"}, "target": "fate"},
            "train_embedder": {
                "encoder": "mlp", "widths": [32], "embed_dim": 8, "epochs": 3, "batch_size": 32, "folds": 2,
            },
            "train_attention": {"batch_size": 64},
        }  # fmt: skip
        with (folder / "datasets.yaml").open("a") as file:
            yaml.safe_dump({"mine": mine}, file)
        self.write(params)
        self.commit("start")

    def params(self) -> dict:
        return yaml.safe_load((self.folder / "params.yaml").read_text())

    def write(self, params: dict) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))

    @contextmanager
    def changed(self, **params: Any) -> Iterator[None]:
        """Settings of params.yaml replaced, and the tracked files restored afterwards."""
        self.write(self.params() | params)
        try:
            yield
        finally:
            self("git", "checkout", "-q", ".")

    def would_run(self) -> set[str]:
        """Names of the stages that `dvc repro` would run now."""
        return stages_in(self("dvc", "repro", "--dry"))

    def files(self, *folders: str) -> dict[Path, bytes]:
        return {p: p.read_bytes() for f in folders for p in (self.folder / f).rglob("*") if p.is_file()}


def test_a_stage_embeds_digits_by_principal_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What later stages read, and the metrics and curves of an encoder without epochs beside those of the network."""
    for name in ("dvc.yaml", "params.yaml", "presets"):
        (tmp_path / name).symlink_to(ROOT / name)
    datasets = yaml.safe_load((ROOT / "datasets.yaml").read_text("utf-8"))
    datasets["digits"]["train_embedder"] |= {"representation": "pca", "widths": [4, 4], "epochs": 1}
    (tmp_path / "datasets.yaml").write_text(yaml.safe_dump(datasets))
    monkeypatch.chdir(tmp_path)
    download(Run("download", "digits"))
    for stage in (prepare, train_embedder):
        stage(Run(stage.__name__, "digits", "42"))
    split = Split.load(Path("data/split/digits/42"))
    embeddings = Embeddings.load(Path("data/embeddings/digits/42/main"))
    encoder, about = Encoder.load(Path("models/encoder/digits/42"))
    z, logits = embed(encoder, split.x)
    assert logits is not None
    assert embeddings.logits is not None
    np.testing.assert_allclose(embeddings.z, z, atol=1e-5)
    np.testing.assert_allclose(embeddings.logits, logits, atol=1e-3)
    assert (logits.argmax(1) == split.y)[split.part == VAL].mean() > 0.9
    metrics = read_json(Path("metrics/digits/42/train_embedder.json"))
    assert metrics["best_epoch"] == about["kept"]["epoch"] == 0
    assert metrics["val_accuracy"] > 0.9
    curve = Path("plots/training/digits-42.csv").read_text().splitlines()
    assert curve == ["epoch,loss,val_accuracy", f"0,,{metrics['val_accuracy']}"]
    assert read_json(Path("metrics/digits/42/train_cnn.json"))["best_epoch"] == 1
    cnn = Embeddings.load(Path("data/cnn/digits/42"))
    assert cnn.z.shape == (len(z), 4), "the convnet, trained on labels"


def stages_in(out: str) -> set[str]:
    """Names of the stages that ran, by the output of DVC."""
    return set(re.findall(r"Running stage '([a-z_]+)", out))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("project"))
    project("dvc", "repro")
    project.commit("run")
    return project


def test_a_table_of_ones_own_goes_the_whole_way_with_no_code_then_nothing_is_left(project: Project) -> None:
    """What of a user's file the split says, and that the report is about it."""
    split = Split.load(project.folder / "data/split/mine/42")
    assert split.classes == ("kept", "lost", "sent back")
    assert np.bincount(split.y).tolist() == [90, 14, 66]
    assert sorted(split.schema["ids"]) == ["parcel", "row"]
    assert any("town" in name for name in split.features)
    assert not any("parcel" in name for name in split.features)
    assert "mine" in (project.folder / "report/index.html").read_text()
    for out in (
        "metrics/mine/42/evaluate.json",
        "data/results/evaluate/mine/42/selective.csv",
        "report/tables/claims.tex",
    ):
        assert (project.folder / out).stat().st_size > 0
    assert "Data and pipelines are up to date." in project("dvc", "repro")
    assert "up to date" in project("dvc", "status")
    assert project.files("data/resume") == {}
    assert project("git", "status", "--porcelain") == ""


NOT_HERE = {"ensemble_seeds", "encoder_ablation", "finetune", "corrupted"}  # reads no heads; for seeds that are named
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["stages"]


def rerun_by(path: str) -> set[str]:
    """Stages of which a file is a dependency, itself or in a folder; later ones follow if their outputs change."""
    return {name for name, stage in STAGES.items() if any(f"{path}/".startswith(f"{dep}/") for dep in stage["deps"])}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("attnknn/evaluation/metrics.py", JUDGED | {"field_report"}),
        ("attnknn/heads/attention.py", JUDGED - {"ensemble_seeds", "report"} | {"train_attention"}),
        ("attnknn/encoder/losses.py", TRAINS | UNSEEN | {"audit", "views", "finetune", "probe", "field_report"}),
        ("attnknn/experiments/ablation.py", {"ablation"}),
        ("attnknn/experiments/tta.py", {"tta"}),
        ("attnknn/experiments/corruption.py", {"noise", "audit", "imbalance", "corrupted", "train_corrupted"}),
        ("attnknn/experiments/fields/perceiver.py", {"train_field", "probe", "field_report"}),
        ("attnknn/experiments/config.py", {"check"}),
        ("attnknn/data/fetch.py", {"download", "prepare", "train_splits", "audit"} | UNSEEN),
        ("attnknn/report/page.html", {"report"}),
        ("attnknn/classifier/estimator.py", UNSEEN | {"audit"}),
        ("attnknn/app/cli.py", set()),
    ],
)
def test_an_edit_reruns_what_uses_it(file: str, expected: set[str]) -> None:
    assert (ROOT / file).is_file()
    assert rerun_by(file) == expected
    for package in ("core", "nn", "index"):  # below the encoder
        assert rerun_by(f"attnknn/{package}/config.py") >= TRAINS | {"build_index"}, package


def test_a_changed_default_reruns_its_experiment_and_a_changed_head_nothing_before_it(project: Project) -> None:
    """The two dry runs: DVC reads defaults of experiments class by class, and code by package."""
    config, head = (project.folder / f"attnknn/{name}" for name in ("experiments/config.py", "heads/attention.py"))
    with project.changed():
        config.write_text(config.read_text().replace("    crops: Whole = 3", "    crops: Whole = 2"))
        assert project.would_run() == {"check", "views"}
    with project.changed():
        head.write_text(head.read_text() + "\n# a comment\n")
        assert project.would_run() == JUDGED - NOT_HERE - {"report"} | {"train_attention"}


def test_each_fold_has_an_encoder_that_was_trained_on_its_own_split(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder)
    settings = Params(dataset="mine").train_embedder
    folds = fold_splits(Split.load(Path("data/split/mine/42")), 2, 42)
    for fold, split in enumerate(folds):
        stored = Embeddings.load(Path(f"data/embeddings/mine/42/fold_{fold}"))
        np.testing.assert_array_equal(stored.part, split.part)
        z = [fit_and_embed(one, settings, 42, "cpu", "")[0].z for one in (split, folds[fold - 1])]
        np.testing.assert_allclose(stored.z, z[0], atol=1e-5)
        assert np.abs(stored.z - z[1]).max() > 1e-3


def test_wrong_labels_of_the_bank_alone_leave_no_row_of_all_methods(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without a header could not be read."""
    monkeypatch.chdir(project.folder)
    with project.changed(noise=project.params()["noise"] | {"labels": ["bank"], "rates": [0.3]}):
        noise(Run("noise", "mine", "42"))
        assert Path("plots/noise_methods/mine-42.csv").read_text() == "condition,method,accuracy,nll,ece\n"
        assert "\nnoise 0.3," in Path("plots/noise/mine-42.csv").read_text()


def test_a_run_reads_and_writes_only_what_is_declared(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.folder)
    run = Run("noise", "mine", "42")
    assert run.path("data/embeddings") == Path("data/embeddings/mine/42")
    assert run.path("plots/noise") == Path("plots/noise/mine-42.csv")
    assert run.params.noise.repeats == 1
    for refused, message in (
        (lambda: run.path("data/split"), "stage noise declares nothing under data/split"),
        (lambda: run.params.k_eval, "reads the setting k_eval and does not declare it"),
        (lambda: Run("noise", "mine"), r"1 arguments given; usage: python -m stages\.noise DATASET SEED"),
        (lambda: Run("nois", "mine", "42"), "no stage nois"),
        (lambda: Run("noise", "mine", "one"), "seed one; give a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            refused()


def test_a_lance_table_gives_the_same_neighbours_and_its_version_is_pinned(project: Project, tmp_path: Path) -> None:
    before = project.files("data/neighbours/mine/42/main")
    index, stage = {"kind": "lance", "metric": "l2", "uri": str(tmp_path)}, "build_index@mine-42"
    for change in ({"uri": ""}, {}):
        with project.changed(build_index=index | change):
            project("dvc", "repro", "-s", stage)
            assert project.files("data/neighbours/mine/42/main") == before
            meta = read_json(project.folder / "models/bank/mine/42/bank.json")
    assert (tmp_path / "mine-42.lance").is_dir()
    with project.changed(build_index=index | {"version": meta["version"]}):
        project("dvc", "repro", "-s", stage)
        assert read_json(project.folder / "models/bank/mine/42/bank.json") == meta
    with project.changed(build_index=index | {"version": meta["version"] + 1}):
        assert "no Lance table of version" in project("dvc", "repro", "-s", stage, ok=False)
    project("dvc", "checkout")
    assert project.would_run() == set()


def test_k_eval_reruns_evaluation_alone_and_shows_in_diffs(project: Project) -> None:
    out = project("dvc", "exp", "run", "-S", "k_eval=20")
    for name, settings in json.loads((project.folder / "metrics/mine/42/tuned.json").read_text()).items():
        warned = f"{name}: best k on val is 20, the largest that k_eval allows; raise k_eval (stored: 69)" in out
        assert warned == (settings.get("k") == 20)
    assert stages_in(out) == {"check", "evaluate", "ensemble_seeds", "summary", "report"}
    assert re.search(r"k_eval\s*\|\s*256\s*\|\s*20", project("dvc", "params", "diff", "--md"))
    lines = project("dvc", "metrics", "diff", "--md", "--all").splitlines()[2:]
    assert 0 < sum("| mine." in line for line in lines) <= 12
    project("git", "checkout", "-q", ".")
    project("dvc", "checkout", "-q")
    assert "up to date" in project("dvc", "status")


def test_training_on_wrong_labels_takes_one_key(project: Project) -> None:
    def stages() -> set[str]:
        return {name for name in project("dvc", "stage", "list", "--name-only").split() if "corrupted" in name}

    assert stages() == set()
    with project.changed(train_corrupted=project.params()["train_corrupted"] | {"seeds": [42]}):
        conditions = {f"train_corrupted@mine-42-{name}" for name in ("symmetric-0.4", "long_tail-0.1")}
        assert stages() == {"corrupted@mine-42", *conditions}


def test_changed_rates_of_noise_and_a_preset_reach_what_they_change_alone(project: Project) -> None:
    with project.changed(noise=project.params()["noise"] | {"rates": [0, 0.5]}):
        assert project.would_run() == {"check", "noise", "report"}
    with project.changed(preset="experiment5"):
        stages = project.would_run()
    assert {"train_embedder", "build_index", "train_attention", "evaluate"} <= stages
    assert not stages & {"download", "prepare"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "cuda:7"}, "device: cuda:7, but torch sees"),
        ({"datasets": ["nope"]}, "datasets: nope has no entry in datasets.yaml"),
    ],
)
def test_bad_params_stop_in_one_line_and_leave_results_alone(project: Project, change: dict, message: str) -> None:
    folders = ("metrics", "plots", "report", "models", "data/predictions", "data/neighbours")
    before = project.files(*folders)
    with project.changed(**change):
        out = project("dvc", "repro", ok=False)
        assert "Traceback" not in out
        assert message in out, out
        assert project.files(*folders) == before


def test_a_killed_repro_is_followed_by_one_that_ends_the_same(tmp_path: Path) -> None:
    assert not any(state.startswith("wrong") for state in kill_runs("repro", tmp_path, 2))


def test_sigkill_half_way_then_the_same_bytes(project: Project) -> None:
    settings = project.folder / "datasets.yaml"
    settings.write_text(settings.read_text().replace("epochs: 3\n", "epochs: 20\n"))
    command = ["python", "-m", "stages.train_embedder", "mine", "42"]
    state = project.folder / "data/resume/train_embedder-mine-42.safetensors"
    outs = ("models/encoder/mine/42", "data/embeddings/mine/42")
    try:
        project(*command)
        whole = project.files(*outs)
        assert not state.exists()
        for out in outs:
            shutil.rmtree(project.folder / out)
        running = subprocess.Popen(command, cwd=project.folder, env=project.env, stderr=-3)
        deadline = time.monotonic() + 60
        while not state.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, "it ended before it could be killed"
        assert state.exists()
        assert project.files(*outs) == {}
        project(*command)
        assert project.files(*outs) == whole
    finally:
        project("git", "checkout", "-q", ".")
        project("dvc", "checkout", "-q", "--force")
