"""Refits under conditions of the bank: contents of the tables, and independence of test labels, order and workers."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import synthetic
from attnknn.core.artifacts import BANK, TEST, VAL
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import calibrated, stack_methods
from attnknn.evaluation.opponents import (
    BEST,
    COLUMNS,
    FORMS,
    KNN,
    ROBUST,
    ROLES,
    TUNED,
    UNDER_CONDITIONS,
    WITHOUT,
    compare_with_opponents,
    opponents_over_repeats,
    scores_by_row,
)
from attnknn.evaluation.paired_tests import EMBEDDING_PEERS, TESTED
from attnknn.experiments import conditions, refit
from attnknn.experiments.conditions import refit_and_score
from attnknn.experiments.corruption import TRAINING_PARTS, with_imbalance, with_noise
from attnknn.experiments.forward_networks import FORWARD_NETWORKS, GCE_NETWORKS
from attnknn.experiments.peers import CLEANED_PEERS, embedding_peers, fit_and_predict
from attnknn.experiments.refit import fit_and_compare
from attnknn.heads.attention import Attention
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.linear_probe import with_linear_probe
from synthetic import SCORING, blobs, crossfit_spaces, embedded, rng

SETTINGS: dict[str, Any] = {
    "k": 12,
    "fitting": synthetic.FITTING
    | {"epochs": 4, "lr": 0.02, "patience": 4, "parts": {"features": ["gap", "agreement"], "prototypes": True}},
    "grids": {"ks": [1, 5], "temperatures": [0.2, 1.0], "priors": [0.03, 0.1], "ridges": [0.1]},
    "device": "cpu",
}


@pytest.fixture(scope="module")
def spaces() -> list[EmbeddingSpace]:
    return crossfit_spaces(embedded(blobs(240, noise=1.5)))


def run(spaces: Sequence[EmbeddingSpace], repeats: int = 2, seed: int = 3) -> Any:
    named = {
        "noise 0.3": partial(with_noise, spaces, 0.3),
        "long tail 0.01": partial(with_imbalance, spaces, 0.01),
    }
    return refit_and_score(named, repeats, SCORING, seed, **SETTINGS)


@pytest.fixture(scope="module")
def result(spaces: list[EmbeddingSpace]) -> Any:
    return run(spaces)


def test_each_condition_has_attention_its_opponents_and_the_tuned_baselines(result: Any) -> None:
    means, rows, _ = result
    assert list(means) == ["noise 0.3", "long tail 0.01"]
    assert {tuple(row) for row in rows} == {("condition", *COLUMNS)}
    for condition, by_role in means.items():
        assert {role: set(scores) for role, scores in by_role.items()} == {
            role: {*TESTED} for role in ["attention", BEST, *ROLES]
        }
        keys = Counter((r["ours"], r["role"] or r["method"], r["metric"]) for r in rows if r["condition"] == condition)
        roles = [("attention", role) for role in ["attention", *ROLES, *TUNED]]
        roles += [(BEST, role) for role in [BEST, *ROLES]]
        assert keys == Counter((*role, metric) for role, metric in product(roles, UNDER_CONDITIONS))


def test_rows_are_means_over_repeats_of_other_banks_and_heads(result: Any, spaces: list[EmbeddingSpace]) -> None:
    """The seeds of banks, heads and resamples as documented; a regression on the noisy bank is the linear head."""
    banks = [with_noise(spaces, 0.3, np.random.default_rng([3, repeat])) for repeat in (0, 1)]
    banks = [[replace(s, embeddings=with_linear_probe(s.embeddings)) for s in bank] for bank in banks]
    fitted = [fit_and_compare(bank, seed=301 + repeat, **SETTINGS) for repeat, bank in enumerate(banks)]
    settings = {**SCORING, "seed": 3, "metric_names": UNDER_CONDITIONS, "others": TUNED}
    compared, by_row = [], []
    for repeat, (bank, one) in enumerate(zip(banks, fitted, strict=True)):
        embeddings = [space.embeddings for space in bank]
        peers, _ = embedding_peers(embeddings, conditions.PEERS, held_out=True, tries=3, seed=301 + repeat, threads=1)
        test, val, _ = calibrated(peers, bank, SETTINGS["grids"]["ridges"], KINDS)
        both = stack_methods(one.test, test), stack_methods(one.val, val)
        compared.append(compare_with_opponents(*both, **settings))
        by_row.append(scores_by_row(both[0], (row["method"] for row in compared[-1])))
    expected = opponents_over_repeats(compared, by_row, SCORING["confidence"])
    rows = [row for row in result[1] if row["condition"] == "noise 0.3"]
    assert pd.DataFrame(rows).drop(columns="condition").equals(pd.DataFrame(expected))
    (nll,) = (r["value"] for r in expected if (r["role"], r["metric"]) == ("attention", "nll"))
    assert result[0]["noise 0.3"]["attention"]["nll"] == nll
    first, second = ([one.probs for one in (f.test, f.val)] for f in fitted)
    assert not np.allclose(first[0], second[0])


def test_the_seed_decides_and_progress_is_called_for_every_head(spaces: list[EmbeddingSpace], result: Any) -> None:
    one, other = (run(spaces, 1, seed)[0]["noise 0.3"] for seed in (3, 4))
    assert one == run(spaces, 1)[0]["noise 0.3"]
    assert all(one[role]["nll"] != other[role]["nll"] for role in ("attention", KNN))
    totals: list[int] = []
    track = lambda results, total: totals.append(total) or results  # noqa: E731
    refit_and_score(dict.fromkeys("ab", lambda _: spaces[:1]), 2, SCORING, 3, track, **SETTINGS)
    assert totals == [4]


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
    fit, compared = mock.Mock(side_effect=refit.fit_forms), mock.Mock(side_effect=refit.compare)
    monkeypatch.setattr(refit, "fit_forms", fit)
    monkeypatch.setattr(refit, "compare", compared)
    fit_and_compare(rare, seed=0, **{**SETTINGS, "k": 30})
    _, heads, k = compared.call_args.args
    assert fit.call_args.kwargs["k_train"] == stored
    assert k == 5  # the largest of the grid, which baselines are tuned over
    assert set(heads) == {*FORMS, "prototypes"}
    assert isinstance(heads["prototypes"], Attention)
    assert not heads["prototypes"].neighbours
    fit_and_compare(rare, seed=0, **{**SETTINGS, "k": 4})
    assert fit.call_args.kwargs["k_train"] == 4


def test_without_a_linear_head(spaces: list[EmbeddingSpace]) -> None:
    bare = [dataclasses.replace(one, embeddings=dataclasses.replace(one.embeddings, logits=None)) for one in spaces[:1]]
    _, rows, _ = refit_and_score({"clean": lambda _: bare}, 1, SCORING, 3, **SETTINGS)
    methods = {row["method"].partition("_")[0] for row in rows if row["role"] == WITHOUT}
    assert methods <= {"prototypes", "linear", *EMBEDDING_PEERS}


def test_the_encoders_linear_head_which_knows_the_clean_labels_is_not_read(spaces: list[EmbeddingSpace]) -> None:
    logits = np.roll(np.asarray(spaces[0].embeddings.logits), 1, axis=1)
    others = [replace(one, embeddings=replace(one.embeddings, logits=logits)) for one in spaces[:1]]
    noise = [{"noise 0.3": partial(with_noise, x, 0.3)} for x in (spaces[:1], others)]
    one, other = (refit_and_score(named, 1, SCORING, 3, **SETTINGS)[1] for named in noise)
    pd.testing.assert_frame_equal(pd.DataFrame(one), pd.DataFrame(other))


def test_a_bank_of_wrong_labels_is_worse_for_uniform_votes(spaces: list[EmbeddingSpace]) -> None:
    one = spaces[0]
    two = dataclasses.replace(one.embeddings, y=one.embeddings.y % 2, classes=("a", "b"), logits=None)
    space = [retrieve(two, 20, (3, 20))]
    named = {f"noise {rate}": partial(with_noise, space, rate) for rate in (0.0, 1.0)}
    _, rows, _ = refit_and_score(named, 1, SCORING, 3, **SETTINGS)
    nll = {r["condition"]: r["value"] for r in rows if (r["role"], r["method"], r["metric"]) == ("", "uniform", "nll")}
    assert nll["noise 1.0"] > nll["noise 0.0"]


def test_the_number_of_processes_changes_only_rounding(spaces: list[EmbeddingSpace]) -> None:
    named = {"noise 0.3": partial(with_noise, spaces, 0.3), "noise 0.1": partial(with_noise, spaces, 0.1)}
    one, two = (refit_and_score(named, 2, SCORING, 3, workers=n, **SETTINGS)[1] for n in (1, 2))
    assert [(row["condition"], row["role"]) for row in one] == [(row["condition"], row["role"]) for row in two]
    np.testing.assert_allclose([row["value"] for row in one], [row["value"] for row in two], atol=2e-3)


def test_wrong_labels_everywhere_are_seen_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the true labels given, for the quality of the estimate alone, methods see through noise of all labels."""
    clean = [synthetic.retrieved(embedded(blobs(900, noise=0.6)))]
    named = {
        "clean": lambda _: clean,
        "bank": partial(with_noise, clean, 0.4),
        "all": partial(with_noise, clean, 0.4, parts=TRAINING_PARTS),
    }
    settings = SETTINGS | {"fitting": SETTINGS["fitting"] | {"epochs": 20}}
    y = np.asarray(clean[0].embeddings.y)
    right: dict[str, float] = {}  # share of the labels that each classifier was fitted on

    def record(data: Any, peers: Any, **kwargs: Any) -> Any:
        bank = data[0][2] == BANK
        right.update(dict.fromkeys(peers, float((data[0][1][bank] == y[bank]).mean())))
        return fit_and_predict(data, peers, **kwargs)

    monkeypatch.setattr(conditions, "fit_and_predict", record)
    means, rows, methods = refit_and_score(named, 1, SCORING, 3, clean=y, **settings)
    plain, _, _ = refit_and_score({"all": named["all"]}, 1, SCORING, 3, **settings)
    assert "label noise" not in means["bank"]
    assert means["clean"]["label noise"]["wrong_estimated"] < 0.05
    noise = means["all"]["label noise"]
    assert noise["wrong_estimated"] == pytest.approx(0.4, abs=0.1)
    assert noise["wrong"] == pytest.approx(0.4, abs=0.01)
    assert noise["transition_error_low"] <= noise["transition_error"] <= noise["transition_error_high"] < 0.2
    assert noise["right_corrected"] > noise["right_given"] + 0.15
    assert right["bank-boosting"] == noise["right_corrected"]
    assert right["cleaned-linear"] == right["cleaned-rbf"] == noise["right_given"]
    all_methods = {(row["condition"], row["method"]): row["nll"] for row in methods}
    assert {condition for condition, _ in all_methods} == {"clean", "all"}
    assert set(ROBUST) == {*GCE_NETWORKS, *CLEANED_PEERS}
    for name in (*FORWARD_NETWORKS, *ROBUST, "bank-boosting"):
        assert all_methods["all", f"{name}_forward"] < np.log(3), name  # of probabilities of 1/3 each
    for name in FORWARD_NETWORKS:
        assert all_methods["all", f"{name}_forward"] < all_methods["all", name] - 0.1
    for role in ("attention", KNN, WITHOUT):
        assert means["all"][role]["nll"] < plain["all"][role]["nll"] - 0.1
    used = {row["method"] for row in rows if row["condition"] == "all" and row["role"] in ("attention", WITHOUT)}
    assert "attention_forward" in used
    assert all(name.endswith("_forward") for name in used if name.startswith(("attention", "linear", "bank-mlp")))
