"""Checks of the environment: packages, devices, threads and tools."""

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, NamedTuple

from packaging.requirements import Requirement

_EXTRAS = {
    "pipeline": "`dvc repro`, `attnknn explain -o`, `attnknn datasets` and encoders that are ResNets",
    "serve": "the page of `attnknn serve`",
    "tables": "parquet files, CatBoost",
}


class Check(NamedTuple):
    """The result of one check.

    Attributes:
        name: what was checked.
        value: version, path or state.
        fix: what to do; empty if nothing.
        required: whether the package works only with it.
    """

    name: str
    value: str
    fix: str = ""
    required: bool = False

    @property
    def state(self) -> str:
        """`ok`; `note`, something optional is missing; `missing`, something required is."""
        if not self.fix:
            return "ok"
        return "missing" if self.required else "note"


def check_all() -> list[Check]:
    """Run all checks."""
    python = Check("Python", f"{platform.python_version()} at {sys.executable}")
    return [python, *_packages(), *_extras(), *_torch(), _faiss(), _processor(), *_pipeline()]


def _requirements() -> list[Requirement]:
    try:
        return [Requirement(text) for text in requires("attnknn") or []]
    except PackageNotFoundError:
        return []


def _packages() -> list[Check]:
    """One check of all required packages, and one for each that is missing or of a wrong version."""
    required = [requirement for requirement in _requirements() if requirement.marker is None]
    if not required:
        return [Check("attnknn", "not installed as a package", "pip install -e . gives it its command")]
    versions = [f"{r.name} {installed}" for r in required if (installed := _installed_version(r))]
    return [Check("packages", ", ".join(versions)), *_unmet(required)]


def _installed_version(requirement: Requirement) -> str | None:
    try:
        return version(requirement.name)
    except PackageNotFoundError:
        return None


def _unmet(required: list[Requirement]) -> list[Check]:
    """One check for each requirement that is missing or of a wrong version."""
    checks = []
    for requirement in required:
        installed = _installed_version(requirement)
        if installed is None or installed not in requirement.specifier:
            fix = f"pip install '{requirement.name}{requirement.specifier}'"
            checks.append(Check(requirement.name, installed or "not installed", fix, required=True))
    return checks


def _extras() -> list[Check]:
    """Packages of the optional extras: a missing one is a note, a wrong version is `missing`."""
    checks = []
    for extra, use in _EXTRAS.items():
        required = [r for r in _requirements() if r.marker and r.marker.evaluate({"extra": extra})]
        missing = [r.name for r in required if _installed_version(r) is None]
        value = f"missing: {', '.join(missing)}" if missing else ", ".join(r.name for r in required)
        fix = f"only for {use}: pip install 'attnknn[{extra}]'" if missing else ""
        checks.append(Check(f"extra [{extra}]", value, fix))
        checks += _unmet([r for r in required if r.name not in missing])
    return checks


def _torch() -> list[Check]:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        return [Check("torch", str(error), "pip install -c constraints.txt -e . again", required=True)]
    limit = os.environ.get("OMP_NUM_THREADS")
    fix = f"OMP_NUM_THREADS={limit} limits them; unset it for all" if limit else ""
    checks = [Check("torch threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores", fix)]
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        checks.append(Check("GPU", names))
    else:
        cuda = torch.version.cuda
        value = f"none visible to torch, built for CUDA {cuda}" if cuda else "none; this torch is a CPU build"
        checks.append(Check("GPU", value, "optional; to use one, install torch's CUDA build (pytorch.org)"))
    if importlib.util.find_spec("torchvision") is None:
        return checks
    try:
        importlib.import_module("attnknn.core.torchvision_shim")
        checks.append(Check("torchvision", version("torchvision")))
    except (ImportError, RuntimeError) as error:
        fix = "install the torchvision that matches this torch: pip install -c constraints.txt torch torchvision"
        checks.append(Check("torchvision", " ".join(str(error).split())[:200], fix, required=True))
    return checks


def _faiss() -> Check:
    try:
        faiss: Any = importlib.import_module("faiss")
    except ImportError as error:
        return Check("faiss", str(error), "pip install faiss-cpu", required=True)
    return Check("faiss", f"{faiss.__version__}, {faiss.get_compile_options().strip()}")


def _processor() -> Check:
    """Check for fast bfloat16 (AVX-512 BF16 or AMX)."""
    flags: set[str] = set()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = set(next((line for line in file if line.startswith("flags")), "").split())
    bf16 = [name for name in ("avx512_bf16", "amx_bf16") if name in flags]
    name = platform.processor() or platform.machine()
    if bf16:
        return Check("processor", f"{name}, bfloat16 by {', '.join(bf16)}")
    fix = "set train_embedder.bf16 to false: without AVX-512 BF16 or AMX it is slower"
    return Check("processor", f"{name}, no fast bfloat16 detected", fix)


def _pipeline() -> list[Check]:
    """Checks of the pipeline's tools, disk space and mirror."""
    checks = []
    for tool, use in (("git", "DVC's experiments and reviews"), ("dvc", "the pipeline")):
        path = shutil.which(tool) or shutil.which(tool, path=os.path.dirname(sys.executable))
        fix = "" if path else f"needed for {use}: install it, or activate the environment"
        checks.append(Check(tool, path or "not on PATH", fix))
    free = shutil.disk_usage(".").free / 1e9
    fix = "" if free > 5 else "the pipeline's cache needs several GB; free some space"
    checks.append(Check("disk", f"{free:.0f} GB free here", fix))
    mirror = os.environ.get("ATTNKNN_MIRROR")
    if mirror:
        exists = "://" in mirror or os.path.isdir(mirror)
        checks.append(Check("ATTNKNN_MIRROR", mirror, "" if exists else "no such folder; correct it, or unset it"))
    return checks
