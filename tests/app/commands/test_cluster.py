"""What a Ray cluster of two nodes shares: the results are those of one process, also when a node is killed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from synthetic_models import picture_encoder

from attnknn import AttnKNNClassifier
from attnknn.app import parts
from attnknn.classifier import table_memory
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.cluster import run_tasks
from attnknn.encoder.encoder import embed_split
from attnknn.index.bank import build
from attnknn.index.stored import store
from attnknn.neighbours.search import bank_rows, search
from command_line import embed, refused, succeeded


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_IMAGES", 5)
    monkeypatch.setattr(parts, "_ROWS", 30)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs and two nodes, of which the last test kills one."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.own_nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def connected(cluster: Any) -> Iterator[Any]:
    """The cluster, with a connection of this process, as a script has that uses Ray itself; it stays open."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    assert ray.is_initialized()
    ray.shutdown()


def test_a_cluster_embeds_the_same_vectors(cluster: Any, folder: Path, tmp_path: Path) -> None:
    for name, flags in (("here", ()), ("there", ("--cluster", cluster.address))):
        succeeded(*embed(folder, folder / "images"), "-o", tmp_path / name, *flags)
    assert files(tmp_path / "here") == files(tmp_path / "there")


def test_a_cluster_gives_the_same_answers_and_names_a_bad_picture(connected: Any, folder: Path, tmp_path: Path) -> None:
    for name, flags in (("here", ()), ("there", ("--cluster", connected.address))):
        succeeded("predict", folder / "vectors", folder / "z.npy", "-o", f"{tmp_path}/{name}/", *flags)
    assert files(tmp_path / "here") == files(tmp_path / "there")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "0.png").write_bytes(b"no picture")
    line = refused(*embed(folder, tmp_path / "bad"), "-o", tmp_path / "out", "--cluster", connected.address)
    assert "0.png" in line


def test_embeddings_of_a_split_and_neighbours_are_those_of_one_process(connected: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    part = np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), [2500, 500, 500, 700])
    x = rng.integers(0, 255, (len(part), 1, 8, 8), dtype=np.uint8)
    split, encoder = Split(x, rng.integers(0, 2, len(part)), part, ("a", "b")), picture_encoder()
    one, shared = embed_split(encoder, split), embed_split(encoder, split, cluster=connected.address)
    np.testing.assert_array_equal(shared.z, one.z)
    np.testing.assert_array_equal(shared.logits, one.logits)  # type: ignore[arg-type]
    options = {"metric": "l2", "ivf_nlist": 20, "ivf_nprobe": 3}
    bank = store(tmp_path / "bank", *bank_rows(one), "lance", **options)
    neighbours, of_cluster = (search(bank, one, 9, cluster=address) for address in (None, connected.address))
    np.testing.assert_array_equal(of_cluster.ids, neighbours.ids)
    np.testing.assert_array_equal(of_cluster.sims, neighbours.sims)


def test_neighbour_statistics_are_those_of_one_process(
    connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_memory, "_PART", 500)
    X, y = make_blobs(3000, 5, random_state=0)
    models = [
        AttnKNNClassifier(storage=str(tmp_path / name), cluster=address, random_state=0, max_iter=3).fit(X, y)
        for name, address in (("one", None), ("shared", connected.address))
    ]
    one, shared = (model.memory_.bank.take(np.arange(3000), ["agreement", "density"]) for model in models)
    for name, values in one.items():
        np.testing.assert_array_equal(shared[name], values)
    assert np.ptp(one["density"]) > 0
    models[1].update_statistics()
    np.testing.assert_array_equal(models[0].predict_proba(X[:50]), models[1].predict_proba(X[:50]))


def test_a_killed_machine_loses_no_task(connected: Any, tmp_path: Path) -> None:
    z = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32)
    bank = store(tmp_path / "bank", z, np.arange(400), "lance", metric="l2", ivf_nlist=4, ivf_nprobe=4)

    def slow_search(start: int) -> tuple[int, np.ndarray]:
        time.sleep(0.1)
        return start, bank.search(z[start : start + 10], 5)[0]

    results = {}
    for start, ids in run_tasks(slow_search, range(0, 400, 10), connected.address, "search"):
        results[start] = ids
        if len(results) == 6:
            connected.remove_node(connected.own_nodes.pop(), allow_graceful=False)
    ids = np.concatenate([results[start] for start in range(0, 400, 10)])
    np.testing.assert_array_equal(ids, build(z, np.arange(400)).search(z, 5)[0])
