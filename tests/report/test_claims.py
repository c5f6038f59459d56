"""Claims from paired comparisons: every verdict can be no."""

import math

import numpy as np
import pandas as pd
import pytest

from attnknn.core.errors import InputError
from attnknn.report import claims as claimed
from attnknn.report.claims import Claim, answers, combined_p, holm, overall, smallest_p
from attnknn.report.section import Cell
from attnknn.report.sections.evaluate import claim_rows
from attnknn.report.tables import fixed, p_value


def paired(
    dataset: str = "digits",
    seed: int = 0,
    gain: float = 0.1,
    p: float = 1e-6,
    errors: int = 100,
    against: dict[str, float] | None = None,
    condition: str = "clean",
    repeat: int = 0,
) -> pd.DataFrame:
    """Rows in which attention is better by `gain` (NLL and ECE lower, accuracy higher) than every baseline."""
    gains = against or {"uniform": 2 * gain, "distance": 1.5 * gain, "distance_vector": gain}
    gains = {"linear": gain, **gains}
    run = {"dataset": dataset, "condition": condition, "seed": seed, "repeat": repeat, "method": "attention"}
    rows = []
    for baseline, by in gains.items():
        for metric, sign in (("accuracy", 1), ("nll", -1), ("ece", -1)):
            d = sign * by
            row = {**run, "baseline": baseline, "metric": metric, "difference": d, "errors": errors, "p": p}
            rows.append({**row, "low": d - 0.01, "high": d + 0.01})
    return pd.DataFrame(rows)


def on_val(rows: pd.DataFrame, best: str = "distance_vector") -> pd.DataFrame:
    """Validation scores for the same runs and baselines; `best` is best in every metric."""
    known = rows[["dataset", "condition", "seed", "repeat", "baseline", "metric"]].rename(
        columns={"baseline": "method"}
    )
    good = (known["method"] == best) == (known["metric"] == "accuracy")
    return known.assign(value=np.where(good, 0.9, 0.1))


def claims(rows: pd.DataFrame, best: str = "distance_vector", alpha: float = 0.01) -> list[Claim]:
    return claimed.claims(rows, on_val(rows, best), alpha)


def test_where_hardly_a_row_is_wrong_nothing_is_decided() -> None:
    assert {c.verdict for c in claims(paired(errors=20))} == {"yes"}
    assert {c.verdict for c in claims(paired(errors=19))} == {"undecided"}
    seeds = pd.concat([paired(seed=0, errors=50), paired(seed=1, errors=3)])
    assert {(c.errors, c.verdict) for c in claims(seeds)} == {(3, "undecided")}


