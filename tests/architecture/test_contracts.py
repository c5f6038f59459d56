"""The structure of the code and of dvc.yaml, read from both."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from dvc.utils.serialize import parse_py

from import_closure import EXEMPT, ROOT, closure, imports_of
from pipeline.settings import BLOCKS, EXPERIMENTS, OVERRIDES, PRESET, block_class

STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["stages"]
SCRIPTS = {name: Path(f"stages/{name}.py") for name in STAGES}
MODULES = sorted(p.relative_to(ROOT) for p in (ROOT / "attnknn").rglob("*.py"))
CODE = ("stages/", "pipeline", "attnknn/")
RUN = {  # settings that an attribute of Run reads
    "device": {"device", "threads"},
    "cluster": {"cluster"},
    "workers": {"device", "threads"},
    "fit_settings": {"train_attention", "tune", "device", "threads"},
}
HELPERS = {
    "load_heads": {"device", "threads"},
    "search_settings": {"k_max", "statistics", "build_index", *RUN["device"]},
    "refit_conditions": {"train_attention", "tune", "evaluate", *RUN["device"]},
}


def code_deps(stage: str) -> set[Path]:
    return {Path(dep) for dep in STAGES[stage]["deps"] if str(dep).startswith(CODE)}


def needed(stage: str) -> set[Path]:
    """The script's import closure: packages as folders, experiments by file but for fields."""
    units = set()
    for path in closure(SCRIPTS[stage]):
        package = Path(*path.parts[:2]) if path.parts[0] == "attnknn" else Path(path.parts[0])
        if package == Path("attnknn/experiments"):
            if path.name in ("__init__.py", "config.py"):
                continue  # no code; DVC tracks the settings of each class
            package = path if path.parts[2] != "fields" else package / "fields"
        units.add(path if path.parts[0] == "stages" else package)
    return units


def settings_read(stage: str) -> set[str]:
    """Names of the settings that a script reads, itself or by what it calls of `Run` and of pipeline/."""
    tree = list(ast.walk(ast.parse((ROOT / SCRIPTS[stage]).read_text("utf-8"))))
    names = {n.attr for n in tree if isinstance(n, ast.Attribute) and ast.unparse(n.value) in ("p", "run.params")}
    for node in tree:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "run":
            names |= RUN.get(node.attr, set())
        if isinstance(node, ast.Call) and ast.unparse(node.func) in HELPERS:
            names |= HELPERS[ast.unparse(node.func)]
    return names - {"params"}


def declared(stage: str) -> tuple[set[str], dict[str, set[str]]]:
    """Settings of params.yaml that a stage declares, and keys of other files."""
    entries = STAGES[stage].get("params", [])
    files = {file: set(keys) for entry in entries if isinstance(entry, dict) for file, keys in entry.items()}
    return {entry for entry in entries if isinstance(entry, str)}, files


@pytest.mark.parametrize("stage", STAGES)
def test_code_deps_are_the_import_closure(stage: str) -> None:
    configs = {Path(*BLOCKS[name].split(":")[0].split(".")[:2]) for name in declared(stage)[0] if name in BLOCKS}
    configs |= {Path("attnknn/data")} if "source" in settings_read(stage) else set()
    configs -= {Path("attnknn/experiments")}
    if stage == "check":  # it reads every default
        configs = {module for module in MODULES if module.name == "config.py" and module.parts[1] != "core"}
    assert code_deps(stage) == needed(stage) | configs


@pytest.mark.parametrize("stage", STAGES)
def test_params_are_the_settings_read(stage: str) -> None:
    names, files = declared(stage)
    read = settings_read(stage)
    if stage in ("check", "report"):  # these depend on the files of settings as they are
        assert {"params.yaml", "datasets.yaml", "presets"} <= set(STAGES[stage]["deps"])
        assert read <= names
        # DVC removes a stage's outputs before it runs, so a stage that refuses a value has lost its earlier result.
        assert "data/params_checked" in STAGES["download"]["deps"], "all other stages follow download"
        return
    assert names == read - {"source"}
    expected = {
        "datasets.yaml": {f"${{item.dataset}}.{name}" for name in read & {*OVERRIDES, "source"}},
        "presets/${preset}.yaml": read & set(PRESET),
        "attnknn/experiments/config.py": {EXPERIMENTS[name] for name in read & set(EXPERIMENTS)},
    }
    assert files == {file: keys for file, keys in expected.items() if keys}


