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
from attnknn.evaluation.paired_tests import BASE, TESTED
from attnknn.experiments import tta
from attnknn.heads.attention import Attention
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from attnknn.neighbours.views import View, held_out
from attnknn.report.differences import Level
from attnknn.report.results import Run
from attnknn.report.section import Part
from attnknn.report.sections.tta import COMPARED, TABLES, section
from synthetic import blobs, embedded, relabelled, retrieved, rng
from synthetic_results import check_part

K = 11
METHODS = ("uniform", "distance", "attention", "prototypes", "linear")
RIDGES, SCORING = [0.01, 1.0], {"bins": 5, "resamples": 200, "confidence": 0.9, "seed": 0}


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
    return tta.predict_views(main, views, heads(main), K, [1, 5], [0.1, 1.0], [0.01, 0.1])


@pytest.fixture(scope="module")
def main() -> EmbeddingSpace:
    return retrieved(embedded(blobs(noise=1.5)), 20)


@pytest.fixture(scope="module")
def scored(main: EmbeddingSpace, probs: dict[str, PartProbs]) -> Any:
    return tta.score_views(probs, main, RIDGES, **SCORING)


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
    assert len(tables["tta_alone"]) == 3 * len(METHODS) * len(TESTED)
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
    without = {name: parts for name, parts in probs["a"].items() if name != "uniform"}
    with pytest.raises(InputError, match="every method"):
        tta.mean_over_views([probs[tta.ORIGINAL], without])


def test_the_mean_of_identical_views_is_the_view(main: EmbeddingSpace) -> None:
    same = moved(main, 0.0, 0)
    views = predict(main, {"a": same, "b": same})
    single, mean = views[tta.ORIGINAL], tta.mean_over_views(list(views.values()))
    for method, part in product(METHODS, range(3)):
        np.testing.assert_allclose(single[method][part], mean[method][part], atol=1e-6)
    paired = pd.DataFrame(tta.score_views(views, main, RIDGES, **SCORING)[1]["tta_paired"])
    paired = paired[(paired["method"] == paired["baseline"]) & paired["method"].isin(METHODS)]
    assert paired["difference"].abs().max() < 1e-5
    assert (paired.loc[paired["metric"] != "ece", "p"] == 1).all()


def test_the_mean_is_calibrated_and_each_view_scored_alone_and_left_out(main: Any, probs: Any, scored: Any) -> None:
    means, tables = scored
    fit, val, test = tta.mean_over_views(list(probs.values()))["distance"]
    y = {part: classes_of([main], part) for part in (FIT, VAL, TEST)}
    scaled = calibrate("vector", fit, y[FIT], val, y[VAL], test, RIDGES).test
    nll = -np.log(scaled[np.arange(len(test)), y[TEST]].astype(float)).mean()
    assert means["views 3"]["distance_vector"]["nll"] == pytest.approx(nll, abs=1e-6)
    alone = pd.DataFrame(tables["tta_alone"]).set_index(["view", "method", "metric"])
    left = (probs[tta.ORIGINAL]["uniform"][2] + probs["b"]["uniform"][2]) / 2
    assert alone.loc[("a", "uniform", "accuracy"), "without"] == pytest.approx((left.argmax(1) == y[TEST]).mean())
    own = probs["a"]["uniform"][2]
    assert alone.loc[("a", "uniform", "accuracy"), "value"] == pytest.approx((own.argmax(1) == y[TEST]).mean())


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


def test_invalid_views_and_k_are_refused(main: EmbeddingSpace, probs: dict[str, PartProbs]) -> None:
    view, rows = moved(main, 0.3, 1), main.embeddings.rows(BANK)[:5].astype(np.int32)
    for wrong, message in (
        (View(rows, view.ids[:5], view.sims[:5], "l2", view.z[:5], view.logits[:5]), "only held-out rows have views"),
        (replace(view, ids=np.full_like(view.ids, view.rows[0])), "not in the bank"),
        (replace(view, logits=None), "no logits"),
    ):
        with pytest.raises(InputError, match=message):
            tta.view_space(main, wrong)
    with pytest.raises(InputError, match="k: 21 neighbours requested, 20 stored"):
        tta.predict_views(main, {}, {}, 21, [1], [1.0], [0.1])
    with pytest.raises(InputError, match="one only"):
        tta.score_views({tta.ORIGINAL: probs[tta.ORIGINAL]}, main, RIDGES, **SCORING)


