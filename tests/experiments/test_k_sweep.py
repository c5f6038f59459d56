"""k sweep: every method tuned or fitted at each k, selection on val, and the section of the report."""

import dataclasses
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
from attnknn.evaluation.method import KINDS, Method
from attnknn.evaluation.metrics import METRICS, scores
from attnknn.evaluation.paired_tests import TESTED
from attnknn.experiments import k_sweep
from attnknn.experiments.k_sweep import COLUMNS, KNN, Sweep, root, sweep, swept_ks
from attnknn.heads.prototypes import fit_prototypes
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from attnknn.report.results import Run
from attnknn.report.sections.k_sweep import PAIRED, SWEPT, TABLES, best_rows, section, verdict_table
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


def test_one_row_for_every_k_method_and_metric_and_the_same_score_at_every_k_without_neighbours(result: Sweep) -> None:
    table = pd.DataFrame(result.table)
    assert tuple(table.columns) == COLUMNS
    assert not table.duplicated(["k", "method", "metric"]).any()
    metrics = table.groupby("method")["metric"].agg(set)
    base = {"uniform", "distance", "distance_vector", "attention", "prototypes", "linear", "linear_temperature"}
    bare = ("uniform", "distance", "attention", "prototypes", "linear")
    others = {f"{name}_{kind}" for name in bare for kind in KINDS} - base
    assert set(metrics.index) == base | others
    assert all(metrics[name] == set(METRICS if name in base else TESTED) for name in metrics.index)
    assert all(sorted(rows["k"]) == KS for _, rows in table.groupby(["method", "metric"]))
    assert set(table.loc[table["sqrt_n"], "k"]) == {11}
    assert ((table["low"] <= table["value"]) & (table["value"] <= table["high"]))[table["metric"] != "accuracy"].all()
    constant = table[table["method"].str.partition("_")[0].isin(["prototypes", "linear"])]
    assert (constant.groupby(["method", "metric"])["value"].nunique() == 1).all()


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


def test_best_k_and_calibration_are_those_of_lowest_nll_on_val(result: Sweep) -> None:
    table = pd.DataFrame(result.table).assign(base=lambda t: t["method"].str.partition("_")[0])
    nll = table[table["metric"] == "nll"]
    for method, best in result.best.items():
        rows = nll[nll["method"] == method]
        lowest = rows.sort_values(["validation", "k"]).iloc[0]
        assert best["nll"] == lowest["value"]
        assert best.get("best_k", lowest["k"]) == lowest["k"]
    assert "best_k" not in result.best["prototypes"]
    value = table.set_index(["method", "k", "metric"])["value"]
    lowest = nll.groupby("base")["validation"].min()
    on_val = nll.set_index(["method", "k"])["validation"]
    for row in result.paired:
        for side, k in (("method", "k"), ("baseline", "baseline_k")):
            selected = on_val[row[side], row[k] or KS[0]]
            assert selected == pytest.approx(lowest[row[side].partition("_")[0]], abs=1e-6)
        difference = value[row["method"], row["k"], row["metric"]]
        difference -= value[row["baseline"], row["baseline_k"] or KS[0], row["metric"]]
        assert row["difference"] == pytest.approx(difference)
    assert len({row["method"] for row in result.paired}) == 1
    assert len(result.paired) == len(TESTED) * len(k_sweep.OPPONENTS)
    baselines = [row["baseline"].partition("_") for row in result.paired]
    assert {base for base, _, _ in baselines} == set(k_sweep.OPPONENTS)
    assert any(calibration for _, _, calibration in baselines), "or the data cannot tell them from uncalibrated"


def test_test_rows_select_nothing(space: EmbeddingSpace, result: Sweep) -> None:
    again = run_sweep(relabelled(space, TEST))
    best_k, expected = ({m: row.get("best_k") for m, row in best.items()} for best in (again.best, result.best))
    assert best_k == expected
    np.testing.assert_array_equal(again.predictions.probs, result.predictions.probs)
    assert [row["validation"] for row in again.table] == [row["validation"] for row in result.table]


def test_an_encoder_without_a_linear_head_has_no_such_lines(space: EmbeddingSpace) -> None:
    bare = dataclasses.replace(space, embeddings=dataclasses.replace(space.embeddings, logits=None))
    result = run_sweep(bare)
    assert not [row for row in result.table if row["method"].startswith("linear")]
    assert {row["baseline"].partition("_")[0] for row in result.paired} == set(k_sweep.OPPONENTS) - {"linear"}


# The report


