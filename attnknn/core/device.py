"""Where tensors live, with how many threads, how memory is reused, and whether networks are compiled."""

import ctypes
import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import nn

from attnknn.core.errors import InputError

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of glibc's malloc.h


def use_device(device: str, threads: int) -> str:
    """The torch device that `device` means on this machine (`auto`: a GPU if there is one), threads being fixed.

    On the CPU the process keeps the memory that it frees, see `keep_freed_memory`. Thread counts change the order of
    sums, so the same seed gives the same bytes only under the same count.

    Raises:
        InputError: a GPU is asked for that is not there.
    """
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # those of numpy and scipy: one a core by default, however small the matrices
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        device = "cuda" if count else "cpu"
    if device == "cpu":
        keep_freed_memory()
    if device.startswith("cuda"):
        number = int(device.partition(":")[2] or 0)
        if number >= count:
            raise InputError(f"device: {device} asked for, but torch sees {count} GPUs here; set device to auto or cpu")
    return device


def n_workers(device: str, threads: int) -> int:
    """How many processes share independent fits: one a thread on the CPU, one alone on a GPU."""
    return 1 if device.startswith("cuda") else threads


def keep_freed_memory() -> None:
    """Let this process keep what it frees for its next tensors, from here on; nothing where the C library is not glibc.

    A training step on a processor frees the hundreds of megabytes that the next one asks for again. glibc gives such
    blocks back to the system, which clears every page anew: that took a sixth of the time of the convnet's steps.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_MAX, 0)  # no block is the system's own
    mallopt(_TRIM_THRESHOLD, -1)  # nor given back at the heap's end


def compile_network(net: nn.Module, device: str) -> Callable[..., Any]:
    """The network under torch.compile, or as it is, with a warning, where the compiler that this takes is missing."""
    if device.startswith("cuda"):
        missing = "" if importlib.util.find_spec("triton") else "the package triton"
    else:
        compiler = os.environ.get("CXX", "g++")
        missing = "" if shutil.which(compiler) else f"the C++ compiler {compiler} (or name another: CXX=…)"
    if missing:
        warnings.warn(f"compile: goes on without, since {missing} is not there", stacklevel=2)
        return net
    return torch.compile(net)