def test_holm_by_hand() -> None:
    """Sorted .01, .02, .03, .5 times 4, 3, 2, 1 is .04, .06, .06, .5: never smaller than the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize(("gain", "expected"), [(0.1, "yes"), (-0.1, "no")])
def test_better_is_yes_and_worse_is_no_in_every_metric(gain: float, expected: str) -> None:
    result = claims(paired(against={"uniform": 3 * gain, "distance_vector": gain, "linear": gain}))
    assert {c.verdict for c in result} == {expected}
    assert answers(result)["digits", "clean"] == expected


def test_undecided_from_alpha_upwards() -> None:
    """Fault 12: differences read as findings without a test.

    Three metrics against two baselines are six claims, so Holm takes the smallest p six times.
    """
    assert {c.verdict for c in claims(paired(p=0.01 / 6 + 1e-9))} == {"undecided"}
    assert {c.verdict for c in claims(paired(p=0.01 / 6 - 1e-9))} == {"yes"}
    assert {c.verdict for c in claims(paired(p=0.04 / 6), alpha=0.05)} == {"yes"}


def test_more_settings_make_each_claim_of_their_family_harder() -> None:
    assert {c.verdict for c in claims(paired(p=0.0015))} == {"yes"}
    for key in ("dataset", "condition"):
        ten = pd.concat([paired(**{key: f"d{i}"}, p=0.0015) for i in range(10)])
        assert {c.verdict for c in claims(ten)} == {"undecided"}


def test_the_clean_memory_is_a_family_of_its_own() -> None:
    """However many conditions are tried beside it, and however open their claims are: six and 60 claims."""
    noisy = [paired(condition=f"noise {i}", p=0.0015) for i in range(10)]
    result = claims(pd.concat([noisy[0], paired(p=0.0015), *noisy[1:]]))
    by = {primary: [c for c in result if c.primary == primary] for primary in (True, False)}
    assert {(c.condition, c.verdict) for c in by[True]} == {("clean", "yes")}
    assert [c.p for c in by[True]] == pytest.approx([6 * 0.0015] * 6)
    assert [c.p for c in by[False]] == pytest.approx([60 * 0.0015] * 60)
    assert answers(result)["digits", "clean"] == "yes"


def test_the_best_baseline_is_chosen_on_validation_rows_whatever_the_test_rows_say() -> None:
    """On test rows uniform is by far the hardest to beat; validation rows say distance + isotonic, and that is it."""
    rows = paired(against={"uniform": -9.0, "distance_isotonic": 0.1, "distance_vector": 0.2, "linear": -5.0})
    result = [(c.metric, c.baseline, c.roles) for c in claims(rows, best="distance_isotonic")]
    assert result == [
        (metric, baseline, roles)
        for metric in ("nll", "accuracy", "ece")
        for baseline, roles in (
            ("distance_isotonic", ("best tuned",)),
            ("distance_vector", ("to beat",)),
            ("linear", ("without neighbours",)),
        )
    ]


@pytest.mark.parametrize("best", ["linear", "attention_vector", "prototypes"])
def test_only_a_voting_baseline_can_be_the_best_tuned(best: str) -> None:
    rows = paired(against={"uniform": 0.2, "distance_vector": 0.1, best: 0.1})
    names = {c.baseline for c in claims(rows, best) if "best tuned" in c.roles}
    assert names <= {"uniform", "distance_vector"}


@pytest.mark.parametrize("best", ["prototypes", "prototypes_isotonic", "linear", "linear_vector"])
def test_the_best_without_neighbours_is_chosen_on_validation_rows_and_does_not_change_the_answer(best: str) -> None:
    others = {"prototypes": 0.4, "linear_temperature": 0.5}
    rows = paired(against={"uniform": 0.2, "distance_vector": 0.1, **others, best: -0.3})
    result = claims(rows, best)
    assert [(c.baseline, c.verdict) for c in result if c.metric == "nll" and c.roles == ("without neighbours",)] == [
        (best, "no")
    ]
    assert answers(result)["digits", "clean"] == "yes"


def test_seeds_must_agree_in_sign_whatever_p() -> None:
    for key in ("seed", "repeat"):
        agree = pd.concat([paired(**{key: 0}, gain=0.1), paired(**{key: 1}, gain=0.2)])
        assert {c.verdict for c in claims(agree)} == {"yes"}
        differ = pd.concat([paired(**{key: 0}, gain=0.5), paired(**{key: 1}, gain=-0.01)])
        assert {c.verdict for c in claims(differ)} == {"undecided"}


def test_runs_are_combined_as_twice_the_mean_p() -> None:
    for key in ("seed", "repeat"):
        first, *_ = claims(pd.concat([paired(**{key: 0}, gain=0.1, p=0.001), paired(**{key: 1}, gain=0.3, p=0.003)]))
        assert first.p == pytest.approx(6 * 2 * 0.002)
        assert first.difference == pytest.approx(-0.2)
        assert first.sd == pytest.approx(0.2 / math.sqrt(2))
        assert (first.low, first.high) == (pytest.approx(-0.31), pytest.approx(-0.09))
        assert first.runs == 2


def test_no_difference_is_never_decided() -> None:
    assert {c.verdict for c in claims(paired(gain=0.0, p=0.0))} == {"undecided"}


def test_a_lower_nll_that_costs_accuracy_is_no() -> None:
    result = claims(paired().assign(difference=-0.1))
    assert {c.metric: c.verdict for c in result} == {"nll": "yes", "accuracy": "no", "ece": "yes"}
    assert answers(result)["digits", "clean"] == "no"


def test_every_condition_has_its_own_answer_and_the_worst_is_the_datasets() -> None:
    rows = pd.concat([paired(), paired(condition="noise 0.3", gain=-0.1), paired("iris")])
    result = claims(rows)
    assert answers(result) == {("digits", "clean"): "yes", ("digits", "noise 0.3"): "no", ("iris", "clean"): "yes"}
    assert [overall(v) for v in (["yes", "no"], ["yes", "undecided"], ["yes", "yes"])] == ["no", "undecided", "yes"]


@pytest.mark.parametrize(("gain", "verdict"), [(-0.1, "no"), (0.1, "yes"), (0.0, "undecided")])
def test_the_plain_network_has_a_role_of_its_own_and_does_not_change_the_answer(gain: float, verdict: str) -> None:
    """It is better than attention on the clean memory; the conditions of the memory have no row of it."""
    others = {"uniform": 0.2, "distance_vector": 0.1}
    clean = paired(against={**others, "cnn": 0.5, "cnn_vector": gain})
    noisy = paired(condition="noise 0.3", against=others)
    rows = pd.concat([clean, noisy, paired("adult")])
    val = on_val(rows)
    best = np.where(val["metric"] == "accuracy", 0.95, 0.05)
    val["value"] = val["value"].mask(val["method"] == "cnn_vector", best)
    result = claimed.claims(rows, val)
    mine = [c for c in result if "plain network" in c.roles]
    assert [(c.setting, c.baseline) for c in mine] == [(("digits", "clean"), "cnn_vector")] * 3
    assert set(answers(result).values()) == {"yes"}
    assert {c.verdict for c in mine} == {verdict}
    without = claims(pd.concat([paired(against=others), noisy, paired("adult")]))
    assert len(result) == len(without) + 3
    primary = [[c.p for c in family if c.primary] for family in (result, without)]
    assert min(primary[0]) == pytest.approx(min(primary[1]) * len(primary[0]) / len(primary[1]))
    assert [c.p for c in result if not c.primary] == [c.p for c in without if not c.primary]


def test_a_claim_of_fewer_runs_than_its_setting_says_so() -> None:
    """Heads are fitted again in every repeat, the plain network is scored once."""
    rows = pd.concat([paired(against={"uniform": 0.2, "distance_vector": 0.1, "cnn": 0.1}), paired(repeat=1)])
    group, *lines = claim_rows(claims(rows), {"digits": 3}).rows
    assert group == ["digits, clean, 2 runs"]
    around = {line[1].value: line[1].around for line in lines if isinstance(line[1], Cell)}
    assert around["Plain network"] == "plain network, 1 run"
    assert around["Distance + vector scaling"] == "best tuned, to beat"


def test_the_smallest_p_is_what_counting_leaves() -> None:
    assert smallest_p(1, 99) == pytest.approx(0.02)
    assert smallest_p(2, 99) == pytest.approx(combined_p([0.02, 0.02])) == pytest.approx(0.04)


def test_a_missing_baseline_is_told() -> None:
    rows = paired(against={"uniform": 0.1})
    with pytest.raises(InputError, match="digits, clean has no nll row against distance_vector"):
        claims(rows, "uniform")
    with pytest.raises(InputError, match="validation: digits, clean has no row"):
        claimed.claims(paired(), on_val(paired("iris")))


@pytest.mark.parametrize(
    ("value", "sign", "text"), [(-0.12345, False, "−0.123"), (0.5, True, "+0.500"), (-0.0001, True, "0.000")]
)
def test_numbers(value: float, sign: bool, text: str) -> None:
    assert fixed(value, 3, sign) == text


def test_p_values() -> None:
    assert [p_value(p) for p in (0.0001, 0.0123, 1.0)] == ["< .001", ".012", "1"]


def test_on_a_tie_the_best_tuned_is_the_baseline_to_beat() -> None:
    rows = paired(against={"uniform": 0.2, "distance_isotonic": 0.2, "distance_vector": 0.1})
    result = claimed.claims(rows, on_val(rows).assign(value=0.5))
    assert {c.roles for c in result if c.baseline == "distance_vector"} == {("best tuned", "to beat")}
