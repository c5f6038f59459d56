"""Predictions of theory against slow oracles, and their verdicts: supported, contradicted or undecided."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import curve_fit
from sklearn.metrics import roc_auc_score

from attnknn.core.artifacts import TEST, Predictions
from attnknn.core.files import write_csv
from attnknn.experiments.theory import (
    COLUMNS,
    EXPONENTS,
    against_root,
    auc,
    entropies,
    equivalence,
    error_curves,
    fit_curve,
    norms,
    temperatures,
    weight_statistics,
)
from attnknn.heads.attention import Attention
from attnknn.heads.classify import classify
from attnknn.heads.tabr import TabR
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.report.results import Run
from attnknn.report.sections.theory import (
    CURVE,
    ENTROPY,
    QUANTITIES,
    TABLES,
    auc_verdict,
    claims_table,
    rate_verdict,
    root_verdict,
    section,
)
from synthetic import blobs, embedded, retrieved
from synthetic_results import check_part

KS = (1, 3, 5, 10, 20, 50)


@pytest.fixture(scope="module")
def space() -> EmbeddingSpace:
    return retrieved(embedded(blobs(240, noise=1.5)))


def by_item(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["quantity"], row["item"]): row for row in rows}


def predictions(errors: dict[str, Any], n: int = 4000, seed: int = 0) -> Predictions:
    """Predictions of two classes that are wrong in round(n·error) rows, the same ones first at every k.

    Args:
        errors: method → function of k.
    """
    y = np.zeros(n, dtype=np.int64)
    order = np.random.default_rng(seed).permutation(n)
    probs, names = [], []
    for method, error in errors.items():
        for k in KS:
            true = np.full(n, 0.9)
            true[order[: round(n * error(k))]] = 0.2
            probs.append(np.stack([true, 1 - true], 1))
            names.append(f"{method}@{k}")
    return Predictions(np.arange(n, dtype=np.int32), y, np.stack(probs).astype(np.float32), tuple(names), ("a", "b"))


def test_curve_of_known_and_of_constant_errors() -> None:
    parameters = np.array([(0.1, 0.3, 1.0), (0.05, 0.2, 0.5), (0.3, -0.2, 1.5)])
    fitted = fit_curve(KS, np.array([a + b * np.array(KS, float) ** -c for a, b, c in parameters]))
    np.testing.assert_allclose(fitted, np.column_stack([parameters, np.ones(3)]), rtol=0.02)
    np.testing.assert_allclose(fit_curve(KS, np.full((1, len(KS)), 0.2))[0], [0.2, 0, EXPONENTS[0], 1], atol=1e-12)


def test_curve_is_the_least_squares_of_a_general_optimiser() -> None:
    rng = np.random.default_rng(0)
    k = np.array(KS, float)
    errors = 0.1 + 0.3 / k + 0.01 * rng.normal(size=(5, len(KS)))
    for row, (a, b, c, explained) in zip(errors, fit_curve(KS, errors), strict=True):

        def curve(k: Any, a: float, b: float, c: float) -> Any:
            return a + b * k**-c

        best, _ = curve_fit(curve, k, row, p0=(0.1, 0.3, 1.0), bounds=([-9, -9, EXPONENTS[0]], [9, 9, EXPONENTS[1]]))
        residual = ((row - curve(k, a, b, c)) ** 2).sum()
        assert residual == pytest.approx(((row - curve(k, *best)) ** 2).sum(), rel=1e-2)
        assert explained == pytest.approx(1 - residual / ((row - row.mean()) ** 2).sum(), abs=1e-9)


def test_errors_against_k_with_intervals_over_the_same_rows() -> None:
    fits, points = error_curves(
        predictions({"uniform": lambda k: 0.1 + 0.3 / k, "attention": lambda _: 0.1}), 10, 200, 0.95, 0
    )
    numbers = by_item(fits)
    c, b = numbers["fit_c", "uniform"], numbers["fit_b", "uniform"]
    assert c["value"] == pytest.approx(1, rel=0.02)
    assert c["low"] <= 1 <= c["high"]
    assert 0 < b["low"] <= b["value"] <= b["high"]
    assert numbers["fit_b", "attention"]["low"] == numbers["fit_b", "attention"]["high"] == 0
    assert tuple(points[0]) == COLUMNS["theory_fit"]
    first = points[0]
    assert (first["method"], first["k"], first["error"]) == ("uniform", 1, 0.4)
    assert first["fitted"] == pytest.approx(0.4, abs=1e-3)
    assert first["low"] < 0.4 < first["high"]


def test_no_curve_through_too_few_k() -> None:
    many = predictions({"uniform": lambda k: 0.3 / k})
    few = dataclasses.replace(many, probs=many.probs[:3], methods=many.methods[:3])
    assert error_curves(few, 10, 100, 0.95, 0) == ([], [])


def test_rate_is_supported_contradicted_or_undecided_as_the_errors_are() -> None:
    def verdict(error: Any, n: int = 4000) -> str:
        fits, _ = error_curves(predictions({"uniform": error}, n), 10, 200, 0.95, 0)
        numbers = by_item(fits)
        b, c = (tuple(numbers[name, "uniform"][end] for end in ("low", "high")) for name in ("fit_b", "fit_c"))
        return rate_verdict(b, c, numbers["fit_r2", "uniform"]["value"], round(n * error(1)))

    assert verdict(lambda k: 0.1 + 0.3 / k) == "supported"
    assert verdict(lambda k: 0.1 + 0.3 / k**0.5) == "contradicted"
    assert verdict(lambda k: 0.1 + 0.3 / k**2) == "contradicted"
    assert verdict(lambda k: 0.4 - 0.3 / k) == "contradicted"  # rises
    assert verdict(lambda _: 0.1) == "undecided"
    assert verdict(lambda k: 0.1 + 0.3 / k, n=40) == "undecided"  # 16 wrong rows


def test_verdicts_at_their_edges() -> None:
    assert rate_verdict((0.1, 0.2), (0.8, 1.3), 0.99, 100) == "supported"
    assert rate_verdict((0.1, 0.2), (0.8, 1.3), 0.5, 100) == "undecided"  # the curve does not fit
    assert rate_verdict((0.1, 0.2), (0.3, 3.9), 0.99, 100) == "undecided"  # any rate
    assert rate_verdict((-0.1, 0.2), (0.8, 1.3), 0.99, 100) == "undecided"
    assert rate_verdict((0.1, 0.2), (1.1, 1.3), 0.99, 100) == "contradicted"
    assert rate_verdict((0.1, 0.2), (1.1, 1.3), 0.99, 19) == "undecided"
    assert root_verdict({34}, 34, {68}, -0.02, -0.01, 100) == "supported"
    assert root_verdict({34}, 34, {68}, -0.02, 0.01, 100) == "undecided"
    assert root_verdict({34}, 34, {34}, -0.02, -0.01, 100) == "undecided", "the grid ends at √n"
    assert root_verdict({34, 50}, 34, {68}, -0.02, -0.01, 100) == "undecided", "the seeds do not agree"
    assert root_verdict({34}, 34, {68}, 0.01, 0.02, 100) == "contradicted", "chosen on val, and worse on test"
    assert root_verdict({50}, 34, {68}, 0.01, 0.02, 100) == "contradicted"
    assert root_verdict({50}, 34, {68}, -0.01, 0.02, 100) == "undecided"
    assert root_verdict({68}, 34, {68}, 0.01, 0.02, 100) == "undecided", "a better k may lie beyond"
    assert root_verdict({50}, 34, {68}, 0.01, 0.02, 3) == "undecided"
    assert auc_verdict(0.6, 0.7, 100) == "supported"
    assert auc_verdict(0.3, 0.4, 100) == "contradicted"
    assert auc_verdict(0.4, 0.7, 100) == auc_verdict(0.6, 0.7, 3) == "undecided"
    assert auc_verdict(float("nan"), float("nan"), 100) == "undecided"


def test_auc_is_that_of_scikit_learn_and_its_interval_that_of_the_bootstrap() -> None:
    rng = np.random.default_rng(0)
    wrong = rng.random(300) < 0.3
    scores = np.round(rng.normal(size=300) + 0.8 * wrong, 1)  # with ties
    value, low, high = auc(scores, wrong, 0.95)
    assert value == pytest.approx(roc_auc_score(wrong, scores))
    resampled = [roc_auc_score(wrong[i], scores[i]) for i in rng.integers(300, size=(400, 300))]
    np.testing.assert_allclose([low, high], np.quantile(resampled, [0.025, 0.975]), atol=0.02)  # type: ignore[list-item]
    assert auc(-scores, wrong, 0.95)[0] == pytest.approx(1 - value)


def test_auc_without_enough_rows_has_no_interval() -> None:
    scores = np.arange(5.0)
    assert np.isnan(auc(scores, np.zeros(5, bool), 0.95)[0])
    assert auc(scores, scores == 2, 0.95) == (0.5, None, None)
    assert auc(scores, scores > 2, 0.95) == (1.0, None, None)


def test_norms() -> None:
    table = by_item(norms(np.array([[3, 4], [0, 1], [0, 0]], np.float32)))
    assert {item: row["value"] for (_, item), row in table.items()} == {"min": 0, "mean": 2, "max": 5}


def test_distance_and_inner_product_agree_on_unit_vectors_alone(space: EmbeddingSpace) -> None:
    rows = space.embeddings.rows(TEST)
    numbers = by_item(equivalence(space, rows, 20))
    assert numbers["same_order", "test rows"]["value"] == 1
    assert numbers["largest_gap", "test rows"]["value"] < 1e-6
    rng = np.random.default_rng(0)
    stretched = space.embeddings.z * rng.uniform(0.3, 3, (len(space.embeddings.z), 1)).astype(np.float32)
    other = dataclasses.replace(space, embeddings=dataclasses.replace(space.embeddings, z=stretched))
    numbers = by_item(equivalence(other, rows, 20))
    assert numbers["same_order", "test rows"]["value"] < 0.1
    assert numbers["largest_gap", "test rows"]["value"] > 0.1


def test_missing_neighbours_do_not_change_the_order(space: EmbeddingSpace) -> None:
    ids, sims = np.array(space.neighbours.ids), np.array(space.neighbours.sims)
    ids[:, -3:], sims[:, -3:] = -1, -np.inf
    other = dataclasses.replace(space, neighbours=dataclasses.replace(space.neighbours, ids=ids, sims=sims))
    assert by_item(equivalence(other, space.embeddings.rows(TEST), 20))["same_order", "test rows"]["value"] == 1


def test_temperatures_of_every_head_and_kind() -> None:
    head = Attention(7, 3, 2, 0.5, 0.05, similarity="dot", heads=2)
    with torch.no_grad():
        head.log_temperature_offset[1] = np.log(3)
    learned = {key: row["value"] for key, row in by_item(temperatures(head)).items()}
    expected = {("temperature_start", "head 0"): 0.5, ("temperature", "head 0"): 0.5}
    expected |= {("temperature_start", "head 1"): 0.5, ("temperature", "head 1"): 1.5}
    assert learned == pytest.approx(expected)
    single = {key: row["value"] for key, row in by_item(temperatures(TabR(7, 3, 0.25, 0.05))).items()}
    assert single == pytest.approx({("temperature_start", "head 0"): 0.25, ("temperature", "head 0"): 0.25})


def test_weight_statistics_are_those_of_the_head(space: EmbeddingSpace) -> None:
    head, rows = Attention(7, 3, 2, 0.5, 0.2).eval(), space.embeddings.rows(TEST)
    entropy, null, wrong = weight_statistics(head, space, TEST, 20, "cpu")
    np.testing.assert_allclose(null, 0.2, atol=1e-6)  # ε: an untrained head is distance weighting
    np.testing.assert_array_equal(wrong, classify(head, space, rows, 20).argmax(1) != space.embeddings.y[rows])
    assert ((entropy > 0) & (entropy < 1)).all()
    flat, _, _ = weight_statistics(Attention(7, 3, 2, 1e6, 0.2).eval(), space, TEST, 20, "cpu")
    np.testing.assert_allclose(flat, 1, atol=1e-6)


def test_entropies_by_hand() -> None:
    entropy = np.linspace(0.05, 0.95, 40)
    wrong = entropy > 0.7
    table, deciles = entropies(entropy, np.full(40, 0.25), wrong, 0.95)
    numbers = by_item(table)
    assert numbers["entropy", "test rows"]["value"] == pytest.approx(0.5)
    assert numbers["null_mass", "test rows"]["value"] == pytest.approx(0.25)
    assert numbers["entropy_auc", "test rows"]["value"] == 1
    assert numbers["null_mass_auc", "test rows"]["value"] == 0.5  # all alike
    assert tuple(deciles[0]) == COLUMNS["theory_entropy"]
    assert [row["rows"] for row in deciles] == [4] * 10
    assert [row["error"] for row in deciles] == [0] * 7 + [0.75, 1, 1]
    assert sum(row["rows"] * row["error"] for row in deciles) == wrong.sum()
    assert len(entropies(entropy[:7], np.zeros(7), wrong[:7], 0.95)[1]) == 7


def test_best_other_k_is_of_val_and_its_gain_over_root_of_test() -> None:
    by_k = predictions({"uniform": lambda k: 0.1 + 0.3 / k, "attention": lambda k: 0.2 if k == 10 else 0.3})
    on_val = {"uniform": {k: 1 / k for k in KS}, "attention": dict(zip(KS, (9, 8, 7, 5, 5, 6), strict=True))}
    swept = pd.DataFrame(
        {"k": k, "method": m, "metric": "nll", "validation": v} for m, row in on_val.items() for k, v in row.items()
    )
    numbers = by_item(against_root(swept, by_k, 100, 10, 200, 0.95, 0))
    assert numbers["sqrt_n", "bank"]["value"] == 10
    assert numbers["best_k", "uniform"]["value"] == 50
    assert numbers["best_k", "attention"]["value"] == 10  # the lower k on a tie
    assert numbers["largest_k", "swept"]["value"] == 50
    assert numbers["best_other_k", "uniform"]["value"] == 50
    assert numbers["best_other_k", "attention"]["value"] == 20
    less = numbers["sqrt_n_less_best_other", "uniform"]
    wrong = 0.3 / 10 - 0.3 / 50  # more at k = 10 than at 50
    assert less["value"] == pytest.approx(wrong * (np.log(0.9) - np.log(0.2)), rel=0.01)
    assert 0 < less["low"] < less["value"] < less["high"]
    ours = numbers["sqrt_n_less_best_other", "attention"]
    assert ours["value"] == pytest.approx(-0.1 * (np.log(0.9) - np.log(0.2)), rel=0.01)
    assert ours["low"] < ours["value"] < ours["high"] < 0
    assert numbers["nll_sqrt_n", "attention"]["value"] < numbers["nll_best_other_k", "attention"]["value"]
    not_swept = by_item(against_root(swept, by_k, 10_000, 10, 200, 0.95, 0))  # √n = 100 was not swept
    expected = {("sqrt_n", "bank"), ("largest_k", "swept"), ("best_k", "uniform"), ("best_k", "attention")}
    assert set(not_swept) == expected


# The report


def tables(space: EmbeddingSpace, seed: int = 0) -> dict[str, pd.DataFrame]:
    by_k = predictions({m: lambda k: 0.1 + 0.3 / k for m in ("uniform", "distance", "attention")}, seed=seed)
    fits, points = error_curves(by_k, 10, 100, 0.95, 0)
    rng = np.random.default_rng(seed)
    entropy = rng.random(400)
    about, deciles = entropies(entropy, np.full(400, 0.1), rng.random(400) < entropy / 2, 0.95)
    swept = pd.DataFrame({"k": KS, "method": "attention", "metric": "nll", "validation": [6, 5, 4, 3, 1, 2]})
    head = temperatures(Attention(7, 3, 2, 0.5, 0.05))
    same = equivalence(space, space.embeddings.rows(TEST), 5)
    rows = [*norms(space.embeddings.z), *against_root(swept, by_k, 100, 10, 100, 0.95, 0), *fits, *same, *head, *about]
    return {QUANTITIES: pd.DataFrame(rows), CURVE: pd.DataFrame(points), ENTROPY: pd.DataFrame(deciles)}


def test_section(space: EmbeddingSpace, tmp_path: Any) -> None:
    runs = [Run("bare", 1, {"prepare": {"test": 400}}, {})]
    for seed in (1, 2):
        read = {}
        for name, table in tables(space, seed).items():
            assert set(TABLES[name]) <= set(table.columns)
            write_csv(tmp_path / name, table.to_dict("records"))  # type: ignore[arg-type]
            read[name] = pd.read_csv(tmp_path / name, keep_default_na=False, na_values=[""])
        assert tuple(read[QUANTITIES].columns) == COLUMNS["theory"]
        runs.append(Run("blobs", seed, {"prepare": {"test": 4000}}, read))
    (part,) = section(runs).parts
    claims = {(str(row[0]), str(row[1])): list(row[2:]) for row in part.tables[0].rows}
    assert claims["Unit length", ""][0] == "supported"
    verdict, numbers = claims["Distance and inner product give one order", ""]
    assert verdict == "supported"
    assert numbers.startswith("100.00 %")
    verdict, numbers = claims["√n = 10 is the best k", "Attention"]
    assert verdict == "contradicted"
    assert numbers.startswith("best k 20; NLL ")
    assert " at √n, " in numbers
    assert " at k = 20, difference +" in numbers
    verdict, numbers = claims["The error falls as 1/k", "Uniform kNN"]
    assert verdict == "supported"
    assert numbers.startswith("c 1.0")
    assert claims["Entropy predicts errors", "Attention"][0] == "supported"
    check_part(part)
    assert len(part.tables) == 4
    few_ks = [dataclasses.replace(run, tables={n: t for n, t in run.tables.items() if n != CURVE}) for run in runs]
    for run in few_ks[1:]:
        quantities = run.tables[QUANTITIES]
        run.tables[QUANTITIES] = quantities[~quantities["quantity"].str.startswith("fit_")]
    (part,) = section(few_ks).parts
    assert ["The error falls as 1/k", "", "undecided", "too few k to fit a curve"] in part.tables[0].rows
    assert len(part.tables) == 3


def test_claims_can_be_contradicted(space: EmbeddingSpace) -> None:
    frames = {name: table.assign(seed=1) for name, table in tables(space).items()}
    numbers = frames[QUANTITIES].copy()

    def put(quantity: str, item: str, **to: float) -> None:
        rows = (numbers["quantity"] == quantity) & (numbers["item"] == item)
        assert rows.any()
        numbers.loc[rows, list(to)] = list(to.values())

    put("norm", "max", value=3.0)
    put("same_order", "test rows", value=0.4)
    put("largest_k", "swept", value=20)
    put("sqrt_n_less_best_other", "attention", value=-0.1, low=-0.2, high=0.1)
    put("fit_c", "attention", value=0.4, low=0.3, high=0.6)
    put("entropy_auc", "test rows", value=0.3, low=0.2, high=0.4)
    table = claims_table(numbers, frames[CURVE], frames[ENTROPY], 4000)
    claims = {(str(row[0]), str(row[1])): list(row[2:]) for row in table.rows}
    assert claims["Unit length", ""][0] == "contradicted"
    verdict, text = claims["Distance and inner product give one order", ""]
    assert verdict == "contradicted"
    assert text.startswith("40.00 %")
    verdict, text = claims["√n = 10 is the best k", "Attention"]
    assert verdict == "undecided"
    assert text.startswith("best k 20, the largest swept; NLL ")
    verdict, text = claims["The error falls as 1/k", "Attention"]
    assert verdict == "contradicted"
    assert text.startswith("c 0.40 (0.30 … 0.60)")
    verdict, text = claims["Entropy predicts errors", "Attention"]
    assert verdict == "contradicted"
    assert text.startswith("AUC 0.300 (0.200 … 0.400)")
