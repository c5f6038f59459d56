"""Models of a table and of images."""

from pathlib import Path

import pytest
from synthetic_models import FAST, iris_csv, picture_encoder, picture_folders

from attnknn.app.model.fit import fit_model
from attnknn.app.model.model import Model


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, dict]:
    folder = tmp_path_factory.mktemp("table")
    iris_csv(folder / "iris.csv")
    model, summary = fit_model(folder / "iris.csv", target="target", test=0.2, **FAST)
    model.save(folder / "model")
    return folder, model, summary


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, dict]:
    folder = tmp_path_factory.mktemp("pictures")
    picture_folders(folder / "images")
    picture_encoder().save(folder / "encoder")
    model, summary = fit_model(folder / "images", encoder=folder / "encoder", test=0.25, **FAST)
    model.save(folder / "model")
    return folder, model, summary
