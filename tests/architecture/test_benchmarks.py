"""Benchmarks: arithmetic, peers, and runs at tiny sizes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import TEST
from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from attnknn.evaluation.metrics import METRICS, scores
from attnknn.heads.baselines import Distance
from attnknn.heads.classify import classify
from attnknn.index import faiss_index
from benchmarks import gpu, hierarchical, metrics, training, votes
from benchmarks.__main__ import main, markdown
from benchmarks.comparison import compare
from benchmarks.synthetic import random_space
from pipeline.settings import Params


@pytest.fixture
def threads_kept() -> Iterator[None]:
    """Restore the thread counts that `main` sets."""
    torches = torch.get_num_threads()
    yield
    torch.set_num_threads(torches)
    faiss_index.set_threads(torches)


def test_a_ratio_is_taken_within_a_round() -> None:
    """Ratios by round are 3/1, 2/4 and 8/2, with median 3; that of the medians would be 3/2."""
    (row,) = compare("w", "s", {"ours": [1.0, 4.0, 2.0], "peer": [3.0, 2.0, 8.0]}, "ours")
    assert row["ratio"] == {"value": 3.0, "low": 0.5, "high": 4.0}
    assert row["ours"] == {"name": "ours", "value": 2.0, "low": 1.0, "high": 4.0}
    assert row["peer"] == {"name": "peer", "value": 3.0, "low": 2.0, "high": 8.0}
    for better, ratio in ((True, 3.0), (False, 1 / 3)):  # above one ours is better
        (row,) = compare("w", "s", {"peer": [10.0], "ours": [30.0]}, "ours", higher_is_better=better)
        assert row["ratio"]["value"] == ratio


def test_a_missing_peer_is_a_row_without_numbers_and_no_peer_a_plain_table() -> None:
    here, gone = compare("w", "s", {"ours": [1.0], "a": [2.0], "b": None}, "ours", recalls={"a": 0.5}, notes={"a": "n"})
    assert (here["note"], here["peer"]["recall"], here["ratio"]["value"]) == ("n", 0.5, 2.0)
    assert gone["peer"] == {"name": "b"}
    assert (gone["note"], gone["ratio"]) == ("not installed", None)
    table = markdown("x", {"about": {"says": "What it is.", "cores": 2}, "rows": [here, gone]})
    assert "| w | ours: 1 s | a: 2 s | 2 (2 … 2) |  / 0.5000 | n |" in table
    assert "| w | ours: 1 s | b |  |  | not installed |" in table
    table = markdown("x", {"about": {"says": "S."}, "rows": [{"index": "flat", "build_s": 0.01234, "bytes": 1e6}]})
    assert "| index | build_s | bytes |\n| --- | --- | --- |\n| flat | 0.0123 | 1,000,000 |" in table


def test_a_schedule_fits_the_budget_by_measured_speed() -> None:
    """Length 2 takes less than .012 longer than 1; length 4 takes .06 longer, so .02 each with .01 of overhead: 5 fit.

    A difference of .4 minutes is enough for any budget.
    """
    minutes = {1: 0.03, 2: 0.035, 4: 0.09}
    assert training.fitted_length(minutes.__getitem__, 0.12, "ours") == 5
    with pytest.raises(InputError, match=r"0\.024 minutes are too few for ours"):
        training.fitted_length(minutes.__getitem__, 0.024, "ours")
    minutes = {1: 0.6, 2: 1.1}
    assert training.fitted_length(minutes.__getitem__, 20.0, "ours") == (20.0 - 0.1) // 0.5


def test_flat_and_hierarchical_heads_read_the_same_neighbours(
    tmp_path: Path, threads_kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    centroids = []
    fit = hierarchical.fit_head

    def fitted(spaces: Any, **settings: Any) -> Any:
        centroids.append(spaces[0].regions[1])
        return fit(spaces, **settings)

    monkeypatch.setattr(hierarchical, "fit_head", fitted)
    main(["--quick", "--rounds", "1", "--threads", "1", "--out", str(tmp_path), "--only", "hierarchical"])
    rows = read_json(tmp_path / "results.json")["hierarchical"]["rows"]
    recalls = {(row["search"], row["head"]): row["recall"] for row in rows}
    assert {recalls["exhaustive", head] for head in ("flat", "hierarchical")} == {1.0}
    assert 0 < recalls["ivf, 2 lists", "flat"] == recalls["ivf, 2 lists", "hierarchical"] < 1
    assert min(row["ms"] for row in rows) > 0
    assert rows[0]["nll"] != rows[1]["nll"], "regions are weighted"
    assert all(one is centroids[0] for one in centroids), "those of the index, not of a k-means of each space"
    assert len(centroids[0]) == rows[0]["lists"]


def test_both_are_evaluated_after_the_same_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained on noise; accuracies are shares of 10 test rows."""
    monkeypatch.setattr(training, "fitted_length", lambda *_: 2)
    monkeypatch.setattr(training, "_TIMED", 1)
    monkeypatch.setattr(training, "SPLITS", tmp_path)
    training.noise_images(32, 8).save(tmp_path / "noise" / "3")
    changes = {"batch_size": 16, "widths": [4], "embed_dim": 8}
    t = Params(dataset="cifar10").train_embedder.model_copy(update=changes)
    rows = training.accuracy(t, "cpu", 0.5, "noise", 3)
    ends, curve = rows[:4], rows[4:]
    what = ["noise, 0.5 minutes, linear head", f"noise, 0.5 minutes, kNN, k {t.k_val}"]
    peers = [training.SMALLER, training.PEER]
    assert [(row["what"], row["peer"]["name"]) for row in ends] == [(judge, peer) for judge in what for peer in peers]
    assert {row["unit"] for row in curve} <= {"val accuracy"}
    for row in rows:
        assert {round(10 * row[side]["value"], 6) % 1 for side in ("ours", "peer")} == {0}
    for row in ends:
        assert row["note"].startswith("ours 2 epochs in 0.0")
        assert row["note"].endswith("seed 3")


