"""Claims and comparisons: families, p values, verdicts."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn.evaluation.metrics import paired_t
from attnknn.evaluation.opponents import COLUMNS, KNN, WITHOUT
from attnknn.report.tables import fixed, p_value, short
from attnknn.report.verdicts import BETTER, SAME, WORSE, claims, holm, judged
from synthetic_results import skewed_losses


def paired(
    gain: float = 0.1, p: float = 1e-6, errors: int = 100, against: float | None = None, **run: Any
) -> pd.DataFrame:
    """Rows in which attention is better by `gain` (NLL and ECE lower, accuracy higher) than both opponents.

    Args:
        against: the gain over the best classifier without neighbours.
        run: dataset, condition, seed.
    """
    run = {"dataset": "digits", "condition": "clean", "seed": 0, "digits": 3, **run}
    rows = [{"role": "attention", "method": "attention", "metric": "nll", "value": 0.1, "low": 0.0, "high": 1.0}]
    for role, method, improvement in (
        (KNN, "distance", gain),
        (WITHOUT, "linear", gain if against is None else against),
    ):
        for metric, sign in (("accuracy", 1), ("nll", -1), ("ece", -1)):
            d = sign * improvement
            scores = role, method, metric, 0.5, 0.0, 1.0, d, d - 0.01, d + 0.01, errors, p, "attention"
            rows.append(dict(zip(COLUMNS, scores, strict=True)))
    return pd.DataFrame([{**run, **row} for row in rows])


def verdicts(*rows: pd.DataFrame) -> set[str]:
    """Verdicts of the claims from all these rows together."""
    return set(claims(pd.concat(rows))["verdict"])


def test_no_verdict_no_p_and_no_family_with_too_few_errors() -> None:
    assert verdicts(paired(errors=20)) == {BETTER}
    few = claims(paired(errors=19))
    assert set(few["verdict"]) == {"no verdict: 19 errors"}
    assert few["p"].isna().all()
    assert verdicts(paired(errors=1)) == {"no verdict: 1 error"}
    seeds = claims(pd.concat([paired(seed=0, errors=50), paired(seed=1, errors=3)]))
    assert set(seeds["verdict"]) == {"no verdict: 3 errors"}
    both = claims(pd.concat([paired(p=0.001), paired(p=0.001, condition="a"), paired(condition="b", errors=3)]))
    assert both["p"].dropna().tolist() == pytest.approx([0.002] * 12), "a condition with 3 errors is in no family"
    assert both["family"].tolist() == [2] * 12 + [0] * 6


def test_holm_by_hand() -> None:
    """Sorted .01, .02, .03, .5 times 4, 3, 2, 1 is .04, .06, .06, .5: never smaller than the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize(("gain", "expected"), [(0.1, BETTER), (-0.1, WORSE), (0.0, SAME)])
def test_verdict_by_sign_in_every_metric(gain: float, expected: str) -> None:
    assert verdicts(paired(gain, p=0.0)) == {expected}


def test_a_family_is_the_conditions_of_one_dataset_opponent_and_score() -> None:
    """Holm multiplies the smallest p by the number of conditions (fault 12), and by nothing else (fault 20)."""
    conditions = [paired(condition=f"noise {i}", dataset=d, p=0.001) for i in range(9) for d in ("a", "b")]
    assert verdicts(*conditions) == {BETTER}
    result = claims(pd.concat([*conditions, paired(dataset="a", p=0.001)]))
    assert set(zip(result["dataset"], result["family"], result["verdict"], strict=True)) == {
        ("a", 10, SAME),
        ("b", 9, BETTER),
    }


def test_families_of_the_study_find_a_difference_at_60_errors_and_nothing_where_there_is_none() -> None:
    """Families of 16 conditions, of 320 rows each: without a difference at most 1 % of them have a verdict."""
    losses = np.random.default_rng(1).choice(skewed_losses(100_000, sharpness=2.0), (200, 16, 320))
    values = {"errors": 60, "digits": 3, "metric": "nll", "low": 0.0, "high": 0.0}
    rows = [
        {"dataset": d, "condition": c, "difference": own.mean(), "p": paired_t(own), **values}
        for d, family in enumerate(losses)
        for c, own in enumerate(family)
    ]
    null = judged(pd.DataFrame(rows), ["dataset", "condition", "metric"])
    assert set(null["family"]) == {16}
    assert (null["verdict"] != SAME).groupby(null["dataset"]).any().mean() <= 0.01
    own = losses[0, 0].mean() - losses[0, 0] - 0.3 * losses[0, 0].std()  # less an overconfident opponent
    rows[0] |= {"difference": own.mean(), "p": paired_t(own)}
    planted = judged(pd.DataFrame(rows[:16]), ["dataset", "condition", "metric"])
    assert list(planted["verdict"]) == [BETTER] + [SAME] * 15


def test_claims_are_ordered_by_setting_role_and_metric() -> None:
    result = claims(pd.concat([paired(condition="noise 0.3", dataset="a"), paired(dataset="b"), paired(dataset="a")]))
    assert list(dict.fromkeys(result["dataset"] + result["condition"])) == ["anoise 0.3", "bclean", "aclean"]
    assert list(result["role"][:6]) == [KNN] * 3 + [WITHOUT] * 3
    assert list(result["metric"][:3]) == ["nll", "accuracy", "ece"]


def test_seeds_must_agree_in_sign() -> None:
    for gains, verdict in (((0.1, 0.2), BETTER), ((0.5, -0.01), SAME)):
        assert verdicts(*(paired(seed=i, gain=gain) for i, gain in enumerate(gains))) == {verdict}


def test_p_of_seeds_is_twice_their_mean_and_other_opponents_are_all_named() -> None:
    second = paired(seed=1, gain=0.3, p=0.003).replace({"method": {"distance": "uniform"}})
    first = claims(pd.concat([paired(gain=0.1, p=0.001), second])).iloc[0]
    assert tuple(first[["p", "difference", "low", "high"]]) == pytest.approx((2 * 0.002, -0.2, -0.31, -0.09))
    assert (first["runs"], first["method"]) == (2, "distance/uniform")


def test_families_of_an_experiment_are_its_datasets() -> None:
    rows = pd.DataFrame(
        {"difference": -0.1, "low": -0.2, "high": -0.05, "p": 0.004, "digits": 3, "metric": "nll"}, [0, 1, 2]
    )
    rows = rows.assign(dataset=["a", "a", "b"], method=["x", "y", "x"])
    result = judged(rows, ["dataset", "method", "metric"])
    assert result["p"].tolist() == pytest.approx([0.008, 0.008, 0.004])
    assert set(result["verdict"]) == {BETTER}, "without errors every comparison can be judged"


def test_numbers_and_p_values() -> None:
    assert [fixed(-0.12345, 3), fixed(0.5, 3, True), fixed(-0.0001, 3, True)] == ["−0.123", "+0.500", "0.000"]
    assert [p_value(p) for p in (0.0001, 0.0123, 1.0, float("nan"))] == ["< .001", ".012", "1", ""]
    assert [short(v) for v in (12345.6, 0.00012345, -2.5)] == ["12,300", "0.000123", "−2.5"]
