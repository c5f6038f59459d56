"""Logistic regression on embeddings: equal to scikit-learn's, of bank rows, with the penalty that val rows choose."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from attnknn.core.artifacts import BANK, TEST, VAL
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.fit import add_linear_head
from attnknn.nn.linear_probe import forward_regression, with_linear_probe
from synthetic import blobs, embedded, relabelled, retrieved


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_the_regression_of_bank_labels_with_the_lowest_nll_on_val(classes: int) -> None:
    split = blobs(240, noise=1.5)
    split = dataclasses.replace(split, y=split.y % classes, classes=tuple("abc"[:classes]))
    e = dataclasses.replace(embedded(blobs(240, noise=1.5)), y=split.y, classes=split.classes, logits=None)
    bank, val = e.rows(BANK), e.rows(VAL)
    models = [LogisticRegression(C=c, max_iter=200).fit(e.z[bank], e.y[bank]) for c in (0.1, 1.0, 10.0, 100.0)]
    probs = [model.predict_proba(e.z) for model in models]
    nll = [-np.log(p[val, e.y[val]]).mean() for p in probs]
    logits = with_linear_probe(e).logits
    assert logits is not None
    assert logits.dtype == np.float32
    np.testing.assert_allclose(softmax(logits, 1), probs[int(np.argmin(nll))], atol=5e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_through_the_identity_it_is_the_weighted_regression_of_scikit_learn(classes: int) -> None:
    split = blobs(240, noise=1.5)
    x, y = np.asarray(split.x, dtype=np.float64), split.y % classes
    weight = 1.0 + y
    coef, bias = forward_regression(x, np.eye(classes)[y], weight, 0.5)
    expected = LogisticRegression(C=0.5, max_iter=1000, tol=1e-8).fit(x, y, weight).predict_proba(x)
    if classes == 3:  # with two, scikit-learn's penalty is of one vector
        np.testing.assert_allclose(softmax(x @ coef.T + bias, axis=1), expected, atol=5e-3)
    rows = np.repeat(np.arange(len(x)), y + 1)
    doubled = forward_regression(x[rows], np.eye(classes)[y[rows]], np.ones(len(rows)), 0.5)
    np.testing.assert_allclose(x @ coef.T + bias, x @ doubled[0].T + doubled[1], atol=0.02)


def test_through_the_transition_of_the_noise_it_predicts_the_true_labels() -> None:
    rng = np.random.default_rng(0)
    split = blobs(1200, noise=1.0)
    x, y = np.asarray(split.x), split.y
    t = np.array([[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.2, 0.2, 0.6]])
    noisy = (t[y].cumsum(1) < rng.random((len(y), 1))).sum(1)
    losses = []
    for transition in (np.eye(3), t):
        coef, bias = forward_regression(x[:800], transition[:, noisy[:800]].T, np.ones(800), 1.0)
        losses.append(-log_softmax(x[800:] @ coef.T + bias, axis=1)[np.arange(400), y[800:]].mean())
    assert losses[1] < losses[0] - 0.2


def test_labels_of_test_rows_do_not_matter_and_those_of_the_bank_do() -> None:
    data = retrieved(embedded(blobs(240, noise=1.5)))
    before = with_linear_probe(data.embeddings).logits
    np.testing.assert_array_equal(with_linear_probe(relabelled(data, TEST).embeddings).logits, before)
    assert not np.allclose(with_linear_probe(relabelled(data, BANK).embeddings).logits, before)


@pytest.mark.parametrize("absent", [[2], [1, 2]])
def test_a_class_without_a_bank_row_has_almost_no_probability(absent: list[int]) -> None:
    e = embedded(blobs(240))
    y = np.where((e.part == BANK) & np.isin(e.y, absent), 0, e.y)
    logits = with_linear_probe(dataclasses.replace(e, y=y)).logits
    assert softmax(logits, 1)[:, absent].max() < 1e-3


def test_a_head_added_to_an_encoder_reads_its_features_before_they_are_scaled_to_unit_length() -> None:
    split = blobs(240, noise=1.5)
    torch.manual_seed(0)
    encoder = Encoder("mlp", (7,), 0, [], 0).eval()  # e = x
    z, none = embed(encoder, split.x)
    assert none is None
    add_linear_head(encoder, split, "cpu", bf16=False)
    again, logits = embed(encoder, split.x)
    np.testing.assert_array_equal(again, z)
    bank, val = split.rows(BANK), split.rows(VAL)
    scale = np.sqrt((split.x[bank] ** 2).sum(1).mean())
    probs = [
        LogisticRegression(C=c, max_iter=200).fit(split.x[bank] / scale, split.y[bank]).predict_proba(split.x / scale)
        for c in (0.1, 1.0, 10.0, 100.0)
    ]
    best = min(probs, key=lambda p: -np.log(p[val, split.y[val]]).mean())
    np.testing.assert_allclose(softmax(logits, 1), best, atol=5e-3)
    assert encoder.config["n_classes"] == 3  # so that it is loaded with its head
