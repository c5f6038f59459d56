"""Run tasks in this process, or on the machines of a Ray cluster. The only module that imports ray."""

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from tqdm import tqdm

from attnknn.core.errors import InputError, require

T = TypeVar("T")
R = TypeVar("R")
_RETRIES = 5  # of a task whose machine is lost


def run_tasks(call: Callable[[T], R], tasks: Sequence[T], cluster: str | None, name: str) -> Iterator[R]:
    """Yield call(task) of every task, in any order, with a progress bar.

    Args:
        cluster: address of a Ray cluster whose machines have this library and see the same files, `auto` for the one
            that this machine belongs to, or None for this process. A connection that this process has open is used,
            and left open.
        name: shown in the progress bar.
    """
    results = map(call, tasks) if cluster is None else _on_cluster(call, tasks, cluster)
    yield from tqdm(results, desc=name, total=len(tasks), unit=" blocks", delay=2, disable=None)


def _on_cluster(call: Callable[[T], R], tasks: Sequence[T], address: str) -> Iterator[R]:
    try:
        import ray
        from ray.exceptions import RayTaskError
    except ImportError:
        raise InputError("cluster: ray is not installed; run `pip install attnknn[cluster]`") from None
    own = not ray.is_initialized()
    if own:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            if host:  # ray would wait for minutes
                socket.create_connection((host, int(port)), timeout=5).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0][:200]
            raise InputError(f"cluster: no Ray cluster at {address} ({reason}); see `ray start --help`") from None
    try:
        cores = int(ray.cluster_resources().get("CPU", 0))
        require(cores > 0, f"cluster: the cluster at {address} has no CPU free for tasks")
        function: Any = call
        remote: Any = ray.remote(max_retries=_RETRIES)(lambda task: function(task))  # it takes no partial
        waiting = iter(tasks)
        running = [remote.remote(task) for task in islice(waiting, 2 * cores)]
        while running:
            (done,), running = ray.wait(running)
            try:
                yield ray.get(done)
            except RayTaskError as error:
                raise error.cause from None
            running += [remote.remote(task) for task in islice(waiting, 1)]
    finally:
        if own:
            ray.shutdown()
