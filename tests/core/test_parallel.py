"""Worker processes: the same results in the same order, one thread each."""

import os
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from attnknn.core.errors import InputError
from attnknn.core.parallel import run_parallel


def threads() -> set[int]:
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


def refuse() -> None:
    raise InputError("k: 0 given")


def doubled(x: np.ndarray, row: int) -> torch.Tensor:
    return torch.from_numpy(x[row] * 2)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_results_come_in_the_order_of_the_calls(workers: int) -> None:
    assert list(run_parallel([partial(pow, x, 2) for x in range(5)], workers)) == [0, 1, 4, 9, 16]
    assert list(run_parallel([], workers)) == []


def test_every_call_is_made_in_another_process_on_one_thread() -> None:
    calls: list[Callable[[], object]] = [os.getpid, os.getpid, threads, threads]
    first, second, *counts = run_parallel(calls, 2)
    assert os.getpid() not in (first, second)
    assert counts == [{1}, {1}]


def test_tensors_outlive_the_process_that_made_them() -> None:
    x = np.arange(4_000.0).reshape(4, 1_000)
    results = list(run_parallel([partial(doubled, x, row) for row in range(4)], 2))
    assert torch.equal(torch.stack(results), torch.from_numpy(x * 2))


def test_errors_of_a_call_are_raised_here() -> None:
    with pytest.raises(InputError, match="k: 0 given"):
        list(run_parallel([partial(pow, 2, 2), refuse], 2))
