"""Saved models of every kind, and a client of each."""

import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from attnknn.app.model.model import Model
from server_fixtures import beside_model, client_of, picture_model, table_model, vector_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "table": table_model(folder / "table"),
        "images": picture_model(folder / "images"),
        "vectors": vector_model(folder / "vectors"),
        "named": vector_model(folder / "named", named=True),
        "beside": beside_model(folder / "beside", 5),
        "long": beside_model(folder / "long", 300),
    }


# Not to be changed by a test.
@pytest.fixture(scope="session")
def loaded(models: dict[str, Path]) -> dict[str, Model]:
    return {kind: Model.load(path) for kind, path in models.items()}


@pytest.fixture(scope="session")
def clients(models: dict[str, Path]) -> dict[str, TestClient]:
    return {kind: client_of(path) for kind, path in models.items()}


@pytest.fixture(scope="session")
def table(clients: dict[str, TestClient]) -> TestClient:
    return clients["table"]


@pytest.fixture(scope="session")
def images(clients: dict[str, TestClient]) -> TestClient:
    return clients["images"]


@pytest.fixture(scope="session")
def vectors(clients: dict[str, TestClient]) -> TestClient:
    return clients["vectors"]


@pytest.fixture
def copied(models: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(models["table"], tmp_path / "model"))