def test_an_epoch_of_smaller_images_takes_the_time_of_its_pixels() -> None:
    """Of four epochs the first two take 9/16 of the others' time, so half of the epochs 9/25 of all."""
    changes = {"batch_size": 16, "widths": [4], "embed_dim": 8, "shrunk": 0.5}
    t = Params(dataset="cifar10").train_embedder.model_copy(update=changes)
    _, minutes, curve = training.ours(training.noise_images(32, 8), t, 4, 0, "cpu")
    assert [point[0] / minutes for point in curve] == pytest.approx([4.5 / 25, 9 / 25, 17 / 25, 1])


def test_the_picture_has_a_curve_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points of ours stand beside several peers' and are drawn once."""
    drawn: list = []
    monkeypatch.setattr(training, "line_plot", lambda lines, *_: drawn.extend(lines))
    values = {training.OURS: [0.5], training.SMALLER: [0.6], training.PEER: [0.4]}
    ends = compare("w", "val accuracy", values, training.OURS, True)
    training.picture([*ends, *({**row, "minutes": [1.0, 1.1]} for row in ends)])
    assert [(line.name, line.points.values.tolist()) for line in drawn] == [
        (training.OURS, [[1.0, 0.5]]), (training.SMALLER, [[1.1, 0.6]]), (training.PEER, [[1.1, 0.4]])
    ]  # fmt: skip


def test_our_points_are_no_later_than_the_peer_s() -> None:
    mine, theirs = [(1.0, 0.1), (2.0, 0.2), (3.0, 0.3)], [(0.5, 0.5), (1.9, 0.6), (2.98, 0.7)]
    assert training.side_by_side(mine, theirs) == [(mine[0], theirs[1]), (mine[2], theirs[2])]


