"""Device, threads, memory allocation and compilation."""

import ctypes
import importlib.util
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any

import torch
from threadpoolctl import ThreadpoolController, threadpool_limits
from torch import nn

from attnknn.core.errors import require

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of glibc's malloc.h
_lock, _own = Lock(), local()
_blas_blocks = _torch_blocks = 0  # in progress, in all threads
_blas: Any = None  # limits that the last of them ends
_default = 1  # torch's threads outside of them


def resolve_device(device: str) -> str:
    """Resolve a device name to one of torch, or raise InputError; `auto` is a GPU if available."""
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

    Results are reproducible to the byte only with the same number of threads, which determines the order of sums.
    """
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # of numpy and scipy
    device = resolve_device(device)
    if device == "cpu":
        keep_freed_memory()
    return device


def thread_pools() -> ThreadpoolController:
    """Those of all loaded libraries. To find them takes longer than a small fit, so once until a module is imported."""
    return _thread_pools(len(sys.modules))


@cache
def _thread_pools(modules: int) -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def limit_threads(count: int | None) -> Iterator[None]:
    """Give BLAS, OpenMP and torch this many threads within the block; None changes nothing.

    BLAS has one setting for all threads: of blocks at the same time the first one's, restored after the last. OpenMP
    has one for each thread. So has torch, but a new thread takes the latest of all threads, maybe that of a block.
    """
    global _blas_blocks, _blas
    if count is None:
        yield
        return
    pools = thread_pools()
    with torch_threads(count), pools.select(user_api="openmp").limit(limits=count):
        with _lock:
            if not _blas_blocks:
                _blas = pools.select(user_api="blas").limit(limits=count)
            _blas_blocks += 1
        try:
            yield
        finally:
            with _lock:
                _blas_blocks -= 1
                if not _blas_blocks:
                    _blas.restore_original_limits()


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Give torch this many threads within the block; None changes nothing.

    Threads of small operations wait for each other many times a second; beside other busy processes that takes many
    times as long as one thread.
    """
    global _torch_blocks, _default
    if count is None:
        yield
        return
    with _lock:
        before = torch.get_num_threads()  # without this first call, the next one in a new thread undoes the setting
        if not _torch_blocks:
            _default = before
        _torch_blocks += 1
    outer, _own.count = getattr(_own, "count", None), count
    torch.set_num_threads(count)
    try:
        yield
    finally:
        _own.count = outer
        torch.set_num_threads(outer or _default)
        with _lock:
            _torch_blocks -= 1


def has_bf16(device: str) -> bool:
    """Whether the device computes in bfloat16 fast: a GPU, or a CPU with AVX-512 BF16, as all with AMX."""
    return not device.startswith("cpu") or torch.cpu._is_avx512_bf16_supported()


def autocast(device: str, bf16: bool) -> torch.autocast:
    """Autocast to bfloat16 if `bf16`; float32 on a CPU that only emulates it, which takes many times as long."""
    return torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bf16 and has_bf16(device))


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
