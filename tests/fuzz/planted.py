"""Everything that the judge must report, and what it must let pass; for the test of the judge itself."""

import os
import time
from collections.abc import Callable
from random import Random
from unittest.mock import patch

import numpy as np
import typer
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from attnknn import AttnKNNClassifier
from attnknn.core.errors import InputError
from tests.fuzz import judge as module
from tests.fuzz.judge import Judge

CAUSES = [
    "KeyError in", "several lines: a", "an empty message", "RuntimeWarning in", "written to standard error",
    "too much memory", "failure changed .csv", "success changed .csv", "no probabilities", "no probabilities",
    "HTTP 500", "exit code 3", "failure without an error", "failure without an error",
    "exit code 0 with errors", "ZeroDivisionError in", "not a line for each left out",
    "a saved model predicts otherwise",
]  # fmt: skip


def _fail(error: Exception, first: Callable[[], object] = lambda: None) -> None:
    first()
    raise error


def _exit(judge: Judge, code: int, text: str = "") -> None:
    app = typer.Typer()

    @app.command()
    def command() -> None:
        typer.echo(text or 1 / (code - 1), err=True)
        raise typer.Exit(code)

    with patch.object(module, "app", app):
        judge.command()


def run(rng: Random, judge: Judge) -> None:
    """Do everything that is reported, or crash, or hang."""
    planted = rng.randrange(3)
    if planted:
        os.abort() if planted == 1 else time.sleep(1000)
    file = judge.folder / "a.csv"
    judge.call("fine", lambda: _fail(ValueError("one line")))
    judge.call("fine", lambda: [file.write_text("1")], writes=[file])
    judge.call("traceback", lambda: {}["a"])
    judge.call("two lines", lambda: _fail(ValueError("a\nb")))
    judge.call("no message", lambda: _fail(InputError("")))
    judge.call("warning", lambda: np.float64(1e308) * 10)
    judge.call("from C", lambda: os.write(2, b"text"))
    judge.call("memory", lambda: np.ones(300 << 17).sum())
    judge.call("half-written", lambda: _fail(ValueError("no"), lambda: file.write_text("2")), writes=[file])
    judge.call("changed", lambda: [file.write_text("3")])
    judge.probabilities([[0.5, 0.5]])
    judge.probabilities([np.nan, 1])
    judge.probabilities([0.5, 0.4])
    app = Starlette(exception_handlers={404: lambda *_: JSONResponse({"error": "no such page"}, 500)})
    judge.request(TestClient(Starlette()), "GET", "/none")
    judge.request(TestClient(app), "GET", "/none")
    for code, text in ((3, "a"), (2, "a"), (0, "a"), (1, ""), (1, "a"), (1, "a\n1 left out")):
        _exit(judge, code, text)
    model, other = (AttnKNNClassifier(3, weights="uniform").fit(np.eye(9), y) for y in ([0, 1, 1] * 3, [0, 0, 1] * 3))
    with patch.object(AttnKNNClassifier, "load", lambda *_: other):
        judge.classifier(model)
