"""Late labels of images that change over time."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from attnknn import AttnKNNClassifier
from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder
from attnknn.experiments import drift
from attnknn.experiments.drift import (
    COLUMNS,
    KINDS,
    OURS,
    STATIC,
    FitAgain,
    PartialFit,
    best_others,
    changed,
    drift_of_images,
    follow,
    true_log_probs,
)
from synthetic import clustered_split

RNG = np.random.default_rng(0)


def test_changes_by_hand() -> None:
    x = np.zeros((1, 1, 10, 10), np.uint8)
    x[0, 0, 4:6, 7:9] = 200
    rng = np.random.default_rng(0)
    for kind in KINDS:
        np.testing.assert_array_equal(changed(x, kind, 0.0, rng), x)
    assert changed(x, "brightness", 1.0, rng).max() == 50
    assert changed(x, "brightness", 0.4, rng).max() == 140
    blurred = changed(x, "blur", 1.0, rng).astype(int)
    assert blurred.max() < 100
    assert blurred.sum() == pytest.approx(x.sum(), rel=0.15)
    assert changed(np.full((1, 1, 50, 50), 128, np.uint8), "noise", 0.5, rng).std() == pytest.approx(38, abs=2)
    rows, columns = np.nonzero(changed(x, "rotation", 1.0, rng)[0, 0] > 60)
    angle = np.degrees(np.arctan2(abs(rows.mean() - 4.5), columns.mean() - 4.5))
    assert angle == pytest.approx(60, abs=6)


class _Fixed:
    """Answers class 0 with probability p, and counts the batches it gets."""

    classes_ = np.array([0, 2])

    def __init__(self, p: float) -> None:
        self.p, self.batches = p, 0

    def log_probs(self, z: np.ndarray) -> np.ndarray:
        return np.log(np.tile([self.p, 1 - self.p], (len(z), 1)))

    def learn(self, z: np.ndarray, y: np.ndarray) -> None:
        self.batches += 1


def test_the_setting_of_lowest_loss_on_earlier_labels_answers() -> None:
    first, second = _Fixed(0.9), _Fixed(0.2)
    z, y = np.zeros((4, 2)), np.array([2, 2, 2, 0])
    own = follow([first, second], [((z, y), (z, y)), ((z, y), (z, y))])
    assert own["accuracy"] == (0.25 + 0.75) / 2, "no label is known in the first step, where the first one answers"
    assert own["last_accuracy"] == 0.75
    assert own["nll"] == pytest.approx(-np.log([0.1, 0.1, 0.1, 0.9, 0.8, 0.8, 0.8, 0.2]).mean())
    assert first.batches == second.batches == 2
    assert follow([first, second], [((z, y), (z, y))] * 2, labels=False)["accuracy"] == 0.25
    assert first.batches == 2
    log_p, right = true_log_probs(first, z[:2], np.array([1, 3]))
    assert (log_p < -20).all(), "classes that it has no row of"
    assert not right.any()


def test_older_rows_weigh_less_in_a_fit() -> None:
    z, y = RNG.normal(size=(60, 3)), np.arange(60) % 3
    z[np.arange(60), y] += 1
    own = FitAgain(LogisticRegression(), np.asarray, (z[:40], y[:40]), (z, y), decay=10)
    own.learn(z[40:50], y[40:50])
    own.learn(z[50:], y[50:])
    weight = np.exp2(-np.concatenate([np.full(40, 20), np.arange(20)[::-1]]) / 10)
    expected = LogisticRegression().fit(z, y, sample_weight=weight).decision_function(z)
    np.testing.assert_allclose(own.log_probs(z), log_softmax(expected / own.temperature, axis=1), atol=1e-2)
    window = FitAgain(LogisticRegression(), np.asarray, (z[:40], y[:40]), (z, y), window=20)
    window.learn(z[40:], y[40:])
    expected = LogisticRegression().fit(z[40:], y[40:]).decision_function(z)
    np.testing.assert_allclose(window.log_probs(z), log_softmax(expected / window.temperature, axis=1), atol=1e-2)


@pytest.mark.parametrize("make", [LogisticRegression, RidgeClassifier])
def test_a_window_has_two_classes(make: Any) -> None:
    z, y = RNG.normal(size=(40, 3)), np.arange(40) % 2
    y[30:] = 1
    window = FitAgain(make(), np.asarray, (z[:30], y[:30]), (z, y), window=5)
    window.learn(z[30:], y[30:])
    expected = make().fit(z[28:], y[28:]).decision_function(z)  # row 28 is the newest of class 0
    np.testing.assert_allclose(window.classifier.decision_function(z), expected, atol=1e-6)
    assert window.log_probs(z).shape == (40, 2)


def test_the_memory_of_a_copy_is_limited() -> None:
    z, y = RNG.normal(size=(90, 3)), np.arange(90) % 3
    model = AttnKNNClassifier(max_iter=1, random_state=0).fit(z[:60], y[:60])
    own = PartialFit(model, newest=20)
    own.learn(z[60:], y[60:])
    assert len(own.model.memory_) == 20
    assert len(model.memory_) == 60


def test_changed_images_are_followed_by_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 400
    y = np.arange(n) % 3
    x = np.zeros((n, 1, 6, 6), np.uint8)
    x[np.arange(n), 0, y, 2 * y] = 250
    x = np.clip(x + RNG.integers(0, 120, x.shape), 0, 255).astype(np.uint8)
    split = Split(x, y, (np.arange(n) // 3 % 4).astype(np.int8), ("a", "b", "c"))
    encoder = Encoder("raw", (1, 6, 6), 0, [], 0)
    encoder.fit_normalisation(x)
    learned: list[bool] = []

    def spied(learners: Any, steps: Any, labels: bool = True) -> dict[str, float]:
        learned.append(labels)
        for (queries, _), (late, _) in steps:
            assert not (queries[:, None] == late).all(2).any(), "a label of a query"
        return follow(learners, steps, labels)

    monkeypatch.setattr(drift, "follow", spied)
    rows = drift_of_images(split, encoder, False, [20, 1000], 4, 2, 0, "cpu", lambda items, total: items)
    assert learned == [row["method"] != STATIC for row in rows]
    table = pd.DataFrame(rows)
    assert tuple(table.columns) == COLUMNS
    assert table["condition"].unique().tolist() == [f"{kind}, 20 labels" for kind in KINDS], "1,000 are not there"
    assert set(table["repeat"]) == {0, 1}
    assert table["method"].nunique() == 14
    best = best_others(table).set_index("condition")
    turned = best.loc["rotation, 20 labels"]
    assert turned["difference"] == pytest.approx(turned["accuracy"] - turned["other_accuracy"])
    assert (
        turned["accuracy"] == table[(table["method"] == OURS) & (table["condition"] == turned.name)]["accuracy"].mean()
    )
    for none, ns in ((clustered_split(), [20]), (split, [1000])):
        assert drift_of_images(none, encoder, False, ns, 4, 2, 0, "cpu", lambda items, total: items) == []
