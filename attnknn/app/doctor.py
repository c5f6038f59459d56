"""What this machine has, and what to do about what it lacks."""

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Literal, NamedTuple

from packaging.requirements import Requirement


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        what: its name.
        found: what is there.
        state: `ok`; `note`, what only some need; `missing`, what nothing works without.
        mend: what to do; empty where nothing is needed.
    """

    what: str
    found: str
    state: Literal["ok", "note", "missing"]
    mend: str


def examine() -> list[Finding]:
    """Look at everything."""
    return [_python(), *_packages(), *_extras(), *_torch(), _faiss(), _processor(), *_pipeline()]


def _python() -> Finding:
    return Finding("Python", f"{platform.python_version()} at {sys.executable}", "ok", "")


def _requirements() -> list[Requirement]:
    try:
        return [Requirement(text) for text in requires("attnknn") or []]
    except PackageNotFoundError:
        return []


def _packages() -> list[Finding]:
    """Required packages: one finding for all that are well, one for each that is not."""
    found = [of for of in _requirements() if of.marker is None]
    if not found:
        return [Finding("attnknn", "not installed as a package", "note", "pip install -e . gives it its command")]
    versions, wrong = [], []
    for of in found:
        try:
            there = version(of.name)
        except PackageNotFoundError:
            wrong.append(Finding(of.name, "not there", "missing", f"pip install '{of.name}{of.specifier}'"))
            continue
        if there not in of.specifier:
            wrong.append(Finding(of.name, there, "missing", f"pip install '{of.name}{of.specifier}'"))
        versions.append(f"{of.name} {there}")
    return [Finding("packages", ", ".join(versions), "ok", ""), *wrong]


def _extras() -> list[Finding]:
    """What `attnknn[tables]` and `attnknn[serve]` bring."""
    found = []
    for extra, use in (("tables", "parquet files, CatBoost"), ("serve", "the page of `attnknn serve`")):
        wanted = [of.name for of in _requirements() if of.marker and of.marker.evaluate({"extra": extra})]
        missing = [name for name in wanted if importlib.util.find_spec(name.replace("-", "_")) is None]
        text = f"lacks {', '.join(missing)}" if missing else ", ".join(wanted)
        state: Literal["ok", "note"] = "note" if missing else "ok"
        mend = f"only for {use}: pip install 'attnknn[{extra}]'" if missing else ""
        found.append(Finding(f"extra [{extra}]", text, state, mend))
    return found


def _torch() -> list[Finding]:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        return [Finding("torch", str(error), "missing", "pip install -c constraints.txt -e . again")]
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} cores"
    limited = os.environ.get("OMP_NUM_THREADS")
    note = f"OMP_NUM_THREADS={limited} limits them; unset it for all" if limited else ""
    found = [Finding("torch threads", threads, "note" if note else "ok", note)]
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        found.append(Finding("GPU", names, "ok", ""))
    else:
        built = torch.version.cuda
        why = f"torch is built for CUDA {built} and sees none" if built else "none; this torch is a CPU build"
        found.append(Finding("GPU", why, "note", "none is needed; for one install torch's CUDA build (pytorch.org)"))
    try:
        importlib.import_module("attnknn.core.torchvision_shim")
        found.append(Finding("torchvision", version("torchvision"), "ok", ""))
    except (ImportError, RuntimeError) as error:
        mend = "install the torchvision that belongs to this torch: pip install -c constraints.txt torch torchvision"
        found.append(Finding("torchvision", " ".join(str(error).split())[:200], "missing", mend))
    return found


def _faiss() -> Finding:
    try:
        faiss: Any = importlib.import_module("faiss")
    except ImportError as error:
        return Finding("faiss", str(error), "missing", "pip install faiss-cpu")
    return Finding("faiss", f"{faiss.__version__}, {faiss.get_compile_options().strip()}", "ok", "")


def _processor() -> Finding:
    """Whether bfloat16 pays; see README, The encoder."""
    flags: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = set(next((line for line in file if line.startswith("flags")), "").split())
    except OSError:
        pass
    fast = [name for name in ("avx512_bf16", "amx_bf16") if name in flags]
    name = platform.processor() or platform.machine()
    if fast:
        return Finding("processor", f"{name}, bfloat16 by {', '.join(fast)}", "ok", "")
    mend = "set train_embedder.bf16 to false: without AVX-512 BF16 or AMX it is slower"
    return Finding("processor", f"{name}, no fast bfloat16 seen", "note", mend)


def _pipeline() -> list[Finding]:
    """What the pipeline needs besides packages."""
    found = []
    for tool, use in (("git", "DVC's experiments and reviews"), ("dvc", "the pipeline")):
        at = shutil.which(tool) or shutil.which(tool, path=os.path.dirname(sys.executable))
        mend = "" if at else f"needed for {use}: install it, or activate the environment"
        found.append(Finding(tool, at or "not on PATH", "ok" if at else "note", mend))
    clib = importlib.util.find_spec("_ruamel_yaml") is not None
    mend = "" if clib else "DVC reads its lock file six times as fast with it: pip install ruamel.yaml.clib"
    found.append(Finding("ruamel.yaml.clib", "compiled" if clib else "not there", "ok" if clib else "note", mend))
    free = shutil.disk_usage(".").free / 1e9
    mend = "" if free > 5 else "the pipeline's cache wants some GB: free some"
    found.append(Finding("disk", f"{free:.0f} GB free here", "ok" if free > 5 else "note", mend))
    mirror = os.environ.get("ATTNKNN_MIRROR")
    if mirror:
        there = "://" in mirror or os.path.isdir(mirror)
        mend = "" if there else "no such folder; correct it, or unset it"
        found.append(Finding("ATTNKNN_MIRROR", mirror, "ok" if there else "note", mend))
    return found
