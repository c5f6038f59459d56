"""Devices, threads and malloc, without GPUs and with two."""

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from attnknn.core.device import autocast, limit_threads, torch_threads, use_device
from attnknn.core.errors import InputError


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    threads = torch.get_num_threads()
    with threadpool_limits():
        yield
    torch.set_num_threads(threads)


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_are_fixed(threads: int) -> None:
    assert use_device("cpu", threads) == "cpu"
    assert torch.get_num_threads() == threads
    pools = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert pools == {threads}, "numpy's and scipy's"


@pytest.mark.parametrize(
    ("count", "device", "expected"),
    [(0, "auto", "cpu"), (2, "auto", "cuda"), *((2, name, name) for name in ("cpu", "cuda", "cuda:0", "cuda:1"))],
)
def test_devices_that_exist(monkeypatch: pytest.MonkeyPatch, count: int, device: str, expected: str) -> None:
    gpus(monkeypatch, count)
    assert use_device(device, 1) == expected


KNOWN = "; allowed are auto, cpu, cuda, and cuda:0 and so on"
UNKNOWN = [(0, name, KNOWN) for name in ("gpu", "", "CUDA", "cuda:", "cuda:-1", "cpu:0", "mps", "cuda:" + "9" * 5000)]
MISSING = [
    (n, name, f"{n} GPUs.* auto or cpu") for n, name in ((0, "cuda"), (0, "cuda:0"), (2, "cuda:2"), (2, "cuda:13"))
]


@pytest.mark.parametrize(("count", "device", "message"), [*UNKNOWN, *MISSING])
def test_devices_that_do_not_exist(monkeypatch: pytest.MonkeyPatch, count: int, device: str, message: str) -> None:
    gpus(monkeypatch, count)
    with pytest.raises(InputError, match=f"^device: .*{device[:9]}.*{message}$"):
        use_device(device, 1)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another")
def test_on_the_cpu_freed_memory_is_kept() -> None:
    """Of 200 MB that are written to and freed, before and after, in a process of its own."""
    code = """
import numpy as np
from pathlib import Path
from attnknn.core.device import use_device, torch_threads

def growth():
    before = int(Path("/proc/self/statm").read_text().split()[1])
    np.ones(25_000_000)
    return 4096 * (int(Path("/proc/self/statm").read_text().split()[1]) - before)

print(growth() > 150e6, use_device("cpu", 1), growth() > 150e6)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False cpu True\n"


@pytest.mark.parametrize("limit", [torch_threads, limit_threads])
def test_threads_are_restored_after_a_block(limit: Callable) -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyError), limit(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before
    with limit(None):
        assert torch.get_num_threads() == before


def test_blocks_of_several_threads_at_once_leave_no_limit() -> None:
    def threads() -> tuple[int, list[int]]:
        return torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]

    count = 1 + max(threads()[1])
    limited = count, [count] * len(threads()[1])
    blocks = limit_threads(count), limit_threads(count)
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second, ThreadPoolExecutor(1) as third:
        before = third.submit(threads).result()
        both = list(zip((first, second), blocks, strict=True))
        for thread, block in both:
            thread.submit(block.__enter__).result()
            assert thread.submit(threads).result() == limited
        for thread, block in both:
            thread.submit(block.__exit__, None, None, None).result()
        assert [thread.submit(threads).result() for thread in (first, second, third)] == [before] * 3
    before = threads()
    with limit_threads(count):
        with torch_threads(count + 1):
            assert torch.get_num_threads() == count + 1
        assert threads() == limited
    assert threads() == before


@pytest.mark.parametrize(("bf16", "fast", "dtype"), [
    (True, True, torch.bfloat16), (True, False, torch.float32), (False, True, torch.float32),
])  # fmt: skip
def test_bfloat16_only_where_the_processor_has_it(
    bf16: bool, fast: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: fast)
    with autocast("cpu", bf16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
