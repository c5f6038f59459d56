"""k sweep: every method tuned or fitted at each k, selection on val, and the section of the report."""

from collections import Counter
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import synthetic
from attnknn.core.artifacts import TEST, VAL
from attnknn.core.files import write_csv
from attnknn.evaluation.evaluate import predict_parts, tuned_baselines
from attnknn.evaluation.method import Method
from attnknn.evaluation.metrics import scores
from attnknn.evaluation.opponents import COLUMNS as OPPONENTS
from attnknn.evaluation.opponents import KNN as KNN_ROLE
from attnknn.evaluation.opponents import OURS, ROLES, WITHOUT
from attnknn.evaluation.paired_tests import TESTED
from attnknn.experiments import k_sweep
from attnknn.experiments.k_sweep import COLUMNS, KNN, SWEPT, Sweep, root, sweep, swept_ks
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from attnknn.report.results import Run, read_csv
from attnknn.report.sections.k_sweep import PAIRED, TABLES, best_rows, section, verdict_table
from synthetic import SCORING, blobs, embedded, relabelled, retrieved
from synthetic_results import check_part

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
    reported: list[int] = []
    with mock.patch.object(k_sweep, "fit_head", side_effect=k_sweep.fit_head) as fit:
        run_sweep(space, progress=reported.append)
    assert [call.kwargs["k_train"] for call in fit.call_args_list] == reported == KS


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


# The report


def fake_sweep(gain: float, errors: int = 50, p: float = 0.001, seed: int = 42) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A sweep over k 1, 10 and 50, best on val at 10, where attention's NLL is lower than all others' by `gain`."""
    levels = {"uniform": 0.04, "distance": 0.02, "distance_vector": 0.01, "attention": -gain}
    rows = []
    for (m, more), metric in product(levels.items(), TESTED):
        for k, nll in {1: 0.9, 10: 0.4, 50: 0.5}.items():
            low, row = more + nll, {"k": k, "sqrt_n": k == 10, "method": m}
            rows.append({**row, "metric": metric, "validation": low, "value": low + 0.1, "low": low, "high": low + 0.2})
    paired = []
    methods = {OURS: "attention@10", KNN_ROLE: f"distance_vector@{10 * seed // 42}", WITHOUT: "prototypes"}
    for (role, method), metric in product(methods.items(), TESTED):
        ends = [None] * 5 if role == OURS else [-gain, -gain - 0.01, -gain + 0.01, errors, p]
        paired.append(dict(zip(OPPONENTS, (role, method, metric, 0.4, 0.3, 0.5, *ends), strict=True)))
    return pd.DataFrame(rows).assign(seed=seed), pd.DataFrame(paired).assign(seed=seed)


def test_the_verdict_is_against_the_best_knn_and_each_seed_has_its_own_k() -> None:
    table, verdict = verdict_table(fake_sweep(0.05)[1], 3)
    assert verdict == "yes"
    assert list(table.rows[0][:2]) == ["Attention at k = 10", "Distance + vector scaling at k = 10"]
    assert str(table.rows[0][2]) == "−0.0500 (−0.0600 … −0.0400)"
    assert table.rows[1][1] == "Prototypes alone"
    assert verdict_table(fake_sweep(-0.2)[1], 3)[1] == "no"
    assert verdict_table(fake_sweep(0.05, p=0.2)[1], 3)[1] == "undecided"
    few, verdict = verdict_table(fake_sweep(0.05, errors=3)[1], 3)
    assert (verdict, few.rows[0][-1]) == ("undecided", "3 of 20 errors needed")
    both = pd.concat([fake_sweep(0.05)[1], fake_sweep(0.05, seed=84)[1]])
    assert verdict_table(both, 3)[0].rows[0][1] == "Distance + vector scaling at k = 10/20"
    swept, _ = fake_sweep(0.05)
    other = swept.assign(seed=43)
    other.loc[(other["k"] == 50), "validation"] = 0.01
    best = best_rows(pd.concat([swept, other]))
    ours = best[(best["method"] == "attention") & (best["metric"] == "nll")].set_index("seed")["k"]
    assert ours.to_dict() == {42: 10, 43: 50}


def test_section_over_datasets_and_seeds() -> None:
    metrics = {"prepare": {"test": 300}, "headroom": {"k": 20}}
    runs = [Run("bare", 42, metrics, {})]
    for seed in (1, 2):
        swept, paired = (table.drop(columns="seed") for table in fake_sweep(0.01 * seed, seed=42 * seed))
        runs.append(Run("blobs", seed, metrics, {"k_sweep": swept, PAIRED: paired}))
    result = section(runs)
    assert result.name == "k_sweep"
    assert [part.dataset for part in result.parts] == ["blobs"]  # those where the stage did not run are left out
    (part,) = result.parts
    assert "±" in str(part.tables[1].rows[0][2])
    check_part(part)
    assert section(runs).parts[0].pictures == part.pictures
    assert len(part.tables) == 3


def test_what_a_sweep_writes_is_what_the_report_reads(result: Sweep, tmp_path: Any) -> None:
    tables = {}
    for name, rows in (("k_sweep", result.table), (PAIRED, result.paired)):
        write_csv(tmp_path / name, rows)
        tables[name] = read_csv(tmp_path / name, TABLES[name])
    (part,) = section([Run("blobs", 42, {"prepare": {"test": 40}, "headroom": {"k": 5}}, tables)]).parts
    assert part.verdict == part.tables[0].rows[0][4]
