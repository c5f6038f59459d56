"""New classes in a memory beside classifiers that are fitted again."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from sklearn.neighbors import NearestCentroid

from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder
from attnknn.experiments.new_classes import (
    AGAIN,
    BALANCED,
    COLUMNS,
    OURS,
    NearestMean,
    add_new_classes,
    best_others,
    grouped_scores,
    log_probs,
)
from synthetic import clustered_split


def test_nearest_mean_is_that_of_unit_vectors() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(60, 4)), np.arange(60) % 3 * 5
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    model = NearestMean().fit(z, y)
    expected = NearestCentroid().fit(unit, y).predict(unit)
    assert (model.classes_[model.decision_function(z).argmax(1)] == expected).all()


def test_the_temperature_has_the_lowest_nll() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(300, 4)), np.arange(300) % 3
    z[np.arange(300), y] += 1
    model = NearestMean().fit(z, y)
    grid = [
        -log_softmax(s * model.decision_function(z), axis=1)[np.arange(300), y].mean()
        for s in np.exp(np.arange(-5, 8, 0.05))
    ]
    own = -log_probs(model, (z, y), z)[np.arange(300), y].mean()
    assert own <= min(grid) + 1e-6


def test_scores_by_hand() -> None:
    probs = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.25, 0.25, 0.5]])
    row = grouped_scores(np.log(probs), np.array([3, 5, 7]), np.array([3, 5, 7, 7]), np.array([3, 5]))
    assert row["old_accuracy"] == 1
    assert row["new_accuracy"] == 0.5
    assert row["harmonic"] == pytest.approx(2 / 3)
    assert row["old_nll"] == pytest.approx(-np.log([0.5, 0.8]).mean())
    assert row["new_nll"] == pytest.approx(-np.log([0.2, 0.5]).mean())


def test_every_method_learns_the_new_classes() -> None:
    settings = TrainEmbedder(encoder="mlp", widths=[8], epochs=1, batch_size=32)
    settings = settings.model_copy(update={"representation": "raw"})
    encoder = Encoder("raw", (6,), 0, [], 0)
    rows = add_new_classes(clustered_split(), settings, encoder, [20, 1, 10_000], 2, 0, "cpu", "x")
    table = pd.DataFrame(rows)
    assert tuple(table.columns) == COLUMNS
    assert table["condition"].unique().tolist() == ["1 rows", "20 rows"], "10,000 rows are not there"
    twenty = table[table["condition"] == "20 rows"].groupby("method")["harmonic"].mean()
    assert set(twenty.index) == {
        OURS, BALANCED, AGAIN, "class_means", "random_features", "logistic", "balanced_logistic", "nearest"
    }  # fmt: skip
    assert (twenty > 0.75).all()
    one = table[table["condition"] == "1 rows"].groupby("method")["new_nll"].mean()
    assert one[BALANCED] < one[OURS]
    assert one["balanced_logistic"] < one["logistic"]
    best = best_others(table).set_index("condition")
    assert best.loc["20 rows", "difference"] == pytest.approx(
        best.loc["20 rows", "harmonic"] - best.loc["20 rows", "other_harmonic"]
    )
    assert abs(best.loc["20 rows", "loss"]) < 0.1
    assert add_new_classes(clustered_split(2), settings, encoder, [1], 2, 0, "cpu", "x") == []
