"""Independent pieces of work on several cores: a process a core, each with one thread, results in the order asked."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from joblib import Parallel, delayed, parallel_config

T = TypeVar("T")


def in_order(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """The results of calls, yielded in their order as they come.

    Fitting a head is thousands of small operations, which a second thread does not make faster; a second process does.
    Arrays that are opened memory-mapped are handed over by their files.

    Args:
        calls: functions of nothing, as made by `functools.partial`; what they return is copied between processes.
        workers: processes; 1 works in this one, with its own threads.
    """
    if workers == 1 or len(calls) == 1:
        yield from (call() for call in calls)
        return
    with parallel_config("loky", inner_max_num_threads=1):
        yield from Parallel(n_jobs=workers, return_as="generator")(delayed(call)() for call in calls)  # type: ignore[misc]
