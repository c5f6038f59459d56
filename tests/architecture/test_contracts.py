"""What holds the house together, read from the code and from dvc.yaml."""

import ast
import shutil
from pathlib import Path

import pytest
import yaml
from stages.params import read_params
from stages.schema import Overrides, Params, Preset

from import_closure import EXEMPT, ROOT, closure, imports_of

STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["stages"]
SCRIPTS = {name: Path(f"stages/{name}.py") for name in STAGES}
MODULES = sorted(p.relative_to(ROOT) for p in (ROOT / "attnknn").rglob("*.py"))


def code_deps(stage: str, stages: dict = STAGES) -> set[Path]:
    return {Path(dep) for dep in stages[stage]["deps"] if str(dep).endswith(".py")}


def keys_read(script: Path) -> tuple[bool, set[str]]:
    """Whether `read_params` is called for a dataset, and with which keys."""
    for node in ast.walk(ast.parse((ROOT / script).read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "read_params":
            first, *keys = node.args
            assert all(isinstance(key, ast.Constant) for key in keys), f"{script}: name the keys as literals"
            return not isinstance(first, ast.Constant), {key.value for key in keys}  # type: ignore[union-attr]
    return False, set()


@pytest.mark.parametrize("stage", STAGES)
def test_code_deps_are_the_import_closure(stage: str) -> None:
    assert code_deps(stage) == closure(SCRIPTS[stage])


def test_a_missing_dep_is_noticed(tmp_path: Path) -> None:
    for folder in ("attnknn", "stages"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert closure(SCRIPTS["embed"], tmp_path) == code_deps("embed")
    heads = tmp_path / "attnknn/encoder/encoder.py"
    heads.write_text(heads.read_text() + "\n\ndef late() -> None:\n    from attnknn.evaluation import metrics\n")
    assert Path("attnknn/evaluation/metrics.py") in closure(SCRIPTS["embed"], tmp_path) - code_deps("embed")


@pytest.mark.parametrize("stage", STAGES)
def test_params_are_the_keys_read(stage: str) -> None:
    for_dataset, keys = keys_read(SCRIPTS[stage])
    expected = {"sources.${item.dataset}" if key == "sources" and for_dataset else key for key in keys}
    if for_dataset:
        blocks = {key.partition(".")[0] for key in keys}
        expected |= {f"overrides.${{item.dataset}}.{key}" for key in blocks & set(Overrides.model_fields)}
        expected |= {f"presets/${{preset}}.yaml:{key}" for key in blocks & set(Preset.model_fields)}
    found = [
        *(entry for entry in STAGES[stage].get("params", []) if isinstance(entry, str)),
        *(
            f"{file}:{key}"
            for entry in STAGES[stage].get("params", [])
            if isinstance(entry, dict)
            for file, keys in entry.items()
            for key in keys
        ),
    ]
    assert sorted(found) == sorted(expected)


def test_what_is_read_as_package_data_is_a_dep_too() -> None:
    data = {p.relative_to(ROOT).as_posix() for p in (ROOT / "attnknn/report").rglob("*.html")}
    assert data
    assert data <= set(STAGES["report"]["deps"])


def test_keys_not_named_are_out_of_reach() -> None:
    params = read_params("iris", "k_eval")
    with pytest.raises(AttributeError):
        _ = params.k_train


def laid_over(base: dict, changes: dict) -> dict:
    return {k: laid_over(v, changes.get(k, {})) if isinstance(v, dict) else changes.get(k, v) for k, v in base.items()}


def test_values_are_handed_over_unchanged() -> None:
    """The reason why stages/params.py may be left out of the deps."""
    raw = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
    plain = [key for key in Params.model_fields if key not in ("sources", "overrides")]
    for dataset in raw["sources"]:
        params = read_params(dataset, *Params.model_fields)
        for key in plain:
            value = getattr(params, key)
            value = value.model_dump() if hasattr(value, "model_dump") else value
            expected = raw[key]
            if isinstance(expected, dict):
                expected = laid_over(expected, raw["overrides"][dataset].get(key, {}))
            assert value == expected, (dataset, key)
        assert params.sources == raw["sources"][dataset]


def test_every_stage_script_is_a_stage() -> None:
    scripts = {p.relative_to(ROOT) for p in (ROOT / "stages").glob("*.py")}
    assert scripts - EXEMPT == set(SCRIPTS.values())
    for script in scripts - EXEMPT:
        assert len((ROOT / script).read_text("utf-8").splitlines()) <= 60, f"{script}: science belongs in attnknn/"


def test_stages_touch_declared_paths_only() -> None:
    """Every path of a command is a declared dep or out, lies in one or holds one, or is the resume file."""
    for name, stage in STAGES.items():
        paths = [word for word in stage["cmd"].split()[3:] if "/" in word or word in ("metrics", "plots", "report")]
        outs = [next(iter(out)) if isinstance(out, dict) else out for out in stage["outs"]]
        declared = [*map(str, stage["deps"]), *outs]
        for path in paths:
            fine = any(
                (path + "/").startswith(d + "/") or d.startswith(path + "/") for d in declared
            ) or path.startswith("data/resume/")
            assert fine, f"{name}: {path} is not declared"


def test_params_are_checked_before_anything_else() -> None:
    """DVC removes a stage's outputs before it runs, so a stage that refuses a value has lost its earlier result."""
    assert {"params.yaml", "stages/check.py"} <= set(STAGES["check"]["deps"])
    assert "data/params_checked" in STAGES["download"]["deps"], "all other stages follow download"


def test_every_stage_says_what_it_does() -> None:
    assert all(stage.get("desc") for stage in STAGES.values())


# core ← nn ← data, index ← encoder, neighbours ← heads ← evaluation ← experiments, classifier ← report, app
LAYERS = (
    "core",
    "nn",
    "data index",
    "encoder neighbours",
    "heads",
    "evaluation",
    "experiments classifier",
    "report app",
)
LEVEL = {package: level for level, names in enumerate(LAYERS) for package in names.split()}


def test_imports_point_one_way() -> None:
    for module in MODULES:
        own = module.parts[1]
        if module in EXEMPT or module.name == "__main__.py":
            continue
        assert own in LEVEL, f"{module}: give its package a place in LAYERS"
        for imported in imports_of(module) - EXEMPT:
            other = imported.parts[1]
            assert other == own or LEVEL[other] < LEVEL[own], f"{module} may not import {imported}"


def test_no_import_circle() -> None:
    for module in MODULES:
        for imported in imports_of(module):
            assert module not in closure(imported) or module in EXEMPT, f"{module} and {imported} import each other"


def test_the_bottom_imports_nothing_of_ours() -> None:
    assert {m.parts[1] for p in MODULES if p.parts[1] == "core" for m in imports_of(p) - EXEMPT} <= {"core"}


def test_only_the_indexes_import_faiss_and_only_the_shim_torchvision() -> None:
    for name, allowed in (("faiss", {"faiss_index.py"}), ("torchvision", {"torchvision_shim.py"})):
        for module in MODULES:
            tree = ast.walk(ast.parse((ROOT / module).read_text("utf-8")))
            names = {a.name for n in tree if isinstance(n, ast.Import) for a in n.names}
            if any(n.split(".")[0] == name for n in names):
                assert module.name in allowed, f"{module} imports {name}"


def test_no_module_with_a_name_that_says_nothing() -> None:
    assert not {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"} & {m.name for m in MODULES}
