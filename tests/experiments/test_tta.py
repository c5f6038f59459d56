"""Test-time augmentation: every method uses the same views, and the views select nothing."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

import pipeline.run
import stages.tta
import stages.views
from attnknn.core.artifacts import BANK, FIT, TEST, VAL
from attnknn.core.errors import InputError
from attnknn.evaluation.calibration import calibrate
from attnknn.evaluation.evaluate import PartProbs
from attnknn.evaluation.paired_tests import TESTED
from attnknn.experiments import tta
from attnknn.heads.attention import Attention
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from attnknn.neighbours.views import View, held_out
from synthetic import blobs, embedded, relabelled, retrieved, rng

K = 11
METHODS = ("uniform", "distance", "attention", "prototypes", "linear")
GRIDS = {"ks": [1, 5], "temperatures": [0.1, 1.0], "priors": [0.01, 0.1]}
RIDGES, SCORING = [0.01, 1.0], {"bins": 5, "resamples": 200, "confidence": 0.9}


def moved(main: EmbeddingSpace, amount: float, seed: int) -> View:
    """A view: held-out rows moved a little, and searched again."""
    e, rows = main.embeddings, held_out(main.embeddings.part)
    generator, z = rng(seed), np.array(e.z)
    z[rows] += amount * generator.normal(size=(len(rows), z.shape[1])).astype(np.float32)
    z[rows] /= np.linalg.norm(z[rows], axis=1, keepdims=True)
    ids, sims = retrieved(replace(e, z=z), 20).neighbours.take(rows, 20)
    logits = e.logits[rows] + np.float32(amount) * generator.normal(size=(len(rows), 3)).astype(np.float32)
    return View(rows, ids, sims, "l2", z[rows], logits)


def heads(main: EmbeddingSpace) -> dict[str, Attention]:
    z = main.embeddings.z
    own = Attention(z.shape[1], 3, 2, 0.1, 0.05, features=["agreement"], prototypes=True).eval()
    without = Attention(z.shape[1], 3, 2, 1.0, 0.5, prototypes=True, neighbours=False).eval()
    for head in (own, without):
        head.prototype_gain.data.fill_(0.2)
    return {"attention": own, "prototypes": without}


def predict(main: EmbeddingSpace, views: dict[str, View]) -> dict[str, PartProbs]:
    return tta.predict_views(main, views, heads(main), K, GRIDS)


@pytest.fixture(scope="module")
def main() -> EmbeddingSpace:
    return retrieved(embedded(blobs(noise=1.5)), 20)


@pytest.fixture(scope="module")
def scored(main: EmbeddingSpace, probs: dict[str, PartProbs]) -> Any:
    return tta.score_views(probs, main, RIDGES, SCORING, 0)


@pytest.fixture(scope="module")
def probs(main: EmbeddingSpace) -> dict[str, PartProbs]:
    return predict(main, {"a": moved(main, 0.3, 1), "b": moved(main, 0.3, 2)})


def test_every_method_uses_the_same_views(probs: dict[str, PartProbs], scored: Any) -> None:
    """Fault 9: views were given to attention alone."""
    assert list(probs) == [tta.ORIGINAL, "a", "b"]
    assert all(set(view) == set(METHODS) for view in probs.values())
    for method, part, name in product(METHODS, range(3), "ab"):
        assert not np.allclose(probs[name][method][part], probs[tta.ORIGINAL][method][part]), method
    means, tables = scored
    all_methods = {*METHODS, *(f"{m}_{kind}" for m, kind in product(METHODS, tta.CALIBRATIONS))}
    assert list(means) == ["views 1", "views 2", "views 3"]
    assert all(set(by_method) == all_methods for by_method in means.values())
    table = pd.DataFrame(tables["tta"])
    assert set(table.groupby("method")["views"].apply(tuple)) == {tuple(n for n in (1, 2, 3) for _ in TESTED)}
    pairs = pd.DataFrame(tables["tta_paired"])
    itself = pairs["method"] == pairs["baseline"]
    assert set(pairs.loc[itself, "method"]) == all_methods
    others = pairs.loc[~itself, ["method", "baseline", "views", "baseline_views"]]
    kinds = product(("", "_temperature", "_vector"), (1, 3))  # the same calibration and views on both sides
    assert set(others.itertuples(index=False, name=None)) == {(f"attention{c}", f"distance{c}", n, n) for c, n in kinds}


def test_the_mean_is_that_of_probabilities(probs: dict[str, PartProbs]) -> None:
    one, other = np.array([[0.9, 0.1]], np.float32), np.array([[0.4, 0.6]], np.float32)
    (fit, _, test) = tta.mean_over_views([{"m": (one, one, one)}, {"m": (other, one, other)}])["m"]
    np.testing.assert_allclose(test, [[0.65, 0.35]], rtol=1e-6)
    np.testing.assert_allclose(fit, test)
    for view in (*probs.values(), tta.mean_over_views(list(probs.values()))):
        for part in (part for parts in view.values() for part in parts):
            np.testing.assert_allclose(part.sum(1), 1, atol=1e-5)


def test_the_mean_of_identical_views_is_the_view(main: EmbeddingSpace) -> None:
    same = moved(main, 0.0, 0)
    views = predict(main, {"a": same, "b": same})
    single, mean = views[tta.ORIGINAL], tta.mean_over_views(list(views.values()))
    for method, part in product(METHODS, range(3)):
        np.testing.assert_allclose(single[method][part], mean[method][part], atol=1e-6)
    paired = pd.DataFrame(tta.score_views(views, main, RIDGES, SCORING, 0)[1]["tta_paired"])
    paired = paired[(paired["method"] == paired["baseline"]) & paired["method"].isin(METHODS)]
    assert paired["difference"].abs().max() < 1e-5
    assert (paired.loc[paired["metric"] != "ece", "p"] == 1).all()


def test_the_mean_is_calibrated(main: Any, probs: Any, scored: Any) -> None:
    fit, val, test = tta.mean_over_views(list(probs.values()))["distance"]
    y = {part: classes_of([main], part) for part in (FIT, VAL, TEST)}
    scaled = calibrate("vector", fit, y[FIT], val, y[VAL], test, RIDGES).test
    nll = -np.log(scaled[np.arange(len(test)), y[TEST]].astype(float)).mean()
    assert scored[0]["views 3"]["distance_vector"]["nll"] == pytest.approx(nll, abs=1e-6)


def test_views_and_test_labels_select_nothing_and_bank_and_statistics_stay(main: EmbeddingSpace, probs: Any) -> None:
    view, without = moved(main, 0.3, 1), predict(main, {})[tta.ORIGINAL]
    shuffled = predict(relabelled(main, TEST), {"a": view})
    for method, part in product(METHODS, range(3)):
        np.testing.assert_array_equal(without[method][part], probs[tta.ORIGINAL][method][part])
        np.testing.assert_array_equal(shuffled["a"][method][part], probs["a"][method][part])
    space, bank = tta.view_space(main, view), main.embeddings.rows(BANK)
    np.testing.assert_array_equal(space.embeddings.z[bank], main.embeddings.z[bank])
    np.testing.assert_array_equal(space.embeddings.z[view.rows], view.z)
    np.testing.assert_array_equal(space.embeddings.logits[view.rows], view.logits)
    assert space.statistics is main.statistics
    with pytest.raises(InputError, match="no stored neighbours"):
        space.around(bank[:2], 3)


def test_invalid_views_and_k_are_refused(main: EmbeddingSpace) -> None:
    view, rows = moved(main, 0.3, 1), main.embeddings.rows(BANK)[:5].astype(np.int32)
    for wrong, message in (
        (View(rows, view.ids[:5], view.sims[:5], "l2", view.z[:5], view.logits[:5]), "only held-out rows have views"),
        (replace(view, ids=np.full_like(view.ids, view.rows[0])), "not in the bank"),
        (replace(view, logits=None), "no logits"),
    ):
        with pytest.raises(InputError, match=message):
            tta.view_space(main, wrong)
    with pytest.raises(InputError, match="k: 21 neighbours requested, 20 stored"):
        tta.predict_views(main, {}, {}, 21, GRIDS)


def test_a_table_has_no_views_and_stages_say_so(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    for name in ("dvc.yaml", "params.yaml", "datasets.yaml", "presets"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    first, second = (pipeline.run.Run(stage, "iris", "42") for stage in ("views", "tta"))
    blobs().save(first.path("data/split"))
    stages.views.views(first)
    stages.tta.tta(second)
    assert capsys.readouterr().out == "views iris/42: no views, a table has none\ntta iris/42: no views\n"
    assert second.path("metrics", "/tta.json").read_text() == "{}\n"
    for name, columns in tta.COLUMNS.items():
        path = second.path("plots/tta") if name == "tta" else second.path("data/results") / f"{name}.csv"
        assert path.read_text().splitlines() == [",".join(columns)]
