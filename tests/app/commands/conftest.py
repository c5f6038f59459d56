"""A folder with data and a model of each kind."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_models import iris_csv, picture_encoder, picture_folders, save_npy

from command_line import succeeded


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    iris_csv(folder / "iris.csv")
    rng = np.random.default_rng(0)
    y = np.repeat(["up", "down"], 40)
    save_npy(folder / "z.npy", rng.normal(size=(80, 3)) + 2 * (y == "up")[:, None])
    pd.DataFrame({"way": y, "title": [f"t{i}" for i in range(80)]}).to_csv(folder / "rows.csv", index=False)
    picture_folders(folder / "images")
    picture_encoder().save(folder / "encoder")
    flags = ("--weights", "distance", "-k", 7)
    succeeded("fit", folder / "iris.csv", "--target", "target", "-o", folder / "table", *flags)
    succeeded(
        "fit", folder / "z.npy", "--rows", folder / "rows.csv", "--target", "way", "-o", folder / "vectors", *flags
    )
    succeeded("fit", folder / "images", "--encoder", folder / "encoder", "-o", folder / "pictures", *flags)
    return folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to be changed."""
    return Path(shutil.copytree(folder, tmp_path / "copied"))