def test_dvc_reads_all_defaults_of_the_experiments() -> None:
    """DVC parses config.py and drops what is not a literal: a changed default would rerun nothing."""
    classes = parse_py((ROOT / "attnknn/experiments/config.py").read_text("utf-8"), "config.py")
    for block, name in EXPERIMENTS.items():
        assert classes.get(name, {}) == block_class(block)().model_dump()


def test_every_stage_is_a_short_script_with_its_command_and_description() -> None:
    assert {p.relative_to(ROOT) for p in (ROOT / "stages").glob("[!_]*.py")} == set(SCRIPTS.values())
    assert len(STAGES) <= 35
    assert "__pycache__" in (ROOT / ".dvcignore").read_text().split()
    for name, stage in STAGES.items():
        source = (ROOT / SCRIPTS[name]).read_text("utf-8")
        assert len(source.splitlines()) <= 50, f"{name}: science belongs in attnknn/"
        assert "from stages" not in source, f"{name} imports a stage"
        assert stage["desc"] == ast.get_docstring(ast.parse(source)).rstrip(".")  # type: ignore[union-attr]
        items = re.findall(r"\$\{item\.(\w+)\}", stage["cmd"])
        assert items == list(stage.get("matrix", {})), name
        assert stage["cmd"] == " ".join([f"python -m stages.{name}", *(f"${{item.{item}}}" for item in items)])


def test_artifacts_for_others_are_outputs_of_the_lock() -> None:
    artifacts = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["artifacts"]
    lock = yaml.load((ROOT / "dvc.lock").read_text("utf-8"), yaml.CSafeLoader)
    outputs = {out["path"] for stage in lock["stages"].values() for out in stage["outs"]}
    assert {artifact["path"] for artifact in artifacts.values()} <= outputs
    guide = (ROOT / "docs/guide/remotes.md").read_text("utf-8")
    assert all(f"`{name}`" in guide for name in artifacts)


def test_files_of_the_project_keep_their_size() -> None:
    limits = {"dvc.yaml": 520, "params.yaml": 100, "dvc.lock": 4800}
    lines = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name in limits}
    assert {name: n for name, n in lines.items() if n > limits[name]} == {}


LAYERS = "core ← nn ← data index ← encoder neighbours ← heads ← evaluation ← classifier ← experiments ← report app"
LEVEL = {package: level for level, names in enumerate(LAYERS.split(" ← ")) for package in names.split()}


def test_imports_point_one_way() -> None:
    for module in MODULES:
        own = module.parts[1]
        if module in EXEMPT or module.name == "__main__.py":
            continue
        assert own in LEVEL, f"{module}: give its package a place in LAYERS"
        for imported in imports_of(module) - EXEMPT:
            assert imported.parts[0] == "attnknn", f"{module}: the library knows no pipeline"
            other = imported.parts[1]
            assert other == own or LEVEL[other] < LEVEL[own], f"{module} may not import {imported}"


def test_no_import_circle_and_no_name_that_says_nothing() -> None:
    for module in MODULES:
        for imported in imports_of(module):
            assert module not in closure(imported) or module in EXEMPT, f"{module} and {imported} import each other"
    assert not {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"} & {m.name for m in MODULES}


def test_one_module_imports_each_of_faiss_lance_and_torchvision() -> None:
    modules = {"faiss": "faiss_index.py", "lance": "lance_table.py", "torchvision": "torchvision_shim.py"}
    for name, allowed in modules.items():
        for module in MODULES:
            tree = ast.walk(ast.parse((ROOT / module).read_text("utf-8")))
            names = {a.name for n in tree if isinstance(n, ast.Import) for a in n.names}
            if any(n.split(".")[0] == name for n in names):
                assert module.name == allowed, f"{module} imports {name}"


WORDS = {"of", "at", "found", "made", "given", "asked", "told", "said", "some", "near", "there"}


def bound_names(tree: ast.AST) -> set[str]:
    """Variables, arguments, functions and attributes that a module binds."""
    names = set()
    for node in ast.walk(tree):
        bound = isinstance(getattr(node, "ctx", None), ast.Store)
        other = ("asname",) if isinstance(node, ast.alias | ast.keyword) else ("arg", "name")
        names |= {getattr(node, field, None) for field in (("id", "attr") if bound else other)}
    return names


def test_names_are_the_terms_of_the_field() -> None:
    private = {}
    for folder in ("attnknn", "pipeline", "stages", "tools", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if words := bound_names(ast.parse(path.read_text("utf-8"))) & WORDS:
                private[str(path.relative_to(ROOT))] = sorted(words)
    assert private == {}
