"""Claims from paired comparisons: families, p values, verdicts."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn.core.errors import InputError
from attnknn.report import claims as claimed
from attnknn.report.claims import Claim, combined_p, combined_verdict, holm, setting_verdicts, smallest_p
from attnknn.report.section import Cell
from attnknn.report.sections.evaluate import claim_rows
from attnknn.report.tables import fixed, p_value


def paired(
    gain: float = 0.1, p: float = 1e-6, errors: int = 100, against: dict[str, float] | None = None, **run: Any
) -> pd.DataFrame:
    """Rows in which attention is better by `gain` (NLL and ECE lower, accuracy higher) than every baseline.

    Args:
        against: the gain over each baseline.
        run: dataset, condition, seed, repeat.
    """
    gains = {"linear": gain, **(against or {"uniform": 2 * gain, "distance": 1.5 * gain, "distance_vector": gain})}
    run = {"dataset": "digits", "condition": "clean", "seed": 0, "repeat": 0, "method": "attention", **run}
    rows = []
    for baseline, improvement in gains.items():
        for metric, sign in (("accuracy", 1), ("nll", -1), ("ece", -1)):
            d = sign * improvement
            row = {**run, "baseline": baseline, "metric": metric, "difference": d, "errors": errors, "p": p}
            rows.append({**row, "low": d - 0.01, "high": d + 0.01})
    return pd.DataFrame(rows)


def on_val(rows: pd.DataFrame, best: str = "distance_vector") -> pd.DataFrame:
    """Validation scores for the same runs and baselines; `best` is best in every metric."""
    columns = ["dataset", "condition", "seed", "repeat", "baseline", "metric"]
    scores = rows[columns].rename(columns={"baseline": "method"})
    good = (scores["method"] == best) == (scores["metric"] == "accuracy")
    return scores.assign(value=np.where(good, 0.9, 0.1))


def claims(rows: pd.DataFrame, best: str = "distance_vector", alpha: float = 0.01) -> list[Claim]:
    return claimed.claims(rows, on_val(rows, best), alpha)


def verdicts(*rows: pd.DataFrame, alpha: float = 0.01) -> set[str]:
    """Verdicts of the claims from all these rows together."""
    return {c.verdict for c in claims(pd.concat(rows), alpha=alpha)}


def test_undecided_with_too_few_errors() -> None:
    assert verdicts(paired(errors=20)) == {"yes"}
    assert verdicts(paired(errors=19)) == {"undecided"}
    seeds = pd.concat([paired(seed=0, errors=50), paired(seed=1, errors=3)])
    assert {(c.errors, c.verdict) for c in claims(seeds)} == {(3, "undecided")}


def test_holm_by_hand() -> None:
    """Sorted .01, .02, .03, .5 times 4, 3, 2, 1 is .04, .06, .06, .5: never smaller than the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize(("gain", "expected"), [(0.1, "yes"), (-0.1, "no"), (0.0, "undecided")])
def test_verdict_by_sign_in_every_metric(gain: float, expected: str) -> None:
    result = claims(paired(against={"uniform": 3 * gain, "distance_vector": gain, "linear": gain}, p=0.0))
    assert {c.verdict for c in result} == {expected}
    assert setting_verdicts(result)["digits", "clean"] == expected


def test_verdict_needs_holm_adjusted_p_below_alpha() -> None:
    """Three metrics against two baselines are six claims, so Holm multiplies the smallest p by six (fault 12)."""
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


def test_baselines_are_chosen_on_validation_rows() -> None:
    """Uniform is best on test rows, distance + isotonic on validation rows."""
    rows = paired(against={"uniform": -9.0, "distance_isotonic": 0.1, "distance_vector": 0.2, "linear": -5.0})
    roles = {"distance_isotonic": "best tuned", "distance_vector": "to beat", "linear": "without neighbours"}
    expected = [(metric, name, (role,)) for metric in ("nll", "accuracy", "ece") for name, role in roles.items()]
    assert [(c.metric, c.baseline, c.roles) for c in claims(rows, best="distance_isotonic")] == expected


@pytest.mark.parametrize("best", ["linear", "attention_vector", "prototypes"])
def test_best_tuned_is_a_knn_baseline_and_on_a_tie_the_one_to_beat(best: str) -> None:
    rows = paired(against={"uniform": 0.2, "distance_vector": 0.1, best: 0.1})
    names = {c.baseline for c in claims(rows, best) if "best tuned" in c.roles}
    assert names <= {"uniform", "distance_vector"}
    tied = claimed.claims(rows, on_val(rows).assign(value=0.5))
    assert {c.roles for c in tied if c.baseline == "distance_vector"} == {("best tuned", "to beat")}


@pytest.mark.parametrize("best", ["prototypes", "prototypes_isotonic", "linear", "linear_vector"])
def test_without_neighbours_is_chosen_on_validation_rows_and_leaves_the_verdict(best: str) -> None:
    others = {"prototypes": 0.4, "linear_temperature": 0.5}
    rows = paired(against={"uniform": 0.2, "distance_vector": 0.1, **others, best: -0.3})
    result = claims(rows, best)
    without = [c for c in result if c.metric == "nll" and c.roles == ("without neighbours",)]
    assert [(c.baseline, c.verdict) for c in without] == [(best, "no")]
    assert setting_verdicts(result)["digits", "clean"] == "yes"


