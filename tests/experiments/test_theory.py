"""Predictions of theory against slow oracles."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import curve_fit
from sklearn.metrics import roc_auc_score

from attnknn.core.artifacts import TEST, Predictions
from attnknn.experiments import theory
from attnknn.experiments.theory import COLUMNS, EXPONENTS
from attnknn.heads.attention import Attention
from attnknn.heads.classify import classify
from attnknn.heads.tabr import TabR
from attnknn.neighbours.space import EmbeddingSpace
from synthetic import SCORING, blobs, embedded, retrieved, rng

KS = (1, 3, 5, 10, 20, 50)


@pytest.fixture(scope="module")
def space() -> EmbeddingSpace:
    return retrieved(embedded(blobs(240, noise=1.5)))


def by_item(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["quantity"], row["item"]): row for row in rows}


def values(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    return {key: row["value"] for key, row in by_item(rows).items()}


def predictions(errors: dict[str, Any], n: int = 4000, seed: int = 0) -> Predictions:
    """Predictions of two classes, wrong in round(n·error(k)) rows of each method, the same ones first at every k."""
    place = rng(seed).permutation(n)
    true = np.stack([np.where(place < round(n * error(k)), 0.2, 0.9) for error in errors.values() for k in KS])
    probs, methods = np.stack([true, 1 - true], 2).astype(np.float32), tuple(f"{m}@{k}" for m in errors for k in KS)
    return Predictions(np.arange(n, dtype=np.int32), np.zeros(n, dtype=np.int64), probs, methods, ("a", "b"))


def test_curve_of_known_and_constant_errors_and_the_least_squares_of_a_general_optimiser() -> None:
    k = np.array(KS, float)

    def curve(k: Any, a: float, b: float, c: float) -> Any:
        return a + b * k**-c

    parameters = np.array([(0.1, 0.3, 1.0), (0.05, 0.2, 0.5), (0.3, -0.2, 1.5)])
    fitted = theory.fit_curve(KS, np.array([curve(k, *row) for row in parameters]))
    np.testing.assert_allclose(fitted, np.column_stack([parameters, np.ones(3)]), rtol=0.02)
    (constant,) = theory.fit_curve(KS, np.full((1, len(KS)), 0.2))
    np.testing.assert_allclose(constant, [0.2, 0, EXPONENTS[0], 1], atol=1e-12)
    errors = 0.1 + 0.3 / k + 0.01 * rng().normal(size=(5, len(KS)))
    for row, (*fitted, explained) in zip(errors, theory.fit_curve(KS, errors), strict=True):
        best, _ = curve_fit(curve, k, row, p0=(0.1, 0.3, 1.0), bounds=([-9, -9, EXPONENTS[0]], [9, 9, EXPONENTS[1]]))
        residual = ((row - curve(k, *fitted)) ** 2).sum()
        assert residual == pytest.approx(((row - curve(k, *best)) ** 2).sum(), rel=1e-2)
        assert explained == pytest.approx(1 - residual / ((row - row.mean()) ** 2).sum(), abs=1e-9)


def test_errors_against_k_with_intervals_over_the_same_rows_and_no_curve_through_too_few_k() -> None:
    both = predictions({"uniform": lambda k: 0.1 + 0.3 / k, "attention": lambda _: 0.1})
    fits, points = theory.error_curves(both, SCORING | {"resamples": 200}, 0)
    numbers = by_item(fits)
    c, b = numbers["fit_c", "uniform"], numbers["fit_b", "uniform"]
    assert c["value"] == pytest.approx(1, rel=0.02)
    assert c["low"] <= 1 <= c["high"]
    assert 0 < b["low"] <= b["value"] <= b["high"]
    assert numbers["fit_b", "attention"]["low"] == numbers["fit_b", "attention"]["high"] == 0
    first = points[0]
    assert tuple(first) == COLUMNS["theory_fit"]
    assert (first["method"], first["k"], first["error"]) == ("uniform", 1, 0.4)
    assert first["fitted"] == pytest.approx(0.4, abs=1e-3)
    assert first["low"] < 0.4 < first["high"]
    few = dataclasses.replace(both, probs=both.probs[:3], methods=both.methods[:3])
    assert theory.error_curves(few, SCORING | {"resamples": 100}, 0) == ([], [])


def test_auc_is_that_of_scikit_learn_and_its_interval_that_of_the_bootstrap() -> None:
    wrong = rng(1).random(300) < 0.3
    scores = np.round(rng().normal(size=300) + 0.8 * wrong, 1)  # with ties
    value, low, high = theory.auc(scores, wrong, 0.95)
    assert value == pytest.approx(roc_auc_score(wrong, scores))
    resampled = [roc_auc_score(wrong[i], scores[i]) for i in rng().integers(300, size=(400, 300))]
    np.testing.assert_allclose([low, high], np.quantile(resampled, [0.025, 0.975]), atol=0.02)  # type: ignore[list-item]
    assert theory.auc(-scores, wrong, 0.95)[0] == pytest.approx(1 - value)
    few = np.arange(5.0)  # too few rows for an interval
    assert np.isnan(theory.auc(few, np.zeros(5, bool), 0.95)[0])
    assert theory.auc(few, few == 2, 0.95) == (0.5, None, None)
    assert theory.auc(few, few > 2, 0.95) == (1.0, None, None)


def test_norms_and_entropies_by_hand() -> None:
    table = values(theory.norms(np.array([[3, 4], [0, 1], [0, 0]], np.float32)))
    assert {item: value for (_, item), value in table.items()} == {"min": 0, "mean": 2, "max": 5}
    entropy = np.linspace(0.05, 0.95, 40)
    wrong = entropy > 0.7
    about = theory.entropies(entropy, np.full(40, 0.25), wrong, 0.95)
    numbers = {quantity: value for (quantity, _), value in values(about).items()}
    expected = {"entropy": 0.5, "null_mass": 0.25, "entropy_auc": 1, "null_mass_auc": 0.5}  # all alike
    assert {name: numbers[name] for name in expected} == pytest.approx(expected)


def test_distance_and_inner_product_agree_on_unit_vectors_alone(space: EmbeddingSpace) -> None:
    """Missing neighbours do not change the order."""
    e = space.embeddings
    scale = rng().uniform(0.3, 3, (len(e.z), 1)).astype(np.float32)
    stretched = dataclasses.replace(space, embeddings=dataclasses.replace(e, z=e.z * scale))
    ids, sims = np.array(space.neighbours.ids), np.array(space.neighbours.sims)
    ids[:, -3:], sims[:, -3:] = -1, -np.inf
    missing = dataclasses.replace(space, neighbours=dataclasses.replace(space.neighbours, ids=ids, sims=sims))
    order, gap = ("same_order", "test rows"), ("largest_gap", "test rows")
    unit, other, fewer = (values(theory.equivalence(s, e.rows(TEST), 20)) for s in (space, stretched, missing))
    assert unit[order] == fewer[order] == 1
    assert unit[gap] < 1e-6
    assert other[order] < 0.1
    assert other[gap] > 0.1


def test_temperatures_of_every_head_and_kind() -> None:
    head = Attention(7, 3, 2, 0.5, 0.05, similarity="dot", heads=2)
    with torch.no_grad():
        head.log_temperature_offset[1] = np.log(3)
    expected = {(name, f"head {i}"): 0.5 for name in ("temperature_start", "temperature") for i in (0, 1)}
    assert values(theory.temperatures(head)) == pytest.approx(expected | {("temperature", "head 1"): 1.5})
    expected = {("temperature_start", "head 0"): 0.25, ("temperature", "head 0"): 0.25}
    assert values(theory.temperatures(TabR(7, 3, 0.25, 0.05))) == pytest.approx(expected)


def test_weight_statistics_are_those_of_the_head(space: EmbeddingSpace) -> None:
    head, rows = Attention(7, 3, 2, 0.5, 0.2).eval(), space.embeddings.rows(TEST)
    entropy, null, wrong = theory.weight_statistics(head, space, TEST, 20, "cpu")
    np.testing.assert_allclose(null, 0.2, atol=1e-6)  # ε: an untrained head is distance weighting
    np.testing.assert_array_equal(wrong, classify(head, space, rows, 20).argmax(1) != space.embeddings.y[rows])
    assert ((entropy > 0) & (entropy < 1)).all()
    flat, _, _ = theory.weight_statistics(Attention(7, 3, 2, 1e6, 0.2).eval(), space, TEST, 20, "cpu")
    np.testing.assert_allclose(flat, 1, atol=1e-6)


def test_best_other_k_is_of_val_and_its_gain_over_root_of_test() -> None:
    by_k = predictions({"uniform": lambda k: 0.1 + 0.3 / k, "attention": lambda k: 0.2 if k == 10 else 0.3})
    on_val = {"uniform": [1 / k for k in KS], "attention": (9, 8, 7, 5, 5, 6)}
    swept = pd.concat(pd.DataFrame({"k": KS, "method": m, "metric": "nll", "validation": on_val[m]}) for m in on_val)
    numbers = by_item(theory.against_root(swept, by_k, 100, SCORING | {"resamples": 200}, 0))
    expected = {("sqrt_n", "bank"): 10, ("largest_k", "swept"): 50, ("best_k", "uniform"): 50}
    expected |= {("best_k", "attention"): 10}  # the lower k on a tie
    others = {("best_other_k", "uniform"): 50, ("best_other_k", "attention"): 20}
    assert {key: numbers[key]["value"] for key in expected | others} == expected | others
    less = numbers["sqrt_n_less_best_other", "uniform"]
    wrong = 0.3 / 10 - 0.3 / 50  # more at k = 10 than at 50
    assert less["value"] == pytest.approx(wrong * (np.log(0.9) - np.log(0.2)), rel=0.01)
    assert 0 < less["low"] < less["value"] < less["high"]
    ours = numbers["sqrt_n_less_best_other", "attention"]
    assert ours["value"] == pytest.approx(-0.1 * (np.log(0.9) - np.log(0.2)), rel=0.01)
    assert ours["low"] < ours["value"] < ours["high"] < 0
    assert numbers["nll_sqrt_n", "attention"]["value"] < numbers["nll_best_other_k", "attention"]["value"]
    not_swept = by_item(
        theory.against_root(swept, by_k, 10_000, SCORING | {"resamples": 200}, 0)
    )  # √n = 100 was not swept
    assert set(not_swept) == set(expected)