def test_the_plain_peers_agree_with_ours() -> None:
    data = random_space(300, 200, 8, 7, (5,))
    test = data.embeddings.rows(TEST)
    y, ours = data.embeddings.y[test], classify(Distance(5, votes.TEMPERATURE, votes.PRIOR), data, test, 5)
    np.testing.assert_allclose(votes.classify_numpy(data, test, 5), ours, atol=1e-6)
    assert (ours.argmax(1) == y).mean() > 0.6, "most neighbours are of the query's class"
    values, plain = scores(ours, y), metrics.plain_scores(metrics.normalise(ours), y)
    assert tuple(plain) == METRICS
    for name in set(METRICS) - {"ece_adaptive"}:
        assert plain[name] == pytest.approx(values[name], abs=1e-6), name
    assert metrics.ece(ours, y) == pytest.approx(values["ece"], abs=1e-9)
    both = [path(data, test, y, 5, 100) for path in (metrics.our_path, metrics.plain_path)]
    same = [i for i, name in enumerate(METRICS) if name != "ece_adaptive"]
    spread = both[0][1:].std(0)
    np.testing.assert_array_less(np.abs(both[0][1:].mean(0) - both[1][1:].mean(0))[same], (0.5 * spread)[same])


def test_suites_run_and_earlier_results_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads_kept: None
) -> None:
    for name in ("hnswlib", "usearch", "usearch.index"):
        monkeypatch.setitem(sys.modules, name, None)
    options = ["--quick", "--rounds", "1", "--threads", "1", "--out", str(tmp_path)]
    main([*options, "--only", "search,votes,metrics,attention_cost"])
    results = read_json(tmp_path / "results.json")
    assert list(results) == ["search", "votes", "metrics", "attention_cost"]
    for suite in results.values():
        about = suite["about"]
        assert {"date", "revision", "processor", "cores", "torch", "usearch", "threads", "sizes"} <= set(about)
        assert (about["sizes"], about["threads"]) == ("quick", 1)
        for row in suite["rows"]:
            assert set(row) == {"what", "unit", "ours", "peer", "ratio", "note"}
            if row["note"] == "not installed":
                assert row["ratio"] is None
                continue
            assert 0 < row["ratio"]["low"] <= row["ratio"]["value"] <= row["ratio"]["high"]
            assert row["ratio"]["value"] == pytest.approx(row["peer"]["value"] / row["ours"]["value"])
    missing = {row["peer"]["name"] for row in results["search"]["rows"] if row["note"] == "not installed"}
    assert missing == {"hnswlib", "usearch", "usearch, exact"}
    exact = [r for r in results["search"]["rows"] if r["ours"]["name"] == "ours, flat" and "recall" in r["ours"]]
    assert {r["ours"]["recall"] for r in exact} == {1.0}
    main([*options, "--only", "votes"])
    again = read_json(tmp_path / "results.json")
    assert again["search"] == results["search"]
    assert again["votes"]["rows"] != results["votes"]["rows"]
    text = (tmp_path / "RESULTS.md").read_text("utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {name}" for name in results]
    with pytest.raises(InputError, match="--only: nothing unknown"):
        main([*options, "--only", "nothing"])


@pytest.mark.usefixtures("threads_kept")
def test_the_benchmark_for_a_gpu_measures_every_line_on_a_cpu(tmp_path: Path) -> None:
    main(["--quick", "--rounds", "1", "--threads", "1", "--out", str(tmp_path), "--only", "gpu"])
    rows = read_json(tmp_path / "results.json")["gpu"]["rows"]
    units = ["minutes", "test accuracy", "test accuracy", "ms a query", "seconds", "seconds a step"]
    assert [row["unit"] for row in rows] == units
    accuracies = [row for row in rows if row["unit"] == "test accuracy"]
    assert all(0 <= row["low"] <= row["value"] <= row["high"] <= 1 for row in accuracies)
    assert [row["reached"] for row in accuracies] == ["", "none"], "trained on noise"
    assert all(row["value"] > 0 for row in rows[3:])


def test_the_benchmark_for_a_gpu_needs_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SPLITS", tmp_path)
    with pytest.raises(InputError, match="no split of cifar10 or cifar10_jpeg"):
        gpu.prepared()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "0"], r"--threads: 0; give 1 or more"),
        (["--only", "training", "--accuracy", "abc", "digits"], r"--accuracy: abc minutes; give a number above 0"),
        (["--only", "training", "--accuracy", "0", "digits"], r"--accuracy: 0 minutes; give a number above 0"),
    ],
)
def test_options_are_refused_before_anything_is_measured(options: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        main(["--quick", *options])
