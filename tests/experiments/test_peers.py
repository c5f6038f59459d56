"""Baseline classifiers: tuned on val, fit rows predicted out of fold, and equal to scikit-learn."""

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, PartProbs, Split
from attnknn.core.errors import InputError
from attnknn.evaluation.paired_tests import EMBEDDING_PEERS, PEERS
from attnknn.experiments import conditions, peers
from synthetic import blobs, crossfit_spaces, embedded

INSTALLED = ["raw-uniform", "raw-distance", "logistic", "forest", "boosting"]


def run(split: Split, names: list[str], tries: int, **settings: Any) -> tuple[PartProbs, dict[str, dict[str, Any]]]:
    return peers.table_peers(split, names, tries=tries, seed=0, threads=1, **settings)


def test_every_method_has_a_name_that_is_scored():
    assert tuple(peers.PEERS) == PEERS
    held_out = [f"heldout-{name}" for name in ("linear", *conditions.PEERS)]
    assert ("bank-rbf", "bank-mlp", "bank-boosting", *held_out) == EMBEDDING_PEERS
    assert set(peers.EMBEDDING_PEERS) == {name.partition("-")[2] for name in EMBEDDING_PEERS}
    assert all("_" not in name for name in PEERS + EMBEDDING_PEERS)  # what follows one is a calibration


def test_all_predict_held_out_rows_whatever_the_labels_of_test_rows():
    split = blobs()
    probs, selected = run(split, INSTALLED, 2)
    assert list(probs) == list(selected) == INSTALLED
    for by_part in probs.values():
        for predicted, part in zip(by_part, (FIT, VAL, TEST), strict=True):
            assert (predicted.argmax(1) == split.y[split.rows(part)]).mean() > 0.6
            np.testing.assert_allclose(predicted.sum(1), 1, atol=1e-5)
    y = split.y.copy()
    y[split.part == TEST] = y[split.part == TEST][::-1]
    again, others = run(dataclasses.replace(split, y=y), INSTALLED, 2)
    np.testing.assert_array_equal(again["forest"][2], probs["forest"][2])
    assert others == selected


def test_fitted_on_bank_and_fit_rows_with_the_settings_of_lowest_nll_on_val():
    split = blobs()
    probs, selected = run(split, ["raw-uniform", "logistic"], 3)
    train = (split.part == BANK) | (split.part == FIT)
    x, y, val = split.x, split.y, split.part == VAL
    shares = np.bincount(y[train]) / train.sum()

    def score(model, prior):
        probs = (1 - prior) * model.fit(x[train], y[train]).predict_proba(x[val]) + prior * shares
        return -sum(np.log(p[c]) for p, c in zip(probs, y[val], strict=True))

    priors = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5)
    regressions = {(c, e): score(LogisticRegression(C=c, max_iter=2000), e) for c in (1.0, 0.1, 10.0) for e in priors}
    neighbours = {(k, e): score(KNeighborsClassifier(k), e) for k in (1, 3, 5) for e in priors}
    (c, prior_c), (k, prior_k) = (min(nll, key=nll.get) for nll in (regressions, neighbours))
    assert selected == {"raw-uniform": {"n_neighbors": k, "prior": prior_k}, "logistic": {"C": c, "prior": prior_c}}
    alone = KNeighborsClassifier(k).fit(x[train], y[train]).predict_proba(x[split.part == TEST])
    np.testing.assert_allclose(probs["raw-uniform"][2], (1 - prior_k) * alone + prior_k * shares, atol=1e-6)


def test_no_fit_row_is_predicted_by_a_classifier_that_it_trained():
    """1-NN is never wrong on its own training rows; out of fold it does not know random labels."""
    split = blobs()
    split = dataclasses.replace(split, y=np.random.default_rng(1).permutation(split.y))
    nearest = {"1-nn": peers.PEERS["raw-uniform"]._replace(grid=[{"n_neighbors": 1}])}
    for train in ([BANK, FIT], [FIT]):
        probs, _ = peers.fit_and_predict([(split.x, split.y, split.part)], nearest, 1, 0, 1, train=train)
        assert (probs["1-nn"][0].argmax(1) == split.y[split.part == FIT]).mean() < 0.6


