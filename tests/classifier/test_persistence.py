"""Saved models: refused if damaged, or if their contents do not fit; saving overwrites nothing but a model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.exceptions import NotFittedError
from synthetic_models import sign

from attnknn import AttnKNNClassifier


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    folder = tmp_path_factory.mktemp("saved") / "m"
    model = AttnKNNClassifier(max_iter=1, random_state=0, null_scores="linear")
    model.fit(rng.normal(size=(60, 4)) + y[:, None], y).save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of the saved model."""
    return Path(shutil.copytree(saved, tmp_path / "m"))


def filled(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.full_like(array, value)


ARRAYS: list[tuple[str, Callable[[np.ndarray], np.ndarray], str]] = [
    ("memory.ids", lambda ids: ids[::-1], "ids"),
    ("memory.ids", lambda ids: ids.astype(float), "ids: dtype float64"),
    ("memory.y", filled(3), "y: not a class number"),
    ("memory.y", lambda y: y[1:], "y: not a class number"),
    ("memory.weight", filled(np.nan), "weight: NaN"),
    ("memory.weight", filled(-1), "weight: not a number above 0"),
    ("memory.near_ids", filled(60), "neighbours: not rows"),
    ("memory.near_ids", lambda ids: np.roll(ids, 1, axis=0), "neighbours: other similarities"),
    ("memory.near_sims", filled(np.nan), "neighbours: not rows"),
    ("memory.near_sims", lambda sims: sims[:, :3], "neighbours: not rows"),
    ("memory.sums", filled(np.inf), "sums: NaN"),
    ("memory.sums", lambda sums: sums[:, :3], "sums: 3 dimensions"),
    ("memory.sums", lambda sums: sums[:2], "y: not a class number"),
    ("head.fc1.weight", filled(np.nan), "fc1.weight: NaN"),
    ("linear.coef", filled(np.nan), "coef: NaN"),
    ("linear.coef", lambda coef: coef[:2], "coef, intercept: not of 3 classes"),
    ("linear.intercept", lambda intercept: intercept[:1], "coef, intercept: not of 3 classes"),
    ("linear.intercept", lambda intercept: intercept.astype("f4"), "intercept: dtype float32"),
    ("own.origin", lambda origin: origin[:3], "origin: 3 values"),
    ("own.scale", filled(np.nan), "scale: NaN"),
    ("own.scale", filled(-1), "scale: not above 0"),
    ("own.scale", filled(0), "scale: not above 0"),
    ("own.bias", lambda bias: bias[None], "bias: shape"),
    ("own.held_out", lambda scores: scores[:-1], "held_out: .* not as many as fitted"),
    ("own.usual_distances", lambda distances: distances[::-1], "usual_distances: .* not ascending"),
    ("own.usual_distances", lambda distances: distances - 9, "usual_distances: negative"),
    ("own.held_out", lambda scores: scores.astype("f4"), "held_out: dtype float32"),
]


@pytest.mark.parametrize(
    ("name", "change", "message"), ARRAYS, ids=[f"{name} {i}" for i, (name, *_) in enumerate(ARRAYS)]
)
def test_arrays(folder: Path, name: str, change: Any, message: str) -> None:
    arrays = load_file(folder / "arrays.safetensors")
    save_file(arrays | {name: np.ascontiguousarray(change(arrays[name]))}, folder / "arrays.safetensors")
    sign(folder)
    with pytest.raises(ValueError, match=rf"^{folder}: incomplete model \({message}[^\n]*\); fit and save again$"):
        AttnKNNClassifier.load(folder)


def test_ids_of_other_vectors(folder: Path) -> None:
    arrays = load_file(folder / "arrays.safetensors")
    moved = {name: arrays[name] + (arrays[name] >= 0) for name in ("memory.ids", "memory.near_ids")}
    save_file(arrays | moved, folder / "arrays.safetensors")
    sign(folder, next_id=61)
    with pytest.raises(ValueError, match=r"incomplete model \(ids: not those of the index\)"):
        AttnKNNClassifier.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"next_id": 59},
        {"next_id": 2**62 + 1},
        {"next_id": "60"},
        *({"strength": strength} for strength in (0.0, "1", None)),
        {"head": None},
        {"head": {"kind": "attention"}},
        {"head": {"kind": "distance", "k": 5, "temperature": 0.0, "prior": 0.1}},
        {"head": {"kind": "distance", "k": "5", "temperature": 1.0, "prior": 0.1}},
        {"about": None},
        {"about": {}},
        *({"params": {name: value}} for name, value in (("n_neighbors", 0), ("weights", "equal"), ("no", 1))),
        *({"classes": classes} for classes in ([0, 1], [0, 1, 1], [2, 1, 0], [0, 1, "2"], None)),
        *({"classes_dtype": dtype} for dtype in ("<U1", "|b1", "nothing", 3)),
        *({"feature_names": names} for names in (["a"], [1, 2, 3, 4], "abcd", None)),
        *({"fitted": {name: value}} for name, value in (("_unit", 0.0), ("_unit", "1"), ("n_features_in_", 5))),
        *({"fitted": {"_doubt": value}} for value in (0.5, None)),
        *({"fitted": {name: value}} for name, value in (("n_iter_", 1.5), ("_usual_weight", -1.0))),
    ],
    ids=str,
)
def test_values(folder: Path, change: dict[str, Any]) -> None:
    meta = json.loads((folder / "model.json").read_text())
    if not change.keys() & meta.keys():
        (key, value), about = *change.items(), meta["about"]
        change = {"about": about | {key: about[key] | value if isinstance(value, dict) else value}}
    sign(folder, **change)
    with pytest.raises(ValueError, match=rf"^{folder}: incomplete model \([^\n]+\); fit and save again$"):
        AttnKNNClassifier.load(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-9], "arrays.safetensors: damaged"),
        (lambda data: data[:200] + b"x" + data[201:], "arrays.safetensors: damaged"),
        (None, "missing; copy the whole folder"),
        ({"about": {"classes": ["barplo"]}}, "damaged"),
        *(({"sha256": digests}, "damaged") for digests in ([], {}, {"../secret": "0"})),
        ({"format": 0}, "not a model of Attn-KNN"),
        ({"format": True}, "not a model of Attn-KNN"),
        ({"format": 9}, "format 9, written by attnknn"),
        ({"own_sha256": None}, "damaged"),
        ({"next_id": float("nan")}, r"model\.json: no valid JSON \(NaN is no finite number\)"),
        ("{}", "not a model of Attn-KNN"),
        ("{", "damaged"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_damaged_models(folder: Path, damage: Any, message: str) -> None:
    """Changed bytes of the arrays or none, changed keys of model.json or another text."""
    arrays, meta = folder / "arrays.safetensors", folder / "model.json"
    if damage is None:
        arrays.unlink()
    elif isinstance(damage, dict | str):
        meta.write_text(damage if isinstance(damage, str) else json.dumps({**json.loads(meta.read_text()), **damage}))
    else:
        arrays.write_bytes(damage(arrays.read_bytes()))
    with pytest.raises(ValueError, match=message):
        AttnKNNClassifier.load(folder)


@pytest.mark.parametrize(
    ("path", "message"), [("s3://bucket/model", "give a folder of this machine"), ("/dev/null/x", "/dev/null'")]
)
def test_save_needs_a_folder_that_can_be_written(saved: Path, path: str, message: str) -> None:
    with pytest.raises((ValueError, NotADirectoryError), match=message):
        AttnKNNClassifier.load(saved).save(path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder in which nothing can be made")
def test_save_does_not_wait_for_a_lock_that_cannot_be_made(saved: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/proc/"):
        AttnKNNClassifier.load(saved).save("/proc/x")


def test_save_overwrites_nothing_but_a_model(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no saved model"):
        AttnKNNClassifier.load(tmp_path / "nowhere")
    with pytest.raises(NotFittedError):
        AttnKNNClassifier().save(tmp_path / "x")
    model = AttnKNNClassifier.load(saved)
    for file, name in (("mine/thesis.txt", "mine"), ("other/model.json", "other"), ("file", "file")):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        with pytest.raises(ValueError, match="exists and is not a model"):
            model.save(tmp_path / name)
        assert path.read_text() == "{}"
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for _ in range(2):  # an empty folder, then a model, both by a link that stays one
        model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "empty/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds notes\.txt beside a model"):
        model.save(tmp_path / "empty")
    assert (tmp_path / "empty/notes.txt").read_text() == "mine"
    X = np.eye(4)
    np.testing.assert_array_equal(AttnKNNClassifier.load(tmp_path / "empty").predict_proba(X), model.predict_proba(X))


def test_every_file_of_a_model_has_the_mode_of_the_umask(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    AttnKNNClassifier.load(saved).save(tmp_path / "m")
    usual = (tmp_path / "usual").stat().st_mode
    assert {path.stat().st_mode for path in (tmp_path / "m").rglob("*") if path.is_file()} == {usual}
