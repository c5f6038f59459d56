"""`attnknn doctor`: check packages, devices, threads and tools."""

import json
import os
import platform
import shutil
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Any, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from attnknn.app.commands.arguments import AS_JSON
from attnknn.app.commands.output import print_table

_EXTRAS = {
    "pipeline": "`dvc repro`, `attnknn explain -o`, `attnknn datasets` and encoders that are ResNets",
    "serve": "the page of `attnknn serve`",
    "tables": "parquet files, CatBoost",
}
_COLOURS = {"ok": "green", "note": "yellow", "missing": "bold red"}


class Check(NamedTuple):
    """The result of one check."""

    name: str
    value: str  # version, path or state
    fix: str = ""  # what to do; empty if nothing
    required: bool = False  # whether the package works only with it

    @property
    def state(self) -> str:
        """`ok`; `note`, something optional is missing; `missing`, something required is."""
        if not self.fix:
            return "ok"
        return "missing" if self.required else "note"


def doctor(as_json: bool = AS_JSON) -> None:
    """Check versions, devices, threads and compiled parts; exit with 1 if something required is missing."""
    checks = check_all()
    if as_json:
        rows = [{"what": c.name, "found": c.value, "state": c.state, "mend": c.fix} for c in checks]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for check in checks:
            table.add_row(f"[{_COLOURS[check.state]}]{check.state}[/]", escape(check.name), escape(check.value))
        print_table(table)
        for check in checks:
            if check.fix:
                typer.echo(f"{check.name}: {check.fix}")
    raise typer.Exit(1 if any(check.state == "missing" for check in checks) else 0)


def check_all() -> list[Check]:
    """Run all checks."""
    python = Check("Python", f"{platform.python_version()} at {sys.executable}")
    return [python, *_packages(), *_compiled(), *_machine()]


def _installed(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def _packages() -> list[Check]:
    """Required packages and those of the extras; also one check for each that is missing or of a wrong version.

    A missing package of an extra is a note, a wrong version is `missing`.
    """
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(text) for text in requires("attnknn") or []]
    except PackageNotFoundError:
        return [Check("attnknn", "not installed as a package", "pip install -e . gives it its command")]
    installed = {r.name: _installed(r.name) for r in requirements}
    needed = [r for r in requirements if r.marker is None]
    checks = [Check("packages", ", ".join(f"{r.name} {installed[r.name]}" for r in needed if installed[r.name]))]
    for extra, use in _EXTRAS.items():
        optional = [r for r in requirements if r.marker and r.marker.evaluate({"extra": extra})]
        missing = [r.name for r in optional if not installed[r.name]]
        value = f"missing: {', '.join(missing)}" if missing else ", ".join(r.name for r in optional)
        fix = f"only for {use}: pip install 'attnknn[{extra}]'" if missing else ""
        checks.append(Check(f"extra [{extra}]", value, fix))
        needed += [r for r in optional if installed[r.name]]
    for r in needed:
        if not installed[r.name] or installed[r.name] not in r.specifier:
            fix = f"pip install '{r.name}{r.specifier}'"
            checks.append(Check(r.name, installed[r.name] or "not installed", fix, required=True))
    return checks


def _compiled() -> list[Check]:
    """Import torch, torchvision if installed, and faiss."""
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        return [Check("torch", str(error), "pip install -c constraints.txt -e . again", required=True)]
    limit = os.environ.get("OMP_NUM_THREADS")
    fix = f"OMP_NUM_THREADS={limit} limits them; unset it for all" if limit else ""
    checks = [Check("torch threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores", fix)]
    fast = import_module("attnknn.core.device").has_bf16("cpu")
    checks.append(Check("bfloat16 on the CPU", "fast" if fast else "emulated, hence float32 where bf16 is set"))
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        checks.append(Check("GPU", names))
    else:
        cuda = torch.version.cuda
        value = f"none visible to torch, built for CUDA {cuda}" if cuda else "none; this torch is a CPU build"
        checks.append(Check("GPU", value, "optional; to use one, install torch's CUDA build (pytorch.org)"))
    if find_spec("torchvision") is not None:
        try:
            import_module("attnknn.core.torchvision_shim")
            checks.append(Check("torchvision", version("torchvision")))
        except (ImportError, RuntimeError) as error:
            fix = "install the torchvision that matches this torch: pip install -c constraints.txt torch torchvision"
            checks.append(Check("torchvision", " ".join(str(error).split())[:200], fix, required=True))
    try:
        faiss: Any = import_module("faiss")
        checks.append(Check("faiss", f"{faiss.__version__}, {faiss.get_compile_options().strip()}"))
    except ImportError as error:
        checks.append(Check("faiss", str(error), "pip install faiss-cpu", required=True))
    return checks


def _machine() -> list[Check]:
    """The pipeline's tools."""
    checks = []
    for tool, use in (("git", "DVC's experiments and reviews"), ("dvc", "the pipeline")):
        path = shutil.which(tool) or shutil.which(tool, path=os.path.dirname(sys.executable))
        fix = "" if path else f"needed for {use}: install it, or activate the environment"
        checks.append(Check(tool, path or "not on PATH", fix))
    return checks
