"""What README and guide tell people to type, in Python and in the shell, works as it is written."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_wine
from synthetic_models import picture_encoder, picture_folders
from typer.testing import CliRunner

from attnknn.app.cli import app
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.data.read_csv import read_rows
from attnknn.data.schema import column_kinds, fit_schema
from attnknn.encoder.encoder import Encoder
from attnknn.index.bank import build
from import_closure import BLOCK, ROOT

ELSEWHERE = ("serve", "--install-completion", "datasets")  # tested where they are; the last needs the project's folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that README and guide name, in small."""
    folder = tmp_path_factory.mktemp("written")
    rng = np.random.default_rng(0)
    wine = load_wine(as_frame=True)
    table = wine.data.assign(cultivar=np.array(["Barolo", "Grignolino", "Barbera"])[wine.target])
    table = table.sample(frac=1, random_state=0)
    for name, target in (("wine", "cultivar"), ("people", "income")):
        table.rename(columns={"cultivar": target}).to_csv(folder / f"{name}.csv", index=False)
    table.head(9).to_csv(folder / "known.csv", index=False)
    for name, rows in (("new", 9), ("one", 1)):
        table.drop(columns="cultivar").tail(rows).to_csv(folder / f"{name}.csv", index=False)
    y = np.repeat([0, 1], 40)
    np.save(folder / "embeddings.npy", rng.normal(size=(80, 5)) + 2 * y[:, None])
    np.save(folder / "labels.npy", y)
    pd.DataFrame({"label": y, "title": y}).to_csv(folder / "rows.csv", index=False)
    part = np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), [60, 10, 10, 20])
    labels = rng.integers(0, 2, 100)
    images = Split(rng.integers(0, 255, (100, 1, 8, 8), dtype=np.uint8), labels, part, ("robin", "wren"))
    for name in ("digits", "birds", "cifar10"):
        images.save(folder / f"data/split/{name}/42")
        picture_encoder().save(folder / f"models/encoder/{name}/42")
    frame = read_rows(folder / "new.csv")
    schema = fit_schema(frame, column_kinds(frame), np.ones(len(frame), bool))
    x = rng.normal(size=(100, len(schema.features))).astype(np.float32)
    Split(x, labels, part, ("no", "yes"), schema.features, schema.to_dict()).save(folder / "data/split/mine/42")
    encoder = Encoder("mlp", (len(schema.features),), 0, [4], embed_dim=2)
    encoder.save(folder / "models/encoder/mine/42", schema=schema.to_dict())
    build(np.eye(4, dtype=np.float32), np.arange(4)).save(folder / "models/bank/digits/42")
    for name in ("pictures", "my-folder", "more-pictures", "more-robins", "new-pictures"):
        picture_folders(folder / name)
    for name in ("scan.png", "robin.jpg", "new-pictures/unknown.jpg"):
        Image.new("L", (8, 8), 90).save(folder / name)
    return folder


def lines_of(page: Path) -> Iterator[str]:
    """Lines of the shell that begin with `attnknn`, without pipes: what stands behind these is not ours."""
    for language, block in BLOCK.findall(page.read_text("utf-8")):
        if language in ("sh", ""):
            for line in re.sub(r"\\\n", "", block).splitlines():
                if line.split()[:1] == ["attnknn"]:
                    words = shlex.split(line.partition("|")[0], comments=True)
                    if not any(word in ELSEWHERE for word in words[1:2]):
                        yield shlex.join(words[1:])


@pytest.mark.parametrize("pages", ["README.md", "docs/guide/*.md"])
def test_shell_lines_end_well(pages: str, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)
    lines = [line for page in ROOT.glob(pages) for line in lines_of(page)]
    assert len(lines) >= 6
    # A page is no script: what one line makes another may come before, and several pages make the same.
    for line in sorted(lines, key=lambda line: (not line.startswith("embed "), not line.startswith("fit "))):
        options = ["--weights", "distance"] if line.startswith("fit ") else []
        options += ["--force"] if " -o " in line else []
        result = CliRunner().invoke(app, [*shlex.split(line), *options], input=(prepared / "new.csv").read_text())
        assert result.exit_code == 0, f"attnknn {line}\n{result.output}"


# Those of the README are run by test_packaging.
PYTHON = ["docs/index.md", *(f"docs/guide/{name}.md" for name in ("data", "embeddings", "large-memories"))]


@pytest.mark.parametrize("page", PYTHON)
def test_python_blocks_run(page: str, prepared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(prepared)
    X, y = np.load("embeddings.npy"), np.load("labels.npy")
    seen = np.arange(80) % 4 > 0
    scope: dict = {"X_seen": X[seen], "y_seen": y[seen], "X_unseen": X[~seen], "y_unseen": y[~seen]}
    scope |= {"X_test": X[:9], "y_test": y[:9], "z": np.ones((2, 4), np.float32), "ids": [7, 8]}
    blocks = [block for language, block in BLOCK.findall((ROOT / page).read_text("utf-8")) if language == "python"]
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), scope)
