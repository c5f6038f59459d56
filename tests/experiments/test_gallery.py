"""Example predictions: weights of the head, selection of the cases, and the section of the report."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours, Predictions, Split
from attnknn.core.errors import InputError
from attnknn.evaluation.confusion import confusion, shared_errors
from attnknn.experiments.gallery import decisions, format_features, gallery, pick_cases, save_gallery
from attnknn.experiments.tsne import tsne_table
from attnknn.heads.attention import Attention
from attnknn.heads.baselines import Distance, Uniform
from attnknn.neighbours.space import NEEDS, EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics
from attnknn.report.results import Run
from attnknn.report.sections import explain as report
from synthetic import blobs, embedded, pictures, retrieved
from synthetic_results import TIE, check_part, predictions

K = 7


def predict(data: EmbeddingSpace, heads: Mapping[str, object]) -> Predictions:
    rows = data.embeddings.rows(TEST)
    probs = np.stack([head(data.around(rows, K, NEEDS))[0].detach().numpy() for head in heads.values()])  # type: ignore[operator]
    return Predictions(rows.astype(np.int32), data.embeddings.y[rows], probs, tuple(heads), data.embeddings.classes)


@pytest.fixture(scope="module")
def table() -> tuple[Split, EmbeddingSpace]:
    split = blobs(240, noise=1.6)
    return split, retrieved(embedded(split), k=11)


def learned(data: EmbeddingSpace) -> Attention:
    """An attention head with prototypes and features, whose null neighbours have a weight."""
    torch.manual_seed(0)
    d = data.embeddings.z.shape[1]
    head = Attention(d, 3, 2, temperature=0.3, prior=0.1, features=["distance", "agreement"], hidden=4)
    with torch.no_grad():
        head.fc2.weight.normal_()
    return head.eval()


def test_decisions_show_the_highest_weights_the_rest_and_the_null(table: tuple[Split, EmbeddingSpace]) -> None:
    z = np.array([[0.0], [5.0], [0.0], [np.sqrt(2)], [9.0]], dtype=np.float32)
    part = np.array([TEST, FIT, BANK, BANK, VAL], dtype=np.int8)
    e = Embeddings(z, np.array([0, 0, 0, 1, 1]), part, ("cat", "dog"))
    ids = np.array([[2, 3], [3, 2], [3, -1], [2, -1], [3, 2]], dtype=np.int32)
    sims = np.where(ids >= 0, -((z - z[ids.clip(0), 0]) ** 2), -np.inf).astype(np.float32)
    n = Neighbours(np.arange(5, dtype=np.int32), ids, sims, "l2")
    data = EmbeddingSpace(e, n, neighbour_statistics(e, n, (1,)))
    (decision,) = decisions(Distance(2, 1.0, 0.1), Uniform(2, 0.2), data, np.array([0]), 2, 2)
    first = 0.9 / (1 + np.exp(-2))  # of row 2, which equals row 0: σ(2/τ) of the weight that the prior leaves
    assert decision.ids.tolist() == [2, 3]
    np.testing.assert_allclose(decision.weights, [first, 0.9 - first], rtol=1e-5)
    np.testing.assert_allclose(decision.other_weights, [0.4, 0.4], rtol=1e-5)
    assert decision.null == pytest.approx(0.1, abs=1e-6)
    np.testing.assert_allclose(decision.probs, [first + 0.05, 0.95 - first], rtol=1e-5)
    (missing,) = decisions(Distance(2, 1.0, 0.1), Uniform(2, 0.2), data, np.array([2]), 2, 2)
    assert missing.ids.tolist() == [3], "missing neighbours are left out"
    _, data = table
    rows = data.embeddings.rows(TEST)
    for d in decisions(learned(data), Distance(K, 0.3, 0.1), data, rows, K, 3):
        assert (np.diff(d.weights) <= 0).all()
        assert d.weights.sum() + d.rest + d.null == pytest.approx(1, abs=1e-5)
        assert d.weights.min() >= d.rest / (K - 3) - 1e-6, "those of highest weight"
        assert len(d.ids) == 3
        assert d.null > 0
        assert (data.embeddings.part[d.ids] == BANK).all()


def test_cases_of_each_kind() -> None:
    tied = predictions(TIE, 200, seed=4)
    probs, y = tied.probs[0], tied.y
    hard = np.random.default_rng(0).integers(0, 5, 200) / 5
    selected = pick_cases(probs, y, hard, 4)
    confidence, wrong = probs.max(1), probs.argmax(1) != y
    assert selected["wrong"].tolist() == sorted(np.flatnonzero(wrong), key=lambda i: -confidence[i])[:4]
    rest = np.setdiff1d(np.arange(200), selected["wrong"])
    assert selected["uncertain"].tolist() == sorted(rest, key=lambda i: confidence[i])[:4]
    rest = np.setdiff1d(rest, selected["uncertain"])
    assert (hard[selected["hard"]] == hard[rest].max()).all()
    assert not wrong[selected["right"]].any()
    assert len(set(y[selected["right"]])) == 4, "one of each class before the second of any"
    rows = np.concatenate(list(selected.values()))
    assert len(set(rows)) == len(rows) == 16
    y = np.arange(6) % 3
    selected = pick_cases(np.eye(3)[y] * 0.7 + 0.1, y, np.zeros(6), 2)
    assert {kind: len(rows) for kind, rows in selected.items()} == {"wrong": 0, "uncertain": 2, "hard": 0, "right": 2}


def test_a_table_shows_the_values_of_its_rows(table: tuple[Split, EmbeddingSpace]) -> None:
    split, data = table
    head, other = learned(data), Distance(K, 0.3, 0.1)
    cases, strips = gallery(split, data, head, other, predict(data, {"attention": head}), K, 3, 4, "attention")
    assert not strips
    assert not cases["images"]
    for case in cases["cases"]:
        rows = [case["row"], *(n["row"] for n in case["neighbours"])]
        idx = [split.features.index(name) for name in case["features"]]
        expected = [[f"{v:.2f}".replace("-", "−") for v in split.x[row, idx]] for row in rows]
        assert case["values"] == expected
        gaps = np.abs(split.x[rows[1:]] - split.x[rows[0]]).mean(0)
        assert idx == np.argsort(-gaps).tolist(), "the feature that differs most comes first"
        assert [n["class"] for n in case["neighbours"]] == [split.classes[split.y[i]] for i in rows[1:]]
        assert case["actual"] == split.classes[split.y[case["row"]]]
        assert split.part[case["row"]] == TEST
        labels = split.y[data.neighbours.take(np.array([case["row"]]), K)[0][0]]
        assert case["disagreement"] == pytest.approx((labels != split.y[case["row"]]).mean())


def test_image_strips_are_queries_with_neighbours_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    split, head = pictures(96), Distance(K, 0.3, 0.1)
    flat = split.x.reshape(96, -1).astype(np.float32)
    data = retrieved(embedded(replace(split, x=flat, features=tuple(map(str, range(64))))), k=11)
    cases, strips = gallery(split, data, head, head, predict(data, {"attention": head}), K, 2, 4)
    assert cases["images"]
    assert len(strips) == len(cases["cases"]) > 0
    for case in cases["cases"]:
        rows = [case["row"], *(n["row"] for n in case["neighbours"])]
        tiles = np.split(strips[case["picture"]], 5, axis=1)
        for tile, row in zip(tiles, rows, strict=True):
            np.testing.assert_array_equal(tile, split.x[row, 0])
    colour = replace(split, x=np.repeat(split.x, 3, axis=1))
    _, strips = gallery(colour, data, head, head, predict(data, {"attention": head}), K, 2, 4)
    assert next(iter(strips.values())).shape == (8, 8 * 5, 3)
    run = written_run(tmp_path, split, data)
    assert len(report.section([run], tmp_path).parts[0].pictures) > 2
    next((tmp_path / "gallery/blobs-1").glob("*.png")).unlink()
    with pytest.raises(InputError, match="dvc repro --force evaluate@blobs-1"):
        report.section([run], tmp_path)
    assert report.section([replace(run, tables={})], tmp_path).parts == []


def test_one_hot_columns_are_shown_as_categories() -> None:
    x = np.array([[0.5, 1, 0, 0], [-1.5, 0, 1, 0], [0.5, 0, 0, 0]], dtype=np.float32)
    names, values = format_features(x, ("age", "work = home", "work = a = b", "ratio = x/y"))
    assert set(names) == {"age", "work", "work = a", "ratio"}, "a category may hold the sign itself"
    names, values = format_features(x[:, :3], ("age", "work = home", "work = away"))
    assert names == ["age", "work"]
    assert values == [["0.50", "home"], ["−1.50", "away"], ["0.50", "(none)"]]
    names, _ = format_features(np.array([[0.2], [0.4]], dtype=np.float32), ("ratio = x/y",))
    assert names == ["ratio = x/y"], "a number's own name stays whole"


def written_run(root: Path, split: Split, data: EmbeddingSpace, seed: int = 1) -> Run:
    """The results of the stage, of one head beside another."""
    heads = {"attention": learned(data), "distance_vector": Distance(K, 0.3, 0.1)}
    both = predict(data, heads)
    cases, strips = gallery(split, data, *heads.values(), both, K, 2, 4)
    folder = root / "gallery" / f"blobs-{seed}"
    save_gallery(cases, strips, tsne_table(data, both, 30, 5.0, 0), folder)
    counts = confusion(both, both.methods)
    assert tuple(counts[0]) == report.TABLES["confusion"]
    frames = {"confusion": pd.DataFrame(counts)}
    return Run("blobs", seed, {"prepare": {"test": 40}, "explain": shared_errors(both, both.methods)}, frames)


def test_the_report_shows_every_case_and_counts_errors(table: tuple[Split, EmbeddingSpace], tmp_path: Path) -> None:
    run = written_run(tmp_path, *table)
    counts = run.tables["confusion"]
    wrong = counts[(counts["method"] == "attention") & (counts["actual"] != counts["predicted"])]["count"].sum()
    (part,) = report.section([run], tmp_path).parts
    assert part.tables[0].rows[0][:3] == ["1", "40", str(wrong)]
    assert len(part.pictures) == 2 + 8
    check_part(part)
    assert max(int.from_bytes(png[16:20], "big") for _, png in part.pictures) <= 3.4 * 160 + 1
    assert sum(len(png) for _, png in part.pictures) < 600 * 1024
    (part,) = report.section([run, replace(run, seed=2)], tmp_path).parts
    assert [row[:3] for row in part.tables[0].rows] == [[seed, "40", str(wrong)] for seed in ("1", "2")]
