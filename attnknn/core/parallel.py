"""Independent calls in worker processes of one thread each; results in the order of the calls."""

import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")

# A forked process needs no imports, which take a new one longer than a head takes to fit, and shares the memory of the
# calls' arguments. Forking is safe on Linux alone: macOS's own libraries do not survive it.
_METHOD = "fork" if sys.platform == "linux" else "spawn"
_calls: Sequence[Callable[[], Any]] = ()  # in a worker process


def _initialise(calls: Sequence[Callable[[], Any]]) -> None:
    global _calls
    _calls = calls
    threadpool_limits(1)
    if "torch" in sys.modules:  # calls that do not use torch need not wait for its import
        import torch

        torch.set_num_threads(1)


def _call(i: int) -> bytes:
    # Pickled here, because torch would pass tensors as open files, which end with this process.
    return pickle.dumps(_calls[i]())


def run_parallel(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """Yield the results of calls, in their order, as they become available.

    Fitting a head is thousands of small operations: a second process makes it faster, a second thread does not.

    Args:
        calls: functions without arguments (`functools.partial`); results are pickled.
        workers: processes; 1 runs the calls in this process, with its own threads.
    """
    if workers == 1 or len(calls) == 1:
        yield from (call() for call in calls)
        return
    context = multiprocessing.get_context(_METHOD)
    with ProcessPoolExecutor(min(workers, len(calls)), context, _initialise, (calls,)) as pool:
        yield from map(pickle.loads, pool.map(_call, range(len(calls))))
