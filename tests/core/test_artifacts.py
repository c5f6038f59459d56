"""Artifacts are validated when constructed and loaded, and written atomically."""

import dataclasses
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import Embeddings, Predictions, Split
from attnknn.core.errors import InputError
from attnknn.core.files import atomic_file, atomic_folder, read_json, save_weights, write_csv, write_json
from synthetic import blobs, embedded, pictures, searched

EMBEDDINGS = embedded(blobs(60))
NEIGHBOURS = searched(EMBEDDINGS, 5)
PREDICTIONS = Predictions(
    np.arange(4, dtype=np.int32), np.array([0, 1, 1, 0]), np.full((2, 4, 2), 0.5, np.float32), ("u", "v"), ("a", "b")
)
ALL = [blobs(60), pictures(60), EMBEDDINGS, dataclasses.replace(EMBEDDINGS, logits=None), NEIGHBOURS, PREDICTIONS]


@pytest.mark.parametrize("artifact", ALL, ids=lambda a: type(a).__name__)
def test_saved_and_loaded(artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "a")
    again = type(artifact).load(tmp_path / "a")
    for field in dataclasses.fields(artifact):
        before, after = getattr(artifact, field.name), getattr(again, field.name)
        np.testing.assert_array_equal(before, after)
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype
            assert isinstance(after, np.memmap)
    first = {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()}
    again.save(tmp_path / "b")
    assert first == {p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()}


def with_value(array: np.ndarray, index: tuple[int, ...], value: float) -> np.ndarray:
    array = np.array(array)
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("artifact", "changes", "message"),
    [
        (blobs(60), {"x": blobs(60).x.astype(np.float64)}, "x: dtype float64; expected uint8 or float32"),
        (blobs(60), {"x": with_value(blobs(60).x, (3, 2), np.nan)}, "x: NaN or infinite"),
        (blobs(60), {"features": ("one",)}, "features: 1 names for 7 columns"),
        (blobs(60), {"y": with_value(blobs(60).y, (0,), 3)}, "y: values 0 … 3; expected 0 … 2"),
        (blobs(60), {"y": blobs(60).y[:-1]}, "rows: 60 in x, 59 in y"),
        (blobs(60), {"part": np.zeros(60, np.int8)}, "no rows in fit, val, test"),
        (blobs(60), {"y": np.where(blobs(60).part == 0, 0, blobs(60).y)}, "no row of class b, c"),
        (blobs(60), {"classes": ("a",), "y": np.zeros(60, np.int64)}, "at least two"),
        (pictures(60), {"x": pictures(60).x[:, 0]}, r"x: shape \(60, 8, 8\); expected 4 dimensions"),
        (EMBEDDINGS, {"z": with_value(EMBEDDINGS.z, (0, 0), np.inf)}, "z: NaN or infinite"),
        (EMBEDDINGS, {"logits": EMBEDDINGS.logits[:, :2]}, r"logits: shape \(60, 2\); expected \(60, 3\)"),
        (NEIGHBOURS, {"ids": with_value(NEIGHBOURS.ids, (0, 1), -1)}, "finite exactly where"),
        (NEIGHBOURS, {"rows": NEIGHBOURS.rows[::-1].copy()}, "rows: must ascend"),
        (NEIGHBOURS, {"metric": "cosine"}, "expected l2 or ip"),
        (NEIGHBOURS, {"ids": NEIGHBOURS.ids[1:]}, "shapes: .* do not agree"),
        (PREDICTIONS, {"probs": 2 * PREDICTIONS.probs}, "sum to 1; off by 1"),
        (PREDICTIONS, {"methods": ("u",)}, r"probs: shape \(2, 4, 2\); expected \(1, 4, 2\)"),
    ],
)
def test_invalid_fields_are_refused_by_name(artifact, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        dataclasses.replace(artifact, **changes)
    assert "\n" not in str(raised.value)


def test_a_slice_of_neighbours_by_row_id() -> None:
    rows = NEIGHBOURS.rows[[7, 2]]
    ids, sims = NEIGHBOURS.take(rows, 3)
    np.testing.assert_array_equal(ids, NEIGHBOURS.ids[[7, 2], :3])
    np.testing.assert_array_equal(sims, NEIGHBOURS.sims[[7, 2], :3])
    with pytest.raises(InputError, match="6 neighbours requested, 5 stored"):
        NEIGHBOURS.take(rows, 6)
    with pytest.raises(InputError, match="1 rows have no stored neighbours"):
        NEIGHBOURS.take(np.array([len(EMBEDDINGS.y)]), 3)


def test_a_half_written_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    EMBEDDINGS.save(tmp_path / "a")
    with pytest.raises(InputError, match="holds Embeddings, not Split"):
        Split.load(tmp_path / "a")
    whole, pickled = (tmp_path / "a/z.npy").read_bytes(), io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)  # pickles are never opened
    for content in (whole[: len(whole) // 2], pickled.getvalue()):
        (tmp_path / "a/z.npy").write_bytes(content)
        with pytest.raises(InputError, match=r"z\.npy: not a readable .*run `dvc repro`"):
            Embeddings.load(tmp_path / "a")
    (tmp_path / "a/z.npy").unlink()
    with pytest.raises(InputError, match="incomplete Embeddings"):
        Embeddings.load(tmp_path / "a")
    (tmp_path / "a/meta.json").write_text("{")
    with pytest.raises(InputError, match="no valid JSON"):
        Embeddings.load(tmp_path / "a")
    with pytest.raises(InputError, match="no such file"):
        Embeddings.load(tmp_path / "b")


def test_a_write_replaces_all_of_the_earlier_artifact_and_an_interrupted_one_nothing(tmp_path: Path) -> None:
    def names() -> list[str]:
        return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))

    with atomic_folder(tmp_path / "a") as draft:
        (draft / "old").touch()
    write_json(tmp_path / "b.json", {"a": "old"})
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "a") as draft:
        (draft / "half").touch()
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "b.json") as file:
        file.write_text("half")
        raise KeyboardInterrupt
    assert read_json(tmp_path / "b.json") == {"a": "old"}
    assert names() == ["a", "a/old", "b.json"]
    with atomic_folder(tmp_path / "a") as draft:
        (draft / "new").touch()
    assert names() == ["a", "a/new", "b.json"]


