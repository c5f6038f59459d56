"""A wheel works outside the checkout: all of the library is in it, and nothing else."""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from import_closure import ROOT

OWN = sorted(path for path in (ROOT / "attnknn").rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not in this environment, and nothing else can build a wheel without a network")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in (
        "attnknn",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "MANIFEST.in",
    ):  # setuptools writes into its folder
        (source / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, source]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_whole_library_is_in_it_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {path.relative_to(ROOT).as_posix() for path in OWN}
    assert "attnknn/py.typed" in names


def test_it_says_what_it_needs_and_what_its_extras_bring(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (about,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert set(re.findall(r"Provides-Extra: (\w+)", about)) == {"bench", "dev", "docs", "serve", "tables"}
    assert re.search(r"License-Expression: MIT", about)
    (entry,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "attnknn = attnknn.app.cli:app" in entry


def test_it_works_in_another_folder(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "work").mkdir()
    code = """
import attnknn
from sklearn.datasets import load_iris
from attnknn import AttnKNNClassifier
assert attnknn.__file__.startswith({!r}), attnknn.__file__
X, y = load_iris(return_X_y=True)
AttnKNNClassifier(weights="distance", random_state=0).fit(X, y).save("iris-model")
open("rows.csv", "w").write("a,b,c,d\\n5.1,3.5,1.4,0.2\\n")
""".format(str(tmp_path / "installed"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "OMP_NUM_THREADS": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            cwd=tmp_path / "work",
            env=environment,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-c", code)
    assert run("-m", "attnknn", "predict", "iris-model", "rows.csv").splitlines()[1].startswith("rows.csv line 2,0,")
