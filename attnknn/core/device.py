"""Device, threads, memory allocation and compilation."""

import ctypes
import importlib.util
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import nn

from attnknn.core.errors import require

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of glibc's malloc.h


def resolve_device(device: str) -> str:
    """Resolve a device name to one of torch; `auto` is a GPU if available.

    Raises:
        InputError: an unknown name, or a GPU that torch does not see.
    """
    known = re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", device)
    require(known is not None, f"device: {device[:40]!r}; allowed are auto, cpu, cuda, and cuda:0 and so on")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if count else "cpu"
    seen = device == "cpu" or int(device.partition(":")[2] or 0) < count
    require(seen, f"device: {device}, but torch sees {count} GPUs; set device to auto or cpu")
    return device


def use_device(device: str, threads: int) -> str:
    """Set the number of threads, and resolve a device name by `resolve_device`.

    On the CPU, malloc is configured by `keep_freed_memory`. Results are reproducible to the byte only with the same
    number of threads, which determines the order of sums.

    Raises:
        InputError: a GPU that torch does not see.
    """
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # of numpy and scipy
    device = resolve_device(device)
    if device == "cpu":
        keep_freed_memory()
    return device


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Give torch this many threads within the block; None changes nothing.

    Threads of small operations wait for each other many times a second; beside other busy processes that takes many
    times as long as one thread.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def n_workers(device: str, threads: int) -> int:
    """Number of worker processes for independent fits: one per thread on the CPU, one on a GPU."""
    return 1 if device.startswith("cuda") else threads


def keep_freed_memory() -> None:
    """Let malloc keep freed memory for the next tensors; no effect where the C library is not glibc.

    A training step on the CPU frees hundreds of megabytes that the next one allocates again. glibc returns such blocks
    to the system, which clears every page: a sixth of the time of the convnet's steps.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_MAX, 0)  # allocate large blocks on the heap
    mallopt(_TRIM_THRESHOLD, -1)  # never trim the heap


def compile_network(net: nn.Module, device: str) -> Callable[..., Any]:
    """The network under torch.compile; as it is, with a warning, where the compiler it needs is missing."""
    if device.startswith("cuda"):
        missing = "" if importlib.util.find_spec("triton") else "the package triton"
    else:
        compiler = os.environ.get("CXX", "g++")
        missing = "" if shutil.which(compiler) else f"the C++ compiler {compiler} (or name another: CXX=…)"
    if missing:
        warnings.warn(f"compile: not compiled, {missing} is missing", stacklevel=2)
        return net
    return torch.compile(net)