def fake_sweep(gain: float, errors: int = 50, p: float = 0.001, seed: int = 42) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A sweep over k 1, 10 and 50, best on val at 10, where attention's NLL is lower than all others' by `gain`."""
    levels = {"uniform": 0.04, "distance": 0.02, "distance_vector": 0.01, "attention": -gain, "prototypes": 0.3}
    rows, pairs = [], []
    for (m, more), metric in product(levels.items(), METRICS):
        for k, nll in {1: 0.9, 10: 0.4, 50: 0.5}.items():
            low, row = more + (0.5 if m == "prototypes" else nll), {"k": k, "sqrt_n": k == 10, "method": m}
            rows.append({**row, "metric": metric, "validation": low, "value": low + 0.1, "low": low, "high": low + 0.2})
        if metric in TESTED and m not in ("attention", "distance"):  # the latter is best with vector scaling
            d, row = -gain - more, {"method": "attention", "k": 10, "baseline": m, "metric": metric}
            row |= {"baseline_k": None if m == "prototypes" else 10, "test": "paired bootstrap"}
            pairs.append({**row, "difference": d, "low": d - 0.01, "high": d + 0.01, "errors": errors, "p": p})
    return pd.DataFrame(rows).assign(seed=seed), pd.DataFrame(pairs).assign(seed=seed)


def test_the_verdict_is_against_the_best_baseline_on_val_of_each_seed() -> None:
    table, verdict = verdict_table(*fake_sweep(0.05), 3)
    assert verdict == "yes"
    (row,) = table.rows
    assert list(row[:2]) == ["Attention at k = 10", "Distance + vector scaling at k = 10"]
    assert str(row[2]) == "−0.0600 (−0.0700 … −0.0500)"
    assert verdict_table(*fake_sweep(-0.2), 3)[1] == "no"
    assert verdict_table(*fake_sweep(0.05, p=0.2), 3)[1] == "undecided"
    few, verdict = verdict_table(*fake_sweep(0.05, errors=3), 3)
    assert verdict == "undecided"
    assert few.rows[0][-1] == "3 of 20 errors needed"
    swept, _ = fake_sweep(0.05)
    other = swept.assign(seed=43)
    other.loc[(other["k"] == 50), "validation"] = 0.01
    best = best_rows(pd.concat([swept, other]))
    ours = best[(best["method"] == "attention") & (best["metric"] == "nll")].set_index("seed")["k"]
    assert ours.to_dict() == {42: 10, 43: 50}


def test_one_base_may_have_another_calibration_in_each_seed() -> None:
    """Prototypes are the best on val of both seeds, by another calibration in each."""
    tables = []
    for seed, kind in ((1, "temperature"), (2, "vector")):
        swept, paired = fake_sweep(0.05, seed=seed)
        calibrated = swept[swept["method"] == "prototypes"].assign(method=f"prototypes_{kind}", validation=0.1)
        paired["baseline"] = paired["baseline"].replace("prototypes", f"prototypes_{kind}")
        tables.append((pd.concat([swept, calibrated]), paired))
    swept, paired = (pd.concat(parts, ignore_index=True) for parts in zip(*tables, strict=True))
    table, verdict = verdict_table(swept, paired, 3)
    assert verdict == "yes"
    rival = "Prototypes alone + temperature/Prototypes alone + vector scaling"
    assert list(table.rows[0][:2]) == ["Attention at k = 10", rival]
    assert str(table.rows[0][2]).startswith("−0.3500")


def test_section_over_datasets_and_seeds() -> None:
    metrics = {"prepare": {"test": 300}, "headroom": {"k": 20}}
    runs = [Run("bare", 42, metrics, {})]
    for seed in (1, 2):
        swept, paired = (table.drop(columns="seed") for table in fake_sweep(0.01 * seed, seed=seed))
        runs.append(Run("blobs", seed, metrics, {SWEPT: swept, PAIRED: paired}))
    result = section(runs)
    assert result.name == "k_sweep"
    assert [part.dataset for part in result.parts] == ["blobs"]  # those where the stage did not run are left out
    (part,) = result.parts
    assert "±" in str(part.tables[1].rows[0][2])
    check_part(part)
    assert section(runs).parts[0].pictures == part.pictures
    assert len(part.tables) == 4


def test_what_a_sweep_writes_is_what_the_report_reads(result: Sweep, tmp_path: Any) -> None:
    tables = {}
    for name, rows in ((SWEPT, result.table), (PAIRED, result.paired)):
        write_csv(tmp_path / name, rows)
        tables[name] = pd.read_csv(tmp_path / name, keep_default_na=False, na_values=[""])
        assert set(TABLES[name]) <= set(tables[name].columns)
    (part,) = section([Run("blobs", 42, {"prepare": {"test": 40}, "headroom": {"k": 5}}, tables)]).parts
    assert part.verdict == part.tables[0].rows[0][4]
