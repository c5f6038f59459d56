"""Conformal sets: `crepes`, quantiles by hand, and coverage."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binom

from attnknn.core.errors import InputError
from attnknn.evaluation.conformal import conformal, conformal_p, p_values
from attnknn.evaluation.selective import log_complement
from synthetic_results import TIE, predictions


def test_the_quantile_of_five_scores_by_hand() -> None:
    """At α = .4 the ⌈6 · .6⌉ = 4th smallest of 5 scores is the last that stays; at α = .1 five scores exclude none."""
    p = p_values(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([0.05, 0.4, 0.41, 0.5, 0.6]))
    assert (p > 0.4).tolist() == [True, True, False, False, False]
    assert (p > 0.1).all()
    assert ((np.arange(1, 21) / 20 > 0.05).sum(), (np.arange(1, 21) / 20 > 0.1).sum()) == (19, 18), "p = α stays out"


def test_p_values_are_those_of_crepes_with_classes_as_bins_or_none() -> None:
    from crepes import ConformalClassifier

    val_predictions, new = predictions(TIE, 83, 3, seed=1), predictions(TIE, 41, 3, seed=2)
    val, y, probs = val_predictions.probs[3], val_predictions.y, new.probs[3]
    own, scores = log_complement(val)[np.arange(83), y], log_complement(probs)
    bins = np.tile(np.arange(3), 41)
    mondrian = ConformalClassifier().fit(own, bins=y).predict_p(scores.ravel(), bins=bins, smoothing=False)
    assert (conformal_p(val, y, probs, "class_conditional") == mondrian.reshape(41, 3)).all()
    plain = ConformalClassifier().fit(own).predict_p(scores, smoothing=False)
    assert (conformal_p(val, y, probs, "split") == plain).all()
    with pytest.raises(InputError, match="mondrian unknown; allowed are split, class_conditional"):
        conformal_p(val, y, probs, "mondrian")


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_coverage_holds_where_rows_are_exchangeable(alpha: float) -> None:
    """Within what chance allows half of the test rows, for every class too; the val rows' own is in the slack."""
    val, test = (predictions({"attention": (1.5, 3.5)}, 4000, 4, seed=s) for s in (5, 6))
    classes = [test.y == c for c in range(4)]
    for kind, groups in (("split", [test.y >= 0]), ("class_conditional", [test.y >= 0, *classes])):
        held = conformal_p(val.probs[0], val.y, test.probs[0], kind)[np.arange(4000), test.y] > alpha
        for group in groups:
            rows = group.sum() // 2
            low, high = binom.interval(0.9999, rows, 1 - alpha)
            assert low <= rows * held[group].mean() <= high


def test_class_conditional_sets_cover_the_class_that_split_sets_miss() -> None:
    """One class of four is hard: marginal coverage is met at its cost."""
    rng = np.random.default_rng(0)

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(4, size=n)
        strength = np.where(y == 3, 1.0, 6.0)[:, None] * np.eye(4)[y]
        return softmax(strength + rng.normal(size=(n, 4)), axis=1), y

    (val, y_val), (test, y) = rows(3000), rows(3000)
    split, conditional = (conformal_p(val, y_val, test, kind)[y == 3, 3] for kind in ("split", "class_conditional"))
    assert (split > 0.1).mean() < 0.75
    assert (conditional > 0.1).mean() > 0.86


def test_a_class_without_enough_val_rows_is_in_every_set() -> None:
    val, test = predictions(TIE, 200, 3, seed=1), predictions(TIE, 50, 3, seed=2)
    nine = val.y != 2
    nine[np.flatnonzero(~nine)[:9]] = True
    for mask, always in ((val.y != 2, (1, 1)), (nine, (1, 0))):
        few = replace(val, rows=val.rows[mask], y=val.y[mask], probs=val.probs[:, mask])
        table, _ = conformal(test, few, [0.05, 0.1], 100, 0.95, 0)
        rows = [r for r in table if (r["method"], r["kind"]) == ("attention", "class_conditional")]
        assert tuple(r["always"] for r in rows) == always
        assert {r["always"] for r in table if r["kind"] == "split"} == {0}
        p = conformal_p(few.probs[3], few.y, test.probs[3], "class_conditional")
        for row in rows:
            size = (p > row["alpha"]).sum(1)
            assert (row["size"], row["empty"], row["single"]) == (size.mean(), (size == 0).mean(), (size == 1).mean())
        for val_probs, probs in zip(few.probs, test.probs, strict=True):
            p = conformal_p(val_probs, few.y, probs, "class_conditional")
            assert (p[:, 2] > 0.05).all()
            assert not (p[:, :2] > 0.05).all()
