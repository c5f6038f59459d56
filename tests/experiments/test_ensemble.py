"""Ensembles over k, for every kNN method alike, and over seeds with the same test rows."""

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax

from attnknn.core.artifacts import FIT, TEST, VAL, Predictions
from attnknn.core.errors import InputError
from attnknn.evaluation.evaluate import compare
from attnknn.evaluation.metrics import scores
from attnknn.evaluation.paired_tests import BESIDE, TESTED
from attnknn.experiments import ensemble
from attnknn.experiments.seeds import seeds_ensemble, why_no_seeds_ensemble
from attnknn.heads.attention import Attention
from attnknn.heads.baselines import Distance, Uniform
from attnknn.heads.classify import classify_part
from attnknn.neighbours.space import EmbeddingSpace
from synthetic import SCORING, blobs, embedded, relabelled, retrieved, rng
from synthetic_results import TIE, predictions

GRIDS: dict[str, Any] = {"ks": [2, 11], "temperatures": [0.1, 1.0], "priors": [0.01, 0.1], "ridges": [0.01, 1.0]}
K = 17


@pytest.fixture(scope="module")
def data() -> EmbeddingSpace:
    return retrieved(embedded(blobs(n=360, noise=1.5)))


def head(seed: int = 0) -> Attention:
    """An attention head whose weights are not those of distance weighting."""
    torch.manual_seed(seed)
    head = Attention(7, 3, 2, 0.5, 0.05, features=("gap", "rank", "agreement"), hidden=5)
    torch.nn.init.normal_(head.fc2.weight)
    return head.eval()


@pytest.fixture(scope="module")
def result(data: EmbeddingSpace) -> Any:
    return ensemble.variants([data], head(), K, [3, 5, 9], GRIDS)


def test_every_method_gets_every_variant_with_and_without_calibration(data: EmbeddingSpace) -> None:
    """Fault 9: an add-on for one method alone cannot be told from that method."""
    means, intervals, paired = ensemble.compare_variants([data], head(), K, [3, 5], GRIDS, SCORING, seed=0)
    names = {name for base in ensemble.METHODS for name in (base, f"{base}_vector")}
    assert set(means) == set(ensemble.VARIANTS)
    assert all(set(by_method) == set(ensemble.METHODS) for by_method in means.values())
    scored, compared = ({(r["variant"], r["method"], r["metric"]) for r in rows} for rows in (intervals, paired))
    assert scored == set(product(ensemble.VARIANTS, names, (*TESTED, "mean_k")))
    assert compared == set(product(ensemble.VARIANTS[1:], names, TESTED))
    assert {r["baseline"] for r in paired} == {"single"}
    value = {(r["variant"], r["method"], r["metric"]): r["value"] for r in intervals}
    assert means["single"]["distance"]["mean_k"] == value["single", "distance", "mean_k"]
    for row in paired:
        ours, single = (value[v, row["method"], row["metric"]] for v in (row["variant"], "single"))
        assert row["difference"] == pytest.approx(ours - single)
    assert " ".join(intervals[0]) == "variant method metric value low high"
    assert " ".join(paired[0]) == "variant method baseline metric difference low high errors p test"


def test_the_single_k_equals_the_main_comparison_and_larger_ks_are_left_out(data: EmbeddingSpace, result: Any) -> None:
    main = compare([data], {"attention": head()}, K, **GRIDS, calibrations=())
    for name in ensemble.METHODS:
        np.testing.assert_array_equal(result[0][f"single:{name}"][2], main.test.probs[main.test.methods.index(name)])
    assert result[1]["single:attention"] == K
    assert result[1]["single:uniform"] == main.tuned["uniform"]["k"]
    few, none = (ensemble.variants([data], head(), 4, ks, GRIDS)[1] for ks in ([3, 5, 20], [5, 20]))
    assert few["k_ensemble:uniform"] == 3
    assert none["k_ensemble:uniform"] == 4
    with pytest.raises(InputError, match="k: 21 neighbours requested, 20 stored"):
        ensemble.variants([data], head(), 21, [3], GRIDS)


def test_k_ensemble_is_the_mean_over_k_of_heads_tuned_at_each(data: EmbeddingSpace, result: Any) -> None:
    apart = [ensemble.variants([data], head(), K, [k], GRIDS)[0] for k in (3, 5, 9)]
    for name in [f"k_ensemble:{method}" for method in ensemble.METHODS]:
        for i in range(3):
            np.testing.assert_allclose(result[0][name][i], np.mean([probs[name][i] for probs in apart], 0), atol=1e-6)
    np.testing.assert_array_equal(apart[1]["k_ensemble:attention"][2], classify_part(head(), [data], TEST, 5))
    probs, mean_k = ensemble.variants([data], head(), K, [K], GRIDS)
    np.testing.assert_array_equal(probs["k_ensemble:attention"][2], probs["single:attention"][2])
    assert mean_k["k_ensemble:attention"] == K


