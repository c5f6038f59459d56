"""A disk that is full: the folder `out` is a file system of few KiB."""

from random import Random

import numpy as np
from starlette.testclient import TestClient

from attnknn import AttnKNNClassifier
from attnknn.app.model.model import Model
from attnknn.app.server.app import create_app
from tests.fuzz.judge import Judge
from tests.fuzz.runner import DIM
from tests.fuzz.settings import Project
from tests.fuzz.tables import csv_bytes


def run(rng: Random, judge: Judge) -> None:
    """Write to `out` by a command, a stage, the library or the server."""
    vectors, table, model = judge.folder / "x.npy", judge.folder / "a.csv", judge.out / "model"
    y = np.arange(400) % 2
    X = np.random.default_rng(0).normal(size=(400, DIM)) + y[:, None]
    np.save(vectors, X)
    table.write_bytes(csv_bytes(Random(0), 60))
    action = rng.choice(["fit", "predict", "explain", "add", "forget", "save", "page", "stages"])
    try:
        if action in ("add", "forget", "page"):
            judge.model("beside", judge.out)
        filler = bytes(rng.randrange(60_000))
        (judge.out / "filler").write_bytes(filler)
        source = {"kind": "csv", "train": {"path": str(table)}, "target": "kind"}
        project = action == "stages" and Project(judge, source)
    except OSError:  # too small for what is there before
        return
    if action in ("fit", "add", "forget"):
        fit = (table, "--target", "kind", "-o", model, "-k", 5, "--weights", "distance")
        words = {"fit": fit, "add": (model, vectors, "--label", "yes"), "forget": (model, 1, 2)}[action]
        if judge.command(action, *words, writes=[model]):
            judge.call("load", lambda: Model.load(model))
    elif action in ("predict", "explain"):
        path = judge.out / {"predict": "a.csv", "explain": "a.png"}[action]
        judge.command(action, judge.model("beside"), vectors, "-o", path, writes=[path])
    elif action == "save":
        classifier = AttnKNNClassifier(5, weights="distance").fit(X, y)
        judge.call("save", lambda: [classifier.save(model)], ValueError, OSError, writes=[model])
    elif action == "page":
        app = create_app(Model.load(model), name="m", folder=model, allow_save=True)
        with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
            for url, body in (("add", {"query": "case/1", "label": "yes"}), ("forget", {"ids": [3]}), ("save", {})):
                judge.request(client, "POST", f"/api/{url}", json=body, writes=[model] if url == "save" else [])
    elif project:
        project.prepare()
