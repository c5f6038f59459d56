"""Hard queries: their number, weighting as in `fit_head`, and the verdict on all rows."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

import synthetic
from attnknn.core.artifacts import FIT, TEST, VAL
from attnknn.evaluation.evaluate import tuned_baselines
from attnknn.experiments import hard_queries as queries
from attnknn.heads.baselines import Distance, similarity_scale
from attnknn.neighbours.space import classes_of, part_neighbours
from attnknn.nn.objectives import hard_weights, hardness, nll
from attnknn.report.differences import Level
from attnknn.report.results import Run
from attnknn.report.section import Part
from attnknn.report.sections import hard as report
from synthetic import blobs, embedded, retrieved
from synthetic_results import TIE, check_part, predictions

LEVEL = Level(0.01, 2000)
GRIDS = {"temperatures": [0.05, 0.2, 1.0, 4.0], "priors": [0.01, 0.1, 0.3]}
ALL_GRIDS = {**GRIDS, "ks": [3, 7], "ridges": [0.1]}
FITTING = synthetic.FITTING | {"batch_size": 32, "weight_decay": 0.0}
FITTING |= {"parts": {"features": ["distance", "agreement"], "hidden": 4}}


@pytest.fixture(scope="module")
def data():
    return retrieved(embedded(blobs(240, noise=1.6)), k=11)


def test_disagreement_is_counted_over_the_nearest_k(data) -> None:
    e, n = data.embeddings, data.neighbours
    for part, spaces in ((TEST, [data]), (VAL, [data, data])):
        rows = [int(r) for _ in spaces for r in e.rows(part)]
        expected = [np.mean([e.y[i] != e.y[r] for i in n.ids[np.searchsorted(n.rows, r), :7]]) for r in rows]
        np.testing.assert_allclose(queries.disagreement(spaces, part, 7), expected, atol=1e-6)
    table = queries.count_hard([data, data], 7, 0.5)
    for part, name, spaces in ((FIT, "fit", [data, data]), (TEST, "test", [data])):
        rows = [row for row in table if row["part"] == name]
        assert sum(row["rows"] for row in rows) == len(classes_of(spaces, part))
        assert sum(row["hard"] for row in rows) == int((queries.disagreement(spaces, part, 7) >= 0.5).sum()) > 0


def test_distance_is_tuned_by_the_weighted_nll(data) -> None:
    tuned = queries.tune_weighted_distance([data], [3, 7, 11], **GRIDS, factor=1.0, k=7)
    assert tuned == tuned_baselines([data], [3, 7, 11], **GRIDS)[0]["distance"]
    factor, batch = 20.0, data.around(data.embeddings.rows(VAL), 11)
    y = torch.from_numpy(classes_of([data], VAL))
    weight = hard_weights(hardness(batch.labels[:, :7], y), factor)
    unit = similarity_scale(part_neighbours([data], VAL, 11)[0])

    def loss(head: Distance) -> float:
        return float(nll(head(batch)[0], y, weight=weight))

    grid = [Distance(k, t * unit, e) for k in (3, 7, 11) for t in GRIDS["temperatures"] for e in GRIDS["priors"]]
    tuned = queries.tune_weighted_distance([data], [3, 7, 11], **GRIDS, factor=factor, k=7)
    assert loss(tuned) == pytest.approx(min(map(loss, grid)), abs=1e-5)
    assert loss(tuned) < loss(queries.tune_weighted_distance([data], [3, 7, 11], **GRIDS, factor=1.0, k=7))


@pytest.fixture(scope="module")
def compared(data):
    return queries.compare_weighting([data], 5.0, 2, 11, FITTING | {"hard_weight": 2.0}, ALL_GRIDS, seed=1)


def test_weighted_and_unweighted_heads_differ_by_the_weight_alone(data, compared) -> None:
    """With the same seed, a weight of 1 gives the same head."""
    expected = {"uniform", "distance", "distance_vector", "prototypes", "linear", "linear_temperature"}
    expected |= {"distance_weighted", "distance_weighted_vector"}
    expected |= {f"{repeat}:attention{kind}" for repeat in (0, 1) for kind in ("", "_weighted", "_configured")}
    assert expected <= set(compared.methods)
    probs = dict(zip(compared.methods, compared.probs, strict=True))
    assert np.abs(probs["0:attention"] - probs["0:attention_weighted"]).max() > 1e-4
    nearly = queries.compare_weighting([data], 1.0 + 1e-9, 1, 11, FITTING, ALL_GRIDS, seed=1)
    again = dict(zip(nearly.methods, nearly.probs, strict=True))
    np.testing.assert_allclose(again["0:attention"], again["0:attention_weighted"], atol=1e-5)
    np.testing.assert_allclose(again["0:attention"], probs["0:attention"], atol=1e-6)
    assert "0:attention_configured" not in again


def test_subsets_are_scored_on_their_rows_and_pairs_are_of_one_repeat(compared) -> None:
    hard = np.arange(len(compared.y)) % 3 == 0
    means, intervals, paired = queries.by_subset(compared, hard, 15, 100, 0.95, 0)
    right = np.mean(
        [compared.probs[compared.methods.index(f"{i}:attention")].argmax(1) == compared.y for i in (0, 1)], 0
    )
    score = {(r["subset"], r["method"], r["metric"]): r for r in intervals}
    for name, rows in (("all", hard | True), ("hard", hard), ("easy", ~hard)):
        row = score[name, "attention", "accuracy"]
        assert row["value"] == pytest.approx(right[rows].mean())
        assert row["rows"] == rows.sum()
    assert means["attention"]["nll"] == score["all", "attention", "nll"]["value"]
    (test,) = [r for r in paired if (r["subset"], r["method"], r["metric"]) == ("all", "attention_weighted", "nll")]
    weighted, unweighted = (score["all", m, "nll"] for m in ("attention_weighted", "attention"))
    assert test["baseline"] == "attention"
    assert test["difference"] == pytest.approx(weighted["value"] - unweighted["value"])
    for same in (hard & False, hard | True):
        _, intervals, _ = queries.by_subset(compared, same, 15, 100, 0.95, 0)
        assert {row["subset"] for row in intervals} == {"all"}, "rows of one kind are one subset"


@cache
def synthetic_run(power: float, rows: int = 600) -> Run:
    """A run whose weighted attention is p^power, normalised: less confident below 1, unchanged at 1."""
    names = {**TIE, "distance_weighted": TIE["distance"], "distance_weighted_vector": TIE["distance_vector"]}
    names["0:attention"] = names.pop("attention")
    base = predictions(names, rows, seed=3)
    ours = base.probs[-1].astype(np.float64)
    own = ours[np.arange(rows), base.y]
    hard = own < np.quantile(own, 0.1)  # by the true class, as hard rows are
    moved = (ours**power / (ours**power).sum(1, keepdims=True)).astype(np.float32)
    stacked = replace(base, probs=np.stack([*base.probs, moved]), methods=(*base.methods, "0:attention_weighted"))
    means, intervals, paired = queries.by_subset(stacked, hard, 15, 2000, 0.95, 0)
    table = [{"part": p, "class": c, "rows": 30, "hard": 7} for p in ("fit", "val", "test") for c in base.classes]
    frames = {"hard": pd.DataFrame(intervals), "hard_paired": pd.DataFrame(paired), "hard_share": pd.DataFrame(table)}
    return Run("digits", 1, {"prepare": {"test": rows}, "hard": means}, frames)


def findings(part: Part) -> list[tuple[str, str]]:
    """Metrics and findings on the weight over all rows, attention first."""
    (weight,) = [table for table in part.tables if table.name == "weight"]
    return [(row[1], row[-1]) for row in weight.rows if row[0] == "all"]


@pytest.mark.usefixtures("undrawn")
def test_better_on_the_hard_rows_alone_is_no_gain() -> None:
    """Hard rows are selected by their true class: less confidence everywhere is better there, and worse over all."""
    run = synthetic_run(0.3)
    moves = report.weight_effects(run.tables["hard_paired"], "attention_weighted", "attention", LEVEL)
    assert moves["hard", "nll"]["high"] < 0 < moves["all", "nll"]["low"]
    assert moves["all", "nll"]["verdict"] == "no"
    assert {move["verdict"] for (subset, _), move in moves.items() if subset != "all"} == {""}
    (part,) = report.section([run], LEVEL).parts
    assert part.verdict == "no"
    assert next(word for metric, word in findings(part) if metric == "NLL") == "worse"


def test_no_change_is_undecided_and_two_seeds_make_one_part() -> None:
    runs = [replace(synthetic_run(1.0), seed=seed) for seed in (1, 2)]
    (part,) = report.section(runs, LEVEL).parts
    assert part.verdict == "undecided"
    assert {word for _, word in findings(part)} == {"no difference shown"}
    check_part(part)
    widths = [int.from_bytes(png[16:20], "big") for _, png in part.pictures]
    assert max(widths) <= 3.4 * 160 + 1


@pytest.mark.usefixtures("undrawn")
def test_too_few_errors_are_underpowered_and_no_tables_no_part() -> None:
    run = synthetic_run(0.3)
    paired = run.tables["hard_paired"].assign(errors=0)
    (part,) = report.section([replace(run, tables=run.tables | {"hard_paired": paired})], LEVEL).parts
    assert part.verdict == "undecided"
    assert not any("weight on hard queries" in text for text, _ in part.pictures)
    assert {word for _, word in findings(part)} == {"underpowered (0 of 20 errors needed)"}
    assert report.section([replace(run, tables={})], LEVEL).parts == []
