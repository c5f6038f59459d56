"""Independent pieces of work on several cores: a process a core, each with one thread, results in the order asked."""

import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")

# A copy of this process has imported everything already, which takes a new one longer than a head takes to fit; and it
# shares what the calls hold, however large. Copies are safe on Linux alone: macOS's own libraries do not survive them.
_METHOD = "fork" if sys.platform == "linux" else "spawn"
_calls: Sequence[Callable[[], Any]] = ()  # of a worker


def _begin(calls: Sequence[Callable[[], Any]]) -> None:
    global _calls
    _calls = calls
    threadpool_limits(1)
    if "torch" in sys.modules:  # work without torch is not to wait for its import
        import torch

        torch.set_num_threads(1)


def _result(place: int) -> bytes:
    # Pickled here, because torch would hand over tensors as open files, which end with this process.
    return pickle.dumps(_calls[place]())


def run_parallel(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """The results of calls, yielded in their order as they come.

    Fitting a head is thousands of small operations, which a second thread does not make faster; a second process does.

    Args:
        calls: functions of nothing, as made by `functools.partial`; what they return is copied between processes.
        workers: processes; 1 works in this one, with its own threads.
    """
    if workers == 1 or len(calls) == 1:
        yield from (call() for call in calls)
        return
    start = multiprocessing.get_context(_METHOD)
    with ProcessPoolExecutor(min(workers, len(calls)), start, _begin, (calls,)) as pool:
        yield from map(pickle.loads, pool.map(_result, range(len(calls))))
