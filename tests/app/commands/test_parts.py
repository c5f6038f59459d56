"""`attnknn embed`, and `attnknn predict` of a table: files of blocks, resumed, in this process or on a cluster."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.app import parts
from attnknn.app.model.inputs import Pictures
from attnknn.app.model.model import Model
from attnknn.encoder.encoder import Encoder
from command_line import embed, refused, succeeded


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_IMAGES", 5)
    monkeypatch.setattr(parts, "_ROWS", 30)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_embeddings_of_pictures_with_their_folders_as_labels(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "z"
    succeeded(*embed(folder, folder / "images"), "-o", output)
    paths = sorted((folder / "images").rglob("*.png"))
    frame = pd.read_parquet(output)
    assert sorted(path.name for path in output.iterdir()) == [
        "_job.json",
        *(f"part-00000{i}.parquet" for i in range(5)),
    ]
    assert frame["path"].tolist() == [str(path) for path in paths]
    assert frame["label"].tolist() == [path.parent.name for path in paths]
    pictures = Pictures(Encoder.load(folder / "encoder")[0])
    (batch,) = pictures.batches([str(folder / "images")])
    np.testing.assert_allclose(np.stack(list(frame["vector"])), pictures.vectors(batch), atol=1e-6)
    table = AttnKNNClassifier(storage=tmp_path / "t.lance", random_state=0).fit(output, "label")
    np.testing.assert_array_equal(table.classes_, ["left", "right"])


def test_a_model_whose_rows_are_in_a_table_is_changed_and_explained(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(600, 3)), np.repeat(["down", "up"], 300)
    z[:, 0] += 6 * (y == "up")
    model = tmp_path / "m"
    AttnKNNClassifier(storage=tmp_path / "t.lance", max_iter=3, random_state=0).fit(z, y).save(model)
    new = rng.normal(size=(2500, 3))
    np.save(tmp_path / "new.npy", np.concatenate([new, [[np.nan] * 3]]))
    assert "row 2500: NaN" in refused("add", model, tmp_path / "new.npy", "--label", "down")  # in the second batch
    np.save(tmp_path / "new.npy", new)
    assert "3,100 rows in memory" in succeeded("add", model, tmp_path / "new.npy", "--label", "down")
    assert "added  down" in succeeded("explain", model, tmp_path / "new.npy", "--first", 1)
    out = succeeded("explain", model, tmp_path / "new.npy", "--first", 1, "-o", tmp_path / "why.png")
    assert "Even without its 10 heaviest neighbours for down" in out  # of a table, no rows to relabel
    assert "3,098 rows" in succeeded("forget", model, 3, 4)


def test_an_interrupted_job_goes_on_and_another_is_refused(folder: Path, tmp_path: Path) -> None:
    command = (*embed(folder, folder / "images"), "-o", tmp_path / "z")
    succeeded(*command)
    before = files(tmp_path / "z")
    (tmp_path / "z" / "part-000003.parquet").unlink()
    (tmp_path / "z" / ".part-000003.parquet").write_bytes(b"half")
    (tmp_path / "z" / "part-000001.parquet").write_bytes(b"not written again")
    succeeded(*command)
    assert files(tmp_path / "z") == {**before, "part-000001.parquet": b"not written again"}
    assert "another job" in refused(*embed(folder, folder / "images/left"), "-o", tmp_path / "z")
    picture = folder / "images" / "left" / "0.png"
    os.utime(picture, (1, 1))
    assert "other files" in refused(*command)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    (tmp_path / "full" / "_job.json").touch()
    assert "another job" in refused(*embed(folder, folder / "images"), "-o", tmp_path / "full")
    (tmp_path / "full" / "notes.txt").unlink()  # an earlier job that wrote nothing
    succeeded(*embed(folder, folder / "images/left"), "-o", tmp_path / "full")
    (tmp_path / "full" / "_job.json").unlink()
    assert "holds other files" in refused(*embed(folder, folder / "images"), "-o", tmp_path / "full")


def tables(folder: Path, target: Path) -> Iterator[Path]:
    z = np.load(folder / "z.npy")
    frame = pd.DataFrame({"id": np.arange(80), "vector": list(z.astype(np.float32)), "label": "up"})
    (target / "parquet").mkdir()
    for i, part in enumerate(np.array_split(np.arange(80), 3)):
        frame.iloc[part].to_parquet(target / "parquet" / f"{i}.parquet")
    lance.write_dataset(frame, str(target / "z.lance"))
    return iter((folder / "z.npy", target / "parquet", target / "z.lance"))


def test_predictions_of_any_table(folder: Path, tmp_path: Path) -> None:
    model = Model.load(folder / "vectors").classifier
    probs, percentiles, _ = model.predict_with_novelty(np.load(folder / "z.npy"))
    for i, table in enumerate(tables(folder, tmp_path)):
        output = tmp_path / f"answers{i}"
        succeeded("predict", folder / "vectors", table, "-o", f"{output}/", "--probabilities")
        frame = pd.read_parquet(output)
        assert len(list(output.glob("part-*"))) == 3
        assert frame["label"].tolist() == [["down", "up"][c] for c in probs.argmax(1)]
        np.testing.assert_allclose(frame[["p(down)", "p(up)"]], probs, atol=1e-5)
        np.testing.assert_allclose(frame["distance_percentile"], percentiles, atol=5)
        assert frame["row" if i == 0 else "id"].tolist() == list(range(80))
        assert i == 0 or frame["given_label"].eq("up").all()
    lance.dataset(str(tmp_path / "z.lance")).delete("id = 3")
    assert "other files" in refused("predict", folder / "vectors", tmp_path / "z.lance", "-o", f"{tmp_path}/answers2/")


def test_no_output_among_its_own_input(folder: Path, tmp_path: Path) -> None:
    model, rows = folder / "vectors", tmp_path / "rows"
    rows.mkdir()
    pd.DataFrame({"vector": list(np.load(folder / "z.npy"))}).to_parquet(rows / "a.parquet")
    for output in (rows, rows / "answers"):
        assert "is in the folder of the input" in refused("predict", model, rows, "-o", f"{output}/")
    assert [path.name for path in rows.iterdir()] == ["a.parquet"]


def test_bad_input_is_one_line(folder: Path, tmp_path: Path) -> None:
    to = ("-o", f"{tmp_path}/out/")
    assert "no encoder" in refused("embed", folder / "images", "--encoder", folder / "vectors", *to)
    assert "no Parquet file or Lance table" in refused("predict", folder / "vectors", tmp_path / "none", *to)
    assert "no such file" in refused("predict", folder / "vectors", tmp_path / "none.npy", *to)
    assert "for one table" in refused("predict", folder / "vectors", folder / "z.npy", *to, "--alpha", 0.1)
    assert "no saved model" in refused("predict", folder / "encoder", folder / "z.npy", *to)
    assert "give --output with a /" in refused("predict", folder / "vectors", folder / "z.npy", "--cluster", "auto")
    shutil.copytree(folder / "images", tmp_path / "images")
    (tmp_path / "images" / "left" / "3.png").write_bytes(b"no picture")
    assert "3.png" in refused(*embed(folder, tmp_path / "images"), *to)
    frame = pd.DataFrame({"other": [1.0, 2.0]})
    frame.to_parquet(tmp_path / "rows.parquet")
    other = ("-o", f"{tmp_path}/other/")
    empty = ("-o", f"{tmp_path}/empty/")
    whole = pd.DataFrame({"vector": list(np.load(folder / "z.npy"))})
    whole.iloc[:0].to_parquet(tmp_path / "empty.parquet")
    assert "empty.parquet: no rows" in refused("predict", folder / "vectors", tmp_path / "empty.parquet", *empty)
    whole["vector"] = [np.full(3, np.nan) if i == 5 else z for i, z in enumerate(whole["vector"])]
    whole.to_parquet(tmp_path / "nan.parquet")
    assert "row 5: NaN" in refused("predict", folder / "vectors", tmp_path / "nan.parquet", "-o", f"{tmp_path}/nan/")
    assert "no column vector" in refused("predict", folder / "vectors", tmp_path / "rows.parquet", *other)
    assert "reads table" in refused("predict", folder / "table", folder / "z.npy", "-o", f"{tmp_path}/third/")


def test_without_ray_or_a_cluster_one_line_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (*embed(folder, folder / "images"), "-o", tmp_path / "z", "--cluster", "127.0.0.1:1")
    assert "no Ray cluster at 127.0.0.1:1" in refused(*command)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install attnknn[cluster]" in refused(*command)


def test_a_table_in_folders_by_value_and_a_trailing_slash(folder: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame({"vector": list(np.load(folder / "z.npy")[:6])})
    for group in ("a", "b"):
        (tmp_path / f"parquet/group={group}").mkdir(parents=True)
        frame.to_parquet(tmp_path / f"parquet/group={group}/rows.parquet")
    lance.write_dataset(frame, str(tmp_path / "q.lance"))
    for source in ("parquet", "q.lance/"):
        succeeded("predict", folder / "vectors", f"{tmp_path}/{source}", "-o", f"{tmp_path}/out-{source.strip('/')}/")
    assert sorted(pd.read_parquet(tmp_path / "out-parquet")["group"]) == ["a"] * 6 + ["b"] * 6
    assert len(pd.read_parquet(tmp_path / "out-q.lance")) == 6
    frame.assign(label="x", given_label="y").to_parquet(tmp_path / "both.parquet")
    to = ("-o", f"{tmp_path}/both/")
    assert "columns label and given_label" in refused("predict", folder / "vectors", tmp_path / "both.parquet", *to)


def test_another_table_at_the_address_is_another_job(folder: Path, tmp_path: Path) -> None:
    z, table, to = np.load(folder / "z.npy"), tmp_path / "q.lance", ("-o", f"{tmp_path}/out/")
    for rows in (z[:20], z[20:40]):
        shutil.rmtree(table, ignore_errors=True)
        lance.write_dataset(pd.DataFrame({"vector": list(rows)}), str(table))
        run = refused if (tmp_path / "out").exists() else succeeded
        output = run("predict", folder / "vectors", table, *to)
    assert "another job" in output


def test_rows_that_are_no_vectors_are_one_line(folder: Path, tmp_path: Path) -> None:
    z = np.load(folder / "z.npy")
    wrong = {"wide": np.hstack([z, z]), "flat": z[0], "cube": z[None], "words": z.astype(str)}
    for name, rows in {**wrong, "none": z[:0]}.items():
        np.save(tmp_path / f"{name}.npy", rows)
        line = refused("predict", folder / "vectors", tmp_path / f"{name}.npy", "-o", f"{tmp_path}/{name}/")
        assert ("no rows" if name == "none" else "the model takes") in line
    pd.DataFrame({"vector": list(z[:3]), "confidence": 1}).to_parquet(tmp_path / "c.parquet")
    line = refused("predict", folder / "vectors", tmp_path / "c.parquet", "-o", f"{tmp_path}/c/")
    assert "column confidence: predictions have one of this name" in line


def test_blocks_of_parquet_are_row_groups(folder: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame({"vector": list(np.load(folder / "z.npy")[:40])}, index=np.arange(40)[::-1])
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=16)
    succeeded("predict", folder / "vectors", tmp_path / "rows.parquet", "-o", f"{tmp_path}/a/")
    assert sorted(path.name for path in (tmp_path / "a").glob("*.parquet")) == [
        f"part-00000{i}.parquet" for i in range(3)
    ]
    np.save(tmp_path / "rows.npy", np.stack(list(frame["vector"])))
    succeeded("predict", folder / "vectors", tmp_path / "rows.npy", "-o", f"{tmp_path}/b/")
    both = [pd.read_parquet(tmp_path / name)["confidence"].to_numpy() for name in "ab"]
    np.testing.assert_allclose(*both, atol=1e-6)


def test_an_encoder_of_other_settings_is_another_job(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "encoder", tmp_path / "encoder")
    command = (*embed(tmp_path, folder / "images"), "-o", tmp_path / "z")
    succeeded(*command)
    config = tmp_path / "encoder/config.json"
    config.write_text(config.read_text() + "\n")
    assert "another job" in refused(*command)


def test_rows_forgotten_meanwhile_are_another_job(folder: Path, tmp_path: Path) -> None:
    z = np.load(folder / "z.npy")
    table = AttnKNNClassifier(storage=tmp_path / "rows.lance", random_state=0, max_iter=3).fit(z, np.arange(len(z)) % 2)
    table.save(tmp_path / "m")
    command = ("predict", tmp_path / "m", folder / "z.npy", "-o", f"{tmp_path}/out/")
    succeeded(*command)
    table.forget([1, 2])
    parts._model.cache_clear()
    assert "another job" in refused(*command)
