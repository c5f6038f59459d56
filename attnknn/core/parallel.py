"""Run independent calls in worker processes of one thread each; results in the order of the calls."""

import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")

# A forked process shares the arguments' memory and needs no imports, which take longer than fitting a head. Forking is
# safe on Linux only: macOS's system libraries do not support it.
_METHOD = "fork" if sys.platform == "linux" else "spawn"
_calls: Sequence[Callable[[], Any]] = ()  # in a worker process


def _initialise(calls: Sequence[Callable[[], Any]]) -> None:
    global _calls
    _calls = calls
    threadpool_limits(1)
    if "torch" in sys.modules:  # calls without torch should not wait for its import
        import torch

        torch.set_num_threads(1)


def _call(i: int) -> bytes:
    # Pickled here: torch would pass tensors as open files, which close with this process.
    return pickle.dumps(_calls[i]())


def run_parallel(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """Yield the results of calls, in their order, as they become available.

    Fitting a head is thousands of small operations, which processes speed up and threads do not.

    Args:
        calls: functions without arguments (`functools.partial`), with picklable results.
        workers: number of processes; 1 runs the calls in this process.
    """
    if workers == 1 or len(calls) <= 1:
        yield from (call() for call in calls)
        return
    context = multiprocessing.get_context(_METHOD)
    with ProcessPoolExecutor(min(workers, len(calls)), context, _initialise, (calls,)) as pool:
        yield from map(pickle.loads, pool.map(_call, range(len(calls))))
