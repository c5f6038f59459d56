"""Run cases in processes that start anew after a crash or a time-out."""

import faulthandler
import multiprocessing
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any, NamedTuple

SECONDS, ADDRESS_SPACE = 60, 12 << 30
KINDS = ("tables", "arrays", "pictures", "models", "settings", "archives", "requests", "library", "commands")
MODELS = ("table", "pictures", "vectors", "beside")
DIM = 5  # of the models `vectors` and `beside`
Violations = list[tuple[str, str]]
_CONTEXT: Any = multiprocessing.get_context("forkserver")  # OpenMP's threads do not survive a fork


class Case(NamedTuple):
    """Names a case, whose random numbers follow from its name."""

    kind: str
    seed: int
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}:{self.number}"


def run(cases: Sequence[Case], workers: int) -> Iterator[tuple[Case, Violations]]:
    """Run cases and yield their violations."""
    _CONTEXT.set_forkserver_preload(["torch", "faiss", *(f"tests.fuzz.{kind}" for kind in KINDS)])
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        builder = _CONTEXT.Process(target=_fit_models, args=(Path(folder, "models"),))
        builder.start()
        builder.join()
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for i in range(workers):
            idle.put(_Worker(Path(folder, str(i)), Path(folder, "models")))

        def run_one(case: Case) -> tuple[Case, Violations]:
            worker = idle.get()
            try:
                return case, worker.run(case)
            finally:
                idle.put(worker)

        try:
            with ThreadPoolExecutor(workers) as threads:
                yield from threads.map(run_one, cases)
        finally:
            for _ in range(workers):
                idle.get().end()


def _fit_models(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import server_fixtures

    server_fixtures.table_model(folder / "table")
    server_fixtures.picture_model(folder / "pictures")
    server_fixtures.vector_model(folder / "vectors")
    server_fixtures.beside_model(folder / "beside", DIM)


class _Worker:
    """A process that runs cases, one at a time, in `folder`."""

    def __init__(self, folder: Path, models: Path) -> None:
        self.folder, self.models, self.errors = folder, models, folder.with_suffix(".stderr")
        self._start()

    def _start(self) -> None:
        self.connection, other = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_serve, args=(other, self.folder, self.models, self.errors))
        self.process.start()
        other.close()

    def run(self, case: Case) -> Violations:
        """Violations of a case."""
        self.connection.send(case)
        try:
            if self.connection.poll(SECONDS):
                return self.connection.recv()
            cause = f"no end in {SECONDS} s"
        except (EOFError, ConnectionResetError):
            self.process.join()
            cause = f"exit code {self.process.exitcode}"
        self.end()
        text = self.errors.read_text(errors="replace")
        frames = re.findall(r'/((?:attnknn|pipeline|stages)/\S+\.py)", line \d+ in (\w+)', text)
        self._start()
        return [(f"{cause} in {':'.join(frames[0]) if frames else 'no frame of the project'}", text[-3000:])]

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.join(1)
        self.process.kill()
        self.process.join()


def _serve(connection: Any, folder: Path, models: Path, errors: Path) -> None:
    os.dup2(os.open(errors, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND), 2)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        faulthandler.dump_traceback_later(SECONDS - 5)
        connection.send(run_case(case, folder, models))
        faulthandler.cancel_dump_traceback_later()


def run_case(case: Case, folder: Path, models: Path) -> Violations:
    """Run a case in `folder`, which is made and removed."""
    from tests.fuzz.judge import Judge

    shutil.rmtree(folder, ignore_errors=True)
    judge = Judge(folder, models)
    import_module(f"tests.fuzz.{case.kind}").run(Random(str(case)), judge)
    return judge.violations
