"""Attention against the opponents that are best on validation rows."""

import dataclasses
from itertools import product

import numpy as np
import pytest

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import InputError
from attnknn.evaluation.metrics import repeated_t
from attnknn.evaluation.opponents import (
    BEST,
    COLUMNS,
    FORMS,
    KNN,
    OURS,
    ROLES,
    UNDER_CONDITIONS,
    WITHOUT,
    best_on_val,
    compare_with_opponents,
    opponents_over_repeats,
    scores_by_row,
    select,
)
from attnknn.evaluation.paired_tests import TESTED, combined_p, intervals_and_tests, mean_over_repeats, scores
from synthetic_results import TIE, predictions

SCORING = {"bins": 15, "resamples": 200, "confidence": 0.95, "seed": 0}
STRENGTHS = TIE | {"distance_isotonic": (1.0, 2.1), "linear_vector": (2.5, 2.0), "forest": (0.5, 2.0)}


@pytest.fixture
def parts() -> tuple[Predictions, Predictions]:
    """Predictions of test rows, and of val rows where the order of the methods is another."""
    on_val = {name: (3.0 - strength, sharp) for name, (strength, sharp) in STRENGTHS.items()}
    return predictions(STRENGTHS, 300), predictions(on_val, 300, seed=1)


def test_opponents_are_the_best_on_validation_rows(parts: tuple[Predictions, Predictions]) -> None:
    on_val = scores(parts[1], 15)
    best = best_on_val(parts[1], 15)
    names_of = {
        KNN: ("uniform", "distance", "distance_vector", "distance_isotonic"),
        WITHOUT: ("prototypes", "linear", "linear_temperature", "linear_vector", "forest"),
    }
    for role, names in names_of.items():
        assert best[role, "nll"] == min(names, key=lambda name: on_val[name]["nll"])
        assert best[role, "accuracy"] == max(names, key=lambda name: on_val[name]["accuracy"])
    assert (best[KNN, "nll"], best[WITHOUT, "nll"]) == ("distance_isotonic", "forest")  # the worst on test rows
    tied = dataclasses.replace(parts[1], probs=parts[1].probs[:1].repeat(len(STRENGTHS), 0))
    assert set(best_on_val(tied, 15).values()) == {"uniform", "prototypes"}, "the first of a tie"


def test_a_role_that_nobody_has_is_named(parts: tuple[Predictions, Predictions]) -> None:
    with pytest.raises(InputError, match="no prediction by prototypes or linear"):
        best_on_val(select(parts[1], ["uniform", "attention"]), 15)


def test_rows_are_those_of_the_tests(parts: tuple[Predictions, Predictions]) -> None:
    test, val = parts
    table = compare_with_opponents(test, val, **SCORING, metric_names=UNDER_CONDITIONS, others=("uniform", "distance"))
    best = best_on_val(val, 15)
    assert {tuple(row) for row in table} == {COLUMNS}
    form = best_on_val(val, 15, {BEST: FORMS})[BEST, "nll"]
    assert {r["method"] for r in table if r["ours"] == BEST and r["role"] not in ROLES} == {form}
    for role, ours in product(ROLES, (OURS, BEST)):
        names = {row["metric"]: row["method"] for row in table if (row["role"], row["ours"]) == (role, ours)}
        assert names == {m: best[role, m] for m in TESTED} | {"balanced_accuracy": best[role, "accuracy"]}
    assert {row["method"] for row in table if row["role"] == ""} == {"uniform", "distance"}
    methods = list(dict.fromkeys(["attention", form, "uniform", "distance", *best.values()]))
    against = [("attention", name) for name in methods[1:]] + [(form, name) for name in dict.fromkeys(best.values())]
    _, tests = intervals_and_tests(select(test, methods), against, **SCORING, metric_names=UNDER_CONDITIONS)
    expected = {(row["method"], row["baseline"], row["metric"]): row for row in tests}
    for row in table:
        ours = {OURS: "attention", BEST: form}[row["ours"]]
        if row["method"] != ours and row["metric"] in TESTED:
            other = expected[ours, row["method"], row["metric"]]
            values = [other[key] for key in ("difference", "low", "high", "errors", "p")]
            assert [row[key] for key in ("difference", "difference_low", "difference_high", "errors", "p")] == values
        else:
            assert row["p"] is None


def test_mean_over_repeats_by_hand() -> None:
    def run(method: str, value: float, errors: int, p: float) -> list[dict[str, object]]:
        row = KNN, method, "nll", value, value - 0.1, value + 0.1, -value, -value - 0.2, -value + 0.2, errors, p, OURS
        untested = "", "uniform", "balanced_accuracy", value, 0.0, 1.0, None, None, None, None, None, OURS
        return [dict(zip(COLUMNS, cells, strict=True)) for cells in (row, untested)]

    table = mean_over_repeats(
        [*run("distance", 0.2, 9, 0.01), *run("uniform", 0.4, 7, 0.05), *run("distance", 0.3, 8, 0.03)],
        ("role", "metric"),
    )
    tested, untested = table
    assert (tested["role"], tested["method"], tested["errors"]) == (KNN, "distance/uniform", 7)
    numbers = [tested[key] for key in ("value", "low", "high", "difference", "difference_low", "difference_high", "p")]
    assert numbers == pytest.approx([0.3, 0.1, 0.5, -0.3, -0.6, 0.0, 0.06])
    assert untested["value"] == pytest.approx(0.3)
    assert np.isnan([untested["p"], untested["errors"]]).all()
    opposed = mean_over_repeats([*run("distance", 0.2, 9, 1e-9), *run("distance", -0.21, 9, 1e-9)], ("role", "metric"))
    assert opposed[0]["p"] == 1.0, "repeats that disagree in sign"
    assert combined_p([0.6, 0.8]) == 1.0


def test_repeats_are_tested_row_by_row() -> None:
    """Opponents may differ between repeats; a method that one repeat lacks is tested in the others."""
    repeats = [(predictions(STRENGTHS, 300, seed=s), predictions(STRENGTHS, 300, seed=s + 9)) for s in range(3)]
    runs = [
        compare_with_opponents(*both, **SCORING, metric_names=UNDER_CONDITIONS, others=["uniform"]) for both in repeats
    ]
    runs[2] = [row for row in runs[2] if row["role"]]
    by_row = [scores_by_row(test, (row["method"] for row in run)) for (test, _), run in zip(repeats, runs, strict=True)]
    table = opponents_over_repeats(runs, by_row, 0.9)
    assert len({row["method"] for row in table if row["role"] == KNN}) > 1, "another opponent in each metric"
    for row in [row for row in table if row["metric"] == "nll" and row["role"] != row["ours"]]:
        losses = []
        for (test, _), run in zip(repeats, runs, strict=True):
            names = {(r["ours"], r["role"] or r["method"]): r["method"] for r in run if r["metric"] == "nll"}
            other = names.get((row["ours"], row["role"] or row["method"]))
            if other:
                pair = [test.methods.index(name) for name in (names[row["ours"], row["ours"]], other)]
                a, b = np.log(test.probs[pair][:, np.arange(300), test.y].astype(np.float64))
                losses.append(b - a)
        assert len(losses) == (3 if row["role"] else 2)
        low, high, p = repeated_t(np.stack(losses), 0.9)
        numbers = [row[key] for key in ("difference", "difference_low", "difference_high", "p")]
        assert numbers == pytest.approx([np.mean(losses), low, high, p], abs=1e-5)