def test_the_historic_rule_and_weight_entropy_by_hand(data: EmbeddingSpace) -> None:
    assert ensemble.historic_choices(50) == (15, 30, 50)
    assert ensemble.historic_choices(10) == (5, 10, 10)
    assert ensemble.historic_choices(3) == (3, 3, 3)
    np.testing.assert_array_equal(ensemble.historic_step(np.array([0.0, 0.499, 0.5, 0.999, 1.0])), [0, 0, 1, 1, 2])
    alike = ensemble.weight_entropy(Uniform(K, 0.3), [data], TEST, K)
    np.testing.assert_array_equal(alike, 1.0)
    half = ensemble.weight_entropy(Uniform(2, 0.3), [data], TEST, K)
    np.testing.assert_allclose(half, np.log(2) / np.log(K))
    assert ensemble.weight_entropy(Distance(K, 1e-6, 0.1), [data], TEST, K).max() < 0.01
    assert len(ensemble.weight_entropy(head(), [data, data], FIT, K)) == 2 * len(data.embeddings.rows(FIT))


def test_adaptive_k_predicts_each_row_at_the_k_of_its_weights(data: EmbeddingSpace, result: Any) -> None:
    entropy = ensemble.weight_entropy(head(), [data], TEST, K)
    cut = float(np.median(entropy))
    by_k = {k: classify_part(head(), [data], TEST, k) for k in ensemble.historic_choices(K)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble, "THRESHOLDS", (cut, 1.0))
        probs, mean_k = ensemble.variants([data], head(), K, [3], GRIDS)
    low = entropy < cut
    assert 0 < low.sum() < len(low)
    np.testing.assert_array_equal(probs["adaptive_k:attention"][2][low], by_k[5][low])
    np.testing.assert_array_equal(probs["adaptive_k:attention"][2][~low], by_k[10][~low])
    assert mean_k["adaptive_k:attention"] == pytest.approx(np.where(low, 5, 10).mean())
    assert result[1]["adaptive_k:uniform"] == K, "equal weights select all neighbours"


def test_stopping_is_at_least_as_good_on_val_as_one_k_and_test_labels_select_nothing(data: Any, result: Any) -> None:
    y = np.asarray(data.embeddings.y[data.embeddings.rows(VAL)])
    for name in ensemble.METHODS:
        ours, single = (scores(result[0][f"{v}:{name}"][1], y)["nll"] for v in ("stopping", "single"))
        assert ours <= single + 2e-6
        assert min(3, result[1][f"single:{name}"]) <= result[1][f"stopping:{name}"] <= K
    again = ensemble.variants([relabelled(data, TEST)], head(), K, [3, 5, 9], GRIDS)
    assert again[1] == result[1]
    for name, probs in result[0].items():
        np.testing.assert_array_equal(again[0][name][2], probs[2])


@pytest.fixture(scope="module")
def seeds() -> dict[int, Predictions]:
    """The same rows with other mistakes."""
    base = predictions(TIE, rows=400)
    logits = {s: np.log(base.probs) + 0.7 * rng(s).normal(size=base.probs.shape) for s in (3, 5)}
    return {s: dataclasses.replace(base, probs=softmax(a, 2).astype(np.float32)) for s, a in logits.items()}


def test_seeds_ensemble_is_the_mean_of_the_probabilities(seeds: dict[int, Predictions]) -> None:
    means, table = seeds_ensemble(seeds, SCORING)
    assert why_no_seeds_ensemble(seeds) == ""
    assert "one seed" in why_no_seeds_ensemble({3: seeds[3]})
    assert set(means) == {"ensemble", "seed 3", "seed 5", "mean of seeds"}
    for m, name in enumerate(TIE):
        expected = scores((seeds[3].probs[m] + seeds[5].probs[m]) / 2, seeds[3].y, 10)
        alone = [scores(seeds[s].probs[m], seeds[s].y, 10) for s in seeds]
        for metric in TESTED:
            assert means["ensemble"][name][metric] == pytest.approx(expected[metric], abs=1e-6)
            assert means["mean of seeds"][name][metric] == pytest.approx(np.mean([a[metric] for a in alone]), abs=1e-6)
    rows = pd.DataFrame(table)
    assert tuple(rows.columns) == BESIDE
    sources = rows[(rows["method"] == "attention") & (rows["metric"] == "nll")].set_index("source")
    moved = sources["difference"].drop("ensemble").astype(float)
    expected = means["ensemble"]["attention"]["nll"] - sources["value"].drop("ensemble")
    np.testing.assert_allclose(moved, expected, atol=1e-9)
    assert sources.loc[["seed 3", "seed 5"], "p"].astype(float).between(0, 1).all()
    assert (moved < 0).all(), "the mean of two predictions with independent errors is better than either"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rows": np.arange(1, 401, dtype=np.int32)}, "different test rows"),
        ({"y": np.zeros(400, dtype=np.int64)}, "different test rows"),
        ({"classes": tuple("vwxyz")}, "different classes"),
    ],
)
def test_seeds_with_other_test_rows_are_not_averaged(seeds: Any, change: dict[str, Any], why: str) -> None:
    assert why in why_no_seeds_ensemble({3: seeds[3], 5: dataclasses.replace(seeds[5], **change)})