def test_a_table_has_no_views_and_stages_and_report_say_so(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
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
        assert second.path(f"plots/{name}").read_text().splitlines() == [",".join(columns)]
    assert not section([Run("iris", 42, {"prepare": {"test": 30}}, {})], Level(0.01, 1000)).parts


def synthetic_run(
    gain: dict[str, float], own: float = 0.0, alike: float = 0.0, errors: int = 500, p: float = 0.0004, seed: int = 42
) -> Run:
    """Tables in which three views change each method's NLL and ECE by a gain, and attention's NLL differs from that of
    distance weighting by `own`, both bare, and by `alike` with vector scaling."""
    values, alone, pairs = [], [], []
    for method, (metric, base) in product(
        (*BASE[:7], "uniform_vector"), {"accuracy": 0.9, "nll": 0.5, "ece": 0.1}.items()
    ):
        moved_by, row = gain.get(method, gain[""]), {"method": method, "metric": metric}
        for n in (1, 2, 3):
            value = base + moved_by * (n - 1) / 2
            values.append({"views": n, **row, "value": value, "low": value - 0.02, "high": value + 0.02})
        alone += [{"view": view, **row, "value": base, "without": base} for view in (tta.ORIGINAL, "flip", "crop_1")]
        pairs.append((method, method, 3, 1, metric, moved_by))
    for n, (kind, less), metric in product((1, 3), {"": own, "_vector": alike}.items(), TESTED):
        pairs.append((f"attention{kind}", f"distance{kind}", n, n, metric, less))
    columns = pd.Index(("method", "baseline", "views", "baseline_views", "metric", "difference"))
    paired = pd.DataFrame(pairs, columns=columns).assign(errors=errors, test="paired bootstrap")
    d = paired["difference"]
    paired = paired.assign(low=d - 0.01, high=d + 0.01, p=np.where(d.abs() > 0.01, p, 0.5))
    tables = {"tta": pd.DataFrame(values), "tta_alone": pd.DataFrame(alone), "tta_paired": paired}
    return Run("birds", seed, {"prepare": {"test": 800}}, tables)


def only_part(*runs: Run, resamples: int = 10_000) -> Part:
    (part,) = section(runs, Level(0.01, resamples)).parts
    return part


def findings(part: Part) -> dict[tuple[str, str], str]:
    """The findings on all views against one, by metric and method."""
    return {(str(row[0]), str(row[1])): str(row[-1]) for row in part.tables[0].rows}


def own_findings(part: Part) -> dict[tuple[str, str], str]:
    """The findings on attention against distance weighting in NLL, by method and views."""
    return {(str(row[0]), str(row[2])): str(row[-1]) for row in part.tables[1].rows if row[3] == "NLL"}


NONE, LEAST_P = "no difference shown", synthetic_run({"": -0.05}, own=-0.03, alike=-0.03, errors=300, p=2 / 2001)


def test_the_gains_of_every_method_are_shown() -> None:
    assert TABLES == tta.COLUMNS
    part = only_part(synthetic_run({"": -0.05}, own=-0.03, alike=-0.02))
    assert len(findings(part)) == 14
    assert set(findings(part).values()) == {"better"}
    assert set(own_findings(part).values()) == {"better"}
    changes = {(str(row[0]), str(row[1])): str(row[4]) for row in part.tables[0].rows}
    assert changes["NLL", "Attention"].startswith("−0.050 (")
    against = {(str(row[0]), str(row[2])): str(row[4]) for row in part.tables[1].rows if row[3] == "NLL"}
    assert against["Attention", "3"].startswith("−0.030 (")
    assert against["Attention + vector scaling", "3"].startswith("−0.020 (")
    assert len(part.pictures) == 4
    check_part(part)
    assert "uniform" not in "".join(str(row[1]) for row in part.tables[0].rows), "display names"


@pytest.mark.usefixtures("undrawn")
def test_calibration_is_not_credited_to_attention() -> None:
    """Lower NLL uncalibrated, but not with the same calibration."""
    own = own_findings(only_part(synthetic_run({"": 0.0}, own=-0.05)))
    words = {"Attention": "better", "Attention + vector scaling": NONE}
    assert own == {(method, views): word for method, word in words.items() for views in ("1", "3")}
    assert set(COMPARED) == {"attention", "attention_vector"}
    few = own_findings(only_part(synthetic_run({"": 0.0}, own=-0.03, errors=3)))
    assert set(few.values()) == {"underpowered (3 of 20 errors needed)"}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("runs", "resamples", "word"),
    [
        ([synthetic_run({"": 0.05})], 10_000, "worse"),
        ([synthetic_run({"": 0.0})], 10_000, NONE),
        ([synthetic_run({"": -0.05}), synthetic_run({"": 0.05}, seed=43)], 10_000, NONE),
        ([synthetic_run({"": -0.05}, errors=3)], 10_000, "underpowered (3 of 20 errors needed)"),
        # 18 tests of p = 2/2001 each: Holm makes them .018, whatever the differences.
        ([LEAST_P], 2000, "underpowered (2,000 resamples for 18 tests)"),
        ([LEAST_P], 10**6, NONE),
    ],
    ids=["harm", "no change", "seeds that disagree", "few errors", "few resamples", "large p"],
)
def test_findings_follow_the_numbers(runs: list[Run], resamples: int, word: str) -> None:
    assert set(findings(only_part(*runs, resamples=resamples)).values()) == {word}


@pytest.mark.usefixtures("undrawn")
def test_findings_are_by_method_and_seeds_are_averaged() -> None:
    alone = findings(only_part(synthetic_run({"": 0.0, "attention": -0.05})))
    assert [method for (metric, method), word in alone.items() if metric == "NLL" and word == "better"] == ["Attention"]
    part = only_part(synthetic_run({"": -0.05}), synthetic_run({"": -0.07}, seed=43))
    assert str(part.tables[0].rows[0][4]).startswith("−0.060 (")
