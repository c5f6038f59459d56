"""A wheel holds the library and nothing else, and works with the core dependencies alone."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sklearn.datasets import load_digits
from synthetic_models import iris_csv, picture_encoder, picture_folders, save_npy

import attnknn
from import_closure import ROOT

OWN = sorted(path for path in (ROOT / "attnknn").rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not in this environment, and nothing else can build a wheel without a network")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("attnknn", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):  # setuptools writes beside them
        (source / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, source]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_whole_library_is_in_it_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {path.relative_to(ROOT).as_posix() for path in OWN}
    assert "attnknn/py.typed" in names


def dist_info(wheel: Path, file: str) -> str:
    archive = zipfile.ZipFile(wheel)
    (text,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(f".dist-info/{file}"))
    return text


def test_it_says_what_it_needs_and_what_its_extras_bring(wheel: Path) -> None:
    about = dist_info(wheel, "METADATA")
    extras = {"bench", "cluster", "dev", "docs", "lance", "onnx", "pipeline", "plot", "serve", "tables"}
    assert set(re.findall(r"Provides-Extra: (\w+)", about)) == extras
    assert "License-Expression: MIT" in about
    assert "attnknn = attnknn.app.cli:app" in dist_info(wheel, "entry_points.txt")


def _with_dependencies(names: set[str]) -> set[str]:
    """The distributions of these names and all they require, without extras."""
    closure, queue = set(), list(names)
    while queue:
        name = canonicalize_name(queue.pop())
        if name in closure:
            continue
        closure.add(name)
        required = map(Requirement, distribution(name).requires or [])
        queue += [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return closure


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages folder of `pip install attnknn`: the wheel, and links to its core dependencies."""
    folder = tmp_path_factory.mktemp("core")
    zipfile.ZipFile(wheel).extractall(folder)
    required = [Requirement(text) for text in re.findall(r"Requires-Dist: (.+)", dist_info(wheel, "METADATA"))]
    for name in _with_dependencies({r.name for r in required if r.marker is None}):
        installed = distribution(name)
        for entry in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
            if not (folder / entry).exists():
                (folder / entry).symlink_to(Path(str(installed.locate_file(entry))))
    return folder


def _passed(core: Path, folder: Path, *command: str, stdin: str = "") -> str:
    """Run Python with this site-packages folder alone; return its standard output."""
    environment = {**os.environ, "PYTHONPATH": str(core), "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"input": stdin, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, "-S", *command], cwd=folder, env=environment, **pipes)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_lines_of_the_readme_run_with_the_core(core: Path, tmp_path: Path) -> None:
    for extra in ("crepes", "dvc", "matplotlib", "pooch", "torchvision", "yaml"):
        assert not (core / extra).exists()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    check = f"import attnknn; assert attnknn.__file__.startswith({str(core)!r}), attnknn.__file__"
    assert blocks
    _passed(core, tmp_path, "-c", "\n".join([*blocks, check]))
    assert (tmp_path / "digits-knn").is_dir()


COMMANDS = """
import json, sys
from typer.testing import CliRunner
from attnknn.app.cli import app
results = []
for command in json.load(sys.stdin):
    result = CliRunner().invoke(app, command)
    results.append((result.exit_code, result.stdout, result.stderr))
print(json.dumps(results))
"""


def test_the_command_line_works_with_the_core(core: Path, tmp_path: Path) -> None:
    frame = iris_csv(tmp_path / "iris.csv")
    frame.drop(columns="target")[::50].to_csv(tmp_path / "rows.csv", index=False)
    X, y = load_digits(return_X_y=True)
    save_npy(tmp_path / "x.npy", X[:200])
    save_npy(tmp_path / "y.npy", y[:200])
    picture_folders(tmp_path / "images")
    picture_encoder().save(tmp_path / "encoder")
    commands = [
        "fit iris.csv --target target -o iris",
        "fit x.npy --rows y.npy -o digits",
        "fit images --encoder encoder -o images-model",
        "predict iris rows.csv",
        "explain iris rows.csv",
        "predict digits x.npy",
        "predict images-model images/left",
        "explain images-model images/left",
        "add iris rows.csv --label setosa",
        "forget iris 0 1",
        "doctor",
        "doctor --json",
        "explain iris rows.csv -o why.png",
        "datasets",
        "serve iris",
        "predict iris rows.csv -o answers.parquet",
    ]
    stdout = _passed(core, tmp_path, "-c", COMMANDS, stdin=json.dumps([command.split() for command in commands]))
    results = dict(zip(commands, json.loads(stdout), strict=True))
    for command in commands[:12]:
        assert results[command][0] == 0, (command, results[command])
    assert results["predict iris rows.csv"][1].splitlines()[1].startswith(f"rows.csv line 2,{frame['target'][0]},")
    checks = {check["what"]: check for check in json.loads(results["doctor --json"][1])}
    assert checks["extra [pipeline]"]["found"].startswith("missing: cleanlab, dvc, matplotlib, ")
    assert checks["extra [pipeline]"]["mend"].endswith("pip install 'attnknn[pipeline]'")
    for command, line in {
        "explain iris rows.csv -o why.png": "--output needs matplotlib: pip install 'attnknn[plot]'",
        "datasets": "datasets needs yaml: pip install 'attnknn[pipeline]'",
        "serve iris": "serve needs uvicorn: pip install 'attnknn[serve]'",
        "predict iris rows.csv -o answers.parquet": "--output: .parquet needs pyarrow: pip install 'attnknn[tables]'",
    }.items():
        assert results[command] == [2, "", f"error: {line}\n"]


def test_importing_is_light_and_encoders_that_need_an_extra_say_so(core: Path, tmp_path: Path) -> None:
    code = """
import sys
import attnknn
print(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))
print(dir(attnknn), attnknn.AttnKNNClassifier.__name__)
from attnknn.core.errors import InputError
from attnknn.encoder.encoder import _resnet
from attnknn.encoder.numeric_embeddings import NumericEmbedding
for build in (lambda: _resnet("resnet18", 3, False), lambda: NumericEmbedding(3, "linear", [0], 2)):
    try:
        build()
    except InputError as error:
        print(error)
"""
    assert _passed(core, tmp_path, "-c", code).splitlines() == [
        "['__main__', 'attnknn']",
        f"{attnknn.__all__} AttnKNNClassifier",
        "resnet18 needs torchvision: pip install 'attnknn[pipeline]'",
        "linear numeric embedding needs rtdl_num_embeddings: pip install 'attnknn[pipeline]'",
    ]
