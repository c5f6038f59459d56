"""Novelty of unknown classes beside other scores, each against a slow oracle or by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.covariance import EmpiricalCovariance

from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder
from attnknn.experiments.novelty import (
    MIXED,
    OURS,
    UNKNOWN,
    Rows,
    best_others,
    deep_knn,
    detect_novelty,
    detection,
    energy,
    mahalanobis,
    max_softmax,
    mixed_columns,
    vim,
)
from attnknn.experiments.unseen_classes import encoder_of_known, known_classes
from synthetic import clustered_split

RNG = np.random.default_rng(0)
TRAIN = Rows(RNG.normal(size=(200, 7)), RNG.normal(size=(200, 3)))
QUERIES = Rows(RNG.normal(size=(11, 7)) * 2, RNG.normal(size=(11, 3)))


def test_known_classes() -> None:
    splits = known_classes(10, 0.4, 5, 0)
    assert [len(known) for known in splits] == [6] * 5
    assert len({tuple(known) for known in splits}) == 5
    assert all((np.diff(known) > 0).all() for known in splits)
    assert [known.tolist() for known in known_classes(2, 0.4, 5, 0)] == [[0, 1]]
    assert [len(known) for known in known_classes(3, 0.2, 2, 0)] == [2, 2]


def test_scores_by_hand_and_against_oracles() -> None:
    by_hand = Rows(np.zeros((1, 7)), np.log([[0.2, 0.5, 0.3]]))
    np.testing.assert_allclose(max_softmax(by_hand), 0.5)
    np.testing.assert_allclose(energy(Rows(by_hand.z, by_hand.logits + 2)), -2)
    y = np.arange(200) % 3
    means = np.stack([TRAIN.z[y == c].mean(0) for c in range(3)])
    precision = np.linalg.inv(EmpiricalCovariance(assume_centered=True).fit(TRAIN.z - means[y]).covariance_)
    expected = cdist(QUERIES.z, means, "mahalanobis", VI=precision).min(1)
    result = mahalanobis(TRAIN, y)(QUERIES)
    np.testing.assert_allclose(result / result[0], expected / expected[0], rtol=1e-6)
    cosine = np.sort(np.sqrt(2 * cdist(QUERIES.z, TRAIN.z, "cosine")), axis=1)
    np.testing.assert_allclose(deep_knn(TRAIN, 4)(QUERIES), cosine[:, 3], rtol=1e-6)


def test_vim_against_its_definition() -> None:
    centred = TRAIN.z - TRAIN.z.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    rest = vectors[:, np.argsort(-values)[3:]]  # beyond the first half of 7 dimensions

    def residual(z: np.ndarray) -> np.ndarray:
        return np.linalg.norm((z - TRAIN.z.mean(0)) @ rest @ rest.T, axis=1)

    scale = TRAIN.logits.max(1).mean() / residual(TRAIN.z).mean()
    expected = scale * residual(QUERIES.z) + energy(QUERIES)
    np.testing.assert_allclose(vim(TRAIN)(QUERIES), expected, rtol=1e-6)


def test_opponents_against_pytorch_ood() -> None:
    import attnknn.core.torchvision_shim

    assert attnknn.core.torchvision_shim.torchvision  # which pytorch_ood imports
    detectors = pytest.importorskip("pytorch_ood.detector")
    logits, z, queries = (torch.from_numpy(array) for array in (QUERIES.logits, TRAIN.z, QUERIES.z))
    y = torch.arange(200) % 3
    expected = detectors.MaxSoftmax.score(logits) + 1, detectors.EnergyBased.score(logits)
    np.testing.assert_allclose(np.stack([max_softmax(QUERIES), energy(QUERIES)]), np.stack(expected), rtol=1e-6)
    knn = detectors.KNN(None, k=5).fit_features(z, y).predict_features(queries)
    np.testing.assert_allclose(deep_knn(TRAIN, 5)(QUERIES), knn, rtol=1e-5)
    squared = detectors.Mahalanobis(None).fit_features(z.float(), y).predict_features(queries.float())
    order = np.argsort(mahalanobis(TRAIN, y.numpy())(QUERIES))
    np.testing.assert_array_equal(order, np.argsort(squared.numpy()))


def test_detection_by_hand() -> None:
    result = detection(np.array([0.0, 1, 2, 3]), np.full(20, 2.5))
    assert result == {"auroc": 0.75, "fpr95": 0.25}


def test_mixed_columns_keep_each_column() -> None:
    x = np.arange(60).reshape(10, 2, 3)
    mixed = mixed_columns(x, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(mixed, axis=0), x)
    assert (mixed != x).mean() > 0.7


def test_encoder_of_known_classes_has_their_logits_alone() -> None:
    split, known = clustered_split(), np.array([0, 2, 3])
    settings = TrainEmbedder(encoder="mlp", widths=[8], epochs=1, batch_size=32)
    stored = Encoder("raw", (6,), 0, [], 0)
    encoder = encoder_of_known(split, known, settings, stored, 0, "cpu", "x")
    assert encoder.config["n_classes"] == 3
    assert encoder_of_known(split, np.arange(5), settings, stored, 0, "cpu", "x") is stored
    raw = settings.model_copy(update={"representation": "raw"})
    assert encoder_of_known(split, known, raw, stored, 0, "cpu", "x") is stored


@pytest.mark.parametrize("representation", ["trained", "raw"])
def test_unknown_classes_are_told_apart(representation: str) -> None:
    settings = TrainEmbedder(encoder="mlp", widths=[8], epochs=2, batch_size=32)
    settings = settings.model_copy(update={"representation": representation})
    table = pd.DataFrame(detect_novelty(clustered_split(), settings, Encoder("raw", (6,), 0, [], 0), 2, 0, "cpu", "x"))
    assert table.groupby(["condition", "repeat"]).size().tolist() == [8] * 4
    ours = table[table["method"] == OURS].set_index(["condition", "repeat"])
    assert (ours["rejected"] < 0.15).all()
    if representation == "raw":
        assert ours.loc[UNKNOWN, "auroc"].mean() > 0.8
    best = best_others(table).set_index("condition")
    assert set(best.index) == {UNKNOWN, MIXED}
    assert best.loc[MIXED, "difference"] == pytest.approx(best.loc[MIXED, "auroc"] - best.loc[MIXED, "other_auroc"])


def test_of_two_classes_none_is_unknown() -> None:
    settings = TrainEmbedder(encoder="mlp", widths=[8], epochs=1, batch_size=32)
    table = pd.DataFrame(detect_novelty(clustered_split(2), settings, Encoder("raw", (6,), 2, [], 0), 3, 0, "cpu", "x"))
    assert table["condition"].unique().tolist() == [MIXED]
    assert table["repeat"].unique().tolist() == [0]
