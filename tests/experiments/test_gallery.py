"""Example predictions: selection of the cases, weights of the heads, features and pictures."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import TEST, Predictions, Split
from attnknn.evaluation.evaluate import as_predictions
from attnknn.experiments.gallery import format_features, gallery, pick_cases, save_gallery
from attnknn.heads.attention import Attention
from attnknn.heads.baselines import Distance
from attnknn.heads.classify import classify_part
from attnknn.neighbours.space import EmbeddingSpace
from synthetic import blobs, embedded, pictures, retrieved
from synthetic_results import TIE, predictions

K = 7
OTHER = Distance(K, 0.3, 0.1)


def learned(data: EmbeddingSpace) -> Attention:
    """An attention head with prototypes and features, whose null neighbours have a weight."""
    torch.manual_seed(0)
    d = data.embeddings.z.shape[1]
    head = Attention(d, 3, 2, temperature=0.3, prior=0.1, features=["distance", "agreement"], hidden=4)
    torch.nn.init.normal_(head.fc2.weight)
    return head.eval()


def described(split: Split, data: EmbeddingSpace) -> tuple[dict[str, Any], dict[str, Any], Predictions]:
    test = as_predictions([data], TEST, {"attention": classify_part(learned(data), [data], TEST, K)})
    return *gallery(split, data, learned(data), OTHER, test, K, 4), test


def test_cases_of_each_kind() -> None:
    tied = predictions(TIE, 200, seed=4)
    probs, y = tied.probs[0], tied.y
    (_, wrong), (_, uncertain), *right = cases = pick_cases(probs, y)
    assert [kind for kind, _ in cases] == ["wrong", "uncertain", "right", "right"]
    confidence, missed = probs.max(1), probs.argmax(1) != y
    assert confidence[wrong] == confidence[missed].max()
    assert confidence[uncertain] == confidence.min()
    assert confidence[right[0][1]] == confidence[~missed].max()
    assert not missed[[i for _, i in right]].any()
    confident = np.array([[0.95, 0.05], [0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    cases = pick_cases(confident, np.array([0, 0, 1, 1]))
    assert cases == [("uncertain", 3), ("uncertain", 2), ("right", 0), ("right", 1)], "no errors"
    confident = np.r_[confident, [[0.45, 0.55], [0.4, 0.6]]]
    cases = pick_cases(confident, np.array([0, 0, 1, 1, 0, 1]))
    assert cases == [("wrong", 4), ("uncertain", 3), ("right", 0), ("right", 2)], "of different classes"
    y = np.arange(3) % 2
    assert pick_cases(np.eye(2)[y] * 0.8 + 0.1, y) == [("uncertain", 0), ("uncertain", 1), ("right", 2)]
    assert pick_cases(np.array([[0.9, 0.1]]), np.array([1])) == [("wrong", 0)], "no row twice"


def test_a_table_shows_weights_and_values_of_its_rows() -> None:
    split = blobs(240, noise=1.6)
    data = retrieved(embedded(split), k=11)
    cases, strips, test = described(split, data)
    assert not strips
    assert (cases["images"], cases["k"], len(cases["cases"])) == (False, K, 4)
    for case in cases["cases"]:
        query = np.array([case["row"]])
        batch, ids = data.around(query, K, learned(data).needs), data.neighbours.take(query, K)[0][0]
        weights, others = (head(batch)[1][0].detach().numpy() for head in (learned(data), OTHER))
        order = np.argsort(-weights)[:4]
        rows = [n["row"] for n in case["neighbours"]]
        assert rows == ids[order].tolist(), "those of highest weight, highest first"
        np.testing.assert_allclose([n["weight"] for n in case["neighbours"]], weights[order], rtol=1e-5)
        np.testing.assert_allclose([n["distance_weight"] for n in case["neighbours"]], others[order], rtol=1e-5)
        assert case["null"] == pytest.approx(1 - weights.sum(), abs=1e-6)
        assert case["null"] > 0
        probs = test.probs[0][test.rows == case["row"]][0]
        assert [top["probability"] for top in case["top"]] == pytest.approx(sorted(probs, reverse=True))
        assert case["predicted"] == case["top"][0]["class"] == split.classes[probs.argmax()]
        assert [n["class"] for n in case["neighbours"]] == [split.classes[split.y[i]] for i in rows]
        assert case["actual"] == split.classes[split.y[case["row"]]]
        idx = [split.features.index(name) for name in case["features"]]
        expected = [[f"{v:.2f}".replace("-", "−") for v in split.x[row, idx]] for row in (case["row"], *rows)]
        assert case["values"] == expected
        gaps = np.abs(split.x[rows] - split.x[case["row"]]).mean(0)
        assert idx == np.argsort(-gaps).tolist(), "the feature that differs most comes first"


def test_missing_neighbours_are_left_out() -> None:
    split = blobs(60)
    data = retrieved(embedded(split), k=11)
    ids, sims = np.array(data.neighbours.ids), np.array(data.neighbours.sims)
    ids[:, 2:], sims[:, 2:] = -1, -np.inf
    few = replace(data, neighbours=replace(data.neighbours, ids=ids, sims=sims))
    assert {len(case["neighbours"]) for case in described(split, few)[0]["cases"]} == {2}


@pytest.mark.parametrize("channels", [1, 3])
def test_image_strips_are_queries_with_neighbours(channels: int, tmp_path: Path) -> None:
    split = pictures(96)
    flat = split.x.reshape(96, -1).astype(np.float32)
    data = retrieved(embedded(replace(split, x=flat, features=tuple(map(str, range(64))))), k=11)
    split = replace(split, x=np.repeat(split.x, channels, axis=1))
    cases, strips, _ = described(split, data)
    save_gallery(cases, strips, tmp_path / "gallery")
    assert cases == json.loads((tmp_path / "gallery/gallery.json").read_text())

    assert {path.name for path in tmp_path.glob("gallery/*.png")} == {case["picture"] for case in cases["cases"]}
    for case in cases["cases"]:
        rows = [case["row"], *(n["row"] for n in case["neighbours"])]
        for tile, row in zip(np.split(np.asarray(strips[case["picture"]]), 5, axis=1), rows, strict=True):
            np.testing.assert_array_equal(tile, split.x[row, 0] if channels == 1 else np.moveaxis(split.x[row], 0, 2))


def test_one_hot_columns_are_shown_as_categories() -> None:
    x = np.array([[0.5, 1, 0, 0], [-1.5, 0, 1, 0], [0.5, 0, 0, 0]], dtype=np.float32)
    names, values = format_features(x, ("age", "work = home", "work = a = b", "ratio = x/y"))
    assert set(names) == {"age", "work", "work = a", "ratio"}, "a category may hold the sign itself"
    names, values = format_features(x[:, :3], ("age", "work = home", "work = away"))
    assert names == ["age", "work"]
    assert values == [["0.50", "home"], ["−1.50", "away"], ["0.50", "(none)"]]
    names, _ = format_features(np.array([[0.2], [0.4]], dtype=np.float32), ("ratio = x/y",))
    assert names == ["ratio = x/y"], "a number's own name stays whole"
