"""Run commands, stages, calls and requests, and judge all by one property.

Each ends in time and in bounded memory, with an answer or with one line of a documented kind, and without Python
warnings. A failure changes no file, a success only those that it is to write. Probabilities are finite and sum to 1,
and a model that was saved predicts as before.
"""

import json
import os
import re
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from attnknn import AttnKNNClassifier
from attnknn.app.cli import app
from attnknn.app.model.model import Model
from attnknn.app.server.security import log
from pipeline.run import main

ROOT = Path(__file__).parents[2]
PROJECT = re.compile(rf"{re.escape(str(ROOT))}/((?:attnknn|pipeline|stages)/\S+\.py)")
CPU_SECONDS, MEMORY, LINE = 10, 200 << 20, 20_000
# Violations that stay: a pattern of the cause, and the reason.
KNOWN = {
    r"several lines: Usage: ": "Click's message about options has the form that it has in all its programs",
    r"several lines of scikit-learn": "messages of its validation, which its users know and its tests expect",
    r"UserWarning in \S+: held_out: \d+ of \d+ rows are identical": "says that the rows given measure nothing",
    r"\w+Warning in scikit-learn": "its own warnings, such as of names of columns, which it documents",
}


class Judge:
    """Runs the actions of one case and collects `violations`: pairs of a cause to count by, and what was seen."""

    def __init__(self, folder: Path, models: Path) -> None:
        """Watch all files in the folder of a case; `models` holds a model of each kind."""
        self.folder, self.models, self.out = folder, models, folder / "out"
        self.violations: list[tuple[str, str]] = []
        self.out.mkdir(parents=True)

    def model(self, kind: str, folder: Path | None = None) -> Path:
        """Copy the model of a kind for this case."""
        return Path(shutil.copytree(self.models / kind / "model", (folder or self.folder) / "model"))

    def command(self, *args: object, stdin: bytes = b"", writes: Sequence[Path] = ()) -> str:
        """Run `attnknn` in `out`; standard output, empty after a failure."""
        output = ""

        def run() -> int:
            nonlocal output
            done = CliRunner().invoke(app, list(map(str, args)), input=stdin)
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            output = (done.stdout or " ") if done.exit_code in (0, 1) else ""
            return self._exit(done.exit_code, done.stderr)

        self._watch(f"attnknn {args!r:.600}", run, (), writes)
        return output

    def stage(self, function: Callable[..., None], *args: str, writes: Sequence[Path] = ()) -> bool:
        """Run a stage in `out`; whether it did its work."""

        def run() -> int:
            with patch.object(sys, "argv", ["stage", *args]), redirect_stderr(StringIO()) as stderr:
                try:
                    main(function)
                except SystemExit as end:
                    return self._exit(int(end.code or 0), stderr.getvalue())
            return self._exit(0, stderr.getvalue())

        return self._watch(f"{function.__name__} {args}", run, (), writes) == 0

    def call(self, what: str, function: Callable[[], Any], *errors: type[Exception], **writes: Sequence[Path]) -> Any:
        """Call the library; None after an error of one of these types, by default ValueError and TypeError."""
        return self._watch(what, function, errors or (ValueError, TypeError), **writes)

    def request(self, client: Any, method: str, url: str, *, writes: Sequence[Path] = (), **content: Any) -> Any:
        """Send a request; the reply if it is a success."""

        def run() -> Any:
            with patch.object(log, "error") as logged:
                reply = client.request(method, url, **content)
            for call in logged.call_args_list:
                if call.kwargs.get("exc_info"):
                    raise call.kwargs["exc_info"]
            status, is_json = reply.status_code, "json" in reply.headers.get("content-type", "") and reply.content
            if status < 400:
                return reply
            self.require(status < 500 or status == 507, f"HTTP {status}", reply.text)
            return None if method == "HEAD" else self._line(reply.json()["error"] if is_json else reply.text)

        return self._watch(f"{method} {url} {content!r:.600}", run, (), writes)

    def answers(self, output: str) -> None:
        """Check the probabilities in JSON lines of `predict` and `explain`."""
        for line in output.split("\n")[:-1]:
            p = json.loads(line)["probabilities"]
            self.probabilities(list(p.values()) if isinstance(p, dict) else [entry["p"] for entry in p])

    def probabilities(self, values: Any) -> None:
        """Check probabilities (…, C)."""
        p = np.asarray(values, dtype=np.float64)
        fine = p.size and np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(-1), 1, atol=1e-4)
        self.require(bool(fine), "no probabilities", str(p))

    def change(self, model: Path, *args: object) -> None:
        """Run a command that writes a model; load that, and check its classifier."""
        if self.command(*args, writes=[model]):
            self.loads(model, ())

    def loads(self, model: Path, allowed: Any = (ValueError, TypeError)) -> None:
        """Load a model, and check its classifier."""
        if (loaded := self._watch("load", lambda: Model.load(model), allowed)) is not None:
            self.classifier(loaded.classifier)

    def classifier(self, classifier: AttnKNNClassifier) -> None:
        """Check probabilities of queries near and far, and that a saved copy gives the same."""
        X: Any = np.random.default_rng(0).normal(size=(5, classifier.n_features_in_)) * [[0], [1], [1], [30], [1e6]]
        if (names := getattr(classifier, "feature_names_in_", None)) is not None:
            X = pd.DataFrame(X, columns=names)
        copy = self.out / "copy"
        probs = self.call("predict_proba", lambda: classifier.predict_proba(X))
        if probs is None or self.call("save", lambda: [classifier.save(copy)], writes=[copy]) is None:
            return
        self.probabilities(probs)
        again = self._watch("predict_proba of a copy", lambda: AttnKNNClassifier.load(copy).predict_proba(X), ())
        same = again is not None and np.allclose(probs, again, rtol=0, atol=1e-9)
        self.require(same, "a saved model predicts otherwise", f"{probs} and {again}")

    def _watch(self, what: str, run: Callable[[], Any], allowed: Any, writes: Sequence[Path] = ()) -> Any:
        """Result of `run`; None if it failed, with a line, or broke the property."""
        self._what, before, n, result = what, self._files(), len(self.violations), None
        printed, start, memory = os.fstat(2).st_size, time.process_time(), _peak_memory(reset=True)
        with warnings.catch_warnings(), redirect_stdout(StringIO()), chdir(self.out):
            warnings.simplefilter("default")
            for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
                warnings.simplefilter("ignore", category)  # as Python does
            warnings.showwarning = self._warned
            try:
                result = run()
            except allowed as error:
                self._line(str(error), error)
            except BaseException as error:
                self._add(f"{type(error).__name__} in {_frame(error)}", "".join(traceback.format_exception(error)))
        seconds, growth = time.process_time() - start, _peak_memory() - memory
        self.require(seconds < CPU_SECONDS, "too slow", f"{seconds:.1f} s")
        self.require(growth < MEMORY, "too much memory", f"{growth >> 20} MiB")
        text = os.pread(2, 9999, printed).decode(errors="replace") if os.fstat(2).st_size > printed else ""
        self.require(not text, "written to standard error", text)
        after = self._files()
        for path in sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p)):
            expected = result is not None and any(w in (path, *path.parents) for w in writes)
            state = "failure" if result is None else "success"
            self.require(expected, f"{state} changed {path.suffix or 'a file'}", str(path.relative_to(self.folder)))
        return result if len(self.violations) == n else None

    def _files(self) -> dict[Path, bytes]:
        files = (p for p in self.folder.rglob("*") if not p.name.endswith(".lock"))
        return {p: os.readlink(p).encode() if p.is_symlink() else p.read_bytes() for p in files if not p.is_dir()}

    def _exit(self, code: int, text: str) -> int | None:
        """Check an exit code and standard error; None for a failure."""
        lines = [line for line in text.splitlines() if not line.startswith("warning: ")]
        self.require(code in (0, 1, 2), f"exit code {code}", text)
        if code == 0:
            self.require(not lines, "exit code 0 with errors", text)
        elif code == 1:
            count = re.match(r"(\d+) left out$", lines[-1]) if lines else None
            self.require(count is not None and int(count[1]) == len(lines) - 1, "not a line for each left out", text)
        else:
            self.require(text.lower().startswith(("error: ", "usage: ")), "failure without an error", text)
            return self._line(text.removesuffix("\n"))
        return code

    def _line(self, text: str, error: BaseException | None = None) -> None:
        by_sklearn = error is not None and "sklearn" in _frame(error, project=False)
        kind = "several lines of scikit-learn" if by_sklearn else f"several lines: {text:.7}"
        self.require(len(text.splitlines()) <= 1, kind, text)
        self.require(bool(text.strip()), "an empty message", repr(error))
        self.require(len(text) <= LINE, "a line that is too long", text[:300])

    def _warned(self, message: Any, category: Any, *_: Any) -> None:
        stack = traceback.extract_stack()[:-2]  # without this function and the one that calls it
        frames = [m[1] for f in stack if (m := PROJECT.match(f.filename))]
        by_sklearn = issubclass(category, UserWarning) and "sklearn" in stack[-1].filename
        where = "scikit-learn" if by_sklearn else frames[-1] if frames else stack[-1].filename
        self._add(
            f"{category.__name__} in {where}: {message!s:.50}",
            f"{message}\n{''.join(traceback.format_list(stack[-5:]))}",
        )

    def require(self, condition: bool, cause: str, detail: str) -> None:
        if not condition:
            self._add(cause, detail)

    def _add(self, cause: str, detail: str) -> None:
        if not any(re.match(pattern, cause) for pattern in KNOWN):
            self.violations.append((cause, f"{self._what}\n{detail}"))


def _frame(error: BaseException, project: bool = True) -> str:
    """File and function of the innermost frame, of the project if there is one and `project`."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{m[1]}:{f.name}" for f in frames if (m := PROJECT.match(f.filename))]
    return ours[-1] if ours and project else f"{frames[-1].filename}:{frames[-1].name}"


def _peak_memory(reset: bool = False) -> int:
    """Peak resident bytes since the last reset; 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) << 10
    except OSError:
        return 0