def test_runs_must_agree_in_sign() -> None:
    for key in ("seed", "repeat"):
        for gains, verdict in (((0.1, 0.2), "yes"), ((0.5, -0.01), "undecided")):
            assert verdicts(*(paired(**{key: i}, gain=gain) for i, gain in enumerate(gains))) == {verdict}


def test_p_of_runs_is_twice_their_mean() -> None:
    for key in ("seed", "repeat"):
        first, *_ = claims(pd.concat([paired(**{key: 0}, gain=0.1, p=0.001), paired(**{key: 1}, gain=0.3, p=0.003)]))
        expected = (6 * 2 * 0.002, -0.2, 0.2 / math.sqrt(2), -0.31, -0.09, 2)
        assert (first.p, first.difference, first.sd, first.low, first.high, first.runs) == pytest.approx(expected)


def test_a_lower_nll_that_costs_accuracy_is_no() -> None:
    result = claims(paired().assign(difference=-0.1))
    assert {c.metric: c.verdict for c in result} == {"nll": "yes", "accuracy": "no", "ece": "yes"}
    assert setting_verdicts(result)["digits", "clean"] == "no"


def test_verdict_per_condition_and_combined() -> None:
    rows = pd.concat([paired(), paired(condition="noise 0.3", gain=-0.1), paired(dataset="iris")])
    expected = {("digits", "clean"): "yes", ("digits", "noise 0.3"): "no", ("iris", "clean"): "yes"}
    assert setting_verdicts(claims(rows)) == expected
    for second in ("no", "undecided", "yes"):
        assert combined_verdict(["yes", second]) == second


@pytest.mark.parametrize(("gain", "verdict"), [(-0.1, "no"), (0.1, "yes"), (0.0, "undecided")])
def test_plain_network_has_its_own_role_and_leaves_the_verdict(gain: float, verdict: str) -> None:
    """The conditions of the bank have no row of it."""
    others = {"uniform": 0.2, "distance_vector": 0.1}
    clean = paired(against={**others, "cnn": 0.5, "cnn_vector": gain})
    noisy = paired(condition="noise 0.3", against=others)
    rows = pd.concat([clean, noisy, paired(dataset="adult")])
    val = on_val(rows)
    best = np.where(val["metric"] == "accuracy", 0.95, 0.05)
    val["value"] = val["value"].mask(val["method"] == "cnn_vector", best)
    result = claimed.claims(rows, val)
    network = [c for c in result if "plain network" in c.roles]
    assert [(c.setting, c.baseline) for c in network] == [(("digits", "clean"), "cnn_vector")] * 3
    assert set(setting_verdicts(result).values()) == {"yes"}
    assert {c.verdict for c in network} == {verdict}
    without = claims(pd.concat([paired(against=others), noisy, paired(dataset="adult")]))
    assert len(result) == len(without) + 3
    primary = [[c.p for c in family if c.primary] for family in (result, without)]
    assert min(primary[0]) == pytest.approx(min(primary[1]) * len(primary[0]) / len(primary[1]))
    assert [c.p for c in result if not c.primary] == [c.p for c in without if not c.primary]


def test_claim_of_fewer_runs_than_its_setting_is_marked() -> None:
    """Heads are refitted in every repeat; the plain network is scored once."""
    rows = pd.concat([paired(against={"uniform": 0.2, "distance_vector": 0.1, "cnn": 0.1}), paired(repeat=1)])
    group, *lines = claim_rows(claims(rows), {"digits": 3}).rows
    assert group == ["digits, clean, 2 runs"]
    around = {line[1].value: line[1].around for line in lines if isinstance(line[1], Cell)}
    assert around["Plain network"] == "plain network, 1 run"
    assert around["Distance + vector scaling"] == "best tuned, to beat"


def test_smallest_p_of_a_bootstrap() -> None:
    assert smallest_p(1, 99) == pytest.approx(0.02)
    assert smallest_p(2, 99) == pytest.approx(combined_p([0.02, 0.02])) == pytest.approx(0.04)


def test_missing_rows_are_refused() -> None:
    rows = paired(against={"uniform": 0.1})
    with pytest.raises(InputError, match="digits, clean has no nll row against distance_vector"):
        claims(rows, "uniform")
    with pytest.raises(InputError, match="validation: digits, clean has no row"):
        claimed.claims(paired(), on_val(paired(dataset="iris")))


def test_numbers_and_p_values() -> None:
    assert [fixed(-0.12345, 3), fixed(0.5, 3, True), fixed(-0.0001, 3, True)] == ["−0.123", "+0.500", "0.000"]
    assert [p_value(p) for p in (0.0001, 0.0123, 1.0)] == ["< .001", ".012", "1"]
