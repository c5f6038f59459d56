"""Small models of every kind for the tests of the server, and servers in a thread or a process."""

import io
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from starlette.testclient import TestClient

from attnknn import AttnKNNClassifier
from attnknn.app.model.fit import fit_model
from attnknn.app.model.inputs import Batch, Pictures
from attnknn.app.model.model import Cases, Model
from attnknn.app.server.app import create_app
from attnknn.app.server.serve import bind, create_server
from attnknn.encoder.encoder import Encoder
from command_line import COMMAND

HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
BASE_URL = "http://127.0.0.1:8000"
ROW = {"size": "0.9", "weight": "9.5", "<b>colour</b>": "red"}
FAST = {"max_iter": 3, "n_neighbors": 12}


def table_model(folder: Path, rows: int = 160) -> Path:
    """Two numeric columns and a category, with HTML in a class, a column name and a value; some labels are wrong."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, rows)
    frame = pd.DataFrame(
        {
            "size": np.round(y + rng.normal(0, 0.35, rows), 3).astype(str),
            "weight": np.round(10 * (y == 1) + rng.normal(0, 2, rows), 2).astype(str),
            "<b>colour</b>": np.array(["red", "green", HOSTILE])[(y + (rng.random(rows) < 0.3)) % 3],
        }
    )
    frame.loc[5, "weight"] = ""
    wrong = rng.random(rows) < 0.12
    frame["kind"] = np.array(["apple", "melon", HOSTILE])[(y + wrong) % 3]
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "rows.csv", index=False)
    fit_model(folder / "rows.csv", target="kind", test=0.3, **FAST)[0].save(folder / "model")
    return folder / "model"


def pictures(rows: int = 90, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Grey images (N, 1, 8, 8), bright on one side, and labels `left` or `right`."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    images = rng.integers(0, 90, (rows, 1, 8, 8), dtype=np.uint8)
    for image, side in zip(images, y, strict=True):
        image[0, :, 4 * side : 4 * side + 4] += 120
    return images, np.array(["left", "right"])[y]


def picture_model(folder: Path) -> Path:
    """An untrained encoder, and pictures of two classes."""
    torch.manual_seed(0)
    encoder = Encoder("convnet", (1, 8, 8), 0, [4, 4, 4], embed_dim=6, depth=1)
    images, y = pictures()
    encoder.fit_normalisation(images)
    pictures_input = Pictures(encoder.eval())
    z, examples = pictures_input.vectors(Batch([], images)), pictures_input.examples(Batch([], images))
    train, test = np.arange(70), np.arange(70, 90)
    classifier = AttnKNNClassifier(random_state=0, **FAST).fit(z[train], y[train])
    cases = Cases(z[test], y[test], examples.take(test))
    Model(classifier, pictures_input, examples.take(train), cases).save(folder / "model")
    return folder / "model"


def vector_model(folder: Path, named: bool = False) -> Path:
    """A saved classifier, without input or examples."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    X = 2 * np.eye(3, 5)[y] + rng.normal(size=(120, 5))
    features = pd.DataFrame(X, columns=list("abcde")) if named else X
    AttnKNNClassifier(random_state=0, **FAST).fit(features, y).save(folder / "model")
    return folder / "model"


def beside_model(folder: Path, dim: int, rows: int = 90) -> Path:
    """Vectors without names, with columns beside them that the model does not read."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", 2 * np.eye(2, dim)[y] + rng.normal(size=(rows, dim)))
    columns = {"name": [f"thing {i}" for i in range(rows)], "kind": np.array(["no", "yes"])[y]}
    pd.DataFrame(columns).to_csv(folder / "rows.csv", index=False)
    model, _ = fit_model(folder / "x.npy", rows=folder / "rows.csv", target="kind", test=0.2, **FAST)
    model.save(folder / "model")
    return folder / "model"


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@contextmanager
def serving(model: Path, *options: str, files: int | None = None) -> Iterator[tuple[int, subprocess.Popen]]:
    """Run `attnknn serve` as a process with a limit of open files; yield its port."""
    command = [*COMMAND, "serve", str(model), "--port", "0", *options]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, text=True, env=environment, **pipes)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r":(\d+)/", line)
        assert match, line + process.stdout.read()
        yield int(match[1]), process
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(app: object) -> Iterator[int]:
    """Serve an application in a thread of this process; yield its port."""
    listening = bind("127.0.0.1", 0)
    server = create_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
    assert not thread.is_alive()


def client_of(path: Path, **options: Any) -> TestClient:
    app = create_app(Model.load(path), name="tested", folder=path, **options)
    return TestClient(app, base_url=BASE_URL, raise_server_exceptions=False)


def refused(reply: Any, status: int, message: str) -> None:
    """Assert that a reply is an error of one line, without details of the machine."""
    assert reply.status_code == status, reply.text
    assert set(reply.json()) == {"error"}
    line = reply.json()["error"]
    assert message in line, line
    assert "\n" not in line
    assert "Traceback" not in line
    assert tempfile.gettempdir() not in line
    assert len(line) <= 600


def image_post(client: TestClient, data: bytes, kind: str = "image/png") -> Any:
    return client.post("/api/ask", content=data, headers={"Content-Type": kind})


def probabilities(response: dict[str, Any], model: Model) -> np.ndarray:
    p = {entry["label"]: entry["p"] for entry in response["answer"]["probabilities"]}
    return np.array([p[str(label)] for label in model.classifier.classes_])