def test_json_refuses_nan_and_csv_leaves_gaps_empty(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"nll": float("nan")})
    assert not list(tmp_path.iterdir())
    write_csv(tmp_path / "a.csv", [{"x": 1, "y": float("nan")}, {"x": None, "y": 0.5}])
    assert (tmp_path / "a.csv").read_bytes() == b"x,y\n1,\n,0.5\n"


def test_files_have_the_mode_of_the_umask_or_of_the_file_they_replace(tmp_path: Path) -> None:
    def modes() -> dict[str, int]:
        return {str(p.relative_to(tmp_path)): p.stat().st_mode & 0o777 for p in sorted(tmp_path.rglob("*"))}

    def save() -> None:
        with atomic_folder(tmp_path / "a") as draft:
            assert draft.stat().st_mode & 0o777 == 0o700
            save_weights(draft / "inner", {"w": torch.zeros(2)}, {})
            (draft / "changing").touch()

    (tmp_path / "a/changing").mkdir(parents=True)
    (tmp_path / "a/changing").chmod(0o700)
    umask = os.umask(0o027)
    try:
        save()
    finally:
        os.umask(umask)
    weights, config = "a/inner/weights.safetensors", "a/inner/config.json"
    usual = {"a/changing": 0o640, "a/inner": 0o750, config: 0o640, weights: 0o640}
    assert modes() == {"a": 0o777 & ~umask, **usual}
    chosen = {"a": 0o711, "a/changing": 0o600, "a/inner": 0o700, config: 0o604, weights: 0o606}
    for name, mode in chosen.items():
        (tmp_path / name).chmod(mode)
    save()
    assert modes() == chosen