def test_on_embeddings_they_read_the_labels_of_the_bank_or_of_fit_rows_alone():
    e = embedded(blobs(noise=1.5))
    shuffled = {}
    for part in (BANK, FIT):
        y = np.array(e.y)
        y[e.part == part] = np.random.default_rng(0).permutation(y[e.part == part])
        shuffled[part] = dataclasses.replace(e, y=y)
    settings = {"held_out": True, "tries": 1, "seed": 0, "threads": 1}
    before, no_bank, no_fit = (
        peers.embedding_peers([data], ["rbf"], **settings)[0] for data in (e, shuffled[BANK], shuffled[FIT])
    )
    assert list(before) == ["bank-rbf", "heldout-linear", "heldout-rbf"]
    for name in ("heldout-linear", "heldout-rbf"):
        np.testing.assert_array_equal(no_bank[name][2], before[name][2])
        assert not np.allclose(no_fit[name][2], before[name][2])
    np.testing.assert_array_equal(no_fit["bank-rbf"][2], before["bank-rbf"][2])
    assert not np.allclose(no_bank["bank-rbf"][2], before["bank-rbf"][2])


def test_fit_rows_of_one_class_train_nothing_alone():
    e = embedded(blobs())
    y = np.where(e.part == FIT, 0, e.y)
    e = dataclasses.replace(e, y=y)
    probs, _ = peers.embedding_peers([e], ["rbf"], held_out=True, tries=1, seed=0, threads=1)
    assert list(probs) == ["bank-rbf"]


def test_rows_of_folds_are_predicted_in_their_own_space_by_classifiers_of_their_own_bank():
    """Random labels are known to no classifier that did not train on the row; all orders are those of the spaces."""
    split = blobs(noise=0.5)
    folds = [space.embeddings for space in crossfit_spaces(embedded(split))]
    probs, _ = peers.embedding_peers(folds, ["rbf"], held_out=True, tries=1, seed=0, threads=1)
    on_columns, _ = run(split, ["logistic"], 1, folds=[fold.part for fold in folds[1:]])
    assert list(probs) == ["bank-rbf"]
    for by_part in (probs["bank-rbf"], on_columns["logistic"]):
        for predicted, part in zip(by_part[:2], (FIT, VAL), strict=True):
            y = np.concatenate([fold.y[fold.rows(part)] for fold in folds])
            assert (predicted.argmax(1) == y).mean() > 0.9
    split = dataclasses.replace(split, y=np.random.default_rng(1).permutation(split.y))
    nearest = {"1-nn": peers.PEERS["raw-uniform"]._replace(grid=[{"n_neighbors": 1}])}
    data = [(split.x, split.y, fold.part) for fold in folds]
    probs, _ = peers.fit_and_predict(data, nearest, 1, 0, 1)
    y = np.concatenate([split.y[fold.rows(FIT)] for fold in folds])
    assert (probs["1-nn"][0].argmax(1) == y).mean() < 0.6


def test_identical_fit_rows_do_not_predict_each_other():
    split = blobs()
    x, y, fit = np.array(split.x), np.random.default_rng(1).permutation(split.y), split.rows(FIT)
    x[fit[1::2]], y[fit[1::2]] = x[fit[::2]], y[fit[::2]]
    nearest = {"1-nn": peers.PEERS["raw-uniform"]._replace(grid=[{"n_neighbors": 1}])}
    probs, _ = peers.fit_and_predict([(x, y, split.part)], nearest, 1, 0, 1)
    assert (probs["1-nn"][0].argmax(1) == y[fit]).mean() < 0.6


def test_refit_adds_val_rows_after_selection():
    split = blobs()
    once, selected = run(split, ["raw-uniform"], 3)
    refitted, again = run(split, ["raw-uniform"], 3, refit=True)
    assert again == selected
    np.testing.assert_array_equal(refitted["raw-uniform"][1], once["raw-uniform"][1])
    assert not np.array_equal(refitted["raw-uniform"][2], once["raw-uniform"][2])
    train = split.part != TEST
    alone = KNeighborsClassifier(selected["raw-uniform"]["n_neighbors"]).fit(split.x[train], split.y[train])
    votes = refitted["raw-uniform"][2].argmax(1) == alone.predict(split.x[split.part == TEST])
    assert votes.mean() > 0.95


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(InputError, match=r"^peers\.methods: catboost is not installed; run `pip install catboost`, or"):
        run(blobs(), ["catboost"], 1)
