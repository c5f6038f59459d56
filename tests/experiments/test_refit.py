"""Refits under conditions of the bank: contents of the tables, and independence of test labels, order and workers."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest

import synthetic
from attnknn.core.artifacts import TEST, VAL
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.metrics import METRICS
from attnknn.evaluation.paired_tests import BASE, TESTED, UNDER_CONDITIONS, pairs, scores
from attnknn.experiments import refit
from attnknn.experiments.corruption import with_imbalance, with_noise
from attnknn.experiments.refit import fit_and_compare, refit_and_score
from attnknn.heads.attention import Attention
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from synthetic import SCORING, blobs, crossfit_spaces, embedded, rng

SETTINGS: dict[str, Any] = {
    "k": 12,
    "fitting": synthetic.FITTING
    | {"epochs": 4, "lr": 0.02, "patience": 4, "parts": {"features": ["gap", "agreement"], "prototypes": True}},
    "grids": {"ks": [1, 5], "temperatures": [0.2, 1.0], "priors": [0.03, 0.1], "ridges": [0.1]},
    "device": "cpu",
}
BASES = ("uniform", "distance", "attention", "prototypes", "linear")
METHODS = (*BASES, *(f"{base}_{kind}" for base in BASES for kind in KINDS))
SHOTS = ("many", "medium", "few")


@pytest.fixture(scope="module")
def spaces() -> list[EmbeddingSpace]:
    return crossfit_spaces(embedded(blobs(240, noise=1.5)))


def run(spaces: Sequence[EmbeddingSpace], repeats: int = 2, seed: int = 3) -> Any:
    conditions = {
        "noise 0.3": partial(with_noise, spaces, 0.3),
        "long tail 0.01": partial(with_imbalance, spaces, 0.01),
    }
    return refit_and_score(conditions, repeats, SCORING, seed, **SETTINGS)


@pytest.fixture(scope="module")
def result(spaces: list[EmbeddingSpace]) -> Any:
    return run(spaces)


def test_each_condition_repeat_method_and_metric_has_one_row(result: Any) -> None:
    means, tables = result
    assert list(means) == ["noise 0.3", "long tail 0.01"]
    where = ["condition", "repeat", "method"]
    assert {name: list(rows[0]) for name, rows in tables.items()} == {
        "intervals": [*where, "metric", "value", "low", "high"],
        "paired": [*where, "baseline", "metric", "difference", "low", "high", "errors", "p", "test"],
        "validation": [*where, "metric", "value"],
    }
    for methods in means.values():
        assert set(methods) == set(METHODS) & set(BASE), "the tables have all methods, the metrics those of BASE"
        assert all(list(metrics) == [*METRICS, *SHOTS] for metrics in methods.values())
    for name, metrics in (("intervals", (*UNDER_CONDITIONS, *SHOTS)), ("validation", TESTED)):
        keys = [(r["condition"], r["repeat"], r["method"], r["metric"]) for r in tables[name]]
        assert Counter(keys) == Counter(product(means, (0, 1), METHODS, metrics))
    keys = [(r["condition"], r["repeat"], (r["method"], r["baseline"]), r["metric"]) for r in tables["paired"]]
    assert Counter(keys) == Counter(product(means, (0, 1), pairs(METHODS), TESTED))


def by_cell(rows: Any) -> dict[tuple[Any, ...], float]:
    return {(r["condition"], r["repeat"], r["method"], r["metric"]): r["value"] for r in rows}


def test_means_are_over_repeats_of_other_banks_and_heads(result: Any, spaces: list[EmbeddingSpace]) -> None:
    means, tables = result
    value = by_cell(tables["intervals"])
    for condition, method, metric in product(means, set(METHODS) & set(BASE), TESTED):
        repeats = [value[condition, repeat, method, metric] for repeat in (0, 1)]
        assert means[condition][method][metric] == pytest.approx(sum(repeats) / 2)
    with_ends = [row for row in tables["intervals"] if row["metric"] not in SHOTS]
    assert all(row["low"] - 1e-9 <= row["value"] <= row["high"] + 1e-9 for row in with_ends)
    for row in tables["paired"]:
        cell = row["condition"], row["repeat"]
        expected = value[*cell, row["method"], row["metric"]] - value[*cell, row["baseline"], row["metric"]]
        assert row["difference"] == pytest.approx(expected)
        assert 0 < row["p"] <= 1
    for condition, method in product(means, ("distance", "attention")):
        assert value[condition, 0, method, "nll"] != value[condition, 1, method, "nll"]
    value = by_cell(refit_and_score({"clean": lambda _: spaces}, 2, SCORING, 3, **SETTINGS)[1]["intervals"])
    assert value["clean", 0, "attention", "nll"] != value["clean", 1, "attention", "nll"]
    for method in ("uniform", "distance", "distance_vector", "linear_temperature"):  # without initial weights
        assert value["clean", 0, method, "nll"] == value["clean", 1, method, "nll"]


def test_the_seed_decides_and_progress_is_called_for_every_head(spaces: list[EmbeddingSpace], result: Any) -> None:
    for name, rows in run(spaces, repeats=1)[1].items():  # whatever the number of repeats
        assert rows == [row for row in result[1][name] if row["repeat"] == 0]
    other, first = by_cell(run(spaces, 1, seed=4)[1]["intervals"]), by_cell(result[1]["intervals"])
    for method in ("attention", "uniform"):
        assert other["noise 0.3", 0, method, "nll"] != first["noise 0.3", 0, method, "nll"]
    names: list[str] = []
    refit_and_score(dict.fromkeys("ab", lambda _: spaces[:1]), 2, SCORING, 3, names.append, **SETTINGS)
    assert names == ["a", "a", "b", "b"]


def test_fault_4_test_labels_change_nothing_and_fault_10_stay_true_under_noise(spaces: list[EmbeddingSpace]) -> None:
    main = spaces[0].embeddings
    y = np.where(main.part == TEST, (main.y + 1) % 3, main.y)
    others = [dataclasses.replace(one, embeddings=dataclasses.replace(one.embeddings, y=y)) for one in spaces]
    for make in (partial(with_noise, rate=0.3), partial(with_imbalance, ratio=0.1)):
        a, b = (fit_and_compare(make(x, rng=rng()), seed=3, **SETTINGS) for x in (spaces, others))
        np.testing.assert_array_equal(a.test.probs, b.test.probs)
        np.testing.assert_array_equal(a.val.probs, b.val.probs)
        assert a.tuned == b.tuned
        assert (a.test.y != b.test.y).all()
    result = fit_and_compare(with_noise(spaces, 0.6, rng()), seed=3, **SETTINGS)
    np.testing.assert_array_equal(result.test.y, main.y[main.rows(TEST)])
    np.testing.assert_array_equal(result.test.rows, main.rows(TEST))
    assert len(result.val.y) == sum(len(one.embeddings.rows(VAL)) for one in spaces)


def test_k_shrinks_with_the_bank(spaces: list[EmbeddingSpace], monkeypatch: pytest.MonkeyPatch) -> None:
    rare = with_imbalance(spaces, 0.01, rng())
    stored = min(one.neighbours.ids.shape[1] for one in rare)
    assert stored < 30
    fit, compared = mock.Mock(side_effect=refit.fit_head), mock.Mock(side_effect=refit.compare)
    monkeypatch.setattr(refit, "fit_head", fit)
    monkeypatch.setattr(refit, "compare", compared)
    fit_and_compare(rare, seed=0, **{**SETTINGS, "k": 30})
    _, heads, k = compared.call_args.args
    assert fit.call_args.kwargs["k_train"] == k == stored
    assert set(heads) == {"attention", "prototypes"}
    assert isinstance(heads["prototypes"], Attention)
    assert not heads["prototypes"].neighbours
    fit_and_compare(rare, seed=0, **{**SETTINGS, "k": 4})
    assert fit.call_args.kwargs["k_train"] == compared.call_args.args[2] == 4


def test_validation_values_are_those_of_the_val_rows(spaces: list[EmbeddingSpace]) -> None:
    _, tables = refit_and_score({"clean": lambda _: spaces[:1]}, 1, SCORING, 3, **SETTINGS)
    result = fit_and_compare(spaces[:1], seed=301, **SETTINGS)
    expected = scores(result.val, SCORING["bins"])
    for row in tables["validation"]:
        assert row["value"] == expected[row["method"]][row["metric"]]
    assert expected != scores(result.test, SCORING["bins"])


def test_without_a_linear_head(spaces: list[EmbeddingSpace]) -> None:
    bare = [dataclasses.replace(one, embeddings=dataclasses.replace(one.embeddings, logits=None)) for one in spaces[:1]]
    means, tables = refit_and_score({"clean": lambda _: bare}, 1, SCORING, 3, **SETTINGS)
    expected = {name for name in METHODS if not name.startswith("linear")}
    assert set(means["clean"]) == expected & set(BASE)
    assert {row["baseline"] for row in tables["paired"]} == expected - {"attention"}
    for name in ("intervals", "validation"):
        assert {row["method"] for row in tables[name]} == expected


def test_a_bank_of_wrong_labels_is_worse_for_uniform_votes(spaces: list[EmbeddingSpace]) -> None:
    one = spaces[0]
    two = dataclasses.replace(one.embeddings, y=one.embeddings.y % 2, classes=("a", "b"), logits=None)
    space = [retrieve(two, 20, (3, 20))]
    conditions = {f"noise {rate}": partial(with_noise, space, rate) for rate in (0.0, 1.0)}
    means, _ = refit_and_score(conditions, 1, SCORING, 3, **SETTINGS)
    assert means["noise 1.0"]["uniform"]["nll"] > means["noise 0.0"]["uniform"]["nll"]


def test_the_number_of_processes_changes_only_rounding(spaces: list[EmbeddingSpace]) -> None:
    conditions = {"noise 0.3": partial(with_noise, spaces, 0.3), "noise 0.1": partial(with_noise, spaces, 0.1)}
    one, two = (refit_and_score(conditions, 2, SCORING, 3, workers=n, **SETTINGS)[1] for n in (1, 2))
    for name in one:
        assert [list(row)[:4] for row in one[name]] == [list(row)[:4] for row in two[name]]
        close = [[row.get("value", 0.0) for row in rows] for rows in (one[name], two[name])]
        np.testing.assert_allclose(*close, atol=2e-3)
