"""Claims from comparisons with opponents: families, p values, verdicts."""

from typing import Any

import pandas as pd
import pytest

from attnknn.evaluation.opponents import COLUMNS, KNN, WITHOUT
from attnknn.evaluation.paired_tests import combined_p
from attnknn.report.claims import claims, holm, setting_verdicts, smallest_p
from attnknn.report.tables import fixed, p_value


def paired(
    gain: float = 0.1, p: float = 1e-6, errors: int = 100, against: float | None = None, **run: Any
) -> pd.DataFrame:
    """Rows in which attention is better by `gain` (NLL and ECE lower, accuracy higher) than both opponents.

    Args:
        against: the gain over the best classifier without neighbours.
        run: dataset, condition, seed.
    """
    run = {"dataset": "digits", "condition": "clean", "seed": 0, **run}
    rows = [{"role": "attention", "method": "attention", "metric": "nll", "value": 0.1, "low": 0.0, "high": 1.0}]
    for role, method, improvement in (
        (KNN, "distance", gain),
        (WITHOUT, "linear", gain if against is None else against),
    ):
        for metric, sign in (("accuracy", 1), ("nll", -1), ("ece", -1)):
            d = sign * improvement
            scores = role, method, metric, 0.5, 0.0, 1.0, d, d - 0.01, d + 0.01, errors, p
            rows.append(dict(zip(COLUMNS, scores, strict=True)))
    return pd.DataFrame([{**run, **row} for row in rows])


def verdicts(*rows: pd.DataFrame, alpha: float = 0.01) -> set[str]:
    """Verdicts of the claims from all these rows together."""
    return {c.verdict for c in claims(pd.concat(rows), alpha)}


def test_undecided_with_too_few_errors() -> None:
    assert verdicts(paired(errors=20)) == {"yes"}
    assert verdicts(paired(errors=19)) == {"undecided"}
    assert claims(paired(errors=1))[0].finding == "no verdict: 1 error"
    assert claims(paired())[0].finding == "better"
    seeds = pd.concat([paired(seed=0, errors=50), paired(seed=1, errors=3)])
    assert {(c.errors, c.verdict) for c in claims(seeds)} == {(3, "undecided")}


def test_holm_by_hand() -> None:
    """Sorted .01, .02, .03, .5 times 4, 3, 2, 1 is .04, .06, .06, .5: never smaller than the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize(("gain", "expected"), [(0.1, "yes"), (-0.1, "no"), (0.0, "undecided")])
def test_verdict_by_sign_in_every_metric(gain: float, expected: str) -> None:
    result = claims(paired(gain, p=0.0))
    assert {c.verdict for c in result} == {expected}
    assert setting_verdicts(result)["digits", "clean"] == expected


def test_verdict_needs_holm_adjusted_p_below_alpha() -> None:
    """Three metrics against two opponents are six claims, so Holm multiplies the smallest p by six (fault 12)."""
    assert verdicts(paired(p=0.01 / 6 + 1e-9)) == {"undecided"}
    assert verdicts(paired(p=0.01 / 6 - 1e-9)) == {"yes"}
    assert verdicts(paired(p=0.04 / 6), alpha=0.05) == {"yes"}


def test_family_size_grows_with_settings() -> None:
    assert verdicts(paired(p=0.0015)) == {"yes"}
    for key in ("dataset", "condition"):
        assert verdicts(*(paired(**{key: f"d{i}"}, p=0.0015) for i in range(10))) == {"undecided"}


def test_clean_bank_is_its_own_family() -> None:
    """Six claims on the clean bank and 60 on modified banks are adjusted separately."""
    noisy = [paired(condition=f"noise {i}", p=0.0015) for i in range(10)]
    result = claims(pd.concat([noisy[0], paired(p=0.0015), *noisy[1:]]))
    assert {(c.condition, c.verdict) for c in result if c.primary} == {("clean", "yes")}
    for primary, size in ((True, 6), (False, 60)):
        assert [c.p for c in result if c.primary == primary] == pytest.approx([size * 0.0015] * size)
    assert setting_verdicts(result)["digits", "clean"] == "yes"


def test_seeds_must_agree_in_sign() -> None:
    for gains, verdict in (((0.1, 0.2), "yes"), ((0.5, -0.01), "undecided")):
        assert verdicts(*(paired(seed=i, gain=gain) for i, gain in enumerate(gains))) == {verdict}


def test_p_of_seeds_is_twice_their_mean_and_other_opponents_are_all_named() -> None:
    second = paired(seed=1, gain=0.3, p=0.003).replace({"method": {"distance": "uniform"}})
    first = next(c for c in claims(pd.concat([paired(gain=0.1, p=0.001), second])) if c.metric == "nll")
    assert (first.p, first.difference, first.low, first.high) == pytest.approx((6 * 2 * 0.002, -0.2, -0.31, -0.09))
    assert (first.seeds, first.method) == (2, "distance/uniform")


def test_a_lower_nll_that_costs_accuracy_is_no() -> None:
    result = claims(paired().assign(difference=-0.1))
    assert {c.metric: c.verdict for c in result} == {"nll": "yes", "accuracy": "no", "ece": "yes"}
    assert setting_verdicts(result)["digits", "clean"] == "no"


def test_verdict_per_condition_is_against_knn_alone() -> None:
    rows = pd.concat([paired(against=-0.3), paired(condition="noise 0.3", gain=-0.1), paired(dataset="iris")])
    expected = {("digits", "clean"): "yes", ("digits", "noise 0.3"): "no", ("iris", "clean"): "yes"}
    assert setting_verdicts(claims(rows)) == expected
    assert {c.verdict for c in claims(rows) if c.setting == ("digits", "clean") and c.role == WITHOUT} == {"no"}


def test_smallest_p_of_a_bootstrap() -> None:
    assert smallest_p(1, 99) == pytest.approx(0.02)
    assert smallest_p(2, 99) == pytest.approx(combined_p([0.02, 0.02])) == pytest.approx(0.04)


def test_numbers_and_p_values() -> None:
    assert [fixed(-0.12345, 3), fixed(0.5, 3, True), fixed(-0.0001, 3, True)] == ["−0.123", "+0.500", "0.000"]
    assert [p_value(p) for p in (0.0001, 0.0123, 1.0)] == ["< .001", ".012", "1"]
