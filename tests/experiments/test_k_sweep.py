"""k sweep: every method tuned or fitted at each k, and selection on val."""

from collections import Counter
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import synthetic
from attnknn.core.artifacts import TEST, VAL
from attnknn.evaluation.evaluate import predict_parts, tuned_baselines
from attnknn.evaluation.method import Method
from attnknn.evaluation.metrics import scores
from attnknn.evaluation.opponents import KNN as KNN_ROLE
from attnknn.evaluation.opponents import OURS, ROLES
from attnknn.evaluation.paired_tests import TESTED
from attnknn.experiments import k_sweep
from attnknn.experiments.k_sweep import COLUMNS, KNN, SWEPT, Sweep, root, sweep, swept_ks
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from synthetic import SCORING, blobs, embedded, relabelled, retrieved

FITTING = synthetic.FITTING | {"lr": 0.02, "parts": {"features": ["gap", "agreement"], "prototypes": True}}
GRIDS: dict[str, Any] = {"temperatures": [0.2, 1.0], "priors": [0.03, 0.1], "ridges": [0.1]}
KS = [1, 5, 11, 19]  # 120 bank rows: √n is 11


@pytest.fixture(scope="module")
def space() -> EmbeddingSpace:
    return retrieved(embedded(blobs(240, noise=1.5)))


def run_sweep(space: EmbeddingSpace, **more: Any) -> Sweep:
    return sweep([space], KS, {"prototypes": fit_prototypes([space], [0.1])}, FITTING, GRIDS, SCORING, seed=3, **more)


@pytest.fixture(scope="module")
def result(space: EmbeddingSpace) -> Sweep:
    return run_sweep(space)


def test_root_its_half_and_double_are_added_up_to_the_stored_k() -> None:
    assert root(120) == 11
    assert root(40_000) == 200
    assert swept_ks([50, 1, 10], 120, 64) == [1, 5, 10, 11, 22, 50]
    assert swept_ks([1, 5, 11], 120, 64) == [1, 5, 11, 22]
    assert swept_ks([1, 50], 40_000, 256) == [1, 50, 100, 200, 256]
    assert swept_ks([1, 10, 50], 40_000, 64) == [1, 10, 50, 64]
    assert swept_ks([80], 120, 8) == [5, 8]
    assert swept_ks([1], 2, 1) == [1]
    for bank in (4, 60, 1_000, 40_000):
        assert swept_ks([1, 3, 5], bank, min(bank - 1, 256))[-1] > root(bank), "the grid does not end at √n"


def test_one_row_for_every_k_method_and_metric(result: Sweep) -> None:
    table = pd.DataFrame(result.table)
    assert tuple(table.columns) == COLUMNS
    keys = table[["k", "method", "metric"]].itertuples(index=False, name=None)
    assert Counter(keys) == Counter(product(KS, SWEPT, TESTED))
    assert set(table.loc[table["sqrt_n"], "k"]) == {11}
    assert ((table["low"] <= table["value"]) & (table["value"] <= table["high"]))[table["metric"] != "accuracy"].all()


def test_each_k_is_tuned_by_itself(space: EmbeddingSpace, result: Sweep) -> None:
    table = pd.DataFrame(result.table).set_index(["k", "method", "metric"])
    y = classes_of([space], TEST)
    for k in KS:
        heads, tuned = tuned_baselines([space], [k], GRIDS["temperatures"], GRIDS["priors"])
        assert {one["k"] for one in tuned.values()} == {k}
        for name, (_, val, test) in predict_parts([space], heads, k).items():
            if name in heads:
                assert table.loc[(k, name, "nll"), "value"] == pytest.approx(scores(test, y, 10)["nll"])
                on_val = scores(val, classes_of([space], VAL), 10)["nll"]
                assert table.loc[(k, name, "nll"), "validation"] == pytest.approx(on_val)
                saved = result.predictions.probs[result.predictions.methods.index(str(Method(name, k=k)))]
                np.testing.assert_array_equal(saved, test)
    assert set(result.predictions.methods) == {str(Method(m, k=k)) for m in KNN for k in KS}
    with mock.patch.object(k_sweep, "fit_head", side_effect=k_sweep.fit_head) as fit:
        run_sweep(space)
    assert [call.kwargs["k_train"] for call in fit.call_args_list] == KS


def test_best_k_and_calibration_are_those_of_lowest_nll_on_val(space: EmbeddingSpace, result: Sweep) -> None:
    table = pd.DataFrame(result.table)
    nll = table[table["metric"] == "nll"]
    for method, best in result.best.items():
        lowest = nll[nll["method"] == method].sort_values(["validation", "k"]).iloc[0]
        assert (best["nll"], best["best_k"]) == (lowest["value"], lowest["k"])
    by_k = [k_sweep._predict_at_k([space], k, FITTING, GRIDS, 3, "cpu") for k in KS]
    test, val = (
        {n: p for part in parts for n, p in zip(part.methods, part.probs, strict=True)}
        for parts in zip(*by_k, strict=True)
    )
    (y_val, y) = (classes_of([space], part) for part in (VAL, TEST))
    for role, bases in {OURS: [OURS], **ROLES}.items():
        names = [name for name in val if Method.parse(name).base in bases]
        lowest = min((scores(val[name], y_val, 10)["nll"] for name in names), default=None)
        (row,) = (row for row in result.paired if (row["role"], row["metric"]) == (role, "nll"))
        if lowest is not None:
            assert scores(val[row["method"]], y_val, 10)["nll"] == pytest.approx(lowest, abs=1e-6)
            assert row["value"] == pytest.approx(scores(test[row["method"]], y, 10)["nll"])
    ours, knn = ({r["metric"]: r for r in result.paired if r["role"] == role} for role in (OURS, KNN_ROLE))
    assert knn["nll"]["difference"] == pytest.approx(ours["nll"]["value"] - knn["nll"]["value"])


def test_test_rows_select_nothing(space: EmbeddingSpace, result: Sweep) -> None:
    again = run_sweep(relabelled(space, TEST))
    best_k, expected = ({m: row.get("best_k") for m, row in best.items()} for best in (again.best, result.best))
    assert best_k == expected
    np.testing.assert_array_equal(again.predictions.probs, result.predictions.probs)
    assert [row["validation"] for row in again.table] == [row["validation"] for row in result.table]
