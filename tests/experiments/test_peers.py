"""Baseline classifiers of tables: tuned on val, predicted on test, and equal to scikit-learn."""

import dataclasses
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from attnknn.core.artifacts import BANK, FIT, TEST, VAL
from attnknn.core.errors import InputError
from attnknn.evaluation.paired_tests import PEERS
from attnknn.experiments import peers
from synthetic import blobs

INSTALLED = ["raw-uniform", "raw-distance", "logistic", "forest", "boosting"]


def test_every_method_has_a_name_that_is_scored():
    assert tuple(peers.PEERS) == PEERS
    assert all("_" not in name for name in PEERS)  # what follows one is a calibration


def test_all_predict_test_and_val_rows_whatever_the_labels_of_test_rows():
    split = blobs()
    test, val, selected = peers.fit_and_predict(split, INSTALLED, 2, seed=0, threads=1)
    for predictions, part in ((test, TEST), (val, VAL)):
        np.testing.assert_array_equal(predictions.rows, split.rows(part))
        np.testing.assert_array_equal(predictions.y, split.y[split.rows(part)])
        assert predictions.methods == tuple(INSTALLED)
    assert list(selected) == INSTALLED
    assert (test.probs.argmax(2) == test.y).mean(1).min() > 0.6
    y = split.y.copy()
    y[split.part == TEST] = y[split.part == TEST][::-1]
    again, _, others = peers.fit_and_predict(dataclasses.replace(split, y=y), INSTALLED, 2, seed=0, threads=1)
    np.testing.assert_array_equal(again.probs, test.probs)
    assert others == selected


def test_fitted_on_bank_and_fit_rows_with_the_settings_of_lowest_nll_on_val():
    split = blobs()
    test, _, selected = peers.fit_and_predict(split, ["raw-uniform", "logistic"], 3, seed=0, threads=1)
    train = (split.part == BANK) | (split.part == FIT)
    x, y, val = split.x, split.y, split.part == VAL
    shares = np.bincount(y[train]) / train.sum()

    def score(model, prior):
        probs = (1 - prior) * model.fit(x[train], y[train]).predict_proba(x[val]) + prior * shares
        return -sum(np.log(p[c]) for p, c in zip(probs, y[val], strict=True))

    priors = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1)
    regressions = {(c, e): score(LogisticRegression(C=c, max_iter=2000), e) for c in (1.0, 0.1, 10.0) for e in priors}
    neighbours = {(k, e): score(KNeighborsClassifier(k), e) for k in (1, 3, 5) for e in priors}
    (c, prior_c), (k, prior_k) = (min(nll, key=nll.get) for nll in (regressions, neighbours))
    assert selected == {"raw-uniform": {"n_neighbors": k, "prior": prior_k}, "logistic": {"C": c, "prior": prior_c}}
    alone = KNeighborsClassifier(k).fit(x[train], y[train]).predict_proba(x[split.part == TEST])
    np.testing.assert_allclose(test.probs[0], (1 - prior_k) * alone + prior_k * shares, atol=1e-6)


def test_refit_adds_val_rows_after_selection():
    split = blobs()
    once, on_val, selected = peers.fit_and_predict(split, ["raw-uniform"], 3, seed=0, threads=1)
    test, val, again = peers.fit_and_predict(split, ["raw-uniform"], 3, seed=0, threads=1, refit=True)
    assert again == selected
    np.testing.assert_array_equal(val.probs, on_val.probs)
    assert not np.array_equal(test.probs, once.probs)
    train = split.part != TEST
    alone = KNeighborsClassifier(selected["raw-uniform"]["n_neighbors"]).fit(split.x[train], split.y[train])
    votes = test.probs[0].argmax(1) == alone.predict(split.x[split.part == TEST])
    assert votes.mean() > 0.95


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(InputError, match=r"^peers\.methods: catboost is not installed; run `pip install catboost`, or"):
        peers.fit_and_predict(blobs(), ["catboost"], 1, 0, 1)
