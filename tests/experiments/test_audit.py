"""Finding wrong labels beside cleanlab: scores by hand, the comparison, and the stage's rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from attnknn.experiments.audit import (
    COLUMNS,
    OURS,
    SCORES,
    audit_conditions,
    best_others,
    classifiers,
    detection_scores,
)


def test_scores_by_hand() -> None:
    """Ranked wrong, right, wrong, right: precision 1 and 2/3 at the wrong ones; three of four pairs in order."""
    wrong, flagged = np.array([1, 0, 1, 0], bool), np.array([1, 1, 0, 0], bool)
    scores = detection_scores(np.array([0.9, 0.8, 0.3, 0.1]), wrong, flagged)
    assert scores == pytest.approx(
        {"average_precision": (1 + 2 / 3) / 2, "precision_at_100": 0.5, "auroc": 0.75, "f1": 0.5}
    )


def test_the_best_of_cleanlab_has_the_highest_mean() -> None:
    values = {OURS: [0.9, 0.8, 0.85], "a, self_confidence": [0.95, 0.2, 0.3], "b, self_confidence": [0.7, 0.7, 0.6]}
    rows = [
        {"condition": "symmetric 0.1", "repeat": i, "method": name, **dict.fromkeys(SCORES, value)}
        for name, own in values.items()
        for i, value in enumerate(own)
    ]
    ours = {"expected_precision": 0.5, "precision": 0.6, "expected_wrong": 0.1, "wrong": 0.2}
    (row,) = best_others(pd.DataFrame([{**row, **(ours if row["method"] == OURS else {})} for row in rows])).to_dict(
        "records"
    )
    difference = np.array([0.2, 0.1, 0.25])
    half = 4.302653 * difference.std(ddof=1) / np.sqrt(3)  # of Student's t with two degrees of freedom
    assert row["other"] == "b, self_confidence"
    assert (row["difference"], row["low"], row["high"]) == pytest.approx(
        (difference.mean(), difference.mean() - half, difference.mean() + half), abs=1e-6
    )
    assert 0.04 < row["p"] < 0.06
    assert (row["average_precision"], row["other_f1"], row["precision"]) == pytest.approx((0.85, 2 / 3, 0.6))


def test_asymmetric_noise_of_two_classes_is_symmetric_and_included_once() -> None:
    pytest.importorskip("cleanlab")
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    z = (rng.normal(size=(120, 3)) + 4 * y[:, None]).astype(np.float32)
    nothing, kinds = (z[:0], y[:0]), ["symmetric", "asymmetric"]
    table = pd.DataFrame(audit_conditions(z, y, nothing, kinds, [0.1], 1, 1, lambda results, total: results))
    assert table["condition"].unique().tolist() == ["symmetric 0.1"]


def test_every_condition_and_repeat_has_other_wrong_labels() -> None:
    pytest.importorskip("cleanlab")
    z, y = load_iris(return_X_y=True)
    rest = np.arange(150) % 3 > 0
    z, y = np.asarray(z), np.asarray(y)
    test, kinds = (z[~rest], y[~rest]), ["symmetric", "instance"]
    table = pd.DataFrame(audit_conditions(z[rest], y[rest], test, kinds, [0.2], 2, 1, lambda results, total: results))
    assert table.groupby(["condition", "repeat"]).size().tolist() == [13] * 4
    ours = table[table["method"] == OURS]
    assert ours["wrong"].tolist() == [0.2] * 4
    random = ours[ours["condition"] == "symmetric 0.2"]
    assert (random["average_precision"] > 0.8).all()
    assert (random["accuracy_right"] > random["accuracy_given"]).all()
    gain = (random["accuracy_cleaned"] - random["accuracy_given"]).mean()
    assert best_others(table)["cleaning_difference"][0] == pytest.approx(gain)
    assert gain > 0
    rankings = table[table["method"].str.startswith("logistic")].groupby("method")["average_precision"].mean()
    assert rankings.nunique() == 2, "by self confidence and by normalized margin"
    assert ours["average_precision"].nunique() == 4
    for name in ("precision", "expected_precision", *SCORES):
        assert ours[name].between(0, 1).all()
    assert table[table["method"] != OURS]["expected_wrong"].isna().all()


def test_an_audit_of_few_rows() -> None:
    pytest.importorskip("cleanlab")
    y = np.arange(30) % 3
    z = (np.random.default_rng(0).normal(size=(30, 3)) + 4 * y[:, None]).astype(np.float32)
    for n, methods in ((30, 13), (27, 0)):  # ten rows of each class, and nine
        settings = (z[:0], y[:0]), ["symmetric"], [0.2], 1, 1, lambda results, total: results
        table = audit_conditions(z[:n], y[:n], *settings)
        assert len(table) == methods
        assert all(set(row) <= set(COLUMNS) for row in table)


def test_boosting_on_embeddings_of_two_classes_but_not_of_ten() -> None:
    """Its time grows with columns and classes."""
    assert "boosting" in classifiers(500, 128, 2, 0)
    assert "boosting" in classifiers(500, 64, 10, 0)
    assert "boosting" not in classifiers(500, 128, 10, 0)
