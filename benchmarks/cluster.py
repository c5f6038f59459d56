"""Images embedded and their vectors predicted by `attnknn embed` and `attnknn predict`, shared among Ray workers.

`workers` 0 is this process, with all threads; otherwise a cluster on this machine of that many nodes with a core and a
thread each. `identical` says whether all files are those of the line above, to the byte. The times include the start of
the workers, with their imports, not that of the cluster.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet
from PIL import Image
from ray.cluster_utils import Cluster

from attnknn.app.model.read_files import image_files
from attnknn.app.parts import embed_images, predict_table
from attnknn.encoder.encoder import Encoder

SIZES = {"full": {"images": 60_000}, "quick": {"images": 40}}
_CLASSES, _SIZE = 10, 32


def write_images(folder: Path, images: int) -> None:
    """JPEG files of random blocks in class folders."""
    rng = np.random.default_rng(0)
    for i in range(images):
        path = folder / str(i % _CLASSES) / f"{i:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (_SIZE // 4, _SIZE // 4, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
        Image.fromarray(pixels).save(path)


def write_models(folder: Path, images: Path) -> None:
    """An untrained encoder of the pipeline's default width, and a classifier of the first 2,000 vectors."""
    encoder = Encoder("convnet", (3, _SIZE, _SIZE), 0, [64, 256, 256], embed_dim=0)
    paths = list(image_files([str(images)]))
    paths = paths[:: max(1, len(paths) // 2000)]
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1) for path in paths])
    encoder.fit_normalisation(pixels)
    encoder.save(folder / "encoder")
    embed_images(str(folder / "encoder"), None, paths, str(folder / "sample"))
    table = pyarrow.parquet.read_table(folder / "sample")
    np.save(folder / "z.npy", np.stack(table["vector"].to_numpy()))
    np.save(folder / "y.npy", np.array(table["label"].to_pylist()))
    command = [sys.executable, "-m", "attnknn", "fit", "z.npy", "--rows", "y.npy", "-o", "model"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def measure(threads: int, repeats: int, images: int, folder: str = "") -> list[dict[str, str | float]]:
    """A row per number of workers; of the images in a folder, or of made-up ones."""
    table: list[dict[str, str | float]] = []
    os.environ.pop("OMP_NUM_THREADS", None)  # workers would take as many threads
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        source = Path(folder or work / "images")
        if not folder:
            write_images(source, images)
        write_models(work, source)
        paths = list(image_files([str(source)]))
        for workers in (0, 1, 2):
            cluster = None
            if workers:
                head = {"num_cpus": 0, "include_dashboard": False}
                cluster = Cluster(initialize_head=True, head_node_args=head)
                for _ in range(workers):
                    cluster.add_node(num_cpus=1)
            address = cluster.address if cluster else None
            vectors, answers = work / f"vectors-{workers}", work / f"answers-{workers}"
            start = time.perf_counter()
            embed_images(str(work / "encoder"), None, paths, str(vectors), address)
            embedded = time.perf_counter()
            predict_table(work / "model", str(vectors), str(answers), cluster=address)
            seconds = {"embed_s": embedded - start, "predict_s": time.perf_counter() - embedded}
            if cluster:
                cluster.shutdown()
            files = [contents(vectors), contents(answers)]
            before = [contents(work / f"{kind}-{workers - 1}") for kind in ("vectors", "answers")]
            identical = "" if not workers else "yes" if files == before else "no"
            row = {"images": len(paths), "workers": workers, **seconds, "identical": identical}
            table.append(row)
            print(json.dumps(row), flush=True)
    return table
