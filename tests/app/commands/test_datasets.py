"""`attnknn datasets`."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from command_line import COMMAND, refused, succeeded
from import_closure import ROOT
from pipeline.settings import OVERRIDES

LONG = "https://example.org/" + "a" * 150 + ".csv"
DATASETS = {
    "iris": {"source": {"kind": "sklearn", "loader": "iris"}},
    "table": {"source": {"kind": "csv", "train": {"path": LONG}, "test": {"path": "test.csv"}}},
    "birds": {"source": {"kind": "image_folder", "path": "birds.zip"}},
    "vectors": {"source": {"kind": "arrays", "x": "x.npy", "y": "y.npy", "test_x": "t.npy", "test_y": "u.npy"}},
}


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text("datasets: [iris]")
    (tmp_path / "datasets.yaml").write_text(yaml.safe_dump(DATASETS, sort_keys=False))
    (tmp_path / "data/raw/birds/train").mkdir(parents=True)
    (tmp_path / "data/raw/birds/train/a.jpg").write_bytes(b"x" * 1500)
    return path


def test_json(params: Path) -> None:
    rows = {row["name"]: row for row in json.loads(succeeded("datasets", "--json", "--params", params))}
    assert list(rows) == ["iris", "table", "birds", "vectors"]
    assert [row["in_use"] for row in rows.values()] == [True, False, False, False]
    assert [row["bytes_on_disk"] for row in rows.values()] == [None, None, 1500, None]
    assert rows["table"]["origin"] == f"{LONG}, test.csv"
    assert rows["vectors"]["origin"] == "x.npy, t.npy"
    rows = json.loads(succeeded("datasets", "--json", "--params", ROOT / "params.yaml"))
    assert [row["name"] for row in rows] == list(yaml.safe_load((ROOT / "datasets.yaml").read_text("utf-8")))


def test_a_pipe_gets_one_line_a_dataset_without_colour(params: Path) -> None:
    command = [*COMMAND, "datasets", "--params", str(params)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    lines = out.splitlines()
    assert lines[1].split()[:4] == ["iris", "sklearn", "yes", "no"]
    assert lines[2].endswith(f"{LONG}, test.csv")
    assert "1.5 kB" in lines[3]
    assert "\x1b" not in out


def test_the_entry_for_a_new_dataset_is_complete(params: Path) -> None:
    out = succeeded("datasets", "--params", params)
    entry = out.split("of the same kind:")[1].split("For a table")[0]
    assert set(yaml.safe_load(entry)["birds"]) == {"source", *OVERRIDES}


IRIS = "iris: {source: {kind: sklearn}}"


@pytest.mark.parametrize(
    ("params", "datasets", "file", "message"),
    [
        (None, IRIS, "params.yaml", "no such file"),
        ("datasets: [", IRIS, "params.yaml", "not valid YAML"),
        ("datasets: [iris]", None, "datasets.yaml", "no such file"),
        ("datasets: [iris]", "iris: {}", "datasets.yaml", "source"),
        ("datasets: [iris]", "iris: {source: 3}", "datasets.yaml", "kind"),
        ("datasets: iris", IRIS, "params.yaml", "'iris'; expected a list"),
        ("datasets: [nope]", IRIS, "params.yaml", "nope has no entry"),
    ],
)
def test_invalid_files(tmp_path: Path, params: str | None, datasets: str | None, file: str, message: str) -> None:
    for name, text in (("params.yaml", params), ("datasets.yaml", datasets)):
        if text is not None:
            (tmp_path / name).write_text(text)
    line = refused("datasets", "--params", tmp_path / "params.yaml")
    assert message in line
    assert str(tmp_path / file) in line
